//! `cargo xtask bench store`: what a pool asks of its device, and how long clients wait for it.
//!
//! Job: drive the daemon's own pool ([`zc_pool::Pool`]) on a device in memory whose operations cost what an SSD's or a
//! disk's do, count what it was asked, and say it per byte of a client.
//!
//! Invariants: counts and times are the same in every run and on every machine; processor times are not. `store.md`
//! beside this crate is a run with `--out benches`.
//!
//! What the kept run fell short of, and why. The log takes the client's byte, pages, headers and what is moved. A victim
//! gives what is not moved out of it. With a share `m` of each victim moved, the device writes
//! (1 + pages + headers) / (1 - m) bytes: a byte of pages costs as much as a byte of a client. One write at a time has a
//! header of a block for itself, half of what it brings. A checkpoint writes its pages at once: what clients write
//! meanwhile waits behind up to 8 MiB. In pools of some GiB and more, tables have more pages than may be changed between
//! two checkpoints, so that writes all over a volume change pages for one of them each.
//!
//! What it does not do: measure a real device or the daemon (`bench rivals` does that for the cache).

pub mod device;
pub mod flushes;
pub mod overwrite;
pub mod programs;
pub mod report;
pub mod rig;
pub mod series;

use self::device::{DISK, Model, SSD};
use self::overwrite::{Case, Pattern, Rounds};
use self::programs::Program;
use self::rig::Place;

/// Bytes of a segment: the default of a new pool.
const SEGMENT_BYTES: u32 = zc_store::limits::SEGMENT_BYTES_DEFAULT;
/// Of a pool with as many segments as one eight times as large has of the default ones.
const SMALL_SEGMENT_BYTES: u32 = SEGMENT_BYTES / 8;

/// In the segments that a new pool has.
const fn case(full_percent: u64, pattern: Pattern, depth: usize) -> Case {
    Case { full_percent, pattern, depth, segment_bytes: None }
}

/// In small segments.
const fn in_small(case: Case) -> Case {
    Case { segment_bytes: Some(SMALL_SEGMENT_BYTES), ..case }
}

/// The loads of the SSD.
const CASES: [Case; 14] = {
    let zipf = Pattern::Zipf(0.99);
    [
        case(50, Pattern::Uniform, 32),
        case(70, Pattern::Uniform, 32),
        case(80, Pattern::Uniform, 1),
        case(80, Pattern::Uniform, 32),
        case(80, Pattern::Uniform, 1000),
        case(90, Pattern::Uniform, 32),
        case(50, zipf, 32),
        case(70, zipf, 32),
        case(80, zipf, 1),
        case(80, zipf, 32),
        case(90, zipf, 32),
        in_small(case(80, Pattern::Uniform, 1)),
        in_small(case(80, Pattern::Uniform, 32)),
        in_small(case(80, zipf, 32)),
    ]
};
/// The load of the disk.
const DISK_CASE: Case = case(80, Pattern::Uniform, 32);
/// Generations of the series.
const GENERATIONS: u64 = 100;

/// How large everything is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// How often volumes are overwritten.
    pub rounds: Rounds,
}

/// All that was measured.
#[derive(Debug)]
pub struct Measured {
    /// On the SSD.
    pub overwrites: Vec<overwrite::Seen>,
    /// On the disk.
    pub disk: Option<overwrite::Seen>,
    /// What the disk costs.
    pub disk_model: Model,
    /// Flushes behind small writes.
    pub flushes: Vec<flushes::Seen>,
    /// Snapshots.
    pub series: Option<series::Seen>,
    /// Programs with and without compression.
    pub programs: Vec<programs::Seen>,
}

/// Runs everything whose name contains `only`; `say` is told the names.
///
/// # Errors
/// The device is too small for a pool, or the pool fails.
pub fn run(size: Size, only: &str, say: &mut dyn FnMut(&str)) -> anyhow::Result<Measured> {
    let place = |model| Place { model, device_bytes: size.device_bytes, segment_bytes: SEGMENT_BYTES };
    let mut is_wanted = |name: &str| {
        let is_wanted = name.contains(only);
        if is_wanted {
            say(name);
        }
        is_wanted
    };
    let mut overwrites = Vec::new();
    for case in CASES {
        if is_wanted(&format!("overwrites, {case}")) {
            let place = Place { segment_bytes: case.segment_bytes.unwrap_or(SEGMENT_BYTES), ..place(SSD) };
            overwrites.push(overwrite::run(place, case, size.rounds)?);
        }
    }
    let disk =
        is_wanted("overwrites on the disk").then(|| overwrite::run(place(DISK), DISK_CASE, size.rounds));
    let mut flushes = Vec::new();
    for len_bytes in [4 << 10, rig::CHUNK_BYTES] {
        if is_wanted(&format!("flushes of {len_bytes} bytes")) {
            flushes.push(flushes::run(place(DISK), size.device_bytes / 2, len_bytes)?);
        }
    }
    let series =
        is_wanted("generations").then(|| series::run(place(DISK), size.device_bytes / 4, GENERATIONS));
    let mut played = Vec::new();
    for (program, model) in Program::ALL.into_iter().flat_map(|program| [(program, SSD), (program, DISK)]) {
        if is_wanted(&format!("program {} on the {}", program.name(), model.name)) {
            played.push(programs::run(place(model), program)?);
        }
    }
    Ok(Measured {
        overwrites,
        disk: disk.transpose()?,
        disk_model: DISK,
        flushes,
        series: series.transpose()?,
        programs: played,
    })
}
