//! Flushes of the device, and who waits for them.
//!
//! Invariant: a waiting flush is answered when a device flush was completed that was issued after the writes of all
//! batches up to its own. It does not write.

use crate::format2::seam::Action;
use zc_core::{OpId, ReqId};

/// State of flushes.
#[derive(Debug)]
pub(super) struct Flushes {
    durable: u64,
    running: Option<(OpId, u64)>,
    /// Batches that have to be durable; a client, if one waits.
    waiting: Vec<(u64, Option<ReqId>)>,
}

impl Flushes {
    pub(super) const fn new(durable: u64) -> Self {
        Self { durable, running: None, waiting: Vec::new() }
    }

    /// All batches up to this one are durable.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }

    pub(super) fn want(&mut self, seq: u64, req: Option<ReqId>) {
        self.waiting.push((seq, req));
    }

    /// Issues a flush when one is needed and the batches of a waiting one are written.
    pub(super) fn pump(&mut self, written: u64, op: &mut u64, out: &mut Vec<Action>) {
        self.answer(out);
        let is_due = self.waiting.iter().any(|(seq, _)| *seq <= written);
        if self.running.is_none() && is_due {
            *op += 1;
            self.running = Some((OpId(*op), written));
            out.push(Action::Flush { op: OpId(*op) });
        }
    }

    /// A flush was completed. Returns `false` if it is another operation.
    pub(super) fn ended(&mut self, op: OpId, out: &mut Vec<Action>) -> bool {
        let Some((_, seq)) = self.running.take_if(|(own, _)| *own == op) else { return false };
        self.durable = self.durable.max(seq);
        self.answer(out);
        true
    }

    fn answer(&mut self, out: &mut Vec<Action>) {
        let durable = self.durable;
        for (_, req) in self.waiting.extract_if(.., |(seq, _)| *seq <= durable) {
            out.extend(req.map(|req| Action::Reply { req, result: Ok(()) }));
        }
    }

    /// The device failed: returns the clients that wait.
    pub(super) fn fail(&mut self) -> Vec<ReqId> {
        self.running = None;
        core::mem::take(&mut self.waiting).into_iter().filter_map(|(_, req)| req).collect()
    }
}
