//! Parts of the front end without the data plane: access, TLS, listening sockets, fair shares, limits.
//!
//! Invariants: this folder is independent of the shard and the cache manager. `shard/clients` combines its parts.
//!
//! It does not read from or write to connections of clients, except for handshakes of TLS.

pub mod access;
pub(crate) mod admission;
pub(crate) mod bucket;
pub mod listen;
pub(crate) mod locks;
pub mod peer;
pub mod reloadable;
pub mod settings;
pub(crate) mod shares;
pub(crate) mod sparse;
pub mod throttle;
pub mod tls;
pub(crate) mod tls_pool;
pub mod ublk;
