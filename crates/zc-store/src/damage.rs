//! Chunks that could not be read: nothing is shared with them until their contents come again.
//!
//! Job: note what a read, the cleaner or a scrub could not read, and what could be read again. Invariants: what is noted
//! is a place that was tried, so a chunk that moved since is not; the note in the chunk table outlives a restart if a
//! checkpoint follows. What it does not do: try chunks, or mend them (a write does).

use zc_core::ErrorKind;

use crate::ids::{ChunkNo, Place};
use crate::limits;
use crate::store::Open;

impl Open {
    /// Contents were read where they should be, or not.
    pub(crate) fn chunk_tried(&mut self, number: ChunkNo, place: Place, result: Result<(), ErrorKind>) {
        let is_damaged = matches!(result, Err(ErrorKind::Corrupt | ErrorKind::Io));
        if is_damaged == self.damaged.contains(&number) {
            return;
        }
        // A record that is not in memory any more is not read for that.
        let Ok(Some(stored)) = self.trees.stored(number) else { return };
        if stored.place != place {
            return;
        }
        if !is_damaged {
            self.damaged.remove(&number);
        } else if self.damaged.len() < limits::DAMAGED_CHUNKS_MAX {
            self.damaged.insert(number);
            // So that a write of these contents finds what it heals.
            stored.print.iter().for_each(|print| self.prints.insert(print, number));
        }
        let may_change = self.failed.is_none() && !self.must_wait_for_checkpoint();
        if may_change && self.trees.make_chunk_writable(number).is_ok() {
            self.trees.note_damaged(number, is_damaged);
        }
    }
}
