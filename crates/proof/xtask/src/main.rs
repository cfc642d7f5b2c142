//! `cargo xtask`: the development tasks that are more than one cargo command.
//!
//! Job: `test` prepares a Debian machine and runs the checks, side by side; `bench` runs the benchmarks; `soak` runs
//! the simulator over seeds for any time, and resumes; `fuzz` feeds bytes to every decoder; `canaries` proves that the
//! simulator finds deliberate bugs; `mutants` proves that tests detect small changes; `nbd-conformance` judges NBD
//! servers; `deb`, `tarball` and `rpm` build packages; `vm` runs tests that need another kernel.
//!
//! Invariants: output of the tools is streamed, or shown when they fail if it is irrelevant otherwise; a missing tool
//! is an error and never a skipped check (clients of a newer Debian, the virtual machine and the database of
//! advisories excepted: the summary reports if they were unavailable); nothing outside the target directory is changed
//! except by `apt-get install`, the lock files of the fuzz packages, which git ignores, by `vm` in the user's cache
//! directory, and by cargo-deny in cargo's home, where it keeps the database.
//!
//! Out of scope: tasks of a single cargo command, and everything that the programs need at run time.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool reports to its terminal")]

mod bench;
mod book;
mod canaries;
mod clean_root;
mod deb;
mod fuzz;
mod groups;
mod licences;
mod mutants;
mod newer;
mod products;
mod rpm;
mod runner;
mod schedule;
mod soak;
mod static_link;
mod step;
mod steps;
mod tarball;
mod tree;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use step::Step;

/// Development tasks of the zcached workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install the requirements of the tests, then run the base of the checks and the groups that recent changes need.
    Test(TestArgs),
    /// One step of `test`, in the process that `test` starts for it.
    #[command(hide = true)]
    Step {
        step: Step,
        #[arg(long)]
        no_install: bool,
        /// All steps of the run.
        #[arg(long, value_name = "STEP")]
        beside: Vec<Step>,
    },
    /// Run the criterion benchmarks; `bench nbd` compares the daemon with other servers, `bench cpu` measures their
    /// CPU time for each request, `bench cores` compares one I/O thread with two, `bench bootstorm` boots machines,
    /// `bench write` measures write-back, `bench fair` a quiet client next to others, `bench store` counts the device
    /// operations of a pool, `bench trace` compares reading a trace with replaying it, `bench record` measures
    /// recordings, `bench restart` starts of a large cache. `bench rivals` compares caches and `bench stores` stores,
    /// in a virtual machine.
    Bench {
        /// `nbd`, `cpu`, `cores`, `bootstorm`, `write`, `fair`, `store`, `trace`, `record`, `restart`, `rivals` or
        /// `stores` and its options;
        /// or passed on to criterion: a filter, `--save-baseline NAME`, ...
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the simulator over ranges of seeds, of cache and store, until the time is over or one fails.
    Soak(soak::Args),
    /// Feed arbitrary and changed bytes to every decoder; a crash fails and its input is kept.
    Fuzz(fuzz::Args),
    /// Build the simulator with deliberate bugs, and check that it finds each of them.
    Canaries {
        /// Instead of that: `fuzz --canary NAME ...`, or anything else that this build of `zcsim` is to do.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Change the cache manager in small ways, and check that unit tests and seeds detect each change.
    Mutants(mutants::Args),
    /// Judge an NBD server by the protocol document; without --uri ours, nbdkit, qemu-nbd and nbd-server, for the table.
    #[command(disable_help_flag = true)]
    NbdConformance {
        /// Options of the suite, --help among them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the Debian package; with --check, install, use and remove it in a clean root.
    Deb(deb::Args),
    /// Pack the files of the Debian package as an archive that any Linux runs; with --check, use it in an empty root.
    Tarball(tarball::Args),
    /// Build the RPM package, install it in an empty root, and compare its files with those of the Debian package.
    Rpm(rpm::Args),
    /// Real kernels and file systems, in a virtual machine.
    Vm(zc_rig::Args),
}

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
struct TestArgs {
    /// Run every group, as a release needs it.
    #[arg(long)]
    full: bool,
    /// Run only this step (repeatable).
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
    /// Leave this step out (repeatable).
    #[arg(long, value_name = "STEP")]
    skip: Vec<Step>,
    /// Install nothing; a missing tool is then an error with the install command.
    #[arg(long)]
    no_install: bool,
    /// Continue after a failed step; the exit code still reports it.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Step { step, no_install, beside } => return steps::step(step, !no_install, &beside),
        Task::Test(args) => steps::test(&args),
        Task::Bench { args } => bench::bench(&args),
        Task::Soak(args) => soak::soak(&args),
        Task::Canaries { args } => canaries::canaries(&args),
        Task::Mutants(args) => mutants::mutants(&args),
        Task::Fuzz(args) => fuzz::fuzz(&args),
        Task::NbdConformance { args } => {
            steps::conformance(&args.iter().map(String::as_str).collect::<Vec<_>>())
        }
        Task::Deb(args) => deb::run_task(&args),
        Task::Tarball(args) => tarball::run_task(&args),
        Task::Rpm(args) => rpm::run_task(&args),
        Task::Vm(args) => zc_rig::run(&args, true, || deb::for_machine(true)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_criterion_pass_through() {
        let cli = Cli::try_parse_from(["xtask", "bench", "index", "--save-baseline", "main"]).unwrap();
        let Task::Bench { args } = cli.task else { panic!("bench was asked for") };
        assert_eq!(args, ["index", "--save-baseline", "main"]);
    }
}
