//! Reads of queries.
//!
//! Method: a query is split into steps (a piece of a scan, a supplier, a leaf of an index); a step queues its reads,
//! from which requests are taken. Memory is the pool and the requests of one step.
//!
//! Invariants: a request covers consecutive blocks that are not in the pool; a row is read after its index leaf;
//! comparisons with parameters cause no reads of their own.

use std::collections::VecDeque;
use std::ops::Range;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::indices::Index;
use super::pool::Pool;
use super::tables::{NATIONS, SEGMENTS, Table, customer, day, line, order, part, segment, supplier, supply};
use super::{BLOCK_BYTES, Database};
use crate::request::{Op, Request};

/// Blocks that a scan reads at once: Linux reads ahead so far.
const SCAN_BLOCKS: u64 = 32;
/// Entries of a step of Q14.
const STEP_ENTRIES: usize = 256;
/// Nanoseconds from one request to the next.
const STEP_NS: u64 = 1_000_000;

/// A query of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// Orders of a market segment that were not shipped at a date.
    Q3,
    /// The stock of a nation's suppliers.
    Q11,
    /// The effect of a promotion in a month.
    Q14,
}

/// Queries to run, and the memory in front of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Queries of a pass, in their order.
    pub queries: Vec<Query>,
    /// Passes. Each draws parameters of its own.
    pub passes: u32,
    /// Memory for blocks, as a share of the database. FlaZ's machine has 1 GB for everything, with a database of 6.5
    /// GB; the assumption that half of it holds blocks, 0.077 of the database, is not from the paper.
    pub pool: f64,
    /// Seed.
    pub seed: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self { queries: vec![Query::Q3, Query::Q11, Query::Q14], passes: 1, pool: 0.077, seed: 1 }
    }
}

/// A running query: its parameters, and its remaining work.
#[derive(Debug)]
enum Job {
    /// Blocks of customers.
    Q3 { segment: u32, before: u32, left: Range<u64> },
    /// Suppliers of the nation, as entries of the index; `again` if they are all read once more.
    Q11 { all: Range<usize>, left: Range<usize>, again: bool },
    /// Lines of the month, as entries of the index.
    Q14 { left: Range<usize> },
}

/// Reads through the pool.
#[derive(Debug)]
struct Reads {
    pool: Pool,
    /// Number of the request, and a block of it.
    queue: VecDeque<(u64, u64)>,
    /// Requests begun so far.
    begun: u64,
}

impl Reads {
    /// Reads blocks that are wanted together: a request for every stretch that is not in the pool.
    fn blocks(&mut self, blocks: Range<u64>) {
        let mut before = None;
        for block in blocks {
            if self.pool.uses(block) {
                continue;
            }
            if before.is_none_or(|before| before + 1 != block) {
                self.begun += 1;
            }
            self.queue.push_back((self.begun - 1, block));
            before = Some(block);
        }
    }

    /// Reads the leaf of an entry.
    fn leaf(&mut self, index: &Index, entry: usize) {
        let block = index.block(entry);
        self.blocks(block..block + 1);
    }

    /// Reads the leaf of an entry, then its row; the row's number.
    fn row(&mut self, index: &Index, entry: usize, table: &Table) -> usize {
        self.leaf(index, entry);
        let row = index.row(entry);
        self.blocks(table.blocks_of(row));
        row
    }
}

/// Reads of queries.
#[derive(Debug)]
pub struct Requests<'a> {
    database: &'a Database,
    /// Queries that have not begun.
    next: VecDeque<Query>,
    job: Option<Job>,
    rng: Pcg64Mcg,
    reads: Reads,
}

impl<'a> Requests<'a> {
    pub(super) fn new(database: &'a Database, run: &Run) -> Self {
        let passes = (0..run.passes).flat_map(|_| run.queries.iter().copied());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of two million")]
        let frames = (database.blocks() as f64 * run.pool.clamp(0.0, 1.0)) as usize;
        let reads = Reads { pool: Pool::new(frames), queue: VecDeque::new(), begun: 0 };
        let rng = Pcg64Mcg::seed_from_u64(run.seed);
        Self { database, next: passes.collect(), job: None, rng, reads }
    }

