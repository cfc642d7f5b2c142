//! Proofs: distinguish a commit that no other follows from one that never was.
//!
//! Job: when the log rests, state in a header of its own that its last changes are durable. Each header states which
//! batches before it were durable, so a commit is proven by the next one. Invariants: what recovery does not find of a
//! proven batch is an error, never an older state; a store without unproven commits writes nothing.

use super::Open;

/// Time without a commit after which the last one is proven.
pub(super) const REST_MS: u64 = 10;

/// Last batch, and the time at which it was seen first.
#[derive(Debug, Default)]
pub(super) struct Rest {
    last: u64,
    since_ms: u64,
}

impl Open {
    /// Time passed: proves the last commit if none has followed for a while.
    pub(super) fn tick(&mut self, now_ms: u64) {
        let is_due = self.failed.is_none()
            && self.is_opened
            && self.checkpoint.is_none()
            && self.changes.is_empty()
            && self.log.is_empty()
            && self.log.is_unproven(self.flushes.durable());
        let last = self.log.last_closed();
        if !is_due || self.rest.last != last {
            self.rest = Rest { last, since_ms: now_ms };
        } else if now_ms.saturating_sub(self.rest.since_ms) >= REST_MS {
            self.prove();
        }
    }

    fn prove(&mut self) {
        if !self.log.has_room(&[], 1) && (self.has_space().is_err() || self.make_room().is_err()) {
            // A checkpoint needs no proof.
            return self.begin_checkpoint();
        }
        self.log.prove(self.flushes.durable(), &mut self.next_op, &mut self.out);
        self.flushes.want(self.log.last_closed(), None);
    }
}
