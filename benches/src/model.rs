//! A closed queueing network: threads with parallel and serialised parts.
//!
//! Job: the rate of `threads` threads with a core each. A hit takes `alone_us` in parallel and `turn_us` serialised.
//! The exact mean value analysis (Reiser and Lavenberg, JACM 1980) of one station with a queue and one without, for
//! exponentially distributed times. Times of smaller variance queue less, so the result is a lower bound.
//!
//! It does not model shared caches and memory.

/// Times of a hit on one thread, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Times {
    /// Outside turns: mostly the kernel's part.
    pub(crate) alone_us: f64,
    /// In turns.
    pub(crate) turn_us: f64,
}

impl Times {
    /// Hits per second of `threads` threads.
    pub(crate) fn rate(self, threads: u32) -> f64 {
        let (mut queued, mut rate_per_us) = (0.0, 0.0);
        for thread in 1..=threads {
            let turn_us = self.turn_us * (1.0 + queued);
            rate_per_us = f64::from(thread) / (self.alone_us + turn_us);
            queued = rate_per_us * turn_us;
        }
        rate_per_us * 1e6
    }

    /// Hits per second that no number of threads exceeds.
    pub(crate) fn bound(self) -> f64 {
        1e6 / self.turn_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64) -> bool {
        (left / right - 1.0).abs() < 1e-9
    }

    #[test]
    fn one_thread_does_not_wait_and_many_are_bound_by_turns() {
        let times = Times { alone_us: 9.0, turn_us: 1.0 };
        assert!(near(times.rate(1), 100_000.0));
        assert!(near(times.bound(), 1_000_000.0));
        let of_bound = times.rate(64) / times.bound();
        assert!((0.99..=1.0 + 1e-9).contains(&of_bound), "{of_bound}");
    }

    #[test]
    fn two_threads_wait_for_each_other_as_the_formula_of_two_customers_says() {
        // Queue of one customer: 0.5 of 2; so the second waits for half of a turn: 2 / (1 + 1 * 1.5).
        let times = Times { alone_us: 1.0, turn_us: 1.0 };
        assert!(near(times.rate(2), 2e6 / 2.5));
    }

    #[test]
    fn without_turns_rates_add_up() {
        let times = Times { alone_us: 5.0, turn_us: 0.0 };
        assert!(near(times.rate(8), 8.0 * times.rate(1)));
    }
}
