//! `zcsim`: the cache manager under simulated devices, and traces.
//!
//! `zcsim info` describes a block trace; `zcsim run`, `sweep` and `size` replay one through a cache, or through many;
//! `zcsim generate` synthesises one.
//!
//! The rest is for developers, and hidden from the help: `zcsim fuzz` runs seeds and checks every byte that clients
//! read against a model disk; `zcsim exhaustive` crashes a fixed workload after every device write. [`MORE`] has the
//! exit statuses.
#![expect(clippy::print_stderr, reason = "a program for people")]

mod clock;
mod exhaustive;
mod fuzz;
mod generate;
mod info;
mod notes;
mod run;
mod say;
mod settings;
mod size;
mod sizing;
mod spent;
mod sweep;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use zc_cli::Documents;

/// End of the long help. Commands for developers are hidden, so that users see the sizing commands.
const MORE: &str = "\
Exit status:
  0  done
  1  failed: a trace, configuration or file cannot be read or written, or a check found a difference
  2  a mistake in the command line
  3  fuzz: something that had to happen never did

Developers also have `zcsim fuzz` and `zcsim exhaustive`, each with --help.";

/// Size a cache: study traces, and replay them through zcached's cache manager.
#[derive(Debug, Parser)]
#[command(version, after_long_help = MORE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run seeds with power cuts, kills and device faults; check every byte.
    #[command(hide = true)]
    Fuzz(fuzz::Args),
    /// Describe a block trace: requests, footprint, mix, duplicates.
    Info(info::Args),
    /// Replay a trace through a policy or the cache manager.
    Run(run::Args),
    /// Replay a trace under every combination of some settings.
    Sweep(sweep::Args),
    /// Recommend a cache size for a trace.
    Size(sizing::Args),
    /// Generate a trace.
    ///
    /// Workloads are skewed access, a file server's mix, scans, restores of snapshots, databases, the files of servers,
    /// boot storms, and several traces as one.
    Generate(generate::Args),
    /// Cut the power after every write of fixed workloads; check bytes.
    #[command(hide = true)]
    Exhaustive(exhaustive::Args),
    #[command(flatten)]
    Documents(Documents),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Size(args) => sizing::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Exhaustive(args) => exhaustive::run(&args),
        Command::Documents(document) => match document.write(Cli::command(), &mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("zcsim: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        // The rules skip hidden commands, but those have readers, too.
        let all = Cli::command().mut_subcommands(|command| command.hide(false));
        assert_eq!(zc_cli::rules::faults(&all), Vec::<String>::new());
    }

    #[test]
    fn help_lists_what_users_size_a_cache_with() {
        let help = Cli::command().render_long_help().to_string();
        let (listed, rest) = help.split_once("Options:").unwrap();
        for command in ["info", "run", "sweep", "size", "generate"] {
            assert!(listed.contains(&format!("  {command} ")), "{listed}");
        }
        for command in ["fuzz", "exhaustive"] {
            assert!(!listed.contains(&format!("  {command} ")), "{listed}");
            assert!(rest.contains(&format!("zcsim {command}")), "{rest}");
        }
    }
}
