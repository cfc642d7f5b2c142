//! Deterministic simulation of manager, format and recovery.
//!
//! Job: run the production cache manager over simulated devices under one seed, with operations that end in random
//! order, power cuts, killed processes and faults of the cache device, and check every byte that a client reads
//! against a model disk (guarantees G1 to G4 and G7 of the design).
//!
//! Invariants: one seed, one run: no clock, no thread, no I/O. A failing seed replays to the same event.
//!
//! # What may fail where, and what must still hold
//! | zone | fault | must hold |
//! |---|---|---|
//! | cache, all | power cut: any subset of unflushed writes, torn at 512 or 4096 bytes | G1, G2 |
//! | cache, all | process killed: what was in flight happens or not | G1, G2, nothing distrusted |
//! | cache, all | device dies: every operation fails from some moment on | G1, G2, G4 |
//! | WEU slots | bit rot; a slot rolled back to earlier contents | G3: a miss, never wrong bytes |
//! | WEU slots | read errors, also of headers at a start; write errors; writes that the device loses | G1, G3, G4 |
//! | region map, checkpoint, journal | bit rot while the daemon is down | G2: noticed, mappings distrusted |
//! | origin | power cut: any subset of unflushed writes, torn | G2: stable after the first read |
//! | origin | errors; a failed write may have happened in part | G1: uncertain bytes are not cached |
//! | any | a cut during recovery, and again | G1, G2 |
//!
//! Not simulated: lost or misdirected writes of journal and region map (what they cost is stated in `FORMAT.md`),
//! slow devices.
//!
//! What it does not do: measure anything, or know the daemon.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    reason = "a simulation over small devices: an assumption that breaks is a failed run, and says where"
)]

mod content;
mod coverage;
mod disk;
mod oracle;
mod origin;
mod run;
mod world;

pub use coverage::{Coverage, REQUIRED};
pub use run::{CANARIES, Options, SeedReport, Violation, run_seed};
pub use zc_cache::config::Canary;
