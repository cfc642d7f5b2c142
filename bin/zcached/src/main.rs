//! The zcached daemon.
//!
//! Job: read the command line and the configuration, set up logging, run the daemon until it is stopped, and turn its
//! end into an exit code: 0 for an orderly end, 1 for a failure at run time, 2 for a mistake in command line or
//! configuration.
//!
//! It does not go to the background or write a pid file; a service manager does both better.

mod logging;
mod manual;
mod quickstart;
mod root_storage;
mod sandbox;

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use zc_cli::Documents;
use zc_config::Config;
use zc_daemon::{ConfigFile, Daemon, EngineError, Hooks, Passed, StartOptions};

const FAILURE: u8 = 1;
const MISTAKE: u8 = 2;
/// The configuration file must have been read in this time. Its file system may hang.
const READ: Duration = Duration::from_secs(10);

/// A deduplicating, compressing SSD cache for block devices, served over NBD.
#[derive(Debug, Parser)]
#[command(name = "zcached", version, args_conflicts_with_subcommands = true, after_long_help = manual::MORE)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: Run,
    /// Serve the root file system: start again while FILE exists
    ///
    /// The daemon makes the file. Ended or killed, it starts again. systemd spares it at shutdown. It is for an
    /// initramfs
    #[arg(long, value_name = "FILE")]
    root_storage: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/zcached.toml")]
    config: PathBuf,
    /// Start this volume cold: ignore its cached data; no name: all
    ///
    /// As after writes to its origin without the daemon. Dirty data is kept
    #[arg(long, value_name = "VOLUME", num_args = 0..=1, default_missing_value = "")]
    cold: Vec<String>,
    /// Write this volume's dirty data back although the origin changed
    ///
    /// Use it as well if the cache may be an old copy
    #[arg(long, value_name = "VOLUME")]
    trust_dirty: Vec<String>,
    /// Discard this volume's dirty data; its origin stays as it is
    #[arg(long, value_name = "VOLUME")]
    drop_dirty: Vec<String>,
    /// User to run as: a name of /etc/passwd, or UID:GID
    ///
    /// The daemon becomes this user before it opens any file
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Stay in the foreground; the daemon always does
    #[arg(long, hide = true)]
    foreground: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a configuration and its devices; change nothing
    CheckConfig {
        /// Configuration file
        file: PathBuf,
        /// Check the file alone, not the devices and sockets it names
        #[arg(long)]
        syntax: bool,
        /// Print the outcome as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Serve on sockets from a service manager, or on standard input
    ///
    /// A service manager passes sockets as LISTEN_FDS says
    Nbd {
        #[command(flatten)]
        run: Run,
        /// Serve one client on standard input, a socket, and end with it
        #[arg(long)]
        stdio: bool,
    },
    Quickstart(quickstart::QuickstartArgs),
    #[command(flatten)]
    Documents(Documents),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.verb {
        None => {
            return match &arguments.root_storage {
                Some(file) => below_root(file),
                None => daemon(&arguments.run, Sockets::Configured),
            };
        }
        Some(Verb::Nbd { run, stdio }) => {
            return daemon(&run, if stdio { Sockets::Stdin } else { Sockets::Passed });
        }
        Some(Verb::CheckConfig { file, syntax, json }) => return check_config(&file, syntax, json),
        Some(Verb::Quickstart(args)) => return quick(&args),
        Some(Verb::Documents(document)) => manual::write(&document, Arguments::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILURE, &format!("{error:#}")),
    }
}

/// Prints the error, and returns the exit code.
fn fail(code: u8, text: &str) -> ExitCode {
    // Without a standard error there is no place for the message.
    let line = format!("zcached: {}\n", zc_io::name_errnos(text));
    // In one piece: to the kernel's log each write is a line.
    let _told = std::io::stderr().write_all(line.as_bytes());
    ExitCode::from(code)
}

fn quick(args: &quickstart::QuickstartArgs) -> ExitCode {
    // The report carries the errors; log lines would interleave with it.
    if let Err(error) = logging::start("error") {
        return fail(FAILURE, &error);
    }
    match quickstart::run(args, &mut std::io::stdout()) {
        Ok(code) => code,
        Err(error) => fail(FAILURE, &format!("{error:#}")),
    }
}

