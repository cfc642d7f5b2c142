//! Parts of the front end without the data plane: access, TLS, listening sockets, fair shares, limits.
//!
//! Invariants: this folder is independent of the shard and the cache manager. `shard/clients` combines its parts.
//!
//! It does not read from or write to connections of clients, except for handshakes of TLS.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod bucket;
pub(crate) mod http;
pub(crate) mod http_places;
pub(crate) mod listen;
pub(crate) mod locks;
pub(crate) mod peer;
pub(crate) mod reloadable;
pub(crate) mod settings;
pub(crate) mod shares;
pub(crate) mod sparse;
pub(crate) mod throttle;
pub(crate) mod tls;
pub(crate) mod tls_pool;
pub(crate) mod ublk;
