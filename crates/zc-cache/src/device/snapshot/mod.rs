//! Snapshots of the whole catalog: checkpoints, and the index image of a clean stop.

pub(crate) mod checkpoint;
pub(crate) mod image;
