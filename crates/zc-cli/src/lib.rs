//! Shared parts of the command lines of zcached, zcctl and zcsim.
//!
//! Job: [`Documents`] writes completion scripts and manual pages from the definition of a command line; [`rules`] finds
//! help that breaks the rules of CONTRIBUTING.
//!
//! It is independent of the commands of any program.
#![forbid(unsafe_code)]

pub mod rules;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Command, Subcommand};
use clap_mangen::roff::{Roff, bold, roman};

/// Commands that print documents generated from the command line's definition.
#[derive(Debug, Subcommand)]
pub enum Documents {
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands.
    Man {
        /// Write the pages of all commands into this folder; it must exist.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

impl Documents {
    /// Writes the document of the program that `command` defines, to `out` or into the folder that was named.
    ///
    /// # Errors
    /// `out` or the folder cannot be written; the message names the folder.
    pub fn write(&self, mut command: Command, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Completions { shell } => {
                // Written at once: the reader of a pipe may close it early, on which clap's own writer panics.
                let (name, mut script) = (command.get_name().to_owned(), Vec::new());
                clap_complete::generate(*shell, &mut command, name, &mut script);
                out.write_all(&script)
            }
            Self::Man { dir: Some(dir) } => {
                let own = dir.join(format!("{}.1", command.get_name()));
                let written = page(command.clone()).and_then(|page| {
                    clap_mangen::generate_to(command, dir)?;
                    std::fs::write(own, page)
                });
                written.map_err(|error| {
                    let text = format!("cannot write the manual into {}: {error}", dir.display());
                    io::Error::new(error.kind(), text)
                })
            }
            Self::Man { dir: None } => out.write_all(&page(command)?),
        }
    }
}

/// Returns the manual page of a program. Each heading at the end of its long help becomes a section.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let end = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.after_long_help(None)).render(&mut page)?;
    let mut sections = Roff::new();
    let mut is_within = false;
    for line in end.lines().filter(|line| !line.is_empty()) {
        let is_heading = !line.starts_with(' ') && line.ends_with(':');
        match line.trim_start().split_once("  ") {
            _ if is_heading => {
                sections.control("SH", [line.trim_end_matches(':').to_uppercase().as_str()]);
            }
            Some((tag, text)) => {
                sections.control("TP", []).text([bold(tag)]).text([roman(text.trim_start())]);
            }
            None if is_within => {
                sections.control("SH", ["NOTES"]).text([roman(line)]);
            }
            None => {
                sections.text([roman(line)]);
            }
        }
        is_within = !is_heading && line.starts_with(' ');
    }
    sections.to_writer(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Documents::augment_subcommands(Command::new("tool").about("Does things."))
    }

    #[test]
    fn a_script_and_a_page_name_the_program() {
        let written = |document: Documents| {
            let mut out = Vec::new();
            document.write(command(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(written(Documents::Completions { shell: clap_complete::Shell::Bash }).contains("_tool()"));
        assert!(written(Documents::Man { dir: None }).contains(".TH tool 1"));
        let command = command().after_long_help("Exit status:\n  0  done\n  1  failed\n\nAsk at length.");
        let page = String::from_utf8(page(command).unwrap()).unwrap();
        let sections =
            ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\ndone\n.TP\n\\fB1\\fR\nfailed\n.SH NOTES\nAsk at length.\n";
        assert!(page.contains(sections) && !page.contains("EXTRA"), "{page}");
    }

    #[test]
    fn each_command_has_a_page_in_the_folder() {
        let dir = std::env::temp_dir().join(format!("zc-cli-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Documents::Man { dir: Some(dir.clone()) }.write(command(), &mut Vec::new()).unwrap();
        let there = ["tool.1", "tool-man.1", "tool-completions.1"].map(|name| dir.join(name).is_file());
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(there, [true; 3]);
    }
}
