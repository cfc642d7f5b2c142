//! Reads of origins and of the device that are in progress.

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
    /// Turns of its waiting accesses in the order of the origin.
    pub(super) turns: Vec<u64>,
    /// Reason of its start, unless a request waits for it.
    pub(super) reason: Option<Reason>,
    pub(super) stream: Option<InStream>,
}

impl Fill {
    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }
}

impl Fill {
    /// Returns `true` if it reads ahead of a stream.
    pub(super) fn is_ahead(&self) -> bool {
        self.reason == Some(Reason::Stream)
    }

    pub(super) fn slice(&self, index: usize, extent_bytes: u32) -> BufSlice {
        let skip = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(extent_bytes);
        BufSlice { buf: self.buf, start_bytes: self.start_bytes + skip, len_bytes: extent_bytes }
    }
}

/// A device (or WEU memory) read in progress.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(super) slot: WeuSlot,
    pub(super) parts: SmallVec<[HitPart; 1]>,
}

#[derive(Debug)]
pub(crate) struct HitPart {
    pub(super) key: ExtentKey,
    pub(super) mapping: Mapping,
    /// Data that only the cache has: nothing else can be read instead.
    pub(super) dirty: bool,
    pub(super) waiters: SmallVec<[Waiter; 1]>,
    /// The whole extent is read into this buffer, for the read buffer; the guard determines if it may stay.
    pub(super) whole: Option<(BufId, Option<Guard>)>,
}

pub(super) fn fill_key(fill: &Fill, index: usize) -> ExtentKey {
    ExtentKey { volume: fill.volume, extent: ExtentNo(fill.first.0 + zc_core::u64_from_usize(index)) }
}
