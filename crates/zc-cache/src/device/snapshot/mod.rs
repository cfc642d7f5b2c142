//! Writes of the whole catalog at once: checkpoints, and the index image of a clean stop.

pub(crate) mod checkpoint;
pub(crate) mod image;
