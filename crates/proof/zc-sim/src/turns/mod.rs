//! Turns: possible next steps of a run, one kind in each file.

pub(crate) mod aimed;
pub(crate) mod destage;
pub(crate) mod exchange;
pub(crate) mod grow;
pub(crate) mod hung;
pub(crate) mod liveness;
pub(crate) mod replaced;
pub(crate) mod rot;
pub(crate) mod store;
pub(crate) mod sync;
