//! Token bucket of one rate.
//!
//! Job: the arithmetic of one rate with its burst, on a clock that is passed in.
//!
//! Invariants: the tokens taken between two times, except for the last request, are at most the rate times the time
//! between them, plus a burst. A request larger than the burst starts when the bucket is full and leaves it in debt,
//! so that it does not wait forever, and later requests compensate. Numbers are integers: tokens times 10^9, so that
//! no fraction is lost.
//!
//! It does not queue requests (`throttle`).

/// Parts that a token has: as many as a second has nanoseconds.
const PARTS: i128 = 1_000_000_000;
/// Default burst, as a fraction of a second's tokens.
const BURST_PART: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Tokens a second; not 0.
    per_s: u64,
    /// Tokens at most; not 0.
    burst: u64,
}

impl Rate {
    /// Tokens per second; 0 means unlimited. `burst`: capacity in tokens; by default a tenth of a second's.
    pub(crate) fn new(per_s: u64, burst: Option<u64>) -> Option<Self> {
        let burst = burst.unwrap_or(per_s / BURST_PART).max(1);
        (per_s > 0).then_some(Self { per_s, burst })
    }
}

#[derive(Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    /// Level in parts of tokens; negative: debt.
    parts: i128,
    /// When that was so, in nanoseconds.
    at_ns: u64,
}

impl Bucket {
    pub(crate) fn new(rate: Rate, now_ns: u64) -> Self {
        Self { rate, parts: i128::from(rate.burst) * PARTS, at_ns: now_ns }
    }

    /// Changes the rate. A debt remains, and no burst is granted.
    pub(crate) fn set(&mut self, rate: Rate, now_ns: u64) {
        self.fill(now_ns);
        self.rate = rate;
        self.parts = self.parts.min(i128::from(rate.burst) * PARTS);
    }

    fn fill(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        let full = i128::from(self.rate.burst) * PARTS;
        self.parts = full.min(self.parts + i128::from(passed_ns) * i128::from(self.rate.per_s));
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// Returns the nanoseconds until a request of `tokens` may start, if no other takes any; 0: now.
    pub(crate) fn wait_ns(&mut self, tokens: u64, now_ns: u64) -> u64 {
        self.fill(now_ns);
        let needed = i128::from(tokens.min(self.rate.burst)) * PARTS;
        let rate = i128::from(self.rate.per_s);
        let missing = (needed - self.parts).max(0);
        u64::try_from((missing + rate - 1) / rate).unwrap_or(u64::MAX)
    }

    /// Takes tokens for a request that begins, possibly without having waited.
    pub(crate) fn take(&mut self, tokens: u64, now_ns: u64) {
        self.fill(now_ns);
        self.parts -= i128::from(tokens) * PARTS;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn bucket(per_s: u64, burst: u64) -> Bucket {
        Bucket::new(Rate::new(per_s, Some(burst)).unwrap(), 0)
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rate_after_it() {
        let mut bucket = bucket(100, 5);
        for _ in 0..5 {
            assert_eq!(bucket.wait_ns(1, 0), 0);
            bucket.take(1, 0);
        }
        assert_eq!(bucket.wait_ns(1, 0), S / 100);
        assert_eq!(bucket.wait_ns(1, S / 200), S / 200);
        assert_eq!(bucket.wait_ns(1, S / 100), 0);
        assert_eq!(bucket.wait_ns(5, 3600 * S), 0);
        bucket.take(5, 3600 * S);
        assert!(bucket.wait_ns(1, 3600 * S) > 0, "an hour saves up one burst");
    }

    #[test]
    fn a_request_beyond_the_burst_begins_and_is_made_up_for() {
        let mut bucket = bucket(10, 10);
        assert_eq!(bucket.wait_ns(50, 0), 0);
        bucket.take(50, 0);
        assert_eq!(bucket.wait_ns(1, 0), 4 * S + S / 10);
        assert_eq!(bucket.wait_ns(50, 0), 5 * S, "the next one needs a whole burst");
    }

    #[test]
    fn another_rate_gives_no_burst_and_forgives_no_debt() {
        let mut bucket = bucket(10, 10);
        bucket.take(20, 0);
        bucket.set(Rate::new(100, Some(1000)).unwrap(), 0);
        assert_eq!(bucket.wait_ns(1, 0), 11 * S / 100);
        bucket.set(Rate::new(100, Some(2)).unwrap(), 100 * S);
        bucket.take(2, 100 * S);
        assert!(bucket.wait_ns(1, 100 * S) > 0);
        assert_eq!(Rate::new(0, Some(3)), None);
        assert_eq!(Rate::new(1000, None), Rate::new(1000, Some(100)));
        assert_eq!(Rate::new(3, None), Rate::new(3, Some(1)));
    }

    /// Returns the first interval between two requests in which more was taken than rate and burst allow. The last
    /// request may be larger than the burst.
    pub(crate) fn exceeds((per_s, burst): (u64, u64), taken: &[(u64, u64)]) -> Option<(u64, u64)> {
        for (first, (from_ns, _)) in taken.iter().enumerate() {
            let mut sum = 0;
            for (at_ns, tokens) in &taken[first..] {
                sum += u128::from(*tokens);
                let earned = u128::from(per_s) * u128::from(at_ns - from_ns) / u128::from(S) + 1;
                let beyond = u128::from(tokens.saturating_sub(burst));
                if sum > earned + u128::from(burst) + beyond {
                    return Some((*from_ns, *at_ns));
                }
            }
        }
        None
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_a_burst(
            per_s in 1_u64..5_000_000_000,
            burst in 1_u64..1_000_000,
            steps in prop::collection::vec((0_u64..3_000_000_000, 1_u64..2_000_000), 1..200),
        ) {
            let mut bucket = bucket(per_s, burst);
            let (mut now_ns, mut taken) = (0_u64, Vec::new());
            for (passed_ns, tokens) in steps {
                now_ns += passed_ns;
                let wait_ns = bucket.wait_ns(tokens, now_ns);
                if wait_ns > 0 && wait_ns < 60 * S {
                    prop_assert!(bucket.wait_ns(tokens, now_ns + wait_ns - 1) > 0, "not sooner than told");
                    now_ns += wait_ns;
                }
                if bucket.wait_ns(tokens, now_ns) == 0 {
                    bucket.take(tokens, now_ns);
                    taken.push((now_ns, tokens));
                }
            }
            prop_assert_eq!(exceeds((per_s, burst), &taken), None);
        }
    }
}