/// Reads a configuration in bounded time.
fn load(file: &Path) -> Result<Config, String> {
    let path = file.to_owned();
    match zc_daemon::within(READ, move || Config::load(&path)) {
        Ok(loaded) => loaded.map_err(|error| error.to_string()),
        Err(error) => Err(format!("{}: cannot be read: {error}", file.display())),
    }
}

/// Files that too many users may read or change, as far as their file systems answer.
fn exposed_files(file: &Path, config: &Config) -> Vec<String> {
    let (file, config) = (file.to_owned(), config.clone());
    zc_daemon::within(READ, move || zc_daemon::exposed_files(&file, &config)).unwrap_or_default()
}

/// Returns the obstacles to a start with this file, or its surprising settings.
fn examine(file: &Path, syntax: bool) -> Result<Vec<String>, Vec<String>> {
    let mut config = load(file).map_err(|error| error.lines().map(str::to_owned).collect::<Vec<_>>())?;
    let mut notes = config.notes();
    if syntax {
        return Ok(notes);
    }
    notes.extend(exposed_files(file, &config));
    let moved = zc_daemon::follow_moved_cache(&mut config, false).map_err(|error| vec![error.to_string()])?;
    notes.extend(moved);
    let mut checked = zc_daemon::check(&config);
    // Last: it takes rights.
    let user = sandbox::user(&config, None);
    checked.problems.extend(user.and_then(|user| sandbox::rehearse(&config, file, user)).err());
    notes.append(&mut checked.notes);
    if checked.problems.is_empty() {
        return Ok(notes);
    }
    checked.problems.extend(notes.iter().map(|note| format!("note: {note}")));
    Err(checked.problems)
}

fn check_config(file: &Path, syntax: bool, json: bool) -> ExitCode {
    let result = examine(file, syntax);
    let text = match (&result, json) {
        (Ok(notes), false) => {
            let fine = format!("{}: fine", file.display());
            let notes = notes.iter().map(|note| format!("note: {note}"));
            std::iter::once(fine).chain(notes).collect::<Vec<_>>().join("\n")
        }
        (Ok(notes), true) => serde_json::json!({ "ok": true, "notes": notes }).to_string(),
        (Err(mistakes), false) => return fail(MISTAKE, &mistakes.join("\n")),
        (Err(mistakes), true) => serde_json::json!({ "ok": false, "mistakes": mistakes }).to_string(),
    };
    let written = writeln!(std::io::stdout(), "{text}");
    match (result, written) {
        (Ok(_), Ok(())) => ExitCode::SUCCESS,
        (Ok(_), Err(_)) => ExitCode::from(FAILURE),
        (Err(_), _) => ExitCode::from(MISTAKE),
    }
}

/// Source of client connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sockets {
    /// The configuration's addresses, unless a service manager passed sockets.
    Configured,
    /// A service manager's sockets.
    Passed,
    /// Standard input, unless a service manager passed sockets.
    Stdin,
}

impl Sockets {
    fn take(self) -> Result<Passed, String> {
        let listeners = zc_io::take_passed_sockets();
        let mut passed = Passed { listeners, connection: None };
        if !passed.listeners.is_empty() || self == Self::Configured {
            return Ok(passed);
        }
        if self == Self::Passed {
            return Err(
                "no sockets were passed (LISTEN_FDS); use --stdio, or `zcached --config FILE`".to_owned()
            );
        }
        let stdin = std::io::stdin();
        let is_socket = std::fs::read_link("/proc/self/fd/0")
            .is_ok_and(|to| to.to_str().is_some_and(|to| to.starts_with("socket:")));
        if !is_socket {
            return Err(
                "standard input is not a socket; --stdio is for programs that start a server".to_owned()
            );
        }
        let fd = stdin.as_fd().try_clone_to_owned();
        passed.connection = Some(fd.map_err(|error| format!("standard input cannot be used: {error}"))?);
        Ok(passed)
    }
}

