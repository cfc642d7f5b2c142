//! Workloads that keep books: a program of a benchmark, which goes through one transaction after the other.
//!
//! Invariants: accesses come in the order in which a transaction makes them; each names at least one block.
//!
//! It does not know contents; those follow from what is accessed.

use std::collections::VecDeque;
use std::ops::Range;

use rand_pcg::Pcg64Mcg;

use crate::request::Op;

/// What makes transactions.
pub(super) trait Program: std::fmt::Debug + Send {
    /// Appends what the next transaction accesses; some touch nothing.
    fn transaction(&mut self, rng: &mut Pcg64Mcg, accesses: &mut Accesses);
}

/// Accesses of transactions that have not been told yet.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    queue: VecDeque<(Op, Range<u64>)>,
}

impl Accesses {
    /// The next one: what is done with which blocks.
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
