//! Origins: what their writes and flushes owe, the order of accesses, and what a flush that fails takes along.

pub(crate) mod flush;
mod op;
pub(crate) mod order;
pub(crate) mod tracker;

pub(crate) use op::Op;
