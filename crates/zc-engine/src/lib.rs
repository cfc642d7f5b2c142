//! The data plane: provides ring, sockets, devices, workers and clock to the sans-IO cache manager.
//!
//! Job: serve NBD and ublk on the I/O threads, execute the manager's actions, stop cleanly.
//!
//! Threads: I/O threads with a ring each, which share the shard with all connections, cache device and origins
//! (`shard/dispatch/threads`); a fixed pool of reduce workers (`shard/reduce_pool`); one that writes the state directory
//! (`state/state_thread`); some for TLS handshakes (`front/tls_pool`); one for each origin whose holes clients query
//! (`origin/map`), and for each recording (`record`). A cache hit stays on its I/O thread from socket to socket,
//! unless it is compressed and larger than 32 KiB. With several threads, another may answer a compressed one.
//!
//! Invariants: an I/O thread owns manager and connections while it holds the shard lock; other threads reach them
//! through a bounded mailbox and a wake-up. Errors of the cache device never reach clients from here (G4). Memory of
//! payloads is bounded.
//!
//! It does not start itself or accept commands of operators (`zc-daemon`), decide on caching (`zc-cache`), implement
//! the protocol (`zc-nbd`) or the media format (`zc-format`), or contain unsafe code.
//!
//! Where to read on, from the top; a folder uses those below it, and none above:
//!
//! | Folder | What is there | What the daemon uses |
//! | --- | --- | --- |
//! | `shard` | `dispatch` has the I/O threads and leads actions to components; `clients` has connections and requests | `Shard` made of `ShardParts`, `Mailbox` for `Command`s, `ShardStats` |
//! | `record` | recordings of requests | `Recorder` |
//! | `front` | who may connect (`access`, `tls`), fair shares, limits of volumes | `Listener`, `Tls`, `FrontSettings` |
//! | `state` | the state directory, the intent log, and what else outlives the process | `StateDir`, `IntentLog`, `RiskFile`, `Ledger` |
//! | `origin` | origins: files, devices, volumes of stores | `Origin`, `Stores` |
#![forbid(unsafe_code)]

pub mod audit;
mod client;
pub mod clock;
pub mod deadline;
pub mod error;
pub mod front;
pub mod limits;
pub mod origin;
mod pem;
pub mod record;
pub mod registry;
pub mod shard;
pub mod state;

pub use client::{NbdClient, NbdClientError, NbdDone, NbdRequest};
pub use error::EngineError;
