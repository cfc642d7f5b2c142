//! Replay of traces through a cache: hits, and stored bytes.
//!
//! Job: run the requests of a trace ([`zc_trace::Reader`]) through a reference policy at the grain of one extent
//! ([`plain`]), or through the production cache manager under the daemon's configuration ([`cache`]), optionally on a
//! model of an SSD, whole or as a sample for many cache sizes ([`sizing`]). For comparison there are a cache of single
//! extents that shares contents ([`extent_lru`]) and a model of FlaZ ([`flaz`]). [`time`] estimates durations on
//! disks, an SSD and some cores.
//!
//! Invariants: the same trace and settings give the same figures on every machine. Memory is bounded by the simulated
//! cache, not by the trace, except where a module states otherwise.
//!
//! Results on real traces: `REPLAY.md` beside this crate; basis of the defaults: `DEFAULTS.md`.
//!
//! It does not check bytes or inject faults, which is for `zc-sim`.
#![forbid(unsafe_code)]

pub mod cache;
mod content;
mod driver;
mod error;
pub mod extent_lru;
mod extents;
pub mod flaz;
mod held;
mod load;
pub mod plain;
mod repeats;
mod sample;
pub mod sharing;
pub mod sizing;
mod ssd;
pub mod time;
mod work;

pub use content::Ratios;
pub use driver::{OriginTraffic, Traffic};
pub use error::ReplayError;
pub use extents::{Extents, footprint};
pub use load::{Fitted, REQUESTS_MAX, Trace};
pub use sample::Sample;
pub use ssd::{Blocks, Ssd};
