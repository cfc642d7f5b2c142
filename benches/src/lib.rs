//! Criterion benchmarks of the hot loops (`cargo bench -p zc-bench`), and one program, `bench`, for measurements too
//! large for a test (`cargo xtask bench NAME`).
//!
//! Job: measure; assert nothing. `measure` runs targets in turns and keeps figures, `report` prints them, and `aims`
//! contains the goals of all benches.
//!
//! Machines differ and are noisy: compare runs of one machine, interleaved.
#![expect(clippy::print_stdout, reason = "benches are for people who wait for them")]

pub mod clock;
pub mod data;
pub mod driver;
pub mod pool;

mod aims;
mod bootstorm;
mod cores;
mod cpu;
mod fair;
mod floor_server;
mod harness;
mod load;
mod machine;
mod measure;
mod model;
mod nbd;
mod options;
mod record;
mod remote;
mod report;
mod restart;
mod store;
mod trace;
mod write;

use clap::Parser;

/// Measure zcached
#[derive(Debug, Parser)]
#[command(name = "bench", bin_name = "cargo xtask bench")]
enum Bench {
    Nbd(nbd::Args),
    Cpu(cpu::Args),
    Cores(cores::Args),
    Bootstorm(bootstorm::Args),
    Write(write::Args),
    Fair(fair::Args),
    Store(store::Args),
    Trace(trace::Args),
    Record(record::Args),
    Restart(restart::Args),
    Remote(remote::Args),
    #[command(hide = true)]
    FloorServer(floor_server::Args),
}

/// Runs the bench that the command line names.
///
/// # Errors
/// A program is missing or fails, or a disk is full.
pub fn main() -> anyhow::Result<()> {
    match Bench::parse() {
        Bench::Nbd(args) => nbd::run(&args),
        Bench::Cpu(args) => cpu::run(&args),
        Bench::Cores(args) => cores::run(&args),
        Bench::Bootstorm(args) => bootstorm::run(&args),
        Bench::Write(args) => write::run(&args),
        Bench::Fair(args) => fair::run(&args),
        Bench::Store(args) => store::run(&args),
        Bench::Trace(args) => trace::run(&args),
        Bench::Record(args) => record::run(&args),
        Bench::Restart(args) => restart::run(&args),
        Bench::Remote(args) => remote::run(&args),
        Bench::FloorServer(args) => floor_server::serve(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Bench::command().debug_assert();
    }
}
