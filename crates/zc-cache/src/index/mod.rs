//! The two indexes and the table under them: from an extent to its place, from a fingerprint to the units that have it.
//! Public for benchmarks and for sizing RAM.

mod divisor;
pub(crate) mod file_index;
pub(crate) mod fingerprint_index;
mod layout;
mod occupancy;
mod quotients;
pub(crate) mod table;

pub use file_index::{FileIndex, IndexShape, Keep, Mapping, Place, SweepCursor};
pub use fingerprint_index::FingerprintIndex;
pub(crate) use layout::{CALLED_UP, INDEX_LAYOUT};
