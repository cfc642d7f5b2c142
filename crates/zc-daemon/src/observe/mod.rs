//! External views of the daemon: metrics, verdict, events, data of the live page.
//!
//! Invariants: nothing here changes anything.
//!
//! It does not accept connections (`front/http` and `control` do), or measure (`shard/metrics` does).

pub(crate) mod events;
pub(crate) mod exposition;
pub(crate) mod live;
pub(crate) mod verdict;
