//! What tasks of development need of the machine that they run on: child processes ([`run`]), packages and tools
//! ([`packages`]).
//!
//! Invariants: output of the tools is streamed, or shown when they fail. A missing tool is an error.
//!
//! It does not decide which check needs what (`xtask` and `zc-rig` do).
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "tasks of development report to their terminal")]

pub mod packages;
pub mod run;

/// What came of a check that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// All of it was checked.
    Whole,
    /// The check was skipped, and why.
    Without(String),
}
