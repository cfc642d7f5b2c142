//! Commands on a cache file or device that no daemon has open.

mod at_stake;
pub(crate) mod check;
pub(crate) mod cli;
mod dirty;
pub(crate) mod dump;
pub(crate) mod format;
mod image;
pub(crate) mod repair;
mod report;
mod slots;
#[cfg(test)]
mod tests;
