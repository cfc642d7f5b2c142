//! The restart: findings of the start on the device, read and proved in the background while requests are served.

pub(crate) mod dirty_replay;
mod image;
mod load;
pub(crate) mod probe;

pub(crate) use load::Recovery;
