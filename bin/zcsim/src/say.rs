//! Standard output, for readers that may have had enough.
//!
//! A reader that goes away, as `head` does, ends the program without a complaint, where `println!` panics.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

/// Prints a line to standard output.
macro_rules! say {
    ($($text:tt)*) => { crate::say::text(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use say;

#[expect(clippy::exit, reason = "no reader is left to print for")]
pub(crate) fn text(text: impl Display) {
    let mut out = io::stdout().lock();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("zcsim: cannot write to standard output: {error}");
        std::process::exit(1);
    }
}
