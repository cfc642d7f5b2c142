//! `zcsim exhaustive`: four fixed workloads, with a crash after every device write and every subset of writes that may
//! be lost.

use std::process::ExitCode;
use std::time::Instant;

use zc_core::Mode;
use zc_sim::store::{StoreExhaustive, run_store_exhaustive};
use zc_sim::{Exhaustive, ExhaustiveReport, Violation, run_exhaustive};

use crate::say::say;

/// Fraction of the requests of the other workloads that the store receives.
const STORE_SHARE: u64 = 5;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Client requests of each workload.
    #[arg(long, default_value_t = 1000)]
    ops: u64,
    /// The workload; all by default.
    #[arg(long, value_enum)]
    workload: Option<Workload>,
    /// Number of threads; default is one per CPU.
    #[arg(long)]
    jobs: Option<u64>,
    /// Try this crash point only.
    #[arg(long, requires = "workload")]
    point: Option<u64>,
    /// Print each event and action after the point's crashes to stderr.
    #[arg(long, requires = "point")]
    trace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Workload {
    WriteThrough,
    WriteBack,
    /// Two volumes in write-back that share content.
    TwoVolumes,
    /// The capacity-optimized store.
    Store,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => Mode::WriteThrough.word(),
            Self::WriteBack => Mode::WriteBack.word(),
            Self::TwoVolumes => "two-volumes",
            Self::Store => "store",
        }
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let workloads = match args.workload {
        Some(one) => vec![one],
        None => vec![Workload::WriteThrough, Workload::WriteBack, Workload::TwoVolumes, Workload::Store],
    };
    let mut failed = 0;
    for workload in &workloads {
        let began = crate::clock::now();
        match run_workload(args, *workload) {
            Ok(report) => print_report(*workload, &report, began),
            Err(violation) => {
                let (name, point) = (workload.name(), violation.seed);
                say!("{name}: crash point {point}, after {} requests: {}", violation.op, violation.text);
                if *workload != Workload::Store {
                    say!(
                        "  replay: zcsim exhaustive --workload {name} --ops {} --point {point} --trace",
                        args.ops
                    );
                }
                failed += 1;
            }
        }
    }
    say!("{} passed, {failed} failed", workloads.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_report(workload: Workload, report: &ExhaustiveReport, began: Instant) {
    say!(
        "{}: {} requests, {} crash points, {} crashes, {} of a recovery, 0 violations, in {} s",
        workload.name(),
        report.ops,
        report.points,
        report.crashes,
        report.second_crashes,
        began.elapsed().as_secs()
    );
}

/// Runs all shares of a workload in parallel; returns the violation of the earliest crash point, if any.
fn run_workload(args: &Args, workload: Workload) -> Result<ExhaustiveReport, Violation> {
    let cores =
        std::thread::available_parallelism().map_or(1, |cores| u64::try_from(cores.get()).unwrap_or(1));
    let parts = if args.point.is_some() { 1 } else { args.jobs.unwrap_or(cores).max(1) };
    let share = |part: u64| {
        if workload == Workload::Store {
            // Each of its crashes runs the workload again, so it is shorter.
            let ops = args.ops / STORE_SHARE;
            let report = run_store_exhaustive(&StoreExhaustive { ops, part, parts })?;
            let (points, crashes) = (report.points, report.crashes);
            return Ok(ExhaustiveReport { ops, points, crashes, second_crashes: crashes });
        }
        run_exhaustive(&Exhaustive {
            write_back: workload != Workload::WriteThrough,
            volumes: if workload == Workload::TwoVolumes { 2 } else { 1 },
            ops: args.ops,
            part,
            parts,
            point: args.point,
            trace: args.trace.then_some((|line: &str| eprintln!("{line}")) as fn(&str)),
        })
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..parts).map(|part| scope.spawn(move || share(part))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut total = ExhaustiveReport::default();
    let mut first: Option<Violation> = None;
    for outcome in outcomes {
        match outcome {
            Ok(Ok(report)) => total.add(&report),
            Ok(Err(violation)) if first.as_ref().is_none_or(|other| violation.seed < other.seed) => {
                first = Some(violation);
            }
            Ok(Err(_)) => {}
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    first.map_or(Ok(total), Err)
}
