//! Host support of development tasks: child processes ([`run`]), packages and tools ([`packages`]).
//!
//! Invariants: output of the tools is streamed, or shown when they fail. A missing tool is an error.
//!
//! It does not define the requirements of checks (`xtask` and the rest of `zc-rig` do).

pub mod packages;
pub mod run;

/// Outcome of a check that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// All of it was checked.
    Whole,
    /// The check was skipped, and why.
    Without(String),
}
