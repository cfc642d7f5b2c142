//! Commands on a cache file or device that no daemon has open.

pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod format;
mod image;
mod report;
mod slots;
#[cfg(test)]
mod tests;
