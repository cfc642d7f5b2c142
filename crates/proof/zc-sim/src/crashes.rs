//! Scheduled crashes: during a start, and soon after a start or a flush.

use crate::env::Env;

/// Turns after a start within which a crash interrupts its remaining work.
const HASTY_TURNS: u32 = 40;
/// Turns after a flush within which a crash tests its promise before other events fulfil it.
const AIMED_TURNS: u32 = 6;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Crashes {
    /// The seed lets crashes follow some starts.
    is_hasty: bool,
    /// Turns until the crash.
    due_in: Option<u32>,
    /// I/Os after which the next start is cut off.
    start_cut_at: Option<u32>,
}

impl Crashes {
    pub(crate) fn new(is_hasty: bool) -> Self {
        Self { is_hasty, ..Self::default() }
    }

    /// Cuts the next start off after `ios` I/Os.
    pub(crate) const fn cut_start(&mut self, ios: Option<u32>) {
        self.start_cut_at = ios;
    }

    pub(crate) const fn take_start_cut(&mut self) -> Option<u32> {
        self.start_cut_at.take()
    }

    /// Schedules a crash while a completed start still acts on the state that it found.
    pub(crate) fn started(&mut self, env: &mut Env, chance: f64) {
        let is_soon = self.is_hasty && env.random_bool(chance);
        self.due_in = is_soon.then(|| env.random_range(0..HASTY_TURNS));
    }

    /// Schedules a crash that tests a completed flush before other events fulfil its promise.
    pub(crate) fn flushed(&mut self, env: &mut Env, chance: f64) {
        if self.due_in.is_none() && env.happens(chance) {
            env.note("crashes aimed behind a flush");
            self.due_in = Some(env.random_range(0..AIMED_TURNS));
        }
    }

    /// Begins a turn. Returns `true` if the crash is due in it.
    pub(crate) fn turn(&mut self) -> bool {
        let is_due = self.due_in == Some(0);
        self.due_in = self.due_in.and_then(|turns| turns.checked_sub(1));
        is_due
    }

    /// Cancels scheduled crashes.
    pub(crate) fn call_off(&mut self) {
        *self = Self::default();
    }
}
