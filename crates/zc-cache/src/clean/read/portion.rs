//! Portions of a read: a client request split at extent boundaries, and the source of each portion.

use core::ops::Range;

use smallvec::SmallVec;
use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, ExtentNo, ReqId, SECTOR_BYTES, VolumeId};

use crate::clean::streams::InStream;
use crate::index::file_index::{Mapping, Place};
use crate::seam::Request;

/// Largest single fill.
pub(super) const FILL_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct ClientRead {
    pub(super) req: ReqId,
    pub(super) buf: BufId,
    pub(super) volume: VolumeId,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u32,
    pub(crate) pending: u32,
    pub(super) error: Option<ErrorKind>,
    pub(super) from_cache: bool,
    pub(crate) from_origin: bool,
    pub(super) stream: Option<InStream>,
}

impl ClientRead {
    /// Creates a read that its lookup keeps pending until that has completed.
    pub(crate) const fn new(request: &Request, buf: BufId, len_bytes: u32, stream: Option<InStream>) -> Self {
        Self {
            req: request.req,
            buf,
            volume: request.volume,
            offset_bytes: request.offset_bytes,
            len_bytes,
            pending: 1,
            error: None,
            from_cache: false,
            from_origin: false,
            stream,
        }
    }

    pub(crate) const fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    pub(crate) const fn stream(&self) -> Option<InStream> {
        self.stream
    }

    pub(crate) const fn dest(&self) -> BufSlice {
        BufSlice { buf: self.buf, start_bytes: 0, len_bytes: self.len_bytes }
    }

    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }
}

/// The part of a request that lies in one extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portion {
    pub(crate) key: ExtentKey,
    pub(crate) skip_bytes: u32,
    pub(crate) len_bytes: u32,
    pub(crate) dest: BufSlice,
}

impl Portion {
    pub(crate) fn bytes(&self, extent_bytes: u32) -> Range<u64> {
        let start = self.key.extent.0 * u64::from(extent_bytes) + u64::from(self.skip_bytes);
        start..start + u64::from(self.len_bytes)
    }
}

/// A read that waits for bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) read: u64,
    pub(crate) portion: Portion,
}

/// A stored extent of which a read needs a part.
#[derive(Debug, Clone)]
pub(crate) struct StoredPart {
    pub(crate) place: Place,
    pub(crate) mapping: Mapping,
    pub(crate) portion: Portion,
    /// Stored sectors, for dirty data.
    pub(crate) dirty: Option<Range<u32>>,
}

/// Stored extents of a read; a single one needs no allocation.
pub(crate) type StoredParts = SmallVec<[StoredPart; 1]>;

/// Portions of a read by source, other than memory.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub(super) stored: StoredParts,
    pub(super) missing: Vec<Portion>,
    pub(super) cache: bool,
    pub(super) origin: bool,
}

impl Sorted {
    pub(crate) fn hit(&mut self, wanted: StoredPart) {
        self.stored.push(wanted);
        self.cache = true;
    }

    /// Stored extents, to be appended to.
    pub(crate) const fn stored(&mut self) -> &mut StoredParts {
        self.cache = true;
        &mut self.stored
    }

    pub(crate) fn miss(&mut self, portion: Portion) {
        self.missing.push(portion);
        self.origin = true;
    }
}

pub(crate) enum SectorSource {
    Copy(BufSlice),
    Zero,
    Stored(Mapping, Place),
    Filling(u64),
    Nothing,
}

/// Sectors that contain these bytes of an extent.
pub(crate) fn sector_range(skip_bytes: u32, len_bytes: u32) -> Range<u32> {
    skip_bytes / SECTOR_BYTES..(skip_bytes + len_bytes) / SECTOR_BYTES
}

/// Splits a request at extent boundaries.
pub(crate) fn portions(
    volume: VolumeId,
    offset_bytes: u64,
    dest: BufSlice,
    extent_bytes: u32,
) -> impl Iterator<Item = Portion> {
    let extent = u64::from(extent_bytes);
    let mut done = 0;
    core::iter::from_fn(move || {
        if done >= dest.len_bytes {
            return None;
        }
        let at = offset_bytes + u64::from(done);
        let skip_bytes = u32::try_from(at % extent).unwrap_or(0);
        let len_bytes = (extent_bytes - skip_bytes).min(dest.len_bytes - done);
        let portion = Portion {
            key: ExtentKey { volume, extent: ExtentNo(at / extent) },
            skip_bytes,
            len_bytes,
            dest: dest.part(done, len_bytes),
        };
        done += len_bytes;
        Some(portion)
    })
}
