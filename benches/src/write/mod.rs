//! `cargo xtask bench write`: write-back beside write-through, the file itself and an origin of 300 requests a second.
//!
//! Job: three questions. What does a durable write cost (4 KiB, one in flight, FUA or FLUSH with each)? What do writes
//! without flushes get (32 in flight), on a fast origin and on a slow one? Does the engine ever pause, when the cache
//! is full and evicts for every unit it writes?
//!
//! Invariants: in each round every target gets a short run of every case; before the next target, what is dirty goes to
//! the origin, so that no run's destaging falls into another's measurement. Ratios are medians of ratios within rounds.
//! Cache, origins and the bare file lie on one file system and are opened with direct I/O.
//!
//! What it does not do: check what was written (the tests do).

pub mod pause;
pub mod report;
pub mod run;
pub mod slow;
