//! Common parts of the daemon's benchmarks: the daemon itself, other servers, and resource use of a process.
//!
//! Each benchmark chooses its volumes and loads.

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
