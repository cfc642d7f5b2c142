//! How a session begins: open what the configuration names, judge what may be believed, record who belongs together.
//!
//! Invariants: what can be refused is refused before anything is changed.
//!
//! It does not serve (`shard`), or change what is served (`control`).

pub(crate) mod absent;
pub(crate) mod cache_device;
pub(crate) mod check;
pub(crate) mod distinct;
pub(crate) mod exposure;
pub(crate) mod looks;
pub(crate) mod machine;
pub(crate) mod new_device;
pub(crate) mod open;
pub(crate) mod origins;
pub(crate) mod pair;
pub(crate) mod patience;
pub(crate) mod running;
pub(crate) mod serving;
pub(crate) mod without_cache;
