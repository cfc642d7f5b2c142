//! Fixed small workload, and a crash after every device write, with every subset of the last unflushed writes.
//!
//! Job: run the workload up to its n-th write; cut the power, with older unflushed writes kept or lost and a chosen
//! subset of the last three kept. Then recover, cut off once more at a point that cycles through all values, and
//! check the whole store.
//!
//! Invariant: the workload is the same in every run; each crash replays it up to its point. It does not tear or
//! damage writes; the seeds do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::RngExt as _;
use zc_store::{CatalogOp, Config, RootId};

use super::perform::{cut, forget, step};
use super::world::{ADDRESSES, RUN, World};
use crate::run::Violation;

/// Unflushed writes of which every subset is kept.
const SUBSET_WRITES: usize = 3;
/// Segments for contents; few, so that the cleaner is active.
const SPARE_SEGMENTS: u32 = 9;
/// Steps of a recovery before it is cut off; an upper bound.
const SECOND_STEPS: u64 = 60;

/// Share of the workload's crashes.
#[derive(Debug, Clone, Copy)]
pub struct StoreExhaustive {
    /// Number of requests.
    pub ops: u64,
    /// Remainder of the crash points to try, modulo `parts`.
    pub part: u64,
    /// Divisor for `part`.
    pub parts: u64,
}

/// Extent of the exploration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreExhaustiveReport {
    /// Number of device writes after which the power was cut.
    pub points: u64,
    /// Number of crashes, each with another subset of the unflushed writes.
    pub crashes: u64,
}

/// Runs the workload and its crashes.
///
/// # Errors The first violation; its `seed` is the crash point.
pub fn run_store_exhaustive(options: &StoreExhaustive) -> Result<StoreExhaustiveReport, Violation> {
    let mut report = StoreExhaustiveReport::default();
    for point in (1..).filter(|point| point % options.parts == options.part) {
        let Some(world) = workload(options.ops, point) else { break };
        report.points += 1;
        let unflushed = world.disk.unflushed().count();
        let last = unflushed.min(SUBSET_WRITES);
        let older = unflushed - last;
        for choice in 0..(1_u64 << last) * if older > 0 { 2 } else { 1 } {
            report.crashes += 1;
            let attempt = || crash(options.ops, point, older, choice);
            let text = match catch_unwind(AssertUnwindSafe(attempt)) {
                Ok(None) => continue,
                Ok(Some(text)) => text,
                Err(_) => "the store panicked (see above)".to_owned(),
            };
            return Err(Violation { seed: point, op: options.ops, text: format!("choice {choice}: {text}") });
        }
    }
    Ok(report)
}

/// Runs the workload up to its `point`-th write. Returns `None` if it has fewer.
fn workload(ops: u64, point: u64) -> Option<World> {
    let config = Config {
        cache_pages: 12,
        dirty_pages_max: 6,
        checkpoint_log_bytes: 100_000,
        batch_bytes_max: 16 << 10,
        clean_below_percent: 90,
        clean_until_percent: 95,
        quiet_ms: 0,
        ..Config::default()
    }
    .bounded(super::world::SEGMENT);
    let segments = config.reserve_segments(super::world::shape(0)) as u32 + SPARE_SEGMENTS;
    let mut world = World::new(1, segments, config);
    world.values = 30;
    world.open();
    let mut done = 0;
    // Reads at the end of a crash must not count, so writes are counted from here on.
    let first = world.disk.written;
    while world.disk.written - first < point {
        if done >= ops && world.pending.is_empty() {
            return None;
        }
        done += u64::from(act(&mut world, done < ops));
        if world.violation.is_some() {
            break;
        }
    }
    Some(world)
}

/// Submits a request or advances work in flight. Returns `true` for a request.
fn act(world: &mut World, may_ask: bool) -> bool {
    let asks = may_ask && world.waiting.len() < 4 && world.rng.random_bool(0.3);
    if !asks {
        if world.pending.is_empty() {
            world.tick();
        }
        step(world);
        return false;
    }
    let address = ADDRESSES[world.rng.random_range(0..3)] + world.rng.random_range(0..RUN);
    let (volume, other) = (RootId(0), RootId(1));
    match world.rng.random_range(0..100) {
        _ if world.history.now().roots.is_empty() => world.catalog(CatalogOp::Create, volume, volume),
        0..60 => {
            let values = (0..3).map(|_| world.rng.random_range(0..=30)).collect();
            world.write(volume, address, values);
        }
        60..80 => world.flush(),
        80..86 => world.clear(volume, address, 3),
        86..91 => world.catalog(CatalogOp::Snapshot, other, volume),
        91..95 => world.catalog(CatalogOp::Rollback, volume, other),
        _ => world.catalog(CatalogOp::Delete, other, other),
    }
    true
}

/// Returns the violation that a crash at this point exposes, if any.
fn crash(ops: u64, point: u64, older: usize, choice: u64) -> Option<String> {
    let mut world = workload(ops, point)?;
    let keeps = |index: usize| match index.checked_sub(older) {
        None => choice >> SUBSET_WRITES & 1 == 1,
        Some(of_last) => choice >> of_last & 1 == 1,
    };
    world.disk.cut_to(keeps);
    forget(&mut world);
    for _ in 0..(point * 8 + choice) % SECOND_STEPS {
        step(&mut world);
    }
    cut(&mut world);
    world.open();
    world.judge_restart();
    world.violation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crash_of_a_small_workload_is_survived() {
        let options = StoreExhaustive { ops: 60, part: 1, parts: 3 };
        let report = run_store_exhaustive(&options).unwrap();
        assert!(report.points > 10 && report.crashes > 4 * report.points / 2, "{report:?}");
    }
}
