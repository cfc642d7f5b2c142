//! The shard's clients: connections over NBD and block devices of the kernel, and the way of their requests.
//!
//! Job: sockets and sessions (`net`, `conn`, `nbd`), devices (`ublk`), requests to the manager and back (`request`),
//! requests that wait for memory or for limits (`waiting`, `throttled`), what clients are told of the cache (`status`).
//!
//! Invariants: the shard's thread alone is here. Memory that clients make the daemon hold is bounded (G9).
//!
//! What it does not do: decide who may connect or whose turn it is (`front`).

pub(crate) mod conn;
pub(crate) mod disconnect;
pub(crate) mod nbd;
pub(crate) mod net;
pub(crate) mod reload;
pub(crate) mod request;
pub(crate) mod status;
pub(crate) mod throttled;
pub(crate) mod ublk;
pub(crate) mod waiting;
