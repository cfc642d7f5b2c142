//! When to look for results instead of sleeping.
//!
//! Job: decide how long a waiting thread looks at the completion queue before it sleeps in the kernel. Falling asleep
//! and being woken costs microseconds, tens of them on a virtual machine, which is much of a cached read.
//!
//! Invariants: never longer than the bound given at the start, and not at all while results take longer than that:
//! each wait beyond the bound halves the window, one within the bound restores it (the kernel's halt polling for
//! virtual CPUs follows the same thought). An idle thread therefore sleeps.
//!
//! What it does not do: look; the ring does.

use std::time::Duration;

/// Below this a window is not worth two looks at the clock.
const WINDOW_MIN: Duration = Duration::from_micros(4);

/// How long to look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Poller {
    max: Duration,
    window: Duration,
}

impl Poller {
    pub(crate) const fn new(max: Duration) -> Self {
        Self { max, window: max }
    }

    /// Whether it is ever to be asked.
    pub(crate) const fn is_on(&self) -> bool {
        !self.max.is_zero()
    }

    /// How long to look now; zero: not at all.
    pub(crate) const fn window(&self) -> Duration {
        self.window
    }

    /// A wait took so long, looking and sleeping together.
    pub(crate) fn waited(&mut self, wait: Duration) {
        let halved = self.window / 2;
        self.window = match wait <= self.max {
            true => self.max,
            false if halved < WINDOW_MIN => Duration::ZERO,
            false => halved,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn long_waits_end_polling_soon_and_a_short_one_restores_it() {
        let mut poller = Poller::new(us(50));
        let mut polled = Duration::ZERO;
        for _ in 0..100 {
            polled += poller.window();
            poller.waited(us(2000));
        }
        assert!(polled < us(100), "{polled:?} of looking in vain");
        assert_eq!(poller.window(), Duration::ZERO);
        poller.waited(us(50));
        assert_eq!(poller.window(), us(50));
        poller.waited(us(51));
        assert_eq!(poller.window(), us(25));
    }

    #[test]
    fn without_a_bound_nothing_is_polled() {
        let mut poller = Poller::default();
        poller.waited(Duration::ZERO);
        assert!(!poller.is_on() && poller.window().is_zero());
    }
}
