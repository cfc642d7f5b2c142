//! Proofs: distinguish a commit that no other follows from one that never was.
//!
//! Job: when the log rests, state in a header of its own what is durable. Each header says which batches before it were
//! durable when it was made, so a commit is proven by the next. The last one is proven here, with one block, once no
//! commit has followed for a moment. Invariants: what recovery does not find of a proven batch is an error, never an
//! older state; a store without unproven commits writes nothing. What it does not do: prove what no flush made durable.

use crate::ids::BatchSeq;
use crate::limits;
use crate::store::Open;

/// The log as it was when it was last looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resting {
    last: BatchSeq,
    since_ms: u64,
}

impl Open {
    /// Returns `true` if a commit is durable and nothing in the log says so.
    pub(crate) fn is_proof_due(&self) -> bool {
        self.failed.is_none() && self.log.is_unproven(self.flushes.durable())
    }

    /// Time passed: proves the last commit when none has followed for a while.
    pub(crate) fn pump_proof(&mut self, now_ms: u64) {
        if !self.is_proof_due() || self.checkpoint.is_some() {
            self.resting = None;
            return;
        }
        let last = self.log.newest();
        match self.resting.filter(|resting| resting.last == last) {
            None => self.resting = Some(Resting { last, since_ms: now_ms }),
            Some(resting) if now_ms.saturating_sub(resting.since_ms) >= limits::PROOF_MS => self.prove(),
            Some(_) => {}
        }
    }

    fn prove(&mut self) {
        self.resting = None;
        if !self.log.is_empty() {
            // Its header is the proof.
            self.close_batch();
            return;
        }
        let has_room = self.trees.segments.free_segments() > self.config.cleaning_segments(self.shape());
        if !(has_room || self.log.has_block(self.superblock.segment_bytes)) || self.make_room(0, 0).is_err() {
            // A checkpoint needs no proof.
            self.begin_checkpoint();
            return;
        }
        let (segment_bytes, durable) = (self.superblock.segment_bytes, self.flushes.durable());
        self.log.prove(segment_bytes, durable, &mut self.next_op, &mut self.out);
        // No client waits for this flush.
        self.flushes.want(self.log.last_closed(), None);
        self.stats.proofs += 1;
    }
}
