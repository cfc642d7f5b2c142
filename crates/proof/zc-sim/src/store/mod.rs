//! The store under simulation: the production [`zc_store::Store`] over a simulated device.
//!
//! Job: run volumes, snapshots and clones of one store under a seed, with operations that complete in any order, power
//! cuts (also during a recovery), faults of the device and a cleaner that is always active. Check every chunk that is
//! read, and after every restart the whole store, against a model.
//!
//! Requirements, by behaviour of the device:
//!
//! | the device | a restart exposes | a read returns |
//! |---|---|---|
//! | loses or tears unflushed data | one state of *all* volumes, between the last flush and the last change (S1) | a value of its time |
//! | fails a write or flush | the same; until then changes fail, reads continue | a value of its time |
//! | corrupts, loses, misdirects acknowledged data | a state of all volumes, of any time; damaged data is an error; or it does not open and reports the cause (S2) | a value of its time, or an error (S2) |
//!
//! S3 is checked twice: data that a volume, snapshot or clone refers to is read at every restart and at the end; and
//! when all are deleted, the cleaner has to free all of their space.
//!
//! It does not compress or hash: a chunk is a number, from which its stored bytes are derived.

mod exhaustive;
mod model;
mod perform;
mod run;
mod space;
mod survey;
mod world;

pub use exhaustive::{StoreExhaustive, StoreExhaustiveReport, run_store_exhaustive};
pub use run::{STORE_REQUIRED, StoreOptions, StoreReport, run_store_seed};
pub use world::{STORE_CANARIES, StoreCanary};
