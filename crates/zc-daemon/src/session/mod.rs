//! Start of a session: open the configured files, decide on trust, record the pairing.
//!
//! Invariants: every refusal precedes every change.
//!
//! It does not serve (`shard`), or change the served volumes (`control`).

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
