//! Commits: which batches are durable, and who waits for that.
//!
//! Job: one device flush at a time, for all that wait. Invariant: a batch counts as durable only when a flush ended that
//! was issued after the write of it and of all before it had ended. What it does not do: close batches, or write.

use zc_core::{OpId, ReqId};

use crate::ids::BatchSeq;
use crate::seam::{Action, StoreError};

/// The flushes.
#[derive(Debug)]
pub(crate) struct Flushes {
    durable: BatchSeq,
    /// Batch, and the request that waits for it; none for a checkpoint.
    waiting: Vec<(BatchSeq, Option<ReqId>)>,
    in_flight: Option<(OpId, BatchSeq)>,
}

impl Flushes {
    pub(crate) fn new(durable: BatchSeq) -> Self {
        Self { durable, waiting: Vec::new(), in_flight: None }
    }

    pub(crate) fn durable(&self) -> BatchSeq {
        self.durable
    }

    pub(crate) fn want(&mut self, batch: BatchSeq, req: Option<ReqId>) {
        self.waiting.push((batch, req));
    }

    /// Flushes, if a client waits for what has been written. `written`: all batches up to it.
    pub(crate) fn pump(&mut self, written: BatchSeq, next_op: &mut u64, out: &mut Vec<Action>) {
        self.answer(out);
        let is_useful = |(batch, _): &(BatchSeq, Option<ReqId>)| *batch > self.durable && *batch <= written;
        if self.in_flight.is_none() && self.waiting.iter().any(is_useful) {
            *next_op += 1;
            self.in_flight = Some((OpId(*next_op), written));
            out.push(Action::FlushDevice { op: OpId(*next_op) });
        }
    }

    /// A flush of these ended well. False if it was not one of these.
    pub(crate) fn ended(&mut self, op: OpId) -> bool {
        let Some((_, covered)) = self.in_flight.take_if(|(flush, _)| *flush == op) else { return false };
        self.durable = covered;
        true
    }

    fn answer(&mut self, out: &mut Vec<Action>) {
        let durable = self.durable;
        self.waiting.retain(|(batch, req)| {
            let is_done = *batch <= durable;
            if let (true, Some(req)) = (is_done, req) {
                out.push(Action::Reply { req: *req, result: Ok(()) });
            }
            !is_done
        });
    }

    pub(crate) fn fail(&mut self, error: StoreError, out: &mut Vec<Action>) {
        for (_, req) in self.waiting.drain(..) {
            out.extend(req.map(|req| Action::Reply { req, result: Err(error) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was asked of the device, and answered.
    fn actions(out: &mut Vec<Action>) -> Vec<String> {
        let describe = |action: Action| match action {
            Action::FlushDevice { op } => format!("flush {}", op.0),
            Action::Reply { req, result } => format!("reply {} {}", req.0, result.is_ok()),
            other => format!("{other:?}"),
        };
        out.drain(..).map(describe).collect()
    }

    #[test]
    fn a_flush_answers_those_alone_whose_batches_were_written_when_it_was_issued() {
        let (mut flushes, mut next_op, mut out) = (Flushes::new(BatchSeq(4)), 0, Vec::new());
        flushes.want(BatchSeq(4), Some(ReqId(1)));
        flushes.want(BatchSeq(6), Some(ReqId(2)));
        flushes.want(BatchSeq(7), Some(ReqId(3)));
        flushes.pump(BatchSeq(5), &mut next_op, &mut out);
        assert_eq!(actions(&mut out), ["reply 1 true"], "batch 6 is not written yet");
        flushes.pump(BatchSeq(6), &mut next_op, &mut out);
        assert_eq!(actions(&mut out), ["flush 1"]);
        flushes.pump(BatchSeq(7), &mut next_op, &mut out);
        assert_eq!(actions(&mut out), [""; 0], "one at a time");
        assert!(!flushes.ended(OpId(9)) && flushes.ended(OpId(1)));
        flushes.pump(BatchSeq(7), &mut next_op, &mut out);
        assert_eq!(actions(&mut out), ["reply 2 true", "flush 2"], "batch 7 was written behind that flush");
        assert_eq!(flushes.durable(), BatchSeq(6));
    }

    #[test]
    fn a_failed_device_answers_all_who_wait() {
        let (mut flushes, mut out) = (Flushes::new(BatchSeq(1)), Vec::new());
        flushes.want(BatchSeq(2), Some(ReqId(1)));
        flushes.want(BatchSeq(2), None);
        flushes.fail(StoreError::NoSpace, &mut out);
        assert_eq!(actions(&mut out), ["reply 1 false"]);
    }
}
