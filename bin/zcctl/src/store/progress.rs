//! Progress of long operations on a store.
//!
//! Job: one line on the standard error, rewritten from time to time. Invariant: nothing is written if it is no
//! terminal, or if a program reads the output.

use std::io::{IsTerminal as _, Write as _};

/// Bytes between two lines: a few a second where the store is fast.
const STEP_BYTES: u64 = 32 << 20;

pub(super) struct Progress {
    shows: bool,
    /// Bytes at which the next line is due.
    next_bytes: u64,
}

impl Progress {
    /// Creates the line without output. `quiet` suppresses it.
    pub(super) fn new(quiet: bool) -> Self {
        Self { shows: !quiet && std::io::stderr().is_terminal(), next_bytes: 0 }
    }

    /// Reports the bytes done so far.
    pub(super) fn tell(&mut self, done_bytes: u64, line: impl FnOnce() -> String) -> std::io::Result<()> {
        if !self.shows || done_bytes < self.next_bytes {
            return Ok(());
        }
        self.next_bytes = done_bytes + STEP_BYTES;
        // Back to the start of the line, and clear it.
        write!(std::io::stderr(), "\r\u{1b}[K{}", line())
    }

    /// Clears the line at the end of the work.
    pub(super) fn end(&self) -> std::io::Result<()> {
        if self.next_bytes > 0 { write!(std::io::stderr(), "\r\u{1b}[K") } else { Ok(()) }
    }
}
