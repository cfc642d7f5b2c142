//! Runs of one seed, from the format to the last read.

use core::cell::Cell;
use std::hash::{Hash as _, Hasher as _};

use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::boot::{crashes_early, kill, power_cut, start};
use crate::coverage::Coverage;
use crate::ends::gone;
use crate::env::Env;
use crate::judging::judge_origins;
use crate::options::Options;
use crate::requests::random_request;
use crate::rest::{drain, read_all, stop_and_start};
use crate::setup::Setup;
use crate::turn_list::Turns;
use crate::turns::aimed::aim;
use crate::turns::destage::{bring_home, give_up};
use crate::turns::exchange::exchange;
use crate::turns::grow::grow;
use crate::turns::hung::clients_do_not_wait_for_weus;
use crate::turns::liveness::judge_liveness;
use crate::turns::replaced::replace_volume;
use crate::turns::rot::rot_one;
use crate::turns::store::pool_turn;
use crate::turns::sync::sync_often;
use crate::world::World;

/// Report of a run without a violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedReport {
    /// Number of client requests.
    pub ops: u64,
    /// Hash over every event and every byte read: equal for equal seeds.
    pub digest: u64,
    /// Hash over every action of the cache manager, in order, and the seed.
    pub actions: u64,
    /// Events that happened.
    pub coverage: Coverage,
}

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Seed of the run.
    pub seed: u64,
    /// Number of client requests before it.
    pub op: u64,
    /// Description of the observation.
    pub text: String,
}

/// Runs one seed.
///
/// # Errors The first violation.
///
/// # Panics If the manager panics on a broken internal invariant.
pub fn run_seed(seed: u64, options: &Options) -> Result<SeedReport, Violation> {
    run_whole(seed, options, &Cell::new(0))
}

/// Runs a seed and records the number of turns reached, also when it panics.
pub(crate) fn run_whole(seed: u64, options: &Options, reached: &Cell<u64>) -> Result<SeedReport, Violation> {
    let mut world = served_by(seed, options);
    let (mut op, mut number) = (0, 0);
    while op < options.ops && !world.env.is_violated() {
        world.env.begin_turn(number);
        number += 1;
        reached.set(number);
        op += u64::from(turn(&mut world));
    }
    conclude(world, op)
}

/// Runs only the given turns of a seed, whatever the number of requests.
///
/// # Errors The first violation.
///
/// # Panics If the manager panics on a broken internal invariant.
pub fn run_turns(seed: u64, options: &Options, turns: &Turns) -> Result<SeedReport, Violation> {
    run_listed(seed, options, turns.iter())
}

pub(crate) fn run_listed(
    seed: u64,
    options: &Options,
    turns: impl Iterator<Item = u64>,
) -> Result<SeedReport, Violation> {
    let mut world = served_by(seed, options);
    let mut op = 0;
    for number in turns {
        world.env.begin_turn(number);
        op += u64::from(turn(&mut world));
        if world.env.is_violated() {
            break;
        }
    }
    conclude(world, op)
}

/// Returns the machine of a seed, served.
fn served_by(seed: u64, options: &Options) -> World {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut setup = Setup::random(seed, &mut rng, options.profile);
    if let Some(replacement) = options.replacement {
        setup.config.replacement = replacement;
    }
    if let Some(packer) = options.packer {
        setup.config.packer = packer;
    }
    let mut world = World::build(Env::new(seed, rng, options.canary, options.trace), setup);
    start(&mut world);
    world
}

/// Runs the final checks and returns the report.
fn conclude(mut world: World, op: u64) -> Result<SeedReport, Violation> {
    world.env.begin_turn(u64::MAX);
    if !world.env.is_over() {
        end(&mut world);
    }
    if world.env.is_over() {
        world.env.take_violation();
    }
    if let Some(text) = world.env.take_violation() {
        return Err(Violation { seed: world.env.seed(), op, text });
    }
    gone(&mut world, false);
    let coverage = world.env.coverage().clone();
    let mut hasher = std::hash::DefaultHasher::new();
    coverage.iter().for_each(|count| count.hash(&mut hasher));
    world.env.digest().hash(&mut hasher);
    Ok(SeedReport { ops: op, digest: hasher.finish(), actions: world.actions.finish(), coverage })
}

/// Executes one turn. Returns `true` if it was a new request.
fn turn(world: &mut World) -> bool {
    if crashes_early(world) || pool_turn(world) {
        return false;
    }
    let width = world.env.random_range(1..12);
    match world.env.random_range(0..1000) {
        drawn if (936 - world.plan.habits.aimed..936).contains(&drawn) => aim(world),
        0..450 if world.in_flight() < width => {
            random_request(world);
            return true;
        }
        945..948 => world.stall(),
        936..945 if world.plan.habits.hangs.is_some() => world.stall(),
        948 if world.env.random_bool(0.3) => clients_do_not_wait_for_weus(world),
        950..985 => world.tick(),
        985..989 if world.faults.rot_dirty => rot_one(world),
        985..989 => world.decay(),
        989..991 if world.plan.syncing => sync_often(world),
        996 if world.plan.growing => grow(world),
        997 if world.plan.replacing => replace_volume(world),
        998 if world.exchange.is_drawn() => exchange(world),
        989..991 => idle(world),
        991..994 if !world.env.random_bool(world.plan.habits.ends) => world.step(),
        991 => power_cut(world),
        992 => kill(world),
        993 if world.env.random_bool(0.5) => stop_and_start(world),
        995 if world.plan.write_back => write_back_turn(world),
        994 if world.env.random_bool(0.2) => {
            drain(world);
            read_all(world);
        }
        _ => world.step(),
    }
    false
}

/// Executes a turn that matters only for volumes in write-back.
fn write_back_turn(world: &mut World) {
    match world.env.random_range(0..10) {
        0..6 => judge_origins(world),
        6 => bring_home(world, true),
        7 => bring_home(world, false),
        _ => give_up(world),
    }
}

/// Lets time pass without clients.
fn idle(world: &mut World) {
    drain(world);
    for _ in 0..world.env.random_range(0..120) {
        if world.is_busy() {
            world.step();
        } else {
            world.tick();
        }
    }
}

/// Reads everything, again after a clean stop. Then all faults end and everything must finish, after that stop or
/// from the state that the last turn left.
fn end(world: &mut World) {
    if world.env.random_bool(0.5) {
        drain(world);
        read_all(world);
        stop_and_start(world);
        read_all(world);
    }
    judge_liveness(world);
    stop_and_start(world);
    read_all(world);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::CANARIES;
    use crate::profile::Profile;

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

    /// Seeds that found bugs. Their schedules may change between versions, but the check costs nothing.
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
