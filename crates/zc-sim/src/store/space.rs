//! The judgement of a full store: how much must be used before a change may be refused.

use std::collections::BTreeSet;

use zc_store::{CatalogOp, Superblock, limits};

use super::model::ModelChange;
use super::world::{SEGMENT, Waits, World, shape, stored_len};
use crate::disk::PAGE;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Segments that are no victims though little of them is used: the log's two, and those emptied before a checkpoint.
const EXCUSED_SEGMENTS: u64 = (limits::LOG_SEGMENTS + limits::EMPTIED_MAX) as u64;
/// Pages of the catalog of these few roots.
const CATALOG_PAGES: usize = 1;
/// Numbers of a map page.
const FANOUT: u64 = 504;

impl World {
    /// A store may be full only when what its volumes and snapshots hold, each for itself, fills all segments that the
    /// change may use as far as the cleaner must fill them.
    pub(crate) fn judge_no_space(&mut self, change: &ModelChange) {
        self.note("no space");
        // A survey keeps what was overwritten, and damaged segments are not cleaned.
        let is_surveyed = self.waiting.values().any(|waits| matches!(waits, Waits::Survey));
        if is_surveyed || self.faults.lies() || self.fenced || !self.empties_victims_at_once() {
            return;
        }
        let kept = match change {
            ModelChange::Write(..) => self.config.reserve_segments(shape(self.segments)),
            ModelChange::Catalog(change) if change.op == CatalogOp::Delete => {
                self.config.floor_segments(shape(self.segments))
            }
            ModelChange::Clear(..) | ModelChange::Catalog(_) => {
                self.config.cleaning_segments(shape(self.segments))
            }
        };
        let segments = u64::from(self.segments).saturating_sub(kept as u64 + EXCUSED_SEGMENTS);
        let (held, needed) = (self.held_bytes_max(), segments * self.filled_bytes_min());
        if held < needed {
            self.violate(format!(
                "no space for {change:?}: at most {held} bytes are held, and {needed} must be; {:?}",
                self.store.space()
            ));
        }
        self.note("no space judged");
    }

    /// Whether all pages that moving a victim changes may be changed before a checkpoint: a leaf of the chunk table for
    /// each chunk, or all leaves there are, and a page above. Where more checkpoints than victims are needed, each
    /// fills segments with pages that the next one lets die, and no share of live bytes can be promised.
    fn empties_victims_at_once(&self) -> bool {
        let chunks = u64::from(SEGMENT / stored_len(1));
        let leaves = self.superblock().chunks_end.div_ceil(72).min(chunks);
        self.config.dirty_pages_max as u64 > leaves
    }

    /// What a segment that is not worth cleaning holds at least. In a full batch there is a header and, in front of the
    /// chunk that did not fit, less than a chunk of nothing.
    fn filled_bytes_min(&self) -> u64 {
        let batch = u64::from(self.config.batch_bytes_max);
        let payload = (batch - BLOCK).saturating_sub(BLOCK / 2).max(BLOCK / 4);
        let packed = u64::from(SEGMENT) / batch * payload;
        let gain = u64::from(limits::victim_gain_bytes_min(SEGMENT));
        packed.saturating_sub(gain).max(u64::from(SEGMENT) / 16)
    }

    /// The newest superblock on the device.
    fn superblock(&self) -> Superblock {
        let copies = (0..2).filter_map(|copy| {
            let at = Superblock::offset_bytes(copy) as usize;
            Superblock::decode(&self.disk.seen[at..at + PAGE], copy).ok()
        });
        copies.max_by_key(|copy| copy.sequence).expect("the device is honest")
    }

    /// Pages of all tables when nothing is stored any more: tables keep pages without records, one for each range of
    /// numbers that was ever given.
    pub(crate) fn table_pages_max(&self) -> u64 {
        let superblock = self.superblock();
        let pages = limits::table_pages(superblock.chunks_end, 72)
            + limits::table_pages(superblock.pages_end, 252)
            + limits::segment_table_pages(self.segments)
            + CATALOG_PAGES;
        pages as u64
    }

    /// Contents, map pages and tables, if nothing at all were shared.
    fn held_bytes_max(&self) -> u64 {
        let mut bytes = self.table_pages_max() * BLOCK;
        for held in self.history.now().roots.values() {
            bytes += held.chunks.values().map(|value| u64::from(stored_len(*value))).sum::<u64>();
            for level in 1..=4 {
                let pages: BTreeSet<u64> =
                    held.chunks.keys().map(|address| address / FANOUT.pow(level)).collect();
                bytes += pages.len() as u64 * BLOCK;
            }
        }
        bytes
    }
}
