//! Traces through a cache: what would have been a hit, what would have been stored.
//!
//! Job: take the requests of a trace ([`zc_trace::Reader`]) and run them through a reference policy at the grain of one
//! extent ([`plain`]), or through the production cache manager under the daemon's configuration ([`cache`]), on a model
//! of an SSD if asked for, whole or as a sample for many cache sizes ([`sizing`]). For comparison there are a cache of
//! single extents that shares contents ([`extent_lru`]) and a model of FlaZ ([`flaz`]). What a replay would take on
//! disks, an SSD and some cores is in [`time`].
//!
//! Invariants: the same trace and settings give the same figures on every machine. Memory is bounded by the cache that
//! is simulated, not by the trace, except where a module says otherwise.
//!
//! What came of it on real traces: `REPLAY.md` beside this crate; what the defaults rest on: `DEFAULTS.md`.
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
