//! What the benchmarks of the daemon share: the daemon itself, other servers, and what a process uses.
//!
//! What it does not do: choose volumes or loads; each benchmark does.

pub mod certificate;
pub mod cores;
pub mod daemon;
pub mod out;
pub mod replies;
pub mod servers;
pub mod tasks;
pub mod usage;
