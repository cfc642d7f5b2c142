//! The program behind `cargo xtask nbd-conformance`: runs the suite against one server or all known ones.
//!
//! Invariants: without `--allow-writes` nothing is written to a server given with `--uri`; the exit code reports a
//! failed case, of our server if several were judged. Our server is the one that was built beside this program.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool reports to its terminal")]

mod servers;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use servers::{Kind, Server};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use zc_conformance::table::{Column, differences, render};
use zc_conformance::{Options, Report, TABLE, Uri, cases, report, run, run_and_revive};

/// Path of the table, from the workspace's root.
const TABLE_PATH: &str = "crates/proof/zc-conformance/TABLE.md";

/// Judge an NBD server by the protocol document; without --uri ours, nbdkit, qemu-nbd and nbd-server, for the table.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask nbd-conformance")]
struct Args {
    /// The server and its export: nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH.
    #[arg(long, value_name = "URI")]
    uri: Option<Uri>,
    /// A read-only export of the same server.
    #[arg(long, value_name = "URI", requires = "uri")]
    read_only_uri: Option<Uri>,
    /// Overwrite the export's contents: without this every case that writes is not applicable.
    #[arg(long, requires = "uri")]
    allow_writes: bool,
    /// Start and judge only this server (repeatable); the table is not written then.
    #[arg(long, value_name = "SERVER", conflicts_with = "uri")]
    server: Vec<Kind>,
    /// Judge our server and compare with the table, as `cargo xtask test` does.
    #[arg(long, conflicts_with_all = ["uri", "server", "only"])]
    check: bool,
    /// Run only this case (repeatable).
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Longest wait for any answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print the cases and run none.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match conformance(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Executes the command line.
fn conformance(args: &Args) -> anyhow::Result<()> {
    if args.list {
        print!("{}", report::list(&cases()));
        return Ok(());
    }
    if args.check {
        return check(args);
    }
    let Some(uri) = &args.uri else { return judge_all(args) };
    let read_only = args.read_only_uri.clone();
    let found = run(uri.clone(), Options { writes: args.allow_writes, read_only, ..options(args) })?;
    show(args, &found);
    if !found.is_clean() {
        bail!("the server does not conform");
    }
    Ok(())
}

/// Judges our own server and compares its column of the table.
fn check(args: &Args) -> anyhow::Result<()> {
    let ours = judge(args, Kind::Zcached)?;
    print!("{}", report::text(&ours.report));
    if !ours.report.is_clean() {
        bail!("our server does not conform");
    }
    let differences = differences(TABLE, &ours);
    if !differences.is_empty() {
        bail!("{TABLE_PATH} is out of date; run `cargo xtask nbd-conformance`:\n{}", differences.join("\n"));
    }
    Ok(())
}

/// Judges the known servers; writes the table if all of them and every case ran.
fn judge_all(args: &Args) -> anyhow::Result<()> {
    let kinds = if args.server.is_empty() { Kind::value_variants() } else { args.server.as_slice() };
    let mut columns = Vec::new();
    for kind in kinds {
        let column = judge(args, *kind)?;
        if !args.json {
            println!("==> {} {}", column.server, column.version);
        }
        show(args, &column.report);
        columns.push(column);
    }
    if args.server.is_empty() && args.only.is_empty() {
        std::fs::write(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(TABLE_PATH),
            render(&cases(), &columns),
        )
        .with_context(|| format!("cannot write {TABLE_PATH}"))?;
        println!("wrote {TABLE_PATH}");
    }
    let ours = columns.iter().find(|column| column.server == Kind::Zcached.name());
    if ours.is_some_and(|ours| !ours.report.is_clean()) {
        bail!("our server does not conform");
    }
    Ok(())
}

/// Starts a server in each of its settings and runs the suite against it; a crashed server is restarted. A case that
/// does not apply in one setting counts in the next one in which it applies.
fn judge(args: &Args, kind: Kind) -> anyhow::Result<Column> {
    let mut merged: Option<Report> = None;
    for tls in kind.settings() {
        let mut server = Server::start(kind, *tls)?;
        let (uri, frozen) = server.uris();
        let options = Options { writes: true, read_only: Some(frozen), ..options(args) };
        let mut lost = None;
        let revive = &mut || lost = server.restart().err().or_else(|| lost.take());
        let report = run_and_revive(uri, options, revive)?;
        if let Some(error) = lost {
            return Err(error.context(format!("{} went down and could not be started again", kind.name())));
        }
        merged = Some(match merged {
            Some(before) => before.merge(report),
            None => report,
        });
    }
    let report = merged.context("a server has a setting")?;
    Ok(Column { server: kind.name().to_owned(), version: kind.version()?, report })
}

fn options(args: &Args) -> Options {
    let deadline = Duration::from_secs(args.timeout.into());
    Options { deadline, only: args.only.clone(), ..Options::default() }
}

fn show(args: &Args, found: &Report) {
    if args.json {
        println!("{}", report::json(found));
    } else {
        print!("{}", report::text(found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}
