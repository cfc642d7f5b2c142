//! Path of a write, a trim and a zeroing to the origin.
//!
//! A request is done in *pieces* that touch a bounded number of regions. Per piece: mark the regions (durably, if
//! they were not), invalidate the cached contents, write to the origin; when the origin has it the piece is done, and
//! the written data is offered to the cache. The acknowledgement is the origin's alone (G4, G8): the paper waits for
//! both.
//!
//! A partial overwrite takes the old copy's location along (see `staging`), so that the extent can be completed from
//! the cache later.

pub(crate) mod clear;
mod op;
pub(crate) mod writes;
