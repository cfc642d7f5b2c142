//! Time, chance and findings, shared by all parts of a simulated machine.
//!
//! Invariants: all chance of a turn follows from the seed and the turn's number, so turns can be left out of a run.
//! The first violation is kept; later ones may be consequences of it.

use rand::distr::uniform::{SampleRange, SampleUniform};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::canary::{Canary, DriverBug};
use crate::coverage::Coverage;

/// State that every part of a run reads and updates.
#[derive(Debug, Clone)]
pub(crate) struct Env {
    rng: Pcg64Mcg,
    seed: u64,
    now: u64,
    now_ms: u64,
    coverage: Coverage,
    violation: Option<String>,
    /// Digest over all values that clients read, and the times of the reads.
    digest: u64,
    canary: Option<Canary>,
    /// The run is in its final phase, without faults or crashes.
    is_mended: bool,
    /// Corruption keeps the store from opening: the run ends here, without a violation.
    is_over: bool,
    out: Option<fn(&str)>,
}

impl Env {
    pub(crate) fn new(seed: u64, rng: Pcg64Mcg, canary: Option<Canary>, out: Option<fn(&str)>) -> Self {
        Self {
            rng,
            seed,
            now: 1,
            now_ms: 0,
            coverage: Coverage::default(),
            violation: None,
            digest: 0,
            canary,
            is_mended: false,
            is_over: false,
            out,
        }
    }

    /// Returns the state for a copy of the machine in another run, without findings.
    pub(crate) fn fork(&self, out: Option<fn(&str)>) -> Self {
        Self { coverage: Coverage::default(), violation: None, out, ..self.clone() }
    }

    /// Seeds chance from the seed and the turn's number alone, so turns can be left out of a run.
    pub(crate) fn begin_turn(&mut self, turn: u64) {
        let mixed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn.wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.rng = Pcg64Mcg::seed_from_u64(mixed);
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) const fn rng(&mut self) -> &mut Pcg64Mcg {
        &mut self.rng
    }

    pub(crate) fn random_bool(&mut self, chance: f64) -> bool {
        self.rng.random_bool(chance)
    }

    pub(crate) fn random_range<T: SampleUniform>(&mut self, range: impl SampleRange<T>) -> T {
        self.rng.random_range(range)
    }

    /// Draws, unless the rate is zero.
    pub(crate) fn happens(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.rng.random_bool(rate)
    }

    /// Returns the logical time, which advances with each event and with each step that is ordered among events.
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    pub(crate) const fn advance(&mut self) {
        self.now += 1;
    }

    /// Returns the machine's clock, in milliseconds.
    pub(crate) const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) const fn pass_ms(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// Returns `true` in the final phase, in which nothing fails.
    pub(crate) const fn is_mended(&self) -> bool {
        self.is_mended
    }

    pub(crate) const fn mend(&mut self) {
        self.is_mended = true;
    }

    /// Ends the run without a violation.
    pub(crate) const fn end(&mut self) {
        self.is_over = true;
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns `true` if the driver has this deliberate bug.
    pub(crate) fn has_bug(&self, bug: DriverBug) -> bool {
        self.canary == Some(Canary::Driver(bug))
    }

    /// Returns the manager's deliberate bug, if the run has one.
    #[cfg(zc_canary)]
    pub(crate) fn manager_bug(&self) -> Option<zc_cache::config::Canary> {
        match self.canary {
            Some(Canary::Manager(bug)) => Some(bug),
            _ => None,
        }
    }

    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        if let Some(out) = self.out {
            out(&format!("{:6} {}", self.now, text()));
        }
    }

    /// Counts an occurrence.
    pub(crate) fn note(&mut self, what: &'static str) {
        self.coverage.note(what);
    }

    pub(crate) fn add(&mut self, what: &'static str, count: u64) {
        self.coverage.add(what, count);
    }

    pub(crate) const fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Records a broken guarantee; the first one is kept.
    pub(crate) fn violate(&mut self, text: impl Into<String>) {
        if self.violation.is_none() {
            let text = text.into();
            self.trace(|| format!("VIOLATION {text}"));
            self.violation = Some(text);
        }
    }

    pub(crate) const fn is_violated(&self) -> bool {
        self.violation.is_some()
    }

    pub(crate) fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    /// Adds a value read by a client to the digest.
    pub(crate) const fn saw(&mut self, value: u64) {
        self.digest = self.digest.rotate_left(5) ^ value ^ self.now;
    }

    /// Returns the hash over all values that clients have read.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }
}
