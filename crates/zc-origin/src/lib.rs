//! Origins: the slow devices behind volumes, as the engine sees them.
//!
//! Job: open a file or block device as the origin of a volume ([`Origin`]), turn reads, writes, flushes, trims and zero
//! writes into ring operations one after the other ([`Job`], [`Step`]), learn what the origin cannot do and do it
//! another way, tell whether an origin is still the one that a cache was filled from ([`compare`]) and as it was left
//! ([`Landmark`]).
//!
//! Invariants:
//! - The origin stays raw: byte n of the volume is byte n of the origin, nothing else is stored on it.
//! - A request succeeds only when all its bytes did; with FUA only when they are durable.
//! - Writes of one origin all go past the page cache or all go through it. Mixing them within a page loses data:
//!   written-back pages carry old neighbours.
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
pub use job::{Finished, Job, OriginRequest, Step};
pub use landmarks::{Landmark, MAX_BYTES, MAX_LANDMARKS, ReadAt};
pub use origin::{LengthProbe, Origin, OriginCaps, OriginOptions};
