//! Pools on real devices.
//!
//! Job: run a [`zc_pool::Pool`] on a thread of its own, with a ring for its device and workers for its processor work,
//! and accept requests from any thread ([`PoolClient`]), or an operator's [`Order`]. The daemon and the offline
//! commands share it.
//!
//! Invariants: one pool has one thread, and that thread alone accesses it. Each request completes once, on that
//! thread. The device is locked while the pool is open. An orderly [`OpenPool::close`] leaves a checkpoint.
//!
//! It does not decide anything about volumes (`zc-pool` and `zc-store` do), or cache.
//!
//! Where to read first: [`OpenPool`], then the thread in `server`.
#![forbid(unsafe_code)]

mod client;
mod device;
mod error;
pub mod limits;
mod make;
mod open;
mod orders;
mod overlay;
mod server;
#[cfg(test)]
mod tests;
mod workers;

pub use client::{Callback, PoolClient};
pub use error::OpenError;
pub use make::{MakeError, make};
pub use open::{OpenPool, Settings};
pub use orders::{Order, OrderError, Point, PoolState, VolumeCodec, VolumeOptions, create_volume, find};
