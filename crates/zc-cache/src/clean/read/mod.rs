//! Path of a read: a lookup per extent, and the source of each.
//!
//! A request is cut at extent boundaries. Cached parts are copied or read from stored extents straight into the
//! request's buffer (`hit`); the rest goes to the origin (`fill`), and following extents are prefetched (`ahead`).
//! Ranges that an operator requests are read as well (`warm`).
//!
//! Invariant: each part of a request that waits for something is counted in `pending`; the reply goes when none is
//! left.

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
