//! What the benchmarks of the daemon share: the daemon itself, other servers, and what a process uses.
//!
//! It does not choose volumes or loads; each benchmark does.

pub(crate) mod certificate;
pub(crate) mod cores;
pub(crate) mod daemon;
pub(crate) mod field;
pub(crate) mod floor;
pub(crate) mod replies;
pub(crate) mod servers;
pub(crate) mod tasks;
pub(crate) mod usage;
pub(crate) mod volumes;
pub(crate) mod work;
