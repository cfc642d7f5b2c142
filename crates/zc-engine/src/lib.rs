//! The daemon's driver: it gives the sans-IO cache manager a ring, sockets, devices, workers and a clock.
//!
//! Job: start from a configuration ([`Engine::start`]), serve NBD and ublk, carry out the manager's actions, stop in
//! order.
//!
//! Threads: one per shard (there is one) with the ring, all connections, cache device and origins (`shard`); a fixed
//! pool of reduce workers (`reduce_pool`); one for the control plane with tokio (`control`); one for commands to the
//! ublk driver (`ublk_control`), and one for a device while its detaching waits for it; some for handshakes of TLS
//! (`tls_pool`); one for each origin whose holes clients ask for (`origin_map`), and for each recording (`record`). A
//! cache hit stays on the shard's thread from the socket to the socket, unless it is compressed and larger than 32 KiB.
//!
//! Invariants: the shard's thread alone owns manager and connections; other threads reach it through a bounded mailbox
//! and a wake-up. Errors of the cache device never reach clients from here (G4). Memory of payloads is bounded (G9).
//!
//! What it does not do: decide anything about caching (`zc-cache`), know the protocol (`zc-nbd`) or the media format
//! (`zc-format`), or contain unsafe code.
//!
//! Where to read on: `shard` for the event loop, `net` for connections and their bounds, `access` and `tls` for who may
//! connect, `front` for the way of a request, `status` for what clients are told of the cache, `ublk` and
//! `ublk_control` for block devices of the kernel, `exec` and `device` for actions, `startup` and `pairing` for what is
//! checked before anything is touched, `stand_in` for a cache device that is missing then, `reattach` for a cache
//! device that is back, `resize` for an origin that has grown, `lengths` for one
//! that was truncated, `record` for recordings, `CONTROL.md` for the control
//! socket.
#![forbid(unsafe_code)]

mod absent;
mod access;
mod added;
mod admission;
mod audit;
mod bucket;
mod buffers;
mod cache_device;
mod check;
mod client;
mod clock;
mod close;
mod commands;
mod conn;
mod control;
mod control_dirty;
mod control_places;
mod control_record;
mod control_store;
mod cpus;
mod custody;
mod device;
mod disconnect;
mod distrust_record;
mod engine;
mod error;
mod events;
mod exec;
mod exposition;
mod extents;
mod front;
mod front_settings;
#[cfg(test)]
#[path = "../fuzz/bodies/control.rs"]
mod fuzz_control;
mod give_back;
mod http;
mod intent;
mod keeper;
mod late;
mod lengths;
mod limits;
mod listen;
mod live;
mod locks;
mod looks;
mod media;
mod metrics;
mod metrics_http;
mod nbd_front;
mod net;
mod origin;
mod origin_map;
mod origin_queue;
mod page_http;
mod pairing;
mod pause;
mod peer;
mod pending;
mod places;
mod private;
mod reattach;
mod record;
mod reduce;
mod reduce_pool;
mod refusal;
mod registry;
mod reload;
mod remembered;
mod removed;
mod request;
mod resize;
mod returning;
mod risk;
mod seen;
mod serving;
mod settings;
mod settled;
mod shard;
mod shares;
mod sparse;
mod stand_in;
mod startup;
mod state_dir;
mod state_thread;
mod stats;
mod status;
mod stop;
mod store_looks;
mod store_volume;
mod stores;
mod throttle;
mod throttled;
mod tls;
mod tls_pool;
mod ublk;
mod ublk_control;
mod verdict;
mod waiting;

pub use check::{Checked, check};
pub use client::{NbdClient, NbdClientError, NbdDone, NbdRequest};
pub use engine::{ConfigFile, Confined, Engine, EngineOptions, Hooks, Passed, ReadConfig, SetLogLevel};
pub use error::EngineError;
pub use metrics::{Durations, Latencies, Latency, Traffic};
pub use refusal::{Refusal, Room};
pub use registry::{Connection, Registry, VolumeInfo};
pub use remembered::{RememberedCache, RememberedVolume, remembered};
pub use stats::{Dirty, Driver, Extents, ShardStats};
pub use throttle::Waits;
