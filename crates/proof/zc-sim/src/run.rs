//! One seed from format to the last read.

use core::cell::Cell;
use std::hash::{Hash as _, Hasher as _};

use rand::RngExt as _;
use zc_cache::config::{Packer, Replacement};

use crate::canary::Canary;
use crate::coverage::Coverage;
use crate::profile::Profile;
use crate::shrink::Turns;
use crate::world::World;

/// How to run a seed.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Client requests.
    pub ops: u64,
    /// A deliberate bug.
    pub canary: Option<Canary>,
    /// The replacement policy; `None`: the seed decides.
    pub replacement: Option<Replacement>,
    /// Where extents go in a WEU; `None`: the seed decides.
    pub packer: Option<Packer>,
    /// The kind of machine; `None`: the seed decides.
    pub profile: Option<Profile>,
    /// Where every event and action goes, for people.
    pub trace: Option<fn(&str)>,
}

/// A run without a violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedReport {
    /// Client requests.
    pub ops: u64,
    /// Hash over every event and every byte read: equal for equal seeds.
    pub digest: u64,
    /// Hash over every action of the cache manager, in order, and the seed.
    pub actions: u64,
    /// What happened.
    pub coverage: Coverage,
}

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// Client requests before it.
    pub op: u64,
    /// What was seen.
    pub text: String,
}

/// Runs one seed.
///
/// # Errors
/// The first violation.
///
/// # Panics
/// When the manager does: a broken invariant inside it.
pub fn run_seed(seed: u64, options: &Options) -> Result<SeedReport, Violation> {
    run_whole(seed, options, &Cell::new(0))
}

/// Runs a seed and tells how many turns were reached, also when it panics.
pub(crate) fn run_whole(seed: u64, options: &Options, reached: &Cell<u64>) -> Result<SeedReport, Violation> {
    let mut world = World::new(seed, options);
    let (mut op, mut number) = (0, 0);
    while op < options.ops && world.violation.is_none() {
        world.begin_turn(number);
        number += 1;
        reached.set(number);
        op += u64::from(turn(&mut world));
    }
    conclude(world, op)
}

/// Runs the given turns of a seed and no others, whatever the number of requests.
///
/// # Errors
/// The first violation.
///
/// # Panics
/// When the manager does: a broken invariant inside it.
pub fn run_turns(seed: u64, options: &Options, turns: &Turns) -> Result<SeedReport, Violation> {
    run_listed(seed, options, turns.iter())
}

pub(crate) fn run_listed(
    seed: u64,
    options: &Options,
    turns: impl Iterator<Item = u64>,
) -> Result<SeedReport, Violation> {
    let mut world = World::new(seed, options);
    let mut op = 0;
    for number in turns {
        world.begin_turn(number);
        op += u64::from(turn(&mut world));
        if world.violation.is_some() {
            break;
        }
    }
    conclude(world, op)
}

/// The last checks, and the report.
fn conclude(mut world: World, op: u64) -> Result<SeedReport, Violation> {
    world.begin_turn(u64::MAX);
    if !world.is_over {
        end(&mut world);
    }
    if world.is_over {
        world.violation = None;
    }
    if let Some(text) = world.violation.take() {
        return Err(Violation { seed: world.seed, op, text });
    }
    let coverage = world.finish();
    let mut hasher = std::hash::DefaultHasher::new();
    coverage.iter().for_each(|count| count.hash(&mut hasher));
    world.digest.hash(&mut hasher);
    Ok(SeedReport { ops: op, digest: hasher.finish(), actions: world.actions.finish(), coverage })
}

