//! Exhaustive mode: a fixed small workload, and a crash after every device write.
//!
//! Job: after each executed device write, cut the power with every subset of the last three unflushed writes of all
//! devices, and with all older unflushed writes kept or lost. Then recover, read everything, and check it. Each
//! recovery is itself cut off and repeated, at an I/O of the start or a few steps into the session after it; these
//! points cycle through all values.
//!
//! Invariant: the workload is the same in every run and for every share of it. It does not tear or damage writes; the
//! seeds do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use zc_cache::seam::RequestKind;

use crate::boot::{START_IOS, power_cut, start};
use crate::clients::ClientKind;
use crate::ends::gone;
use crate::env::Env;
use crate::judging::judge_origins;
use crate::options::Options;
use crate::requests::{clear, span, submit, write};
use crate::rest::read_all;
use crate::run::Violation;
use crate::setup::Setup;
use crate::turns::destage::bring_home;
use crate::world::World;

/// Unflushed writes of which every subset is kept.
const SUBSET_WRITES: usize = 3;
/// Steps of a session before its second crash; an upper bound.
const SECOND_STEPS: u64 = 40;

/// Workload, and share of its crashes.
#[derive(Debug, Clone, Copy)]
pub struct Exhaustive {
    /// The volumes write back.
    pub write_back: bool,
    /// Number of volumes, which share content.
    pub volumes: u16,
    /// Number of client requests.
    pub ops: u64,
    /// Remainder of the crash points to try, modulo `parts`.
    pub part: u64,
    /// Divisor for `part`.
    pub parts: u64,
    /// Only crash point to try, if set.
    pub point: Option<u64>,
    /// Receives the events and actions after the crash, as text.
    pub trace: Option<fn(&str)>,
}

/// Extent of the exploration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExhaustiveReport {
    /// Number of client requests.
    pub ops: u64,
    /// Number of device writes after which the power was cut.
    pub points: u64,
    /// Number of crashes, each with another subset of the unflushed writes.
    pub crashes: u64,
    /// Number of crashes during a recovery.
    pub second_crashes: u64,
}

impl ExhaustiveReport {
    /// Adds the report of another share of the same workload.
    pub fn add(&mut self, other: &Self) {
        self.ops = self.ops.max(other.ops);
        self.points += other.points;
        self.crashes += other.crashes;
        self.second_crashes += other.second_crashes;
    }
}

/// Runs a workload and all its crashes.
///
/// # Errors The first violation; its `seed` is the crash point.
pub fn run_exhaustive(options: &Exhaustive) -> Result<ExhaustiveReport, Violation> {
    let rng = Pcg64Mcg::seed_from_u64(1);
    let _plain = Options {
        ops: options.ops,
        canary: None,
        replacement: None,
        packer: None,
        profile: None,
        trace: None,
    };
    let mut world =
        World::build(Env::new(1, rng, None, None), Setup::small(options.write_back, options.volumes));
    start(&mut world);
    let mut report = ExhaustiveReport::default();
    let (mut turn, mut point, mut written) = (0, 0, written_by(&world));
    while report.ops < options.ops {
        world.env.begin_turn(turn);
        turn += 1;
        report.ops += u64::from(act(&mut world));
        if written_by(&world) != written {
            written = written_by(&world);
            point += 1;
            let wanted = options.point.map_or(point % options.parts == options.part, |only| only == point);
            if wanted {
                judge_origins(&mut world);
                report.points += 1;
                explore(&world, options, point, &mut report)?;
            }
        }
        if let Some(text) = world.env.take_violation() {
            return Err(Violation { seed: point, op: report.ops, text });
        }
    }
    Ok(report)
}

/// Returns the number of writes that devices have executed.
fn written_by(world: &World) -> u64 {
    world.origins.iter().map(|origin| origin.written).sum::<u64>() + world.cache.disk().written
}

/// Submits a request, advances time, or advances an operation. Returns `true` for a request.
fn act(world: &mut World) -> bool {
    match world.env.random_range(0..100) {
        0..30 if world.in_flight() < 4 => {
            client_asks(world);
            return true;
        }
        0..35 => world.tick(),
        _ if world.is_busy() => world.step(),
        _ => world.tick(),
    }
    false
}

