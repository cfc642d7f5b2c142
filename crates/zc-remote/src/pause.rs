//! Pauses between connection attempts, and pseudo-random numbers for them.

use crate::limits::{PAUSE_MAX_MS, PAUSE_MIN_MS};

/// Small generator (xorshift64*). Its numbers need no quality beyond spreading out.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number below `bound`, 0 for a bound of 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        if bound == 0 { 0 } else { number % bound }
    }
}

/// Exponential back-off with jitter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pauses {
    failures: u32,
}

impl Pauses {
    /// Returns the pause after another failed attempt: half of the step for certain, the other half at random.
    pub(crate) fn next_ms(&mut self, dice: &mut Dice) -> u64 {
        let step = PAUSE_MIN_MS.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX_MS);
        self.failures = self.failures.saturating_add(1);
        step / 2 + dice.below(step / 2 + 1)
    }

    /// The connection works.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_their_bound_and_start_again() {
        let (mut pauses, mut dice) = (Pauses::default(), Dice::new(7));
        let drawn: Vec<u64> = (0..40).map(|_| pauses.next_ms(&mut dice)).collect();
        assert!((50..=100).contains(&drawn[0]) && (100..=200).contains(&drawn[1]), "{drawn:?}");
        assert!(drawn[7..].iter().all(|pause| (2500..=5000).contains(pause)), "{drawn:?}");
        assert!(drawn[7..].windows(2).any(|pair| pair[0] != pair[1]), "jitter: {drawn:?}");
        pauses.reset();
        assert!(pauses.next_ms(&mut dice) <= 100);
    }
}
