//! Operate and inspect zcached.
//!
//! Job: the command line of an operator. `check`, `repair`, `dump` and `format` work on a cache file or device, and
//! `store` on a store, while no daemon has it open; `ublk` queries the kernel; the other commands use the control
//! socket of a running daemon.
//!
//! Invariants: `check` and `dump` never write; text from a device or a daemon is escaped; results go to the standard
//! output, errors to the standard error. The long help (`cli`) has the exit status.
//!
//! It does not repair data without a second copy. A daemon treats corrupt clean data as a miss.
#![forbid(unsafe_code)]

mod cache;
mod cli;
mod columns;
mod concerned;
mod confirm;
mod control;
mod dirty;
mod erase;
mod events;
mod hooks;
mod nbd;
mod obstacles;
mod offline;
mod online;
mod options;
mod record;
mod setup;
mod store;
mod text;
mod top;
mod ublk;
mod units;
mod volume;
mod volumes;
mod warm;

use std::io::Write;
use std::process::ExitCode;

use cli::{Cli, Command};

/// Exit status of a command that failed, as clap uses it for a wrong command line.
const EXIT_FAILED: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    // The others read data of volumes. Programs that `zcctl events` starts would have the limit, too.
    if !matches!(cli.command, Command::Online(_))
        && let Err(error) = zc_io::set_core_dumps(false)
    {
        let _no_place_for_it = writeln!(std::io::stderr(), "zcctl: core dumps cannot be forbidden: {error}");
    }
    let mut out = Output { to: std::io::stdout().lock(), is_closed: false };
    let result = run(&cli.command, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match result {
        Ok(code) => code,
        // The reader of our output had enough, as `head` does.
        Err(_) if out.is_closed => ExitCode::SUCCESS,
        Err(error) => {
            let text = zc_io::name_errnos(&format!("{error:#}"));
            let complaint = writeln!(std::io::stderr(), "zcctl: {text}");
            complaint.map_or(ExitCode::FAILURE, |()| ExitCode::from(EXIT_FAILED))
        }
    }
}

/// Output of a command. It records a closed pipe of its own, because the same error of a socket is a failure.
struct Output<W> {
    to: W,
    is_closed: bool,
}

impl<W: Write> Output<W> {
    fn note<T>(&mut self, result: std::io::Result<T>) -> std::io::Result<T> {
        self.is_closed |= result.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        result
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let result = self.to.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let result = self.to.flush();
        self.note(result)
    }
}

fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => offline::check::run(args, out),
        Command::Repair(args) => offline::repair::run(args, out),
        Command::Dump(args) => offline::dump::run(args, out),
        Command::Format(args) => offline::format::run(args, out),
        Command::Setup(args) => setup::run(args, out),
        Command::Online(command) => online::run(command, out),
        Command::Store(command) => store::run(command, out),
        Command::Ublk(command) => ublk::run(command, out),
        Command::Documents(document) => {
            document.write(cli::command(), out)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
