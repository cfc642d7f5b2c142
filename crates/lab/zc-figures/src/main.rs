//! `zc-figures`: the figures of the papers, with the simulators' results beside them. It is a separate program, so
//! that `zcsim` is built without it.
#![expect(clippy::print_stderr, reason = "a program for people")]

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use zc_figures::{Ablation, Context, Figure, Outcome, Scale, Standing, paper, report, unbroken};

const EXIT_STATUS: &str = "Exit status:
  0  every figure was made, and every shape holds
  1  a figure could not be made, or a shape does not hold
  2  wrong command line";

/// Compute the papers' figures with the simulators
#[derive(Debug, Parser)]
#[command(name = "zc-figures", version, after_long_help = EXIT_STATUS)]
struct Args {
    /// Figures by name, see --list; a name may end in *; default is all
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Write CSV and SVG files and one HTML report to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder with block traces, for the figures of real ones
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Folder with files whose compression is measured
    #[arg(long, value_name = "DIR", default_value = "/usr")]
    files: PathBuf,
    /// Folder with the FIU traces, in place of generated ones
    ///
    /// Names begin with webvm, homes and mail, or are FIU's own (webmail+online, homes, cheetah)
    #[arg(long, value_name = "DIR")]
    fiu: Option<PathBuf>,
    /// Size of the runs
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleArg,
    /// Remove a mechanism from the models, to find what depends on it
    ///
    /// Asserted shapes fail under some ablations
    #[arg(long, value_name = "NAME", value_parser = ablation)]
    ablation: Option<Ablation>,
    /// Make each figure again under the ablations its shapes name
    ///
    /// A shape that is asserted, and holds all the same, is an error
    #[arg(long, conflicts_with = "ablation")]
    prove: bool,
    /// List the figures and make none
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ScaleArg {
    /// Seconds per figure
    Small,
    /// Minutes per figure
    Full,
}

/// An ablation by its name.
fn ablation(name: &str) -> Result<Ablation, String> {
    let known = || Ablation::ALL.map(|(_, name, meaning)| format!("{name} ({meaning})")).join(", ");
    Ablation::named(name).ok_or_else(|| format!("an ablation is one of {}", known()))
}

/// Prints a line; a reader that closed the pipe, as `head` does, is no error.
fn say(text: impl std::fmt::Display) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    match make(&Args::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("zc-figures: {failed} shapes do not hold, or cannot fail");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("zc-figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the figures; how many shapes do not hold, or are asserted and hold whatever is left out.
fn make(args: &Args) -> anyhow::Result<usize> {
    let figures = zc_figures::named(&args.ids)?;
    if args.list {
        for figure in figures {
            say(format_args!("{:<18}{}; {}", figure.id, figure.title, figure.source))?;
        }
        return Ok(0);
    }
    let scale = match args.scale {
        ScaleArg::Small => Scale::Small,
        ScaleArg::Full => Scale::Full,
    };
    let context = Context {
        scale,
        traces: args.traces.clone(),
        files: Some(args.files.clone()),
        fiu: args.fiu.clone(),
        ablation: args.ablation,
    };
    let (mut made, mut unproved) = (Vec::new(), 0);
    for figure in figures {
        let outcome = (figure.run)(&context).map_err(|error| anyhow::anyhow!("{}: {error}", figure.id))?;
        if !args.json {
            say(report::text(&figure, &outcome))?;
        }
        if args.prove {
            let found = unbroken(&figure, &context, &outcome)?;
            found.iter().for_each(|what| eprintln!("zc-figures: {what}"));
            unproved += found.len();
        }
        made.push((figure, outcome));
    }
    if let Some(folder) = &args.out {
        report::write(folder, &made)?;
    }
    if args.json {
        let all: Vec<Value> = made.iter().map(|(figure, outcome)| to_json(figure, outcome)).collect();
        say(format_args!("{:#}", Value::Array(all)))?;
    } else {
        say(report::counted(&made))?;
    }
    Ok(unproved + made.iter().map(|(_, outcome)| outcome.failed()).sum::<usize>())
}

fn standing(standing: Standing) -> Value {
    json!({ "is": standing.word(), "why": standing.reason() })
}

fn to_json(figure: &Figure, outcome: &Outcome) -> Value {
    let tables = outcome
        .tables
        .iter()
        .map(|table| json!({ "title": table.title, "columns": table.columns, "rows": table.rows }));
    let beside = outcome.beside.iter().map(|beside| {
        let paper = paper::number(beside.number);
        json!({
            "number": beside.number,
            "paper": paper.map(|number| number.value),
            "unit": paper.map(|number| number.unit),
            "ours": beside.ours,
            "standing": figure.standing_of(beside.number).map(standing),
        })
    });
    let shapes = outcome
        .shapes
        .iter()
        .map(|shape| json!({
            "claim": shape.claim, "holds": shape.holds, "seen": shape.seen, "standing": standing(shape.standing),
        }));
    json!({
        "id": figure.id,
        "title": figure.title,
        "source": figure.source,
        "ours": figure.ours,
        "differences": figure.differences,
        "standing": standing(figure.standing),
        "tables": tables.collect::<Vec<_>>(),
        "beside": beside.collect::<Vec<_>>(),
        "shapes": shapes.collect::<Vec<_>>(),
        "remarks": outcome.remarks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
        assert_eq!(zc_cli::rules::faults(&Args::command()), Vec::<String>::new());
    }
}
