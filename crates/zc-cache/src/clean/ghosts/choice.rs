//! Choice of the time at which read misses enter, at once or at their second time: predictions of ghosts of both,
//! corrected by measurements of the cache.
//!
//! A ghost evicts single extents, and the cache evicts units, has read-ahead and shares contents. So a ghost is off
//! by a factor, which the cache's own hits show for the admission that it has. It is measured again after each
//! change, when the extents of the other admission have left.
//!
//! Invariants: a choice rests on some eight times the cache, and changes for a margin alone. Out of scope: counting.

pub(super) const ROUND_READS: u64 = 1024;
/// Part of the reads so far that is forgotten after a round: one in this number.
pub(super) const AGE_PART: u64 = 32;
/// Minimum gain of admission at the second time: one hit more in this number of reads. Less does not pay for the
/// change.
const MARGIN_PART: u64 = 100;
/// Rounds after a change that give no information about the new admission: about as many reads as a ghost has
/// addresses.
const SETTLE_ROUNDS: u64 = 4;
/// Rounds that a factor rests on.
const LEARN_ROUNDS: u64 = 4;
const ONE: u64 = 1000;

/// Extents that enter the cache where the manager chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Always,
    /// Read misses on their second time.
    SecondTouch,
}

/// Reads of a round, or of many: how many ghosts of both admissions answered, and how many the cache did.
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

    /// Counts that are a little less each.
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

/// The choice, and its inputs.
#[derive(Debug)]
pub(super) struct Chooser {
    choice: Choice,
    /// All reads, the older the less.
    all: Round,
    /// Reads since the present choice had its effect.
    present: Round,
    /// Rounds since the choice changed.
    rounds: u64,
    /// Hits of the cache for each thousand of its ghost, with each admission. None as long as nothing was measured.
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

    /// Ends a round. A cache that `may_choose` is full, and not tiny.
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

    /// Returns the admission with more hits. An untried admission is not assumed to be better than its ghost
    /// predicts.
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

    /// Ends `rounds` rounds in which ghosts answer these percentages of the reads, and the cache `actual` of the
    /// present choice. Returns the choice then.
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

    /// A cache that matches its ghosts.
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
