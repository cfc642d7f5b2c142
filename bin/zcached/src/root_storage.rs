//! The daemon below the root file system: `--root-storage FILE`.
//!
//! Job: start the daemon, and restart it whenever it ends, as long as the file exists. A service manager cannot do
//! that, because its own programs lie on the root file system, and wait for the daemon. Both processes have a name
//! that begins with "@": systemd leaves such processes alone when it ends all others at shutdown
//! (<https://systemd.io/ROOT_STORAGE_DAEMONS/>).
//!
//! Invariants: the file exists before the daemon starts. Options that discard data apply to the first daemon alone. A
//! mistake that the first daemon reports ends this process with the daemon's status, and removes the file.
//!
//! It does not open a device, or forward signals. `zcctl stop` stops the daemon.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// The name of both processes.
const NAME: &str = "@zcached";
/// As on the command line; not for the daemon.
const OPTION: &str = "--root-storage";
/// Options for one start only. Repeated, they would discard newer data.
const ONCE: [&str; 2] = ["--drop-dirty", "--trust-dirty"];
/// Exit status for a daemon killed by a signal.
const KILLED: u8 = 1;
/// Between the end of a daemon and the start of the next.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps a daemon running while `file` exists; returns the exit status of the last one. `mistake` is the status of a
/// daemon that cannot start with its options.
///
/// # Errors
/// A failed write or start, in a sentence.
pub(crate) fn keep(file: &Path, mistake: u8) -> Result<u8, String> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let Some((name, given)) = arguments.split_first() else {
        return Err("a program without a name cannot start itself".to_owned());
    };
    if !name.as_encoded_bytes().starts_with(b"@") {
        return Err(format!("cannot start itself as {NAME}: {}", itself(given).exec()));
    }
    std::fs::write(file, std::process::id().to_string())
        .map_err(|error| format!("{}: cannot write: {error}", file.display()))?;
    if zc_ublk::guard::is_wanted() {
        for failed in zc_ublk::guard::stand_below_file_systems() {
            say(&format!("under memory pressure, this process may deadlock with its own daemon: {failed}"));
        }
    }
    let mut daemon = without(given, &[OPTION]);
    let mut is_first = true;
    loop {
        let ended = itself(&daemon).status().map_err(|error| format!("cannot start the daemon: {error}"))?;
        if is_first && ended.code() == Some(mistake.into()) {
            // Without a daemon there is no root file system yet.
            let _gone_already = std::fs::remove_file(file);
        }
        if !file.exists() {
            return Ok(code_of(ended));
        }
        is_first = false;
        daemon = without(&daemon, &ONCE);
        say(&format!("the daemon ended ({ended}), and {} exists: a new daemon starts", file.display()));
        pause();
    }
}

/// This program, with the name that systemd spares.
fn itself(arguments: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).args(arguments);
    command
}

fn without(given: &[OsString], options: &[&str]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = given.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let (option, value) =
            text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value)));
        if !options.contains(&option) {
            kept.push(argument.clone());
        } else if value.is_none() {
            arguments.next();
        }
    }
    kept
}

fn code_of(ended: ExitStatus) -> u8 {
    ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(KILLED)
}

fn say(text: &str) {
    // Without a standard error there is no place for the message.
    let _told = std::io::stderr().write_all(format!("zcached: {text}\n").as_bytes());
}

#[expect(clippy::disallowed_methods, reason = "a daemon that ends at once shall not take all of a processor")]
fn pause() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn options_go_with_their_values() {
        let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        for given in [
            "--root-storage f --config c --cold",
            "--config c --root-storage=f --cold",
            "--config c --cold --root-storage f",
        ] {
            assert_eq!(without(&words(given), &[OPTION]), words("--config c --cold"), "{given}");
        }
        let given = words("--config=c --drop-dirty a --cold --drop-dirty=b --trust-dirty c");
        assert_eq!(without(&given, &ONCE), words("--config=c --cold"));
    }

    #[test]
    fn an_end_by_a_signal_is_a_failure() {
        assert_eq!(code_of(ExitStatus::from_raw(9)), KILLED);
        assert_eq!(code_of(ExitStatus::from_raw(2 << 8)), 2);
        assert_eq!(code_of(ExitStatus::from_raw(0)), 0);
    }
}
