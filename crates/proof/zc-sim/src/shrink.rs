//! Makes a failing run short: which of its turns are enough for it to fail?
//!
//! Each turn draws from a generator of its own, so that a run with turns left out still means something. The search is
//! delta debugging: pieces of the list are left out, large ones first, as long as what is left fails. What it finds is
//! short, not shortest, and may fail for another reason than the whole run did.

use core::cell::Cell;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::run::{Options, run_listed, run_whole};

/// A list of turns, ascending: `0-4,9,12-13`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turns(Vec<u64>);

impl Turns {
    /// The turns, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for turn in self.iter() {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == turn => *last = *last.start()..=turn,
                _ => ranges.push(turn..=turn),
            }
        }
        ranges
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges().into_iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

/// What is wrong with a list of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnsError;

impl fmt::Display for TurnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("turns are written as 0-4,9,12-13: ascending, below 16777216")
    }
}

impl core::error::Error for TurnsError {}

/// Largest turn in a list.
const TURN_MAX: u64 = (1 << 24) - 1;

impl FromStr for Turns {
    type Err = TurnsError;

    fn from_str(text: &str) -> Result<Self, TurnsError> {
        let mut turns: Vec<u64> = Vec::new();
        for piece in text.split(',') {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
                return Err(TurnsError);
            };
            if first > last || last > TURN_MAX || turns.last().is_some_and(|turn| *turn >= first) {
                return Err(TurnsError);
            }
            turns.extend(first..=last);
        }
        Ok(Self(turns))
    }
}

/// A short run that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// The turns that are enough.
    pub turns: Turns,
    /// Turns of the whole run until it failed.
    pub whole: u64,
    /// Runs that it took.
    pub runs: u32,
}

/// Shortens the run of a failing seed, with at most `runs_max` runs. `None` if it does not fail.
#[must_use]
pub fn shrink(seed: u64, options: &Options, runs_max: u32) -> Option<Shrunk> {
    let reached = Cell::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| run_whole(seed, options, &reached)));
    if outcome.is_ok_and(|outcome| outcome.is_ok()) {
        return None;
    }
    let whole = reached.get();
    let fails = |turns: &[u64]| {
        let run = || run_listed(seed, options, turns.iter().copied());
        !catch_unwind(AssertUnwindSafe(run)).is_ok_and(|outcome| outcome.is_ok())
    };
    let (turns, runs) = leave_out((0..whole).collect(), runs_max, fails);
    Some(Shrunk { turns: Turns(turns), whole, runs })
}

/// Leaves out what is not needed to fail. Returns what is left and the number of trials.
fn leave_out(mut list: Vec<u64>, trials_max: u32, fails: impl Fn(&[u64]) -> bool) -> (Vec<u64>, u32) {
    let mut trials = 0;
    let mut piece = list.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        let before = list.len();
        while at < list.len() && trials < trials_max {
            let mut shorter = list.clone();
            shorter.drain(at..(at + piece).min(list.len()));
            trials += 1;
            if fails(&shorter) {
                list = shorter;
            } else {
                at += piece;
            }
        }
        if trials >= trials_max || (piece == 1 && list.len() == before) {
            break;
        }
        piece = if piece == 1 { 1 } else { piece.div_ceil(2) };
    }
    (list, trials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::CANARIES;

    #[test]
    fn what_is_not_needed_is_left_out() {
        let needed = [3, 40, 41, 77];
        let (left, trials) =
            leave_out((0..100).collect(), 1000, |list| needed.iter().all(|turn| list.contains(turn)));
        assert_eq!(left, needed);
        assert!(trials < 200, "{trials} trials");
    }

    #[test]
    fn lists_are_written_and_read_alike() {
        let turns: Turns = "0-4,9,12-13".parse().unwrap();
        assert_eq!(turns.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 9, 12, 13]);
        assert_eq!(turns.to_string(), "0-4,9,12-13");
        for bad in ["", "4-3", "5,5", "9,1", "x", "0-99999999999"] {
            assert_eq!(bad.parse::<Turns>(), Err(TurnsError), "{bad}");
        }
    }

    #[test]
    fn a_failing_run_becomes_short_and_still_fails() {
        let options = Options {
            ops: 500,
            canary: Some(CANARIES[0].1),
            replacement: None,
            packer: None,
            profile: None,
            trace: None,
        };
        let seed = (1..50).find(|seed| crate::run_seed(*seed, &options).is_err()).unwrap();
        let shrunk = shrink(seed, &options, 800).unwrap();
        assert!(shrunk.turns.len() as u64 * 3 < shrunk.whole, "{} of {}", shrunk.turns.len(), shrunk.whole);
        run_listed(seed, &options, shrunk.turns.iter()).unwrap_err();
        assert!(shrink(seed, &Options { canary: None, ..options }, 200).is_none());
    }
}
