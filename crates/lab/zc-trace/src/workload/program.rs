//! Stateful workloads: a benchmark's program, which executes one transaction after the other.
//!
//! Invariants: accesses are in the order of their transaction; each covers at least one block.
//!
//! It is independent of contents, which are derived from accesses.

use std::collections::VecDeque;
use std::ops::Range;

use rand_pcg::Pcg64Mcg;

use crate::request::Op;

/// Generator of transactions.
pub(super) trait Program: std::fmt::Debug + Send {
    /// Appends the accesses of the next transaction, possibly none.
    fn transaction(&mut self, rng: &mut Pcg64Mcg, accesses: &mut Accesses);
}

/// Pending accesses of transactions.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    queue: VecDeque<(Op, Range<u64>)>,
}

impl Accesses {
    /// Returns the next access: operation and blocks.
    pub(super) fn pop(&mut self) -> Option<(Op, Range<u64>)> {
        self.queue.pop_front()
    }

    /// One block is read.
    pub(super) fn read(&mut self, block: u64) {
        self.push(Op::Read, block..block + 1);
    }

    /// One block is read, changed, written.
    pub(super) fn change(&mut self, block: u64) {
        self.read(block);
        self.push(Op::Write, block..block + 1);
    }

    /// Blocks side by side are read or written at once.
    pub(super) fn push(&mut self, op: Op, blocks: Range<u64>) {
        assert!(!blocks.is_empty(), "an access names blocks");
        self.queue.push_back((op, blocks));
    }
}
