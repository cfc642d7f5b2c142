//! Bound on bytes per second: a token bucket over the manager's clock.
//!
//! The bucket holds a quarter of a second's bytes, so that rare ticks do not halve the rate. A write larger than the
//! available bytes leaves a debt, so the average rate holds for writes of any size.

/// Capacity of the bucket, in milliseconds of its rate.
const BURST_MS: u64 = 250;
const MS_PER_S: u64 = 1000;

#[derive(Debug, Default)]
pub(crate) struct ByteRate {
    /// Available bytes in thousandths; negative for a debt.
    left: i128,
    filled_ms: u64,
}

impl ByteRate {
    /// Returns `true` if a write may start now. 0 bytes per second means unbounded.
    pub(crate) fn allows(&mut self, bytes_per_s: u64, now_ms: u64) -> bool {
        if bytes_per_s == 0 {
            self.left = 0;
            return true;
        }
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        self.filled_ms = now_ms;
        let full = i128::from(bytes_per_s) * i128::from(BURST_MS);
        // Bytes per second equal thousandths of bytes per millisecond.
        self.left = (self.left + i128::from(bytes_per_s) * i128::from(passed_ms)).min(full);
        self.left > 0
    }

    /// Accounts for a write, even while no bound applies.
    pub(crate) fn spend(&mut self, len_bytes: u32) {
        self.left -= i128::from(len_bytes) * i128::from(MS_PER_S);
    }

    /// Clears debts, so that unbounded writes do not delay later ones.
    pub(crate) fn forgive(&mut self) {
        self.left = self.left.max(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_bound_everything_goes_and_with_one_it_holds() {
        let mut rate = ByteRate::default();
        rate.spend(1 << 30);
        assert!(rate.allows(0, 5));
        let mut rate = ByteRate::default();
        assert!(!rate.allows(1000, 0), "a bucket begins empty");
        assert!(rate.allows(1000, 1));
        rate.spend(101);
        assert!(!rate.allows(1000, 101), "a debt of a hundred bytes takes a tenth of a second");
        assert!(rate.allows(1000, 102));
        rate.spend(1 << 20);
        rate.forgive();
        assert!(rate.allows(1000, 103));
    }

    proptest! {
        #[test]
        fn over_time_it_is_the_rate(
            bytes_per_s in 1_u64..1 << 30, steps in prop::collection::vec((0_u64..300, 1_u32..1 << 20), 1..200),
        ) {
            let mut rate = ByteRate::default();
            let (mut now_ms, mut written, mut last) = (0, 0_u64, 0);
            for (wait_ms, len_bytes) in steps {
                now_ms += wait_ms;
                if rate.allows(bytes_per_s, now_ms) {
                    rate.spend(len_bytes);
                    (written, last) = (written + u64::from(len_bytes), u64::from(len_bytes));
                }
            }
            let may = u128::from(bytes_per_s) * u128::from(now_ms + BURST_MS) / 1000;
            prop_assert!(u128::from(written - last) <= may, "{written} bytes in {now_ms} ms");
        }
    }
}
