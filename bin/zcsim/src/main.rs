//! `zcsim`: the cache manager under simulated devices, and traces.
//!
//! `zcsim info` tells what is in a block trace; `zcsim run`, `sweep` and `size` send one
//! through a cache, or through many; `zcsim figures` makes the papers' figures.
//!
//! `zcsim fuzz` runs seeds and checks every byte that clients read against a model disk; `zcsim exhaustive` cuts a
//! fixed workload off after every device write. Exit codes: 0 all clean, 1 a violation (or a canary that was not
//! found), 2 usage, 3 something that had to happen never did.
#![expect(clippy::print_stderr, reason = "a program for people")]

mod exhaustive;
mod figures;
mod fuzz;
mod fuzz_store;
mod generate;
mod info;
mod run;
mod run_cache;
mod run_flaz;
mod run_time;
mod say;
mod settings;
mod size;
mod sizing;
mod sweep;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Simulator and fuzzer over zcached's cache manager.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run seeds with power cuts, kills and device faults; check every byte.
    Fuzz(fuzz::Args),
    /// Tell what is in a block trace: requests, footprint, mix, duplicates, compressibility.
    Info(info::Args),
    /// Send a trace through a replacement policy, or through the cache manager, and count.
    Run(run::Args),
    /// Send a trace through the cache manager under every combination of some settings.
    Sweep(sweep::Args),
    /// Tell how large a cache should be for what a trace does.
    Size(sizing::Args),
    /// Make the figures of the papers that zcached builds on, ours beside theirs.
    Figures(figures::Args),
    /// Make a trace: skewed access, a file server's mix, scans, restores of snapshots, databases, the files of servers,
    /// boot storms, or several traces as one.
    Generate(generate::Args),
    /// Run fixed workloads, cut the power after every device write, recover, check every byte.
    Exhaustive(exhaustive::Args),
    /// Print a completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands into a folder.
    Man {
        /// The folder, which must exist.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Size(args) => sizing::run(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Exhaustive(args) => exhaustive::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "zcsim", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
        Command::Man { dir } => manual(dir.as_deref()),
    }
}

fn manual(dir: Option<&Path>) -> ExitCode {
    let written = match dir {
        Some(dir) => clap_mangen::generate_to(Cli::command(), dir),
        None => clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zcsim: cannot write the manual: {error}");
            ExitCode::FAILURE
        }
    }
}
