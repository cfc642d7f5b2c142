//! What the front end is made of, without the data plane: who may connect, TLS, listening sockets, fair shares, limits.
//!
//! Invariants: nothing here knows the shard or the cache manager. `shard/clients` brings these parts together.
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
