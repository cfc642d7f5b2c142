//! State that outlives the process: state directory, intent log, risk file, and the records beside the cache on its
//! device.
//!
//! Invariants: a file here is written completely or not at all, and by one owner. Operations that may hang run on a
//! thread (`keeper`).
//!
//! It does not decide on trust at a start (`session`), or write the cache itself (`zc-cache`).

pub(crate) mod boot;
pub(crate) mod distrust_record;
pub(crate) mod intent;
pub(crate) mod keeper;
pub(crate) mod ledger;
pub(crate) mod media;
pub(crate) mod moved;
pub(crate) mod private;
pub(crate) mod remembered;
pub(crate) mod reserve;
pub(crate) mod risk;
pub(crate) mod seen;
pub(crate) mod state_dir;
pub(crate) mod state_thread;
