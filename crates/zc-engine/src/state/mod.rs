//! State that outlives the process: state directory, intent log, risk file, and the records beside the cache on its
//! device.
//!
//! Invariants: a file here is written completely or not at all, and by one owner. Operations that may hang run on a
//! thread (`keeper`).
//!
//! It does not decide on trust at a start (`session`), or write the cache itself (`zc-cache`).

pub mod boot;
pub(crate) mod distrust_record;
pub mod intent;
pub(crate) mod keeper;
pub mod ledger;
pub mod media;
pub mod moved;
pub mod private;
pub mod remembered;
pub(crate) mod reserve;
pub mod risk;
pub mod seen;
pub mod state_dir;
pub(crate) mod state_thread;
