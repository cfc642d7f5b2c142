//! The SSD below the cache: each operation of the cache manager on its device, as page operations of a flash model.
//!
//! Blocks of 512 KiB on four planes by default, so that 2 MiB written consecutively are contiguous; page latencies of
//! MLC flash.
//!
//! Over-provisioning is in thousandths of the exposed capacity; the translation layer needs a few blocks at least.
//!
//! Invariants: a page has the offset of the daemon's write. Memory is some twenty bytes for each 4 KiB of the device.
//!
//! Out of scope: a journal on a device of its own is not counted.

use zc_cache::seam::{Action, Source};
use zc_core::u64_from_usize;
use zc_flash::{Ftl, GeometryError, Hybrid, Latencies, Logs, PageMapped, Stats};
use zc_format::{Geometry, RECORDS_PER_BLOCK, REGION_MAP_BYTES, WeuHeader};

/// Bytes of a flash page.
const PAGE_BYTES: u32 = 4096;
/// Fewest spare blocks of a translation layer.
const SPARE_BLOCKS_MIN: u64 = 8;
/// Blocks of a device with log blocks at least, so that there is one of each kind.
const HYBRID_BLOCKS_MIN: u64 = 48;

/// Page mapping of the SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ssd {
    /// Per page, with over-provisioning.
    PageMapped {
        /// Share of the exposed capacity.
        over_provisioning_permille: u32,
    },
    /// With log blocks, as in Nitro (section 5.4).
    LogBlocks(Blocks),
}

/// Erase blocks of an SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Pages of 4 KiB of an erase block.
    pub pages: u32,
    /// Planes that work side by side.
    pub planes: u32,
}

impl Default for Blocks {
    /// 512 KiB on four planes.
    fn default() -> Self {
        Self { pages: 128, planes: 4 }
    }
}

impl Default for Ssd {
    /// By page, 7 % kept back.
    fn default() -> Self {
        Self::PageMapped { over_provisioning_permille: 70 }
    }
}

/// SSD model, fed with the manager's actions.
#[derive(Debug)]
pub(crate) struct Watcher {
    ftl: Box<dyn Ftl>,
    cache: Geometry,
    pages: u64,
}

impl Watcher {
    /// A new SSD for a cache of this layout.
    pub(crate) fn new(ssd: Ssd, cache: &Geometry) -> Result<Self, GeometryError> {
        let pages = cache.device_bytes.div_ceil(u64::from(PAGE_BYTES));
        let blocks = match ssd {
            Ssd::PageMapped { .. } => Blocks::default(),
            Ssd::LogBlocks(blocks) => blocks,
        };
        let exposed = pages.div_ceil(u64::from(blocks.pages));
        let all = match ssd {
            Ssd::PageMapped { over_provisioning_permille } => {
                let kept = exposed * u64::from(over_provisioning_permille) / 1000;
                exposed + kept.max(SPARE_BLOCKS_MIN)
            }
            // 17 % of all; the rounding loss is added.
            Ssd::LogBlocks(_) => (exposed * 1000).div_ceil(830).max(HYBRID_BLOCKS_MIN) + 2,
        };
        let narrow = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX);
        let per_plane = narrow(all.div_ceil(u64::from(blocks.planes)));
        let flash = zc_flash::Geometry::new(PAGE_BYTES, blocks.pages, per_plane, blocks.planes, 1)?;
        let latencies = Latencies::nitro(flash.block_bytes());
        let ftl: Box<dyn Ftl> = match ssd {
            Ssd::PageMapped { .. } => Box::new(PageMapped::exposing(flash, latencies, narrow(exposed))?),
            Ssd::LogBlocks(_) => Box::new(Hybrid::new(flash, latencies, Logs::NITRO)?),
        };
        Ok(Self { ftl, cache: cache.clone(), pages })
    }

    /// Returns the counters of the SSD.
    pub(crate) fn stats(&self) -> Stats {
        self.ftl.stats()
    }

    /// Pages that a range touches, on this device.
    fn touched(&self, offset: u64, len: u64) -> std::ops::Range<u32> {
        let page = u64::from(PAGE_BYTES);
        let end = (offset + len).div_ceil(page).min(self.pages);
        let narrow = |page: u64| u32::try_from(page).unwrap_or(u32::MAX);
        narrow((offset / page).min(end))..narrow(end)
    }

    fn write(&mut self, offset: u64, len: u64) {
        self.touched(offset, len).for_each(|page| self.ftl.write(page, 0));
    }

    fn read(&mut self, offset: u64, len: u64) {
        for page in self.touched(offset, len) {
            self.ftl.read(page);
        }
    }

    /// Applies an action of the manager to the device.
    pub(crate) fn see(&mut self, action: &Action) {
        let page = u64::from(PAGE_BYTES);
        match action {
            Action::WriteWeu { slot, start_bytes, data_bytes, header, .. } => {
                let slot = self.cache.slot_offset(*slot);
                let count = u32::try_from(header.entries.len()).unwrap_or(u32::MAX);
                let header_bytes = u64::from(WeuHeader::encoded_bytes(count));
                self.write(
                    slot + u64::from(*start_bytes),
                    u64::from(data_bytes.saturating_sub(*start_bytes)),
                );
                self.write(slot + u64::from(self.cache.weu_bytes) - header_bytes, header_bytes);
            }
            Action::WritePart { slot, start_bytes, len_bytes, .. } => {
                let slot = self.cache.slot_offset(*slot);
                self.write(slot + u64::from(*start_bytes), u64::from(*len_bytes));
            }
            Action::ReadExtents { slot, start_bytes, len_bytes, source: Source::Device, .. } => {
                let slot = self.cache.slot_offset(*slot);
                self.read(slot + u64::from(*start_bytes), u64::from(*len_bytes));
            }
            Action::DiscardSlot { slot, .. } => {
                let pages = self.touched(self.cache.slot_offset(*slot), u64::from(self.cache.weu_bytes));
                pages.for_each(|page| self.ftl.trim(page));
            }
            Action::WriteJournal { block, .. } => {
                self.write(self.cache.journal_block_offset(block.sequence), page);
            }
            Action::WriteRegionMap { copy, .. } => {
                self.write(self.cache.region_map[copy & 1], REGION_MAP_BYTES);
            }
            Action::WriteCheckpoint { area, first_block, records, .. } => {
                let blocks = u64_from_usize(records.len().div_ceil(RECORDS_PER_BLOCK));
                self.write(self.cache.checkpoint_block_offset(*area, *first_block), blocks * page);
            }
            Action::WriteImage { area, first_block, bytes, .. } => {
                let place = self.cache.image_block_offset(*area, *first_block);
                self.write(place, u64_from_usize(bytes.0.len()));
            }
            Action::CommitCheckpoint { area, .. } => self.write(self.cache.checkpoint[area & 1], page),
            _ => {}
        }
    }
}
