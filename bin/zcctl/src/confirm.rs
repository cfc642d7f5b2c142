//! Confirmation of commands that lose data: `--dry-run` shows the loss, `--yes` accepts it, and otherwise a person at
//! a terminal is prompted. Without all of these the command is refused.
//!
//! Invariants: nothing is lost without `--yes` or a typed "yes". `--force` has another meaning: to continue despite an
//! obstacle.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::bail;
use clap::Args;

/// The options of such a command.
#[derive(Debug, Args)]
pub(crate) struct Consent {
    /// Confirm without a question.
    #[arg(long, alias = "force", conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Print what would be lost, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Consent {
    /// Returns if the command may continue. `loss` is a sentence without its full stop.
    ///
    /// # Errors
    /// When it was not confirmed.
    pub(crate) fn ask(&self, loss: &str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            bail!("{loss}; nothing was changed; repeat with --yes to do it");
        }
        write!(std::io::stderr(), "{loss}.\nType yes to continue: ")?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if is_yes(&answer) { Ok(()) } else { bail!("nothing is changed") }
    }
}

fn is_yes(answer: &str) -> bool {
    answer.trim() == "yes"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_word_agrees() {
        assert!(is_yes("yes\n") && is_yes(" yes "));
        for answer in ["", "\n", "y\n", "YES\n", "yes please\n", "no\n"] {
            assert!(!is_yes(answer), "{answer:?}");
        }
        Consent { yes: true, dry_run: false }.ask("it would be lost").unwrap();
    }
}
