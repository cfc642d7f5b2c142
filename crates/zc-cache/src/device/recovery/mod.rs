//! Restart: the state found on the device is read and verified in the background while requests are served.

pub(crate) mod dirty_replay;
mod image;
mod load;
pub(crate) mod probe;

pub(crate) use load::Recovery;