fn daemon(run: &Run, sockets: Sockets) -> ExitCode {
    // Before anything else opens files.
    let passed = match sockets.take() {
        Ok(passed) => passed,
        Err(error) => return fail(MISTAKE, &error),
    };
    let mut config = match load(&run.config) {
        Ok(config) => config,
        Err(error) => return fail(MISTAKE, &error),
    };
    let moved = match zc_daemon::follow_moved_cache(&mut config, true) {
        Ok(moved) => moved,
        Err(error) => return fail(code_of(&error), &error.to_string()),
    };
    let set_level = match logging::start(&config.log.level) {
        Ok(set_level) => set_level,
        Err(error) => return fail(MISTAKE, &format!("{}: log.level: {error}", run.config.display())),
    };
    if let Some(note) = moved {
        tracing::warn!("{note}");
    }
    let addresses = if passed.is_empty() { config.exposed_addresses() } else { Vec::new() };
    addresses.iter().chain(&exposed_files(&run.config, &config)).for_each(|note| tracing::warn!("{note}"));
    let user = match sandbox::user(&config, run.user.as_deref()) {
        Ok(user) => user,
        Err(error) => return fail(MISTAKE, &error),
    };
    // Another user has no block devices, and could lock little memory.
    if user.is_none() && zc_ublk::guard::is_wanted() {
        for failed in zc_ublk::guard::stand_below_file_systems() {
            tracing::warn!(
                "under memory pressure, a file system on a block device of this daemon may deadlock: {failed}"
            );
        }
    }
    // The guard needs rights that are dropped here. From here on everything that is opened is within the sandbox.
    let confined = match sandbox::enter(&config, &run.config, user) {
        Ok(confined) => confined,
        Err(error) => return fail(MISTAKE, &error),
    };
    sandbox::log(confined.as_ref());
    let named = run.user.clone();
    let read = move |path: &Path| {
        let mut config = Config::load(path).map_err(|error| error.to_string())?;
        // The note was logged already.
        let _note = zc_daemon::follow_moved_cache(&mut config, false).map_err(|error| error.to_string())?;
        // The next start would refuse these.
        sandbox::user(&config, named.as_deref()).map(|_| config)
    };
    let path = std::path::absolute(&run.config).unwrap_or_else(|_| run.config.clone());
    let hooks = Hooks {
        set_log_level: Some(set_level),
        config_file: Some(ConfigFile::new(path, Arc::new(read))),
        confined,
    };
    let options = options(run);
    let daemon = match Daemon::start_with(&config, &options, hooks, passed) {
        Ok(daemon) => daemon,
        Err(error) => return fail(code_of(&error), &error.to_string()),
    };
    tracing::info!("zcached: ready, serving {} at {}", names(&config, &daemon), daemon.addresses().join(" "));
    match daemon.wait() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            tracing::warn!(
                "stopped, but not cleanly, for the reason above; the next start treats this as a crash"
            );
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILURE, &error.to_string()),
    }
}

/// Returns the daemon's options.
fn options(run: &Run) -> StartOptions {
    StartOptions {
        // Without a name the value is empty, which no volume's name is.
        cold: run.cold.iter().any(String::is_empty),
        cold_volumes: run.cold.iter().filter(|name| !name.is_empty()).cloned().collect(),
        signals: true,
        trust_dirty: run.trust_dirty.clone(),
        drop_dirty: run.drop_dirty.clone(),
    }
}

fn below_root(file: &Path) -> ExitCode {
    match root_storage::keep(file, MISTAKE) {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(FAILURE, &error),
    }
}

fn code_of(error: &EngineError) -> u8 {
    if error.is_refusal() { MISTAKE } else { FAILURE }
}

/// Names of the configured volumes that the daemon serves, with commas between.
fn names(config: &Config, daemon: &Daemon) -> String {
    let names = config.volumes.iter().map(|volume| volume.name.as_str());
    names.filter(|name| daemon.registry().volumes.contains_key(*name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        assert_eq!(zc_cli::rules::faults(&Arguments::command()), Vec::<String>::new());
    }
}
