//! Work that takes time: recorded from the actions of the cache manager until the queues take it.

use zc_cache::seam::{Action, ExtentRead};
use zc_core::WeuSlot;
use zc_format::EXTENT_HEADER_BYTES;

use crate::content::BLOCK_BYTES;

/// Manner of reading cached extents from the cache device: the engine's, or alternatives for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitReads {
    /// Neighbours of a unit in one read, with the headers between them.
    Pieces,
    /// Every extent on its own, with its header.
    Extents,
    /// Every extent on its own, from the start of a flash page, its header elsewhere (in memory).
    Aligned,
}

/// Bytes between the volumes of a trace.
pub(crate) const VOLUME_GAP: u64 = 1 << 40;

/// Returns the place of a volume's byte on the disk.
pub(crate) const fn place(volume: u16, offset_bytes: u64) -> u64 {
    volume as u64 * VOLUME_GAP + offset_bytes
}

/// Something that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    OriginRead {
        place: u64,
        bytes: u64,
    },
    OriginWrite {
        place: u64,
        bytes: u64,
    },
    CacheRead {
        place: u64,
        bytes: u64,
        decoded: u64,
    },
    /// Transfer of bytes read on the cache device to the host.
    Transfer {
        bytes: u64,
    },
    CacheWrite {
        place: u64,
        bytes: u64,
    },
    Hash {
        bytes: u64,
    },
    Compress {
        bytes: u64,
    },
    Decompress {
        bytes: u64,
    },
    Request,
}

impl Work {
    /// Insertion is never waited for; all else may be.
    pub(crate) const fn may_be_waited_for(self) -> bool {
        matches!(
            self,
            Self::OriginRead { .. }
                | Self::OriginWrite { .. }
                | Self::CacheRead { .. }
                | Self::Decompress { .. }
        )
    }
}

/// Work, with the request that waits for it, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) work: Work,
    pub(crate) foreground: bool,
}

/// Log of submitted work.
#[derive(Debug)]
pub(crate) struct WorkLog {
    all: Vec<Asked>,
    weu_bytes: u64,
    hits: HitReads,
    page_bytes: u64,
}

impl WorkLog {
    /// A log for units of `weu_bytes`; a die of the device reads `page_bytes` at once.
    pub(crate) const fn new(weu_bytes: u64, hits: HitReads, page_bytes: u64) -> Self {
        Self { all: Vec::new(), weu_bytes, hits, page_bytes }
    }

    /// Returns the work submitted since the last call.
    pub(crate) fn take(&mut self) -> Vec<Asked> {
        core::mem::take(&mut self.all)
    }

    fn push(&mut self, work: Work, waited_for: bool) {
        self.all.push(Asked { work, foreground: waited_for && work.may_be_waited_for() });
    }

    fn in_slot(&self, slot: WeuSlot, start_bytes: u32) -> u64 {
        u64::from(slot.0) * self.weu_bytes + u64::from(start_bytes)
    }

    /// Extents that are read from the device, each of which ends where `end_of` has it.
    pub(crate) fn hit(
        &mut self,
        slot: WeuSlot,
        start_bytes: u32,
        len_bytes: u32,
        parts: &[ExtentRead],
        end_of: impl Fn(u32) -> u32,
        waited_for: bool,
    ) {
        let decoded = |part: &ExtentRead| u64::from(part.expected.raw_bytes);
        if self.hits == HitReads::Pieces {
            let place = self.in_slot(slot, start_bytes);
            let decoded = parts.iter().map(decoded).sum();
            return self.push(Work::CacheRead { place, bytes: u64::from(len_bytes), decoded }, waited_for);
        }
        for part in parts {
            let start_bytes = part.expected.offset_bytes;
            let bytes = u64::from(end_of(start_bytes).saturating_sub(start_bytes));
            let place = self.in_slot(slot, start_bytes);
            let (place, bytes) = match self.hits {
                HitReads::Aligned => {
                    (place - place % self.page_bytes, bytes.saturating_sub(u64::from(EXTENT_HEADER_BYTES)))
                }
                _ => (place, bytes),
            };
            self.push(Work::CacheRead { place, bytes, decoded: decoded(part) }, waited_for);
        }
    }

    /// Any other action.
    pub(crate) fn action(&mut self, action: &Action, waited_for: bool) {
        let block = u64::from(BLOCK_BYTES);
        let work = match action {
            Action::OriginRead { volume, offset_bytes, dest, .. } => {
                Work::OriginRead { place: place(volume.0, *offset_bytes), bytes: u64::from(dest.len_bytes) }
            }
            Action::OriginWrite { volume, offset_bytes, src, .. } => {
                Work::OriginWrite { place: place(volume.0, *offset_bytes), bytes: u64::from(src.len_bytes) }
            }
            Action::ReadExtents { parts, .. } => {
                Work::Decompress { bytes: parts.iter().map(|part| u64::from(part.expected.raw_bytes)).sum() }
            }
            Action::Hash { src, .. } => Work::Hash { bytes: u64::from(src.len_bytes) },
            Action::Compress { src, .. } => Work::Compress { bytes: u64::from(src.len_bytes) },
            Action::WriteWeu { slot, start_bytes, data_bytes, .. } => {
                let bytes = u64::from(data_bytes.saturating_sub(*start_bytes)) + 4 * block;
                Work::CacheWrite { place: self.in_slot(*slot, *start_bytes), bytes }
            }
            Action::WritePart { slot, start_bytes, len_bytes, .. } => {
                Work::CacheWrite { place: self.in_slot(*slot, *start_bytes), bytes: u64::from(*len_bytes) }
            }
            Action::WriteJournal { .. } | Action::WriteRegionMap { .. } | Action::WriteCheckpoint { .. } => {
                Work::CacheWrite { place: 0, bytes: block }
            }
            _ => return,
        };
        self.push(work, waited_for);
    }
}
