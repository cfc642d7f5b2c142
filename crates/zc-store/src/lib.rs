//! The capacity-optimized store: many thin volumes on one device, compressed, deduplicated, with snapshots.
//!
//! Job: decide where contents and their maps lie, what a commit is, and what may be freed. The store is a sans-IO
//! machine: [`Event`]s in, [`Action`]s out ([`seam`]); the driver owns the device, the bytes of contents, hashing and
//! compression. `FORMAT.md` says what is on media, `CONSISTENCY.md` why nothing is lost and nothing is freed too early.
//!
//! Where to begin reading: [`Store`] hands events to the parts; [`changes`] is the way of a write, [`reads`] that of a
//! read; [`checkpoint`] and [`recovery`] are the two halves of durability; [`cleaner`] frees.
//!
//! Invariants: no I/O, clock, thread or randomness; the same events give the same actions. What it does not do: see bytes
//! of contents, or know who its clients are.
//!
//! [`changes`]: self
//! [`reads`]: self
//! [`checkpoint`]: self
//! [`recovery`]: self
//! [`cleaner`]: self
#![forbid(unsafe_code)]

mod catalog;
mod changes;
mod checkpoint;
mod cleaner;
pub mod config;
mod damage;
mod discards;
#[cfg(test)]
mod faults_tests;
mod fingerprints;
mod flushes;
mod follow;
pub mod format2;
mod gather;
mod ids;
pub mod limits;
mod loader;
mod log;
mod lost;
mod map;
mod mark;
mod media;
#[cfg(test)]
mod mutation_tests;
mod numbers;
mod pager;
mod proofs;
mod reads;
mod recovery;
mod releases;
pub mod seam;
mod segments;
mod stats;
mod store;
#[cfg(test)]
mod store_tests;
mod survey;
mod table;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod test_driver;
mod trees;
mod volumes;

pub use catalog::{FLAG_DEDUP, Root, RootKind};
pub use config::Config;
pub use ids::{BatchSeq, ChunkNo, PageNo, Place, Pointer, RootId, SegmentNo};
pub use media::batch::{BatchHeader, CatalogChange, CatalogOp, Record, Stored};
pub use media::page::{PageKey, TableId};
pub use media::superblock::{LogPlace, Superblock, TableRoot};
pub use media::{BLOCK, Block, MediaError, payload_crc};
pub use seam::{Action, Event};
pub use stats::{Space, Stats};
pub use store::Store;
pub use survey::{Accounts, Damage, PoolAccount, RootAccount, ScrubPoint, ScrubReport, SurveyKind, Surveyed};
