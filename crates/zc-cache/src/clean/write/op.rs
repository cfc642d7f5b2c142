//! A write, trim or zeroing in progress.

use core::ops::RangeInclusive;

use zc_core::{BufId, ReqId, VolumeId};

use crate::clean::streams::InStream;
use crate::seam::RequestKind;

/// Maximum extents of one piece, which bounds the work of one event for huge trims.
pub(super) const PIECE_EXTENTS_MAX: u64 = 4096;

#[derive(Debug)]
pub(crate) struct WriteOp {
    /// The request; `None` for destaged data.
    pub(super) req: Option<ReqId>,
    pub(super) kind: RequestKind,
    pub(crate) volume: VolumeId,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) piece_bytes: u64,
    /// Regions marked for the piece; `None` while the cache is offline.
    pub(super) regions: Option<RangeInclusive<u64>>,
    pub(super) stream: Option<InStream>,
    /// Entry of the piece in the order of origin accesses.
    pub(super) turn: u64,
    /// The whole extents of the piece are cleared as a range.
    pub(super) in_range: bool,
}

impl WriteOp {
    pub(super) fn piece_start(&self) -> u64 {
        self.offset_bytes + self.done_bytes
    }

    pub(super) fn buf(&self) -> Option<BufId> {
        match self.kind {
            RequestKind::Write { buf, .. } => Some(buf),
            _ => None,
        }
    }
}
