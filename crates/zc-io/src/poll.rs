//! Adaptive busy polling of the completion queue.
//!
//! Job: from the duration of recent waits, decide how long the next wait polls the completion queue before it sleeps.
//! A sleeping thread is woken by an interrupt on a processor that may be halted, which can take longer than an SSD's
//! read; polling costs processor time. The rule is that of KVM's halt polling (Linux, virt/kvm/halt-polling.rst): the
//! window grows when a wait was so short that polling would have caught its end, and closes when one was long. So it
//! is open only while requests follow each other closely, and costs nothing otherwise.
//!
//! Invariants: the window never exceeds its bound; with a bound of 0 it never opens. It does not wait, or read a
//! clock.

/// First window after closing, in microseconds.
const FIRST_US: u32 = 10;
/// Interval of two polls, in microseconds, that shows a preemption: another thread needs the processor.
const INTERRUPTED_US: u64 = 300;
/// Waits after a preemption until the window may open again.
const REST_WAITS: u32 = 1000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct PollWindow {
    max_us: u32,
    window_us: u32,
    rest: u32,
    stats: PollStats,
}

/// Outcomes of waits since the ring was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PollStats {
    /// Waits that completed while polling.
    pub met: u64,
    /// Waits that completed while asleep.
    pub slept: u64,
    /// Microseconds spent polling.
    pub looked_us: u64,
}

impl PollWindow {
    /// Creates a closed window that opens up to `max_us`.
    pub(crate) const fn new(max_us: u32) -> Self {
        Self { max_us, window_us: 0, rest: 0, stats: PollStats { met: 0, slept: 0, looked_us: 0 } }
    }

    /// Returns the microseconds to poll before sleeping.
    pub(crate) const fn window_us(&self) -> u32 {
        self.window_us
    }

    pub(crate) const fn stats(&self) -> PollStats {
        self.stats
    }

    /// Records a polling phase, and whether it caught the completion.
    pub(crate) fn looked(&mut self, looked_us: u64, met: bool) {
        self.stats.looked_us = self.stats.looked_us.saturating_add(looked_us);
        self.stats.met += u64::from(met);
    }

    /// Records the interval of two polls; returns `true` if it shows a preemption.
    pub(crate) fn gap(&mut self, gap_us: u64) -> bool {
        let interrupted = gap_us >= INTERRUPTED_US;
        if interrupted {
            (self.window_us, self.rest) = (0, REST_WAITS);
        }
        interrupted
    }

    /// Records a wait, polling included, that ended asleep.
    pub(crate) fn slept(&mut self, wait_us: u64) {
        self.stats.slept += 1;
        self.rest = self.rest.saturating_sub(1);
        self.window_us = if wait_us > u64::from(self.max_us) || self.rest > 0 {
            0
        } else {
            self.window_us.saturating_mul(2).clamp(FIRST_US.min(self.max_us), self.max_us)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_open_the_window_and_a_long_one_closes_it() {
        let mut poll = PollWindow::new(50);
        assert_eq!(poll.window_us(), 0);
        let mut seen = Vec::new();
        for _ in 0..5 {
            poll.slept(40);
            seen.push(poll.window_us());
        }
        assert_eq!(seen, [10, 20, 40, 50, 50]);
        poll.looked(12, true);
        assert_eq!(poll.window_us(), 50, "met: it stays");
        poll.slept(51);
        assert_eq!(poll.window_us(), 0);
        assert_eq!(poll.stats(), PollStats { met: 1, slept: 6, looked_us: 12 });
    }

    #[test]
    fn without_a_bound_it_stays_closed_and_a_small_bound_holds() {
        let mut poll = PollWindow::new(0);
        poll.slept(0);
        assert_eq!(poll.window_us(), 0);
        let mut poll = PollWindow::new(4);
        poll.slept(1);
        assert_eq!(poll.window_us(), 4);
    }

    #[test]
    fn where_the_processor_is_wanted_it_rests() {
        let mut poll = PollWindow::new(100);
        poll.slept(10);
        assert!(!poll.gap(INTERRUPTED_US - 1) && poll.window_us() > 0);
        assert!(poll.gap(INTERRUPTED_US) && poll.window_us() == 0);
        for _ in 1..REST_WAITS {
            poll.slept(10);
            assert_eq!(poll.window_us(), 0);
        }
        poll.slept(10);
        assert_eq!(poll.window_us(), FIRST_US);
    }
}
