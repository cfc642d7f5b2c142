//! Time, chance and findings: what all parts of a simulated machine share.
//!
//! Invariants: all chance of a turn follows from the seed and the turn's number, so that turns can be left out of a run.
//! The first violation stays; what is found later may follow from it.

use rand::distr::uniform::{SampleRange, SampleUniform};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::canary::{Canary, DriverBug};
use crate::coverage::Coverage;

/// State that every part of a run reads and adds to.
#[derive(Debug, Clone)]
pub(crate) struct Env {
    rng: Pcg64Mcg,
    seed: u64,
    now: u64,
    now_ms: u64,
    coverage: Coverage,
    violation: Option<String>,
    /// Over all values that clients read, and when.
    digest: u64,
    canary: Option<Canary>,
    /// The run is at its end: nothing fails and nothing is cut off any more.
    is_mended: bool,
    /// What rotted keeps the store from opening: the run ends here, and the violation is none.
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

    /// Returns the state for a copy of the machine in another run, with nothing found yet.
    pub(crate) fn fork(&self, out: Option<fn(&str)>) -> Self {
        Self { coverage: Coverage::default(), violation: None, out, ..self.clone() }
    }

    /// From here on chance depends on the seed and the turn alone: turns can be left out of a run.
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

    /// Draws if the rate is not zero.
    pub(crate) fn happens(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.rng.random_bool(rate)
    }

    /// Logical time: it advances with each event, and with each thing that is ordered among events.
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    pub(crate) const fn advance(&mut self) {
        self.now += 1;
    }

    /// The machine's clock, in milliseconds.
    pub(crate) const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) const fn pass_ms(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// Returns `true` from the moment on from which nothing fails any more.
    pub(crate) const fn is_mended(&self) -> bool {
        self.is_mended
    }

    pub(crate) const fn mend(&mut self) {
        self.is_mended = true;
    }

    /// The run ends here, and what was found is no violation.
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

    /// The manager's deliberate bug, if the run has one.
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

    /// Counts something that has happened.
    pub(crate) fn note(&mut self, what: &'static str) {
        self.coverage.note(what);
    }

    pub(crate) fn add(&mut self, what: &'static str, count: u64) {
        self.coverage.add(what, count);
    }

    pub(crate) const fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// A guarantee is broken.
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

    /// A client has read this value.
    pub(crate) const fn saw(&mut self, value: u64) {
        self.digest = self.digest.rotate_left(5) ^ value ^ self.now;
    }

    /// Hash over all that clients have read.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }
}
