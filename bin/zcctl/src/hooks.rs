//! Programs that `zcctl events --exec` starts for each event.
//!
//! Job: run the executables of a folder, one after the other, with the event in their environment.
//!
//! Invariants: no shell. One program runs at a time, up to its time-out, and its process group ends with it. At most
//! [`PROGRAMS_MAX`] run for an event. Only programs run that only root or this user can change.
//!
//! It does not delay the daemon. Events wait in the daemon, and this process fetches them.

use std::fs::Metadata;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;

use crate::text;

/// Maximum programs per event, the first by name.
const PROGRAMS_MAX: usize = 32;
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A folder of programs.
#[derive(Debug)]
pub(crate) struct Hooks {
    folder: PathBuf,
    limit: Duration,
    socket: PathBuf,
}

impl Hooks {
    /// Opens the programs of `folder`, each with a time-out of `limit` seconds and the path of the daemon's control
    /// socket.
    ///
    /// # Errors
    /// When it is no folder, or other users may change it.
    pub(crate) fn open(folder: &Path, limit_s: u16, socket: &Path) -> anyhow::Result<Self> {
        let found = std::fs::metadata(folder);
        let metadata = found.with_context(|| format!("cannot inspect {}", folder.display()))?;
        ensure!(metadata.is_dir(), "{} is not a folder", folder.display());
        ensure!(
            is_ours(&metadata),
            "other users may change {}; only root and this user may: `chmod go-w`",
            folder.display()
        );
        let limit = Duration::from_secs(u64::from(limit_s));
        let folder = std::fs::canonicalize(folder)
            .with_context(|| format!("cannot determine the path of {}", folder.display()))?;
        Ok(Self { folder, limit, socket: socket.to_owned() })
    }

    /// Runs the programs for an event. Failures are reported, and are no error.
    pub(crate) fn run(&self, event: &Value) {
        let programs = match self.programs() {
            Ok(programs) => programs,
            Err(error) => return complain(&format!("cannot list {}: {error}", self.folder.display())),
        };
        for program in programs.iter().take(PROGRAMS_MAX) {
            self.run_one(program, event);
        }
        if let Some(left) = programs.len().checked_sub(PROGRAMS_MAX).filter(|left| *left > 0) {
            complain(&format!("{left} programs did not run; at most {PROGRAMS_MAX} run for an event"));
        }
    }

    /// The executables, by name. Hidden files and copies that editors leave are none.
    fn programs(&self) -> std::io::Result<Vec<PathBuf>> {
        let mut programs = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let is_plain = entry.file_name().to_str().is_some_and(is_name_of_a_program);
            let Some(metadata) = std::fs::metadata(entry.path()).ok().filter(Metadata::is_file) else {
                continue;
            };
            if !is_plain || metadata.permissions().mode() & 0o111 == 0 {
                continue;
            }
            if is_ours(&metadata) {
                programs.push(entry.path());
            } else {
                complain(&format!("{} did not run: other users may change it", entry.path().display()));
            }
        }
        programs.sort();
        Ok(programs)
    }

    fn run_one(&self, program: &Path, event: &Value) {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("ZCACHED_SOCKET", &self.socket)
            .envs(variables(event));
        // The standard output is reserved for events.
        command.stdin(Stdio::null()).stdout(std::io::stderr()).stderr(std::io::stderr());
        command.current_dir("/").process_group(0);
        let said = match command.spawn() {
            Ok(child) => self.wait(child),
            Err(error) => Err(format!("did not start: {error}")),
        };
        match said {
            Ok(status) if status.success() => {}
            Ok(status) => complain(&format!("{} ended with {status}", program.display())),
            Err(what) => complain(&format!("{} {what}", program.display())),
        }
    }

    /// Waits for a program, and kills it with its children at the time-out.
    fn wait(&self, mut child: Child) -> Result<ExitStatus, String> {
        let pid = Pid::from_child(&child);
        let has_ended = ends_within(pid, self.limit);
        // Not reaped yet: the number of the group is still its own.
        let _all_gone = kill_process_group(pid, Signal::KILL);
        let status = child.wait().map_err(|error| format!("cannot be waited for: {error}"))?;
        if has_ended.map_err(|error| format!("cannot be watched and was ended: {error}"))? {
            return Ok(status);
        }
        Err(format!("did not end within {} s and was ended", self.limit.as_secs()))
    }
}

/// Returns `true` if a process ends within the limit.
fn ends_within(pid: Pid, limit: Duration) -> rustix::io::Result<bool> {
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let limit = Timespec::try_from(limit).map_err(|_| rustix::io::Errno::INVAL)?;
    Ok(poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit))? > 0)
}

/// Returns `true` if only root and this user may change a file or folder.
fn is_ours(metadata: &Metadata) -> bool {
    let owner = metadata.uid();
    (owner == 0 || owner == rustix::process::geteuid().as_raw()) && metadata.mode() & 0o022 == 0
}

/// As of the hook directories of Debian: letters, digits, `-` and `_`.
fn is_name_of_a_program(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// `ZCACHED_EVENT`, `ZCACHED_VOLUME` and so on: one for each member of the event that has a value.
fn variables(event: &Value) -> impl Iterator<Item = (String, String)> {
    event.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), text::clean);
        (format!("ZCACHED_{}", name.to_ascii_uppercase()), value)
    })
}

fn complain(what: &str) {
    // A closed standard error is no failure.
    let _written = writeln!(std::io::stderr(), "zcctl: {}", text::clean(what));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_with_a_value_become_variables_without_control_characters() {
        let event = json!({"event": "fenced", "number": 3, "volume": null, "what": "a\nb"});
        let mut found: Vec<_> = variables(&event).collect();
        found.sort();
        let expected = [("ZCACHED_EVENT", "fenced"), ("ZCACHED_NUMBER", "3"), ("ZCACHED_WHAT", "a\u{fffd}b")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn only_plain_names_of_files_that_others_cannot_change_are_programs() {
        assert!(["mail", "10-page_me"].into_iter().all(is_name_of_a_program));
        assert!(!["a.sh", ".hidden", "old~", "a b"].into_iter().any(is_name_of_a_program));
        let dir = tempfile::tempdir().unwrap();
        let modes = [("yes", 0o755), ("not-executable", 0o644), ("of-all", 0o777)];
        for (name, mode) in modes {
            let path = dir.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let hooks = Hooks::open(dir.path(), 1, Path::new("/run/socket")).unwrap();
        let names: Vec<_> = hooks.programs().unwrap();
        assert_eq!(names, [std::fs::canonicalize(dir.path()).unwrap().join("yes")]);
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Hooks::open(dir.path(), 1, Path::new("/run/socket")).unwrap_err().to_string();
        assert!(refused.contains("other users may change"), "{refused}");
    }
}