/// One thing happens. True if it was a new request.
fn turn(world: &mut World) -> bool {
    if world.crashes_early() || world.pool_turn() {
        return false;
    }
    let width = world.rng.random_range(1..12);
    match world.rng.random_range(0..1000) {
        drawn if (936 - world.habits.aimed..936).contains(&drawn) => world.aim(),
        0..450 if world.in_flight() < width => {
            world.random_request();
            return true;
        }
        945..948 => world.stall(),
        936..945 if world.habits.hangs.is_some() => world.stall(),
        948 if world.rng.random_bool(0.3) => world.clients_do_not_wait_for_weus(),
        950..985 => world.tick(),
        985..989 if world.faults.rot_dirty => world.rot_one(),
        985..989 => world.decay(),
        989..991 if world.syncing => world.sync_often(),
        996 if world.growing => world.grow(),
        997 if world.replacing => world.replace_volume(),
        998 if world.exchange.is_drawn() => world.exchange(),
        989..991 => idle(world),
        991..994 if !world.rng.random_bool(world.habits.ends) => world.step(),
        991 => world.power_cut(),
        992 => world.kill(),
        993 if world.rng.random_bool(0.5) => world.stop_and_start(),
        995 if world.write_back => write_back_turn(world),
        994 if world.rng.random_bool(0.2) => {
            world.drain();
            world.read_all();
        }
        _ => world.step(),
    }
    false
}

/// What only matters where volumes write back.
fn write_back_turn(world: &mut World) {
    match world.rng.random_range(0..10) {
        0..6 => world.judge_origins(),
        6 => world.bring_home(true),
        7 => world.bring_home(false),
        _ => world.give_up(),
    }
}

/// No client for a while.
fn idle(world: &mut World) {
    world.drain();
    for _ in 0..world.rng.random_range(0..120) {
        if world.is_busy() {
            world.step();
        } else {
            world.tick();
        }
    }
}

/// Everything is read, after a clean stop once more. Then nothing fails any more, and everything ends well: after that
/// stop, or in what the last turn left.
fn end(world: &mut World) {
    if world.rng.random_bool(0.5) {
        world.drain();
        world.read_all();
        world.stop_and_start();
        world.read_all();
    }
    world.judge_liveness();
    world.stop_and_start();
    world.read_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::CANARIES;

    const OPTIONS: Options =
        Options { ops: 400, canary: None, replacement: None, packer: None, profile: None, trace: None };

    #[test]
    fn the_same_seed_gives_the_same_digest() {
        for seed in [3, 4, 5] {
            let first = run_seed(seed, &OPTIONS).unwrap();
            assert_eq!(first, run_seed(seed, &OPTIONS).unwrap());
        }
        let (third, fourth) = (run_seed(3, &OPTIONS).unwrap(), run_seed(4, &OPTIONS).unwrap());
        assert_ne!(third.digest, fourth.digest);
        assert_ne!(third.actions, fourth.actions);
    }

    /// Seeds that found bugs. Sharing of seeds with versions before the fix is not promised, but costs nothing.
    #[test]
    fn seeds_that_found_bugs_stay_clean() {
        for seed in [8, 29, 54, 67, 110, 139, 575, 589, 1026, 1087, 7323] {
            run_seed(seed, &Options { ops: 2000, ..OPTIONS }).unwrap();
        }
    }

    #[test]
    fn more_than_half_of_the_writes_have_contents_of_their_own() {
        for (name, profile) in Profile::ALL {
            let options = Options { profile: Some(profile), ..OPTIONS };
            let mut coverage = Coverage::default();
            (1..=12).for_each(|seed| coverage.merge(&run_seed(seed, &options).unwrap().coverage));
            let unique = coverage.unique_percent();
            assert!(unique > 50, "profile {name}: {unique} %");
        }
    }

    #[test]
    fn every_canary_is_found() {
        for (name, canary) in CANARIES {
            let options = Options { ops: 2000, canary: Some(*canary), profile: canary.profile(), ..OPTIONS };
            let found = (1..=100).any(|seed| {
                std::panic::catch_unwind(|| run_seed(seed, &options)).is_ok_and(|outcome| outcome.is_err())
            });
            assert!(found, "{name} was not found in 100 seeds");
        }
    }
}
