//! The store under simulation: the production [`zc_store::Store`] over a simulated device.
//!
//! Job: run volumes, snapshots and clones of one store under a seed, with operations that end in any order, power cuts
//! (also in a recovery), faults of the device and a cleaner that is always at work; check every chunk that is read, and
//! after every restart the whole store, against a model.
//!
//! What must hold, by what the device does:
//!
//! | the device | a restart shows | a read brings |
//! |---|---|---|
//! | loses or tears what was not flushed | one state of *all* volumes, between the last flush and the last change (S1) | a value of its time |
//! | fails a write or flush | the same; until then changes fail, reads go on | a value of its time |
//! | rots, loses, misdirects what it confirmed | a state of all volumes, of any time; what is damaged is an error; or it does not open and says why (S2) | a value of its time, or an error (S2) |
//!
//! S3 is judged twice: what a volume, snapshot or clone refers to is read at every restart and at the end; and when all
//! are deleted, the cleaner has to free all that they held.
//!
//! What it does not do: compress or hash; a chunk is a number, and its stored bytes are made from it.

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
