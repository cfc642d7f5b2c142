//! The daemon's driver: provides ring, sockets, devices, workers and clock to the sans-IO cache manager.
//!
//! Job: start from a configuration ([`Engine::start`]), serve NBD and ublk, execute the manager's actions, stop
//! cleanly.
//!
//! Threads: I/O threads with a ring each, which share the shard with all connections, cache device and origins
//! (`shard/dispatch/threads`); a fixed pool of reduce workers (`shard/reduce_pool`); one for the control plane with
//! tokio (`control`); one for commands to the ublk driver (`control/ublk`), and one for a device while its detaching
//! waits for it; some for TLS handshakes (`front/tls_pool`); one for each origin whose holes clients query
//! (`origin/map`), and for each recording (`record`). A cache hit stays on its I/O thread from socket to socket,
//! unless it is compressed and larger than 32 KiB. With several threads, another may answer a compressed one.
//!
//! Invariants: an I/O thread owns manager and connections while it holds the shard lock; other threads reach them
//! through a bounded mailbox and a wake-up. Errors of the cache device never reach clients from here (G4). Memory of
//! payloads is bounded.
//!
//! It does not decide on caching (`zc-cache`), implement the protocol (`zc-nbd`) or the media format (`zc-format`), or
//! contain unsafe code.
//!
//! Where to read on, from the top; a folder uses those below it, and none above:
//!
//! | Folder | What is there |
//! | --- | --- |
//! | `control` | the control socket (`CONTROL.md`): reloads, volumes that come and go, block devices, recordings |
//! | `observe` | numbers, verdict, events, the live page |
//! | `session` | a start: `open` and `pair`, what is checked before anything is touched; `without_cache` |
//! | `shard` | `dispatch` has the I/O threads and leads actions to components; `clients` has connections and requests |
//! | `front` | who may connect (`access`, `tls`), fair shares, limits of volumes |
//! | `state` | the state directory, the intent log, and what else outlives the process |
//! | `origin` | origins: files, devices, volumes of stores |
#![forbid(unsafe_code)]

mod audit;
mod client;
mod clock;
mod control;
mod deadline;
mod engine;
mod error;
mod front;
mod limits;
mod observe;
mod origin;
mod pem;
mod program;
mod record;
mod registry;
mod session;
mod shard;
mod state;

pub use client::{NbdClient, NbdClientError, NbdDone, NbdRequest};
pub use deadline::{NoResult, within};
pub use engine::Engine;
pub use error::EngineError;
pub use error::refusal::{Refusal, Room};
pub use front::throttle::Waits;
pub use program::{ConfigFile, Confined, EngineOptions, Hooks, Passed, ReadConfig, SetLogLevel};
pub use registry::{Connection, Registry, VolumeInfo};
pub use session::cache_device::memory_warning;
pub use session::check::{Checked, check};
pub use session::exposure::exposed_files;
pub use shard::metrics::{Durations, Latencies, Latency, Traffic};
pub use shard::stats::{Dirty, Driver, Extents, ShardStats};
pub use shard::warm::{WarmEnd, WarmUp};
pub use state::moved::follow_moved_cache;
pub use state::remembered::{RememberedCache, RememberedVolume, remembered};
