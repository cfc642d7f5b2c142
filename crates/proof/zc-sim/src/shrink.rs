//! Shortens a failing run: searches for a subset of its turns that still fails.
//!
//! Each turn draws from its own generator, so a run with turns left out remains meaningful. The search is delta
//! debugging: pieces of the list are left out, large ones first, as long as the rest fails. The result is short, not
//! minimal, and may fail for another reason than the whole run did.

use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::options::Options;
use crate::run::{run_listed, run_whole};
use crate::turn_list::Turns;

/// Short run that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// Turns that are sufficient.
    pub turns: Turns,
    /// Number of turns of the whole run until it failed.
    pub whole: u64,
    /// Number of runs needed.
    pub runs: u32,
}

/// Shortens the run of a failing seed, with at most `runs_max` runs. Returns `None` if it does not fail.
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
    Some(Shrunk { turns: Turns::new(turns), whole, runs })
}

/// Leaves out turns that are not needed for the failure. Returns the rest and the number of trials.
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
