//! Crashes that are due: within a start, and soon after a start or a flush.

use crate::env::Env;

/// Turns after a start in which a crash finds it still at work.
const HASTY_TURNS: u32 = 40;
/// Turns after a flush in which a crash finds what it promised as it was then.
const AIMED_TURNS: u32 = 6;

/// Crashes that are due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Crashes {
    /// Some starts are followed by a crash.
    is_hasty: bool,
    /// A crash comes after so many turns.
    due_in: Option<u32>,
    /// The next start is cut off after so many I/Os.
    start_cut_at: Option<u32>,
}

impl Crashes {
    pub(crate) fn new(is_hasty: bool) -> Self {
        Self { is_hasty, ..Self::default() }
    }

    /// The next start is cut off after so many I/Os.
    pub(crate) const fn cut_start(&mut self, ios: Option<u32>) {
        self.start_cut_at = ios;
    }

    pub(crate) const fn take_start_cut(&mut self) -> Option<u32> {
        self.start_cut_at.take()
    }

    /// A start has ended: a crash may follow while it still acts on what it found.
    pub(crate) fn started(&mut self, env: &mut Env, chance: f64) {
        let is_soon = self.is_hasty && env.random_bool(chance);
        self.due_in = is_soon.then(|| env.random_range(0..HASTY_TURNS));
    }

    /// A flush has ended: what it promised is put to the test soon, before anything else makes it true.
    pub(crate) fn flushed(&mut self, env: &mut Env, chance: f64) {
        if self.due_in.is_none() && env.happens(chance) {
            env.note("crashes aimed behind a flush");
            self.due_in = Some(env.random_range(0..AIMED_TURNS));
        }
    }

    /// A turn begins. Returns `true` if the crash is due in it.
    pub(crate) fn turn(&mut self) -> bool {
        let is_due = self.due_in == Some(0);
        self.due_in = self.due_in.and_then(|turns| turns.checked_sub(1));
        is_due
    }

    /// No crash comes any more.
    pub(crate) fn call_off(&mut self) {
        *self = Self::default();
    }
}
