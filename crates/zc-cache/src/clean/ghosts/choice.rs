//! Choice of the admission of read misses, at the first or at the second access: ghosts of both predict the hits,
//! corrected by measurements of the cache.
//!
//! A ghost evicts single extents; the cache evicts units, prefetches, and shares contents. A ghost's prediction is
//! therefore off by a factor, which is measured from the cache's own hits for the admission in force. It is measured
//! again after each change, when extents admitted by the former rule have left the cache.
//!
//! Invariants: a choice rests on reads of about eight times the cache size, and changes only for a minimum gain. Out
//! of scope: counting.

pub(super) const ROUND_READS: u64 = 1024;
/// Ageing of counts: a round removes one part in this number.
pub(super) const AGE_PART: u64 = 32;
/// Minimum gain of second-access admission: one additional hit per this number of reads. A smaller gain does not pay
/// for the change.
const MARGIN_PART: u64 = 100;
/// Rounds after a change that are not measured: about as many reads as a ghost has addresses.
const SETTLE_ROUNDS: u64 = 4;
/// Rounds from which a factor is computed.
const LEARN_ROUNDS: u64 = 4;
const ONE: u64 = 1000;

/// Admission of read misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Always,
    /// Read misses at their second access.
    SecondTouch,
}

/// Reads of one or more rounds, with the hits of both ghosts and of the cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    pub(super) reads: u64,
    pub(super) always: u64,
    pub(super) second: u64,
    pub(super) actual: u64,
}

impl Round {
    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.always += other.always;
        self.second += other.second;
        self.actual += other.actual;
    }

    /// Counts after one round of ageing.
    fn aged(&self) -> Self {
        let aged = |count: u64| count - count / AGE_PART;
        Self {
            reads: aged(self.reads),
            always: aged(self.always),
            second: aged(self.second),
            actual: aged(self.actual),
        }
    }
}

#[derive(Debug)]
pub(super) struct Chooser {
    choice: Choice,
    /// All reads, with older ones counted less.
    all: Round,
    /// Reads since the current choice took effect.
    present: Round,
    /// Rounds since the last change.
    rounds: u64,
    /// Hits of the cache per thousand hits of its ghost, for each admission; `None` before the first measurement.
    always_factor: Option<u64>,
    second_factor: Option<u64>,
}

impl Chooser {
    pub(super) const fn new() -> Self {
        let none = Round { reads: 0, always: 0, second: 0, actual: 0 };
        Self {
            choice: Choice::Always,
            all: none,
            present: none,
            rounds: 0,
            always_factor: None,
            second_factor: None,
        }
    }

    pub(super) const fn choice(&self) -> Choice {
        self.choice
    }

    /// Ends a round. `may_choose` requires a full cache that is not tiny.
    pub(super) fn round(&mut self, round: &Round, may_choose: bool) {
        self.rounds += 1;
        self.all.add(round);
        if self.rounds > SETTLE_ROUNDS {
            self.present.add(round);
            self.learn();
        }
        let chosen = if may_choose { self.better() } else { Choice::Always };
        if chosen != self.choice {
            (self.choice, self.present, self.rounds) = (chosen, Round::default(), 0);
        }
        (self.all, self.present) = (self.all.aged(), self.present.aged());
    }

    fn learn(&mut self) {
        let Round { reads, always, second, actual } = self.present;
        if reads < LEARN_ROUNDS * ROUND_READS / 2 {
            return;
        }
        let factor = |ghost: u64| (actual * ONE).checked_div(ghost).unwrap_or(ONE).clamp(ONE / 10, ONE * 10);
        match self.choice {
            Choice::Always => self.always_factor = Some(factor(always)),
            Choice::SecondTouch => self.second_factor = Some(factor(second)),
        }
    }

    /// Returns the admission with more hits. An untried admission is predicted by its ghost with a factor of at most
    /// 1.
    fn better(&self) -> Choice {
        let Some(always_factor) = self.always_factor else { return Choice::Always };
        let second_factor = self.second_factor.unwrap_or_else(|| always_factor.min(ONE));
        let always = self.all.always * always_factor / ONE;
        let second = self.all.second * second_factor / ONE;
        match self.choice {
            Choice::Always if second >= always + self.all.reads / MARGIN_PART => Choice::SecondTouch,
            Choice::SecondTouch if self.rounds > SETTLE_ROUNDS && second < always => Choice::Always,
            choice => choice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `rounds` rounds with these ghost hits, in per cent of the reads, and `actual` hits of the cache for the
    /// current choice. Returns the resulting choice.
    fn after(
        chooser: &mut Chooser,
        rounds: usize,
        (always, second): (u64, u64),
        actual: impl Fn(Choice) -> u64,
    ) -> Choice {
        let reads_of = |percent: u64| percent * ROUND_READS / 100;
        for _ in 0..rounds {
            let actual = reads_of(actual(chooser.choice()));
            let round =
                Round { reads: ROUND_READS, always: reads_of(always), second: reads_of(second), actual };
            chooser.round(&round, true);
        }
        chooser.choice()
    }

    /// Hits of a cache that matches its ghosts.
    fn as_said((always, second): (u64, u64)) -> impl Fn(Choice) -> u64 {
        move |choice| if choice == Choice::Always { always } else { second }
    }

    #[test]
    fn a_margin_is_wanted_and_then_the_choice_stays() {
        let mut chooser = Chooser::new();
        for (rounds, said, chosen) in [
            (30, (50, 50), Choice::Always),
            (20, (50, 60), Choice::SecondTouch),
            (100, (50, 50), Choice::SecondTouch),
            (100, (60, 50), Choice::Always),
        ] {
            assert_eq!(after(&mut chooser, rounds, said, as_said(said)), chosen, "{said:?}");
        }
    }

    #[test]
    fn a_cache_that_is_better_than_its_ghost_keeps_its_admission() {
        assert_eq!(after(&mut Chooser::new(), 50, (20, 30), |_| 33), Choice::Always);
        assert_eq!(after(&mut Chooser::new(), 50, (20, 30), as_said((20, 30))), Choice::SecondTouch);
    }

    #[test]
    fn what_does_not_keep_its_promise_is_left_and_not_tried_again() {
        let mut chooser = Chooser::new();
        let broken = as_said((70, 60));
        assert_eq!(after(&mut chooser, 8, (70, 80), &broken), Choice::SecondTouch);
        assert_eq!(after(&mut chooser, 12, (70, 80), &broken), Choice::Always);
        assert_eq!(after(&mut chooser, 200, (70, 80), &broken), Choice::Always);
    }

    #[test]
    fn a_cache_with_room_admits_all() {
        let mut chooser = Chooser::new();
        assert_eq!(after(&mut chooser, 20, (10, 60), as_said((10, 60))), Choice::SecondTouch);
        chooser.round(&Round { reads: ROUND_READS, always: 100, second: 600, actual: 600 }, false);
        assert_eq!(chooser.choice(), Choice::Always);
    }
}
