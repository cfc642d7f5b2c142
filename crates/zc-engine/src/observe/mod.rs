//! What others see of the daemon: numbers, verdict, events, the live page's contents.
//!
//! Invariants: nothing here changes anything.
//!
//! It does not take connections (`front/http` and `control` do), or measure (`shard/metrics` does).

pub(crate) mod events;
pub(crate) mod exposition;
pub(crate) mod live;
pub(crate) mod verdict;
