//! One origin write of destaging: neighbouring sectors of a run.

use core::ops::RangeInclusive;

use smallvec::SmallVec;
use zc_core::{ExtentNo, SECTOR_BYTES};

use crate::device::Core;
use crate::dirty::destaging::Cursor;
use crate::dirty::versions::{DirtyVolume, Version};

/// Largest origin write of destaging.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Largest origin write of zeros, which take no memory.
const ZERO_BYTES_MAX: u32 = 1 << 30;

/// A run of sectors for one origin write.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u32,
    /// For zeros: `Some(true)` if the origin must keep space allocated for them.
    pub(super) zero: Option<bool>,
    pub(super) parts: SmallVec<[(ExtentNo, Version); 4]>,
}

/// Returns the next run of adjacent sectors that `left` selects from the extents with versions of these epochs, and
/// the cursor after it.
pub(super) fn joined(
    data: &DirtyVolume,
    epochs: &RangeInclusive<u64>,
    from: Cursor,
    core: &Core,
    left: impl Fn(ExtentNo) -> SmallVec<[Version; 2]>,
) -> (Option<Batch>, Option<Cursor>) {
    let mut batch: Option<Batch> = None;
    let mut next = from.0;
    while let Some(extent) = data.next_extent(epochs, next) {
        for version in left(extent) {
            let at = (extent, version.span.start);
            if at < from {
                continue;
            }
            let start = extent.0 * u64::from(core.base.extent_bytes())
                + u64::from(version.span.start) * u64::from(SECTOR_BYTES);
            match &mut batch {
                Some(batch) if !batch.joins(start, &version) => return (Some(batch.take()), Some(at)),
                Some(batch) => batch.join(extent, version),
                None => batch = Some(Batch::of(start, extent, version)),
            }
        }
        next = ExtentNo(extent.0 + 1);
    }
    (batch, None)
}

impl Batch {
    /// Returns the remaining runs of a data write without some of its parts.
    pub(crate) fn without(&self, parts: &[usize]) -> Vec<Self> {
        let mut left: Vec<Self> = Vec::new();
        let (mut start, mut joins) = (self.offset_bytes, false);
        for (index, (extent, version)) in self.parts.iter().enumerate() {
            let len_bytes = (version.span.end - version.span.start) * SECTOR_BYTES;
            let is_left = !parts.contains(&index);
            match left.last_mut() {
                Some(last) if is_left && joins => last.join(*extent, version.clone()),
                _ if is_left => left.push(Self::of(start, *extent, version.clone())),
                _ => {}
            }
            joins = is_left;
            start += u64::from(len_bytes);
        }
        left
    }

    fn of(offset_bytes: u64, extent: ExtentNo, version: Version) -> Self {
        let len_bytes = (version.span.end - version.span.start) * SECTOR_BYTES;
        let zero = version.body.zeros();
        Self { offset_bytes, len_bytes, zero, parts: SmallVec::from_iter([(extent, version)]) }
    }

    /// Returns `true` if a version is adjacent to this batch and of the same kind.
    fn joins(&self, start: u64, version: &Version) -> bool {
        let len_bytes = (version.span.end - version.span.start) * SECTOR_BYTES;
        self.offset_bytes + u64::from(self.len_bytes) == start
            && self.zero == version.body.zeros()
            && self.len_bytes + len_bytes
                <= if self.zero.is_some() { ZERO_BYTES_MAX } else { WRITE_BYTES_MAX }
    }

    fn join(&mut self, extent: ExtentNo, version: Version) {
        self.len_bytes += (version.span.end - version.span.start) * SECTOR_BYTES;
        if self.zero.is_none() {
            self.parts.push((extent, version));
        }
    }

    fn take(&mut self) -> Self {
        let parts = core::mem::take(&mut self.parts);
        Self { offset_bytes: self.offset_bytes, len_bytes: self.len_bytes, zero: self.zero, parts }
    }
}
