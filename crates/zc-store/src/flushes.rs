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

    /// Flushes, if somebody waits for what has been written. `written`: all batches up to it.
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

    /// S1: answers before the flush.
    #[cfg(zc_canary)]
    pub(crate) fn answer_early(&mut self, out: &mut Vec<Action>) {
        let durable = core::mem::replace(&mut self.durable, BatchSeq(u64::MAX));
        self.answer(out);
        self.durable = durable;
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
