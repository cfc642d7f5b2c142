//! The daemon around the data plane: its start, its control socket, and what it reports.
//!
//! Job: start from a configuration ([`Daemon::start`]), obey operators, report numbers and events, stop cleanly.
//!
//! Threads: one for the control plane with tokio (`control`); one for commands to the ublk driver (`control/ublk`), and
//! one for a device while its detaching waits for it. The others are those of the data plane (`zc_engine`).
//!
//! Invariants: it reaches the data plane through its mailbox only, once that runs; it never touches data of volumes.
//! The data plane does not know this crate.
//!
//! It does not serve clients (`zc-engine`), drop privileges (`zc-sandbox`), or contain unsafe code.
//!
//! Where to read on, from the top; a folder uses those below it, and none above:
//!
//! | Folder | What is there |
//! | --- | --- |
//! | `control` | the control socket (`CONTROL.md`): reloads, volumes that come and go, block devices, recordings |
//! | `observe` | numbers, verdict, events, the live page |
//! | `session` | a start: `open` and `pair`, what is checked before anything is touched; `without_cache` |
//! | `http` | connections of the read-only services |
#![forbid(unsafe_code)]

mod control;
mod daemon;
mod http;
mod limits;
mod observe;
mod program;
mod session;

pub use daemon::Daemon;
pub use program::{ConfigFile, Confined, Hooks, Passed, ReadConfig, SetLogLevel, StartOptions};
pub use session::cache_device::memory_warning;
pub use session::check::{Checked, check};
pub use session::exposure::exposed_files;
pub use zc_engine::deadline::{NoResult, within};
pub use zc_engine::error::EngineError;
pub use zc_engine::error::refusal::{Refusal, Room};
pub use zc_engine::front::throttle::Waits;
pub use zc_engine::registry::{Connection, Registry, VolumeInfo};
pub use zc_engine::shard::metrics::{Durations, Latencies, Latency, Traffic};
pub use zc_engine::shard::stats::{Dirty, Driver, Extents, ShardStats};
pub use zc_engine::shard::warm::{WarmEnd, WarmUp};
pub use zc_engine::state::moved::follow_moved_cache;
pub use zc_engine::state::remembered::{RememberedCache, RememberedVolume, remembered};
