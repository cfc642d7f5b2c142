//! The sans-IO cache manager: Nitro's CacheManager (section 3) as a deterministic state machine.
//!
//! Job: decide what is served from where, what is stored, shared, evicted, made durable and believed after a restart.
//! [`CacheManager::handle`] takes an [`seam::Event`] and appends [`seam::Action`]s; the daemon and the simulator are
//! two drivers of this one core.
//!
//! Invariants: one owner, no locks, no clock, no threads, no files, no payload bytes; the same events in the same
//! order give the same actions. Every queue is bounded by a constant beside it or by [`config::ManagerConfig`].
//!
//! What it does not do: I/O, hashing, compression, protocol work, errno.
//!
//! What it costs, in process and without bytes (`cargo xtask bench`, two busy cores): a hit 1.3 us, a miss that is
//! inserted 3.4 us, a miss that turns out to be a duplicate 2.0 us. Of a hit the file index takes 0.2 us at a million
//! entries, mostly the CPU's cache misses. The whole hit costs the daemon about 10 us of CPU, so the manager is not
//! what bounds it and needs no second thread.
//!
//! Where to read on: [`seam`] for the contract with drivers, `manager` for the races and what decides them, `persist`
//! for why a restart never finds a stale mapping, `failure` for a device that fails, `load` for the restart,
//! [`startup`] for opening a cache device; `write_back`, `commit` and `destage` for dirty data; `CONSISTENCY.md` for
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
mod effects;
mod expect_held;
mod failure;
mod health;
mod insert;
mod load;
mod manager;
mod op_kind;
mod origin;
mod persist;
mod port;
mod read;
mod removal;
mod residency;
mod stats;
mod stop;
mod told;
mod tracks;
mod weu;
mod write;
mod write_back;

pub use manager::CacheManager;
pub use residency::{Owed, RESIDENCY_EXTENTS_MAX, Residency, ResidencyRun};
pub use stats::{Figure, Stats};
pub use write_back::dirty::DirtyState;
