//! Releases: segments that become free between two checkpoints.
//!
//! Job: find segments that no record points to and that the state the superblocks name can do without; make durable the
//! log that says so; then let them become free. Invariants: a recovery that follows the log to where it was durable then
//! finds no record that points into them either; no page of the checkpoint lies in them, and no batch that recovery
//! follows. What it does not do: free anything while a checkpoint is in progress (the checkpoint does).

use std::collections::BTreeSet;

use crate::ids::{BatchSeq, Place, SegmentNo};
use crate::limits;
use crate::store::Open;

/// Segments on their way to being free.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// The state that the superblocks name points into them, and no record of the log takes that back.
    held: BTreeSet<SegmentNo>,
    /// Free when all batches up to this one are durable.
    waiting: Option<(BatchSeq, Vec<SegmentNo>)>,
}

impl Releases {
    /// A record that pointed there was taken out of the tables, and the log does not say so.
    pub(crate) fn hold(&mut self, place: Place) {
        self.held.insert(place.segment);
    }

    /// Its state has nothing of what was held. It frees what waits.
    pub(crate) fn checkpoint_began(&mut self) {
        *self = Self::default();
    }
}

impl Open {
    /// Segments that the log alone frees.
    pub(crate) fn releasable(&self) -> impl Iterator<Item = SegmentNo> {
        let log = self.superblock.log;
        let is_free = move |number: &SegmentNo| {
            *number != log.place.segment
                && self.checkpoint.is_none()
                && !self.releases.held.contains(number)
                && self.trees.segments.get(*number).first_seq < log.seq
        };
        self.trees.segments.unreferred_numbers().filter(is_free)
    }

    /// Emptied segments that only a checkpoint frees.
    pub(crate) fn waiting_for_checkpoint(&self) -> usize {
        self.would_free().saturating_sub(self.releasable().count()) + self.emptied_with_pages()
    }

    /// Frees what is durable, and begins when that is due.
    pub(crate) fn pump_releases(&mut self) {
        let durable = self.flushes.durable();
        if let Some((_, mut segments)) = self.releases.waiting.take_if(|(batch, _)| *batch <= durable) {
            segments.retain(|number| self.trees.segments.is_unreferred(*number));
            self.trees.segments.release(&segments);
            self.cleaner.freed(&segments);
            self.stats.segments_freed += zc_core::u64_from_usize(segments.len());
        }
        if self.is_release_due() {
            self.begin_release();
        }
    }

    /// A flush of the device is shared by several segments.
    fn is_release_due(&self) -> bool {
        if self.checkpoint.is_some() || self.releases.waiting.is_some() || self.would_free() == 0 {
            return false;
        }
        let is_enough = || {
            let enough =
                if self.cleaner.is_idle() || self.is_space_waited_for() { 1 } else { limits::RELEASED_MIN };
            self.releasable().take(enough).count() == enough
        };
        self.is_space_low() && is_enough()
    }

    /// Whether some segments will be free as soon as the log is durable.
    pub(crate) fn begin_release(&mut self) -> bool {
        if self.releases.waiting.is_some() {
            return true;
        }
        let segments: Vec<SegmentNo> = self.releasable().collect();
        if segments.is_empty() {
            return false;
        }
        self.close_batch();
        let last = self.last_batch();
        self.flushes.want(last, None);
        self.releases.waiting = Some((last, segments));
        true
    }
}
