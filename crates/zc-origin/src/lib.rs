//! Origins: the slow devices behind volumes, as the engine sees them.
//!
//! Job: open a file or block device as the origin of a volume ([`Origin`]), turn reads, writes, flushes, trims and
//! zero writes into sequences of ring operations ([`Job`], [`JobStep`]), detect missing capabilities and fall back,
//! detect whether an origin is the one that a cache was filled from ([`compare`]) and unchanged ([`Landmark`]).
//!
//! Invariants:
//! - The origin stays raw: byte n of the volume is byte n of the origin, and no metadata is stored on it.
//! - A request succeeds only when all its bytes did; with FUA only when they are durable.
//! - All writes of one origin use direct I/O, or all use the page cache. Mixing them within a page loses data, because
//!   a written-back page carries old neighbours.
//!
//! It does not cache, retry failed I/O, order requests (the cache manager does), or own a ring.
#![forbid(unsafe_code)]

#[cfg(test)]
mod device_tests;
mod error;
mod identity;
mod job;
mod landmarks;
mod origin;
#[cfg(test)]
mod origin_tests;

pub use error::{OriginError, RequestClass};
pub use identity::{Likeness, compare};
pub use job::{Finished, Job, JobStep, OriginRequest};
pub use landmarks::{Landmark, MAX_BYTES, MAX_LANDMARKS, ReadAt};
pub use origin::{LengthProbe, Origin, OriginCaps, OriginOptions};
