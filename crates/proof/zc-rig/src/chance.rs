//! Chance that can be had again: numbers that follow from a seed (splitmix64, after Steele, Lea and Flood, OOPSLA
//! 2014).

use std::hash::{BuildHasher as _, RandomState};

/// A stream of numbers.
#[derive(Debug)]
pub(crate) struct Chance {
    state: u64,
}

/// A seed that differs from run to run, short enough to be typed.
pub(crate) fn fresh_seed() -> u64 {
    RandomState::new().hash_one(()) % 1_000_000
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let take = |seed| {
            let mut chance = Chance::new(seed);
            (0..20).map(|_| chance.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(take(3), take(3));
        assert_ne!(take(3), take(4));
        assert!(take(5).iter().all(|number| *number < 1000));
    }
}
