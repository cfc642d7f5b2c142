//! The sans-IO cache manager: Nitro's CacheManager (section 3) as a deterministic state machine.
//!
//! Job: decide the source of each read, the contents that are stored, shared, evicted and made durable, and those
//! trusted after a restart. [`CacheManager::handle`] takes an [`seam::Event`] and appends [`seam::Action`]s; the
//! daemon and the simulator are two drivers of this one core.
//!
//! Invariants: one owner, no locks, no clock, no threads, no files, no payload bytes; the same events in the same
//! order give the same actions. Every queue is bounded by a constant beside it or by [`config::ManagerConfig`].
//!
//! Out of scope: I/O, hashing, compression, protocol work, errno.
//!
//! Costs, in process and without bytes (`cargo xtask bench`, two busy cores): a hit 1.3 us, a miss that is inserted
//! 3.4 us, a miss that turns out to be a duplicate 2.0 us. Of a hit the file index takes 0.2 us at a million entries,
//! mostly the CPU's cache misses. The whole hit costs the daemon about 10 us of CPU, so the manager is not the
//! bottleneck and needs no second thread.
//!
//! # Layers
//! Each layer uses those below it and none above. Findings of a component are passed up as a `base::effects::Effect`.
//!
//! | module | contents |
//! |---|---|
//! | `base` | the port, settings, clock, volumes and the state of their origins, health |
//! | `device` | state of the cache device: indexes, units, durable metadata, unproved findings of a start |
//! | `clean` | reads, writes and insertions in progress, and copies in memory: write-through |
//! | `dirty` | dirty data over all that: commits, destaging. Requests enter here |
//! | `removal`, `stop`, `failure`, `deadlines` | removal of a volume, the stop, a device that fails or hangs |
//! | `manager` | routes events and completions to their owners |
//!
//! Further reading: [`seam`] for the contract with drivers, `manager` for the races and their resolution,
//! `device::meta` for the reason that a restart never finds a stale mapping, `device::recovery` for the restart,
//! [`startup`] for opening a cache device, `dirty::commit` and `dirty::destage` for dirty data; `CONSISTENCY.md` for
//! why all guarantees hold together.
#![forbid(unsafe_code)]

pub mod config;
pub mod index;
pub mod loss;
pub mod seam;
pub mod startup;

mod base;
mod clean;
mod deadlines;
mod device;
mod dirty;
mod expect_held;
mod failure;
mod manager;
mod ops;
mod reduce;
mod removal;
mod residency;
mod shares;
mod stats;
mod stop;

pub use base::origin_deadlines;
pub use clean::ghosts::{Curve, NoFigure};
pub use clean::write::clear::ClearPiece;
pub use dirty::versions::{DirtyFill, DirtyState};
pub use manager::CacheManager;
pub use residency::{OriginLag, RESIDENCY_EXTENTS_MAX, Residency, ResidencyRun};
pub use shares::{VolumePins, VolumeShare};
pub use stats::{Figure, Stats};
