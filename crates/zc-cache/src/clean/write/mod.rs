//! Path of a write, trim or zeroing to the origin.
//!
//! A request is executed in *pieces* that touch a bounded number of regions. For each piece: mark the regions
//! (durably, if they were not), invalidate the cached contents, and write to the origin; then the written data is
//! offered to the cache. The acknowledgement depends on the origin alone (G4, G8), whereas the paper waits for both.
//!
//! A partial overwrite keeps the location of the old copy (see `staging`), so that the extent can be completed from
//! the cache later.

pub(crate) mod clear;
mod op;
pub(crate) mod writes;
