//! Discards of free segments: the device need not keep their contents.
//!
//! Job: while no client writes, discard free segments that were used since they were last discarded, one at a time, the
//! highest first, as the lowest is the next to be used again. An order to clean does so at once.
//! Invariants: a segment that is being discarded is not handed out, and only free ones are discarded: what overwriting
//! may do, a discard may. A device that refuses one is asked no more. What it does not do: decide when a segment becomes
//! free.

use zc_core::{ErrorKind, OpId};

use crate::ids::{Place, SegmentNo};
use crate::media::superblock::Superblock;
use crate::seam::Action;
use crate::store::Open;

/// Discards in progress.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    in_flight: Option<(OpId, SegmentNo)>,
    /// They are to be discarded now.
    asked: bool,
    /// The device has no discards.
    is_refused: bool,
}

impl Discards {
    /// Returns `true` while one is in flight, or an order is not carried out.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.is_some() || self.asked
    }

    /// Free segments that are not handed out meanwhile.
    pub(crate) fn held_segments(&self) -> usize {
        usize::from(self.in_flight.is_some())
    }
}

impl Open {
    /// Discards what is free, and what cleaning frees, whether a client writes or not.
    pub(crate) fn discard_all(&mut self) {
        if self.config.discard && !self.discards.is_refused {
            self.discards.asked = true;
        }
    }

    /// Begins a discard when one is due.
    pub(crate) fn pump_discards(&mut self) {
        if !self.config.discard || self.discards.is_refused || self.discards.in_flight.is_some() {
            return;
        }
        let is_due = self.discards.asked || self.cleaner.is_quiet(self.config.quiet_ms);
        if self.stopping || self.failed.is_some() || !is_due {
            self.discards.asked &= !self.stopping && self.failed.is_none();
            return;
        }
        // Changes, checkpoints and the cleaner find their room meanwhile.
        let has_room = self.changes.is_empty()
            && self.trees.segments.free_segments() > self.config.cleaning_segments(self.shape());
        let Some(number) = has_room.then(|| self.trees.segments.take_stale()).flatten() else {
            let frees_more = !self.cleaner.is_idle() || self.checkpoint.is_some();
            self.discards.asked &= frees_more;
            return;
        };
        self.next_op += 1;
        let op = OpId(self.next_op);
        self.discards.in_flight = Some((op, number));
        let segment_bytes = self.superblock.segment_bytes;
        let offset_bytes =
            Superblock::device_offset(Place { segment: number, offset_bytes: 0 }, segment_bytes);
        self.out.push(Action::Discard { op, offset_bytes, len_bytes: segment_bytes });
    }

    /// An operation ended; returns `true` if it was a discard. A device without discards is no failure of the store.
    pub(crate) fn discard_ended(&mut self, op: OpId, result: Result<(), ErrorKind>) -> bool {
        let Some((_, number)) = self.discards.in_flight.take_if(|(discard, _)| *discard == op) else {
            return false;
        };
        self.trees.segments.put_back(number, result.is_ok());
        if result.is_ok() {
            self.stats.segments_discarded += 1;
        } else {
            self.discards.is_refused = true;
            self.discards.asked = false;
        }
        true
    }
}