    /// Draws a query's parameters.
    fn begin(&mut self, query: Query) -> Job {
        let (tables, indices) = (&self.database.tables, &self.database.indices);
        match query {
            Query::Q3 => {
                let segment = segment(SEGMENTS[self.rng.random_range(0..SEGMENTS.len())]);
                let before = day(1995, 3, self.rng.random_range(1..=31));
                Job::Q3 { segment, before, left: tables.customer.blocks() }
            }
            Query::Q11 => {
                let nation = self.rng.random_range(0..NATIONS);
                self.reads.blocks(tables.nation.blocks());
                let nations = tables.supplier.column(supplier::NATION);
                let all = indices.suppliers_by_nation.entries(nations, nation..nation + 1);
                Job::Q11 { left: all.clone(), all, again: true }
            }
            Query::Q14 => {
                let (year, month) = (self.rng.random_range(1993..=1997), self.rng.random_range(1..=12));
                let dates = tables.line.column(line::SHIPPED);
                Job::Q14 {
                    left: indices.lines_by_date.entries(dates, day(year, month, 0)..day(year, month + 1, 0)),
                }
            }
        }
    }

    /// Executes the next step of a query; returns the rest, if any.
    fn step(&mut self, job: Job) -> Option<Job> {
        match job {
            Job::Q3 { segment, before, left } => {
                let end = left.end.min(left.start + SCAN_BLOCKS);
                self.customers(segment, before, left.start..end);
                (end < left.end).then_some(Job::Q3 { segment, before, left: end..left.end })
            }
            Job::Q11 { all, mut left, again } => {
                match left.next() {
                    Some(entry) => self.supplier(entry),
                    None if again => return Some(Job::Q11 { left: all.clone(), all, again: false }),
                    None => return None,
                }
                Some(Job::Q11 { all, left, again })
            }
            Job::Q14 { left } => {
                let end = left.end.min(left.start + STEP_ENTRIES);
                (left.start..end).for_each(|entry| self.shipped(entry));
                (end < left.end).then_some(Job::Q14 { left: end..left.end })
            }
        }
    }

    /// Q3: customers in a piece of the table, their orders, the lines of those before the date.
    fn customers(&mut self, segment: u32, before: u32, piece: Range<u64>) {
        let (tables, indices) = (&self.database.tables, &self.database.indices);
        self.reads.blocks(piece.clone());
        let of_customers = tables.order.column(order::CUSTOMER);
        let of_orders = tables.line.column(line::ORDER);
        for customer in tables.customer.rows_that_end_in(&piece) {
            if tables.customer.column(customer::SEGMENT)[customer] != segment {
                continue;
            }
            let key = tables.customer.column(customer::KEY)[customer];
            for entry in indices.orders_by_customer.entries(of_customers, key..key + 1) {
                let order = self.reads.row(&indices.orders_by_customer, entry, &tables.order);
                if tables.order.column(order::DATE)[order] >= before {
                    continue;
                }
                let key = tables.order.column(order::KEY)[order];
                for entry in indices.lines_by_order.entries(of_orders, key..key + 1) {
                    self.reads.row(&indices.lines_by_order, entry, &tables.line);
                }
            }
        }
    }

    /// Q11: reads a supplier and its parts.
    fn supplier(&mut self, entry: usize) {
        let (tables, indices) = (&self.database.tables, &self.database.indices);
        let row = self.reads.row(&indices.suppliers_by_nation, entry, &tables.supplier);
        let key = tables.supplier.column(supplier::KEY)[row];
        let suppliers = tables.supply.column(supply::SUPPLIER);
        for entry in indices.supplies_by_supplier.entries(suppliers, key..key + 1) {
            self.reads.row(&indices.supplies_by_supplier, entry, &tables.supply);
        }
    }

    /// Q14: a line, and its part.
    fn shipped(&mut self, entry: usize) {
        let (tables, indices) = (&self.database.tables, &self.database.indices);
        let row = self.reads.row(&indices.lines_by_date, entry, &tables.line);
        let key = tables.line.column(line::PART)[row];
        for entry in indices.parts.entries(tables.part.column(part::KEY), key..key + 1) {
            self.reads.row(&indices.parts, entry, &tables.part);
        }
    }
}

impl Iterator for Requests<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.reads.queue.is_empty() {
            self.job = match self.job.take() {
                Some(job) => self.step(job),
                None => {
                    let query = self.next.pop_front()?;
                    Some(self.begin(query))
                }
            };
        }
        let (number, block) = self.reads.queue.pop_front()?;
        let offset_bytes = block * u64::from(BLOCK_BYTES);
        let request = Request::new(number * STEP_NS, Op::Read, offset_bytes, BLOCK_BYTES);
        Some(request.of(self.database.content(block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_memory_parts_a_request() {
        let mut reads = Reads { pool: Pool::new(8), queue: VecDeque::new(), begun: 0 };
        reads.blocks(5..6);
        reads.blocks(3..8);
        reads.blocks(4..6);
        assert_eq!(reads.queue, [(0, 5), (1, 3), (1, 4), (2, 6), (2, 7)]);
        reads.blocks(8..9);
        assert_eq!(reads.queue.back(), Some(&(3, 8)), "what is wanted later is asked for later");
    }
}