fn client_asks(world: &mut World) {
    let count = world.volumes.len();
    let volume = if count > 1 { world.env.random_range(0..count) } else { 0 };
    let (offset, len) = span(world, volume, 16 << 10);
    let buf = world.clients.new_buf();
    match world.env.random_range(0..100) {
        0..25 => {
            world.memory.insert(buf, vec![0xaa; len]);
            submit(world, volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
        }
        25..80 => write(world, volume, offset, len, buf),
        80..94 => submit(world, volume, 0, 0, RequestKind::Flush, ClientKind::Flush),
        94..97 => clear(world, volume, offset, len, true),
        _ => clear(world, volume, offset, len, false),
    }
}

/// Explores all crashes at this moment.
fn explore(
    world: &World,
    options: &Exhaustive,
    point: u64,
    report: &mut ExhaustiveReport,
) -> Result<(), Violation> {
    let unflushed = unflushed(world);
    let last = unflushed.len().min(SUBSET_WRITES);
    let older = unflushed.len() - last;
    let choices = (1_u64 << last) * if older > 0 { 2 } else { 1 };
    for choice in 0..choices {
        let kept: Vec<(usize, usize)> = unflushed
            .iter()
            .enumerate()
            .filter(|(index, _)| match index.checked_sub(older) {
                None => choice >> last & 1 == 1,
                Some(of_last) => choice >> of_last & 1 == 1,
            })
            .map(|(_, write)| *write)
            .collect();
        report.crashes += 1;
        report.second_crashes += 1;
        let turn = point * 64 + choice;
        let attempt = || {
            let mut crashed = after_cut(world, &kept, turn, options.trace);
            recover(&mut crashed, turn);
            crashed.env.take_violation()
        };
        let text = match catch_unwind(AssertUnwindSafe(attempt)) {
            Ok(None) => continue,
            Ok(Some(text)) => text,
            Err(_) => "the manager panicked (see above)".to_owned(),
        };
        return Err(Violation { seed: point, op: report.ops, text: format!("choice {choice}: {text}") });
    }
    Ok(())
}

/// Returns the unflushed writes of all devices in the order of issue, as device and index in its log. The cache is
/// device 0.
fn unflushed(world: &World) -> Vec<(usize, usize)> {
    let disks = core::iter::once(world.cache.disk()).chain(world.origins.iter()).enumerate();
    let mut writes: Vec<(u64, usize, usize)> = disks
        .flat_map(|(disk, device)| device.unflushed().enumerate().map(move |(index, op)| (op, disk, index)))
        .collect();
    writes.sort_unstable();
    writes.into_iter().map(|(_, disk, index)| (disk, index)).collect()
}

/// Starts, is cut off again, restarts and reads everything.
fn recover(world: &mut World, turn: u64) {
    let early = turn.is_multiple_of(2);
    if early {
        world.crashes.cut_start(u32::try_from(turn / 2 % u64::from(START_IOS)).ok());
    }
    start(world);
    if !early {
        for _ in 0..turn / 2 % SECOND_STEPS {
            if world.is_busy() {
                world.step();
            } else {
                world.tick();
            }
        }
        power_cut(world);
    }
    read_all(world);
    if world.plan.write_back && turn.is_multiple_of(4) && !world.env.is_violated() {
        bring_home(world, true);
    }
    if !world.env.is_violated() {
        judge_origins(world);
    }
}

/// Returns a copy of the machine after a power cut that kept these unflushed writes.
fn after_cut(world: &World, kept: &[(usize, usize)], turn: u64, out: Option<fn(&str)>) -> World {
    let mut cut = world.fork(out);
    cut.env.begin_turn(turn);
    let (cache, origins) = (cut.cache.disk_mut(), cut.origins.iter_mut());
    let disks = core::iter::once(cache).chain(origins);
    for (disk, device) in disks.enumerate() {
        device.cut_to(|index| kept.contains(&(disk, index)));
    }
    gone(&mut cut, false);
    cut.env.advance();
    let now = cut.env.now();
    cut.models.power_cut(now);
    cut.state.reboot();
    cut.losses.reboot(false);
    cut.env.advance();
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workloads_survive_the_crashes_of_their_first_requests() {
        for (write_back, volumes) in [(false, 1), (true, 1), (true, 2)] {
            let options =
                Exhaustive { write_back, volumes, ops: 80, part: 0, parts: 1, point: None, trace: None };
            let report = run_exhaustive(&options).unwrap();
            assert!(report.points > 20 && report.crashes > 2 * report.points, "{report:?}");
            assert_eq!(report, run_exhaustive(&options).unwrap(), "the same every time");
        }
    }
}
