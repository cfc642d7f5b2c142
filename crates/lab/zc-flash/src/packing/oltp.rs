//! The workload of "Compression and SSD: Where and How?" (section 4.1): TPC-C on a database with pages of 4 KiB,
//! constructed so that the whole database compresses by 82, 70 or 63 %.
//!
//! From the paper: the savings; 25 % over-provisioning of 3 GB, of which 20 warehouses take about two thirds; and,
//! derived from its Figure 7 at 3,000 transactions/s, about nine pages read and nine written per transaction (7 MB/s
//! compressed by chunks of 8 at 200 transactions/s).
//!
//! From its database, InnoDB with default settings: pages are flushed in batches of at most 120, each page first to
//! its slot of the doublewrite area and then to its place, and each batch begins at the first slot. So half of all
//! writes repeat an address after twice the batch. Batches of 65 to 120 are fitted to one number of the paper (the
//! savings of re-ordering over compaction for compressible data); an address repeated within about 170 pages still has
//! its last version in 32 bins of highly compressed pages, but not in 4, nor in 32 of others. Reads are uniform,
//! because the database's own buffer absorbs skew; writes follow Zipf's law with an exponent of 0.5. Sizes have a
//! spread of 0.12 of a page, derived from chunks of 4 needing 13 % more reads at 82 %.

use std::collections::VecDeque;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::usize_from_u32;
use zc_trace::workload::{Kind, Requests, Workload};

use super::PAGE_BYTES;

/// Page accesses per transaction, half of them writes.
pub(super) const ACCESSES_PER_TRANSACTION: u64 = 18;
/// Most pages of a batch: slots of the doublewrite area that it uses.
const BATCH_MAX: u32 = 120;

/// A database.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Database {
    /// Pages.
    pub pages: u32,
    /// Savings of compression, as a fraction.
    pub saving: f64,
    /// Standard deviation of a page's size, in pages.
    pub spread: f64,
    /// Exponent of Zipf's law for pages written.
    pub theta: f64,
    /// Fewest pages of a batch that is flushed, at most 120. None: pages go to their places alone.
    pub batch_min: Option<u32>,
    /// Seed.
    pub seed: u64,
}

impl Database {
    /// As in the paper, with this many pages and this saving.
    #[must_use]
    pub const fn new(pages: u32, saving: f64) -> Self {
        Self { pages, saving, spread: 0.12, theta: 0.5, batch_min: Some(65), seed: 1 }
    }

    /// Returns the compressed size of a page. A page keeps its size: it belongs to one table.
    #[must_use]
    pub fn size(&self, page: u32) -> u32 {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed << 32 ^ u64::from(page));
        // Box and Muller 1958.
        let (radius, angle): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let share = (1.0 - self.saving + self.spread * normal).clamp(0.03, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 4096")]
        let bytes = (share * f64::from(PAGE_BYTES)) as u32;
        bytes
    }

    /// Returns the page accesses of this number of transactions.
    ///
    /// # Panics
    /// If the database has fewer than 2048 pages.
    #[must_use]
    pub fn run(&self, transactions: u64) -> Oltp {
        let accesses = transactions * ACCESSES_PER_TRANSACTION;
        let slots = if self.batch_min.is_some() { BATCH_MAX } else { 0 };
        let workload = Workload {
            kind: Kind::Zipf { theta: self.theta },
            blocks: u64::from(self.pages - slots),
            requests: accesses,
            reads: 0.0,
            shared: 0.0,
            ratio: (1.0, 0.0),
            seed: self.seed,
        };
        Oltp {
            database: *self,
            places: workload.generate(),
            batch: VecDeque::new(),
            accesses,
            rng: Pcg64Mcg::seed_from_u64(self.seed),
        }
    }
}

/// A page access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Reads a page.
    Read(u32),
    /// Writes a page with this compressed size.
    Write(u32, u32),
}

/// Page accesses, every other a write.
#[derive(Debug)]
pub struct Oltp {
    database: Database,
    places: Requests,
    /// Writes to come, of the batch under way.
    batch: VecDeque<(u32, u32)>,
    accesses: u64,
    rng: Pcg64Mcg,
}

impl Oltp {
    /// Pages of the next batch: to their slots, at the end of the database, then to their places.
    fn flush(&mut self) {
        let Database { pages, batch_min, .. } = self.database;
        let len = batch_min.map_or(1, |least| self.rng.random_range(least.min(BATCH_MAX)..=BATCH_MAX));
        let place = |request: zc_trace::Request| {
            u32::try_from(request.offset_bytes / u64::from(PAGE_BYTES)).unwrap_or(0)
        };
        let places: Vec<u32> = self.places.by_ref().take(usize_from_u32(len)).map(place).collect();
        let sized = places.into_iter().map(|page| (page, self.database.size(page)));
        let sized: Vec<(u32, u32)> = sized.collect();
        if batch_min.is_some() {
            let slots = pages - BATCH_MAX..pages;
            self.batch.extend(slots.zip(&sized).map(|(slot, (_, bytes))| (slot, *bytes)));
        }
        self.batch.extend(sized);
    }
}

impl Iterator for Oltp {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        self.accesses = self.accesses.checked_sub(1)?;
        if self.accesses.is_multiple_of(2) {
            return Some(Op::Read(self.rng.random_range(0..self.database.pages)));
        }
        if self.batch.is_empty() {
            self.flush();
        }
        self.batch.pop_front().map(|(page, bytes)| Op::Write(page, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_compresses_as_asked_for() {
        for saving in [0.82, 0.70, 0.63] {
            let database = Database::new(10_000, saving);
            let bytes: u64 = (0..database.pages).map(|page| u64::from(database.size(page))).sum();
            let found = 1.0 - bytes as f64 / 10_000.0 / f64::from(PAGE_BYTES);
            assert!((found - saving).abs() < 0.015, "{found} {saving}");
        }
    }

    #[test]
    fn half_of_the_writes_go_to_the_doublewrite_area_first() {
        let database = Database::new(10_000, 0.7);
        let ops: Vec<Op> = database.run(10_000).collect();
        let writes: Vec<(u32, u32)> = ops
            .iter()
            .filter_map(|op| if let Op::Write(page, bytes) = op { Some((*page, *bytes)) } else { None })
            .collect();
        assert_eq!((ops.len(), writes.len()), (180_000, 90_000));
        let slot = |page: u32| page.checked_sub(10_000 - BATCH_MAX);
        let slots = writes.iter().filter(|(page, _)| slot(*page).is_some()).count();
        assert!((44_800..45_300).contains(&slots), "{slots}");
        let first = writes.iter().position(|(page, _)| slot(*page).is_none()).unwrap();
        assert!((65..=120).contains(&first));
        for at in 0..first {
            assert_eq!(slot(writes[at].0), u32::try_from(at).ok());
            let (page, bytes) = writes[first + at];
            assert_eq!((writes[at].1, bytes), (bytes, database.size(page)));
        }
    }
}
