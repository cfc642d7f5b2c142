//! Checks refusals for lack of space: the usage required before a change may be refused.

use std::collections::BTreeSet;

use rand::RngExt as _;
use zc_store::{CatalogOp, Event, RootId};

use super::model::ModelChange;
use super::perform::step;
use super::world::{ADDRESSES, RUN, SEGMENT, STEPS_MAX, Waits, World, shape, stored_len};

/// Times that everything is overwritten beside damage.
const DAMAGE_ROUNDS: usize = 12;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Maximum number of table pages left after everything is deleted.
pub(crate) const TABLE_PAGES: u64 = 40;
/// Segments that are never victims though little of them is used: the log's two, and those emptied before a
/// checkpoint.
const EXCUSED_SEGMENTS: u64 = 2 + zc_store::limits::EMPTIED_SHORT as u64;
/// Number of changed pages from which a checkpoint is cheap compared with the moves that it makes durable.
const DIRTY_PAGES_ENOUGH: usize = 12;
/// Entries of a map page.
const FANOUT: u64 = 504;

impl World {
    /// Checks a refusal for lack of space. The contents of volumes and snapshots, each counted separately, must fill
    /// all segments that the change may use, up to the level that the cleaner must reach.
    pub(crate) fn judge_no_space(&mut self, change: &ModelChange) {
        self.note("no space");
        // A survey keeps overwritten data, and damaged segments are not cleaned.
        let is_surveyed = self.waiting.values().any(|waits| matches!(waits, Waits::Survey));
        if is_surveyed || self.faults.lies() || self.fenced {
            return;
        }
        let kept = match change {
            ModelChange::Write(..) => {
                let shape = shape(self.segments);
                self.config.reserve_segments(shape) + self.config.overwrite_segments(shape)
            }
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

    /// Checks that overwritten data is freed beside damage. An unreadable map page keeps everything that it may refer
    /// to.
    pub(crate) fn judge_freed_beside_damage(&mut self) {
        if self.faults.rot == 0.0 || !self.serves() || self.violation.is_some() || self.fenced {
            return;
        }
        let volumes: Vec<RootId> =
            self.history.now().roots.iter().filter(|(_, held)| !held.snapshot).map(|(id, _)| *id).collect();
        let mut rounds = Vec::new();
        for _ in 0..DAMAGE_ROUNDS {
            for volume in &volumes {
                for first in ADDRESSES {
                    let values = (0..RUN).map(|_| self.rng.random_range(1 << 41..1 << 60)).collect();
                    self.write(*volume, first, values);
                }
            }
            self.drain();
            self.clean();
            rounds.push((self.store.stats().pages_lost, self.store.space().referred_bytes));
        }
        let round_bytes = volumes.len() as u64 * ADDRESSES.len() as u64 * RUN * BLOCK + TABLE_PAGES * BLOCK;
        // A page still in memory may be found lost later; then the last overwritten data is kept too.
        let found = rounds.windows(2).filter(|pair| pair[0].0 != pair[1].0).count() as u64;
        let (Some((lost, begin)), Some((_, end))) = (rounds.first(), rounds.last()) else { return };
        if *end > begin + (found + 1) * round_bytes {
            self.violate(format!("what was written over beside a lost page is not freed: {rounds:?}"));
        }
        if *lost > 0 {
            self.note("freed beside a lost page");
        }
    }

    /// Cleans until no work is left.
    pub(crate) fn clean(&mut self) {
        self.give(Event::Clean);
        for _ in 0..STEPS_MAX {
            if self.pending.is_empty() && !self.store.is_busy() {
                break;
            }
            if self.pending.is_empty() {
                self.tick();
            }
            step(self);
        }
    }

    /// Returns the least fill of a segment that is not worth cleaning. A full batch has a header, and less than a
    /// chunk of unused space before the chunk that did not fit.
    fn filled_bytes_min(&self) -> u64 {
        let batch = u64::from(self.config.batch_bytes_max);
        let payload = (batch - BLOCK).saturating_sub(BLOCK / 2).max(BLOCK / 4);
        let packed = u64::from(SEGMENT) / batch * payload;
        let gain = u64::from(zc_store::limits::victim_gain_bytes_min(SEGMENT));
        let filled = packed.saturating_sub(gain).max(u64::from(SEGMENT) / 16);
        // Few dirty pages force a checkpoint after every few moves.
        if self.config.dirty_pages_max < DIRTY_PAGES_ENOUGH { filled / 4 } else { filled }
    }

    /// Returns the size of contents, map pages and tables without any sharing.
    fn held_bytes_max(&self) -> u64 {
        let mut bytes = TABLE_PAGES * BLOCK;
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
