//! Helpers of the end-to-end tests: the programs, a daemon that cannot outlive its test, data, real clients.
//!
//! Job: reduce a test to its checks. Tests are in `tests/tests/e2e_*.rs`; `tidy.rs` beside them checks the tree
//! itself.
//!
//! Invariants: helpers never wait for time to pass (only for events, with a deadline that turns a hang into a
//! failure); only processes started by the test are signalled, each by its own id; a missing tool fails the test.
//!
//! Errors are not handled: each helper panics with one sentence that contains the operation and its object.
#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "test support: a failure here is a failed test, and its log belongs beside it"
)]

mod browser;
mod certificates;
mod companion;
mod contents;
mod daemon;
mod data;
mod filtered;
mod http;
mod mount;
mod newer;
mod programs;
mod reasons;
mod tools;
mod world;

pub use browser::Browser;
pub use certificates::{authority, certificate};
pub use companion::{Companion, Word};
pub use daemon::{DEADLINE, Daemon};
pub use data::{BlockKind, DataGen, Rng, rng, seed_from_env};
pub use filtered::{FilteredFile, Hanging};
pub use http::http;
pub use mount::Mount;
pub use newer::NewerClients;
pub use programs::{program, workspace};
pub use reasons::Reason;
pub use tools::{bounded, python_nbd, require_tool, run_ok};
pub use world::{MIB, World, read_file, same};

/// Creates a directory that is removed when the guard is dropped. Set `ZC_KEEP_TMP` to keep a test's files.
///
/// The path is short, so that Unix socket paths in it stay below their 107 bytes.
///
/// # Panics
/// The directory cannot be created.
#[must_use]
pub fn temp_dir() -> tempfile::TempDir {
    let mut dir =
        tempfile::Builder::new().prefix("zc-").tempdir().expect("cannot make a temporary directory");
    if std::env::var_os("ZC_KEEP_TMP").is_some() {
        dir.disable_cleanup(true);
        eprintln!("kept: {}", dir.path().display());
    }
    dir
}
