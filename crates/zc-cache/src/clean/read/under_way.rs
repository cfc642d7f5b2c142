//! Origin and device reads in progress.

use smallvec::SmallVec;
use zc_core::{BufId, BufSlice, ExtentKey, ExtentNo, VolumeId, WeuSlot};

use crate::base::tracks::Guard;
use crate::clean::read::ahead::Reason;
use crate::clean::read::portion::Waiter;
use crate::clean::streams::InStream;
use crate::index::file_index::Mapping;

/// An origin read that may fill the cache.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(super) id: u64,
    pub(super) volume: VolumeId,
    pub(super) first: ExtentNo,
    pub(super) buf: BufId,
    pub(super) start_bytes: u32,
    pub(super) guards: Vec<Option<Guard>>,
    pub(super) admitted: Vec<bool>,
    pub(super) waiters: Vec<(Waiter, bool)>,
    /// Entries of its waiting accesses in the order of the origin.
    pub(super) turns: Vec<u64>,
    /// Reason of a read that no request waits for.
    pub(super) reason: Option<Reason>,
    pub(super) stream: Option<InStream>,
}

impl Fill {
    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }
}

impl Fill {
    /// Returns `true` if it was prefetched for a stream.
    pub(super) fn is_ahead(&self) -> bool {
        self.reason == Some(Reason::Stream)
    }

    pub(super) fn slice(&self, index: usize, extent_bytes: u32) -> BufSlice {
        let skip = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(extent_bytes);
        BufSlice { buf: self.buf, start_bytes: self.start_bytes + skip, len_bytes: extent_bytes }
    }
}

/// A read of stored extents in progress, from the device or a unit in memory.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(super) slot: WeuSlot,
    pub(super) parts: SmallVec<[HitPart; 1]>,
}

#[derive(Debug)]
pub(crate) struct HitPart {
    pub(super) key: ExtentKey,
    pub(super) mapping: Mapping,
    /// The data is dirty: the origin cannot serve it instead.
    pub(super) dirty: bool,
    pub(super) waiters: SmallVec<[Waiter; 1]>,
    /// Buffer for the whole extent, which enters the read buffer if the guard still holds.
    pub(super) whole: Option<(BufId, Option<Guard>)>,
}

pub(super) fn fill_key(fill: &Fill, index: usize) -> ExtentKey {
    ExtentKey { volume: fill.volume, extent: ExtentNo(fill.first.0 + zc_core::u64_from_usize(index)) }
}
