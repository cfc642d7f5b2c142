//! Pools: the volumes of a store, byte by byte.
//!
//! Job: turn requests on bytes of a volume into requests on chunks of a [`zc_store::Store`], own the buffers of
//! contents, and turn what the store wants done into [`Work`]: operations of one device, and jobs for processors that
//! carry their bytes with them. A driver executes work and reports ([`Pool::ended`]): a loop that blocks (offline
//! tools), a ring and worker threads (the daemon), or a simulator.
//!
//! Invariants: no I/O, clock, thread or randomness; each [`Work`] with an operation is reported once, in any order;
//! each request is answered once; a change is answered when the device has its records, so that a daemon that is killed
//! takes nothing along that was answered; changes that overlap take effect in the order in which they came, others side
//! by side.
//! A part of a chunk is read, changed and written, and nothing comes between.
//!
//! What it does not do: decide where contents lie or what is durable (the store does), cache (zc-cache does), or know
//! clients.
//!
//! Where to begin reading: [`seam`] for the vocabulary, [`Pool`], then [`Job`].
#![forbid(unsafe_code)]

mod base;
mod changes;
mod fetches;
mod job;
pub mod limits;
mod names;
mod ops;
mod pool;
#[cfg(test)]
mod pool_tests;
mod reads;
pub mod seam;
mod spans;
mod split;

pub use base::Counters;
pub use job::{Job, Outcome};
pub use names::{BadName, VolumeName};
pub use pool::Pool;
pub use seam::{Answer, DeviceOperation, Ended, KnownChunk, PoolError, Request, RequestKind, Work};
