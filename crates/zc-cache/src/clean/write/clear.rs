//! Trims and zeroings of long ranges, whose cost depends on the cached contents, not on the addresses.
//!
//! Determines the size of one piece of a clearing, invalidates the cached contents of the whole extents of a long
//! piece, and completes it. Partial extents at both ends, and short pieces, are handled extent by extent, as writes
//! are.
//!
//! Invariants: a piece looks up a bounded number of extents. While a range is in flight no guard of its extents is
//! issued, and earlier ones are invalid, as with any write.
//!
//! Out of scope: mapping cleared extents as zeros. Their number would depend on the addresses; reads of them go to the
//! origin.

use core::ops::Range;

use smallvec::SmallVec;
use zc_core::VolumeId;

use crate::clean::write::op::{PIECE_EXTENTS_MAX, WriteOp};
use crate::device::Core;
use crate::seam::RequestKind;

/// Maximum bytes of a piece that is cleared as a range, which bounds the wait of an overlapping access.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// Part of a clearing that is executed as one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearPiece {
    /// Bytes from the start of the range.
    pub len_bytes: u64,
    /// Extents to look up.
    pub lookups: u64,
}

fn touched(offset_bytes: u64, len_bytes: u64, extent_bytes: u64) -> Range<u64> {
    offset_bytes / extent_bytes..(offset_bytes + len_bytes).div_ceil(extent_bytes)
}

/// Returns the first piece of a clearing within the bound on lookups.
pub(crate) fn piece(
    volume: VolumeId,
    offset_bytes: u64,
    len_bytes: u64,
    lookups_max: u64,
    core: &Core,
) -> ClearPiece {
    let extent = u64::from(core.base.extent_bytes());
    let extents = touched(offset_bytes, len_bytes, extent);
    let by_lookups = (extents.start + lookups_max) * extent - offset_bytes;
    let by_extents = ClearPiece {
        len_bytes: len_bytes.min(by_lookups),
        lookups: lookups_max.min(extents.end - extents.start),
    };
    if !core.base.is_loaded() || extents.end - extents.start <= lookups_max {
        return by_extents;
    }
    let (reach, lookups) = core.device.catalog.forget_reach(volume, extents.clone(), lookups_max);
    let end_bytes = (extents.start + reach) * extent;
    let len_bytes = len_bytes.min(RANGE_BYTES_MAX).min(end_bytes.saturating_sub(offset_bytes));
    if len_bytes <= by_extents.len_bytes { by_extents } else { ClearPiece { len_bytes, lookups } }
}

/// A piece of a clearing: whole extents that are cleared as a range, and the remainders at both ends, as offsets and
/// lengths.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) range: Option<Range<u64>>,
    pub(super) rest: SmallVec<[(u64, u64); 2]>,
}

impl Parts {
    pub(super) fn of(op: &WriteOp, extent_bytes: u32) -> Self {
        let (offset, len, extent) = (op.piece_start(), op.piece_bytes, u64::from(extent_bytes));
        let whole = offset.div_ceil(extent)..(offset + len) / extent;
        let clears = !matches!(op.kind, RequestKind::Write { .. });
        if !op.in_range || !clears || whole.is_empty() {
            return Self { range: None, rest: SmallVec::from_iter([(offset, len)]) };
        }
        let ends = [
            (offset, whole.start * extent - offset),
            (whole.end * extent, offset + len - whole.end * extent),
        ];
        let rest = ends.into_iter().filter(|(_, len)| *len > 0).collect();
        Self { range: Some(whole), rest }
    }
}

/// Returns `true` if a piece of `len_bytes` bytes is cleared as a range.
pub(super) fn is_range(kind: RequestKind, len_bytes: u64, core: &Core) -> bool {
    let clears = matches!(kind, RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. });
    clears
        && core.base.is_loaded()
        && len_bytes >= core.base.cfg().range_extents_min * u64::from(core.base.extent_bytes())
}

pub(super) fn piece_bytes(op: &WriteOp, core: &Core) -> u64 {
    piece(op.volume, op.piece_start(), op.len_bytes - op.done_bytes, PIECE_EXTENTS_MAX, core).len_bytes
}
