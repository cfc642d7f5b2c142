//! Read path: a lookup per extent, and the source of each part.
//!
//! A request is split at extent boundaries. Cached parts are copied or read from stored extents directly into the
//! request's buffer (`hit`); the rest is read from the origin (`fill`), and following extents are prefetched
//! (`ahead`). Warm-up ranges of operators take the same path (`warm`).
//!
//! Invariant: each part of a request that waits for data is counted in `pending`; the reply is sent when the count
//! reaches zero.

pub(crate) mod ahead;
mod fill;
mod hit;
pub(crate) mod portion;
pub(crate) mod read_buffer;
pub(crate) mod reads;
pub(crate) mod recipes;
pub(crate) mod seen;
mod under_way;
mod warm;
