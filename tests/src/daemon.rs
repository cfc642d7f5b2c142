//! A daemon under test that cannot outlive its test.
//!
//! Readiness is reported by the daemon itself: it gets a `NOTIFY_SOCKET` and sends `READY=1` when it serves, as it
//! does to systemd. A thread copies its log to a file and, when the log ends because the daemon did, sends a message
//! of the tests to the same socket. So one blocking receive waits for both, without polling.

use crate::program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A daemon that has not started or stopped after this time hangs, and its test fails.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Lines of the daemon's log that a failure shows.
const LOG_TAIL_LINES: usize = 40;

/// Message of the log's reader at the end of the daemon's log.
const LOG_ENDED: &[u8] = b"zc-tests: the log ended";

/// A running `zcached`. Dropping it kills and reaps this process, and no other.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
    lines: Arc<Lines>,
    reader: Option<JoinHandle<()>>,
    status: Option<ExitStatus>,
}

/// Lines of the log that are in its file.
#[derive(Debug, Default)]
struct Lines {
    count: Mutex<usize>,
    grew: Condvar,
}

impl Lines {
    fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.grew.notify_all();
    }
}

impl Daemon {
    /// Starts `zcached --config CONFIG` and returns when it serves. Its log is `zcached.log` beside the configuration;
    /// a restarted daemon appends to it.
    ///
    /// # Panics
    /// It ends or hangs before it is ready; the message contains the end of its log.
    #[must_use]
    pub fn start(config: &Path) -> Self {
        let mut command = Command::new(program("zcached"));
        command.arg("--config").arg(config);
        let folder = config.parent().expect("the configuration lies in a folder");
        Self::spawn(command, folder)
    }

    /// Starts any program that keeps the readiness protocol; `folder` gets its log and its notify socket.
    ///
    /// # Panics
    /// As [`Daemon::start`].
    #[must_use]
    pub fn spawn(mut command: Command, folder: &Path) -> Self {
        let (socket, address) = notify_socket(folder);
        command
            .env("NOTIFY_SOCKET", &address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let log = folder.join("zcached.log");
        let lines = Arc::new(Lines::default());
        let reader = copy_log(stderr, &log, Arc::clone(&lines), address);
        let mut daemon = Self { child, log, lines, reader: Some(reader), status: None };
        daemon.wait_until_ready(&socket);
        daemon
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with everything the daemon logged.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Waits until the log holds this text.
    ///
    /// # Panics
    /// It does not within [`DEADLINE`].
    pub fn until_logged(&self, text: &str) {
        let is_missing = || !std::fs::read_to_string(&self.log).is_ok_and(|log| log.contains(text));
        let count = self.lines.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.lines.grew.wait_timeout_while(count, DEADLINE, |_| is_missing());
        let (_count, end) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!end.timed_out(), "\"{text}\": not within {DEADLINE:?}\n{}", self.tail());
    }

    /// Kills the daemon as a crash would (SIGKILL) and waits until it is gone.
    pub fn kill9(mut self) {
        self.kill_and_reap();
    }

    /// Stops the daemon (SIGTERM) and waits for its end.
    ///
    /// # Panics
    /// It does not stop within [`DEADLINE`].
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_for_exit()
    }

    /// Waits for the daemon to end by itself.
    ///
    /// # Panics
    /// It does not end within [`DEADLINE`].
    pub fn wait(mut self) -> ExitStatus {
        self.wait_for_exit()
    }

    /// Sends a signal, such as `Signal::HUP` to reload.
    ///
    /// # Panics
    /// The daemon is gone already.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.os_pid(), signal)
            .unwrap_or_else(|error| panic!("cannot send {signal:?} to {}: {error}", self.pid()));
    }

    fn os_pid(&self) -> Pid {
        let raw = i32::try_from(self.child.id()).expect("process ids are positive 32-bit numbers");
        Pid::from_raw(raw).expect("process ids are not zero")
    }

    fn wait_until_ready(&mut self, socket: &UnixDatagram) {
        let mut message = [0_u8; 4096];
        loop {
            let length = match socket.recv(&mut message) {
                Ok(length) => length,
                // A machine that was paused interrupts a wait that has a bound.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    panic!("zcached did not become ready in {DEADLINE:?} ({error})\n{}", self.tail())
                }
            };
            let text = &message[..length];
            if text == LOG_ENDED {
                self.kill_and_reap();
                panic!("zcached ended before it was ready: {:?}\n{}", self.status, self.tail());
            }
            if text.split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                return;
            }
        }
    }

    fn wait_for_exit(&mut self) -> ExitStatus {
        let pidfd = pidfd_open(self.os_pid(), PidfdFlags::empty()).expect("cannot open the daemon's pidfd");
        let deadline = Timespec::try_from(DEADLINE).expect("the deadline is a valid time");
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let ended = poll(&mut fds, Some(&deadline)).expect("cannot poll the daemon's pidfd");
        assert!(ended > 0, "zcached did not stop in {DEADLINE:?}\n{}", self.tail());
        self.reap()
    }

    fn kill_and_reap(&mut self) {
        // Killing a process that ended by itself fails; only the reaping below matters.
        self.child.kill().ok();
        self.reap();
    }

    fn reap(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("cannot wait for the daemon");
        self.status = Some(status);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log's reader panicked");
        }
        status
    }

    /// The end of the log, for messages.
    fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(LOG_TAIL_LINES);
        format!("--- end of {}\n{}", self.log.display(), lines[from..].join("\n"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
        // Its last word must not reach the socket of a daemon that is started in the same folder.
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
    }
}

/// Returns a datagram socket that times out after [`DEADLINE`], and its address.
fn notify_socket(folder: &Path) -> (UnixDatagram, PathBuf) {
    let address = folder.join("notify.sock");
    std::fs::remove_file(&address).ok();
    let socket = UnixDatagram::bind(&address)
        .unwrap_or_else(|error| panic!("cannot listen on {}: {error}", address.display()));
    // As systemd's own: the daemon may have become another user.
    std::fs::set_permissions(&address, std::fs::Permissions::from_mode(0o666))
        .unwrap_or_else(|error| panic!("cannot open {} to all: {error}", address.display()));
    socket.set_read_timeout(Some(DEADLINE)).expect("cannot set a read timeout");
    (socket, address)
}

/// Copies the daemon's log to `log`, line by line, until it ends; then sends a message to `address`.
fn copy_log(stderr: ChildStderr, log: &Path, lines: Arc<Lines>, address: PathBuf) -> JoinHandle<()> {
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .unwrap_or_else(|error| panic!("cannot open {}: {error}", log.display()));
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n') {
            let mut line = line.expect("cannot read the daemon's log");
            line.push(b'\n');
            file.write_all(&line).expect("cannot write the daemon's log");
            lines.add();
        }
        // No receiver is left when the daemon had become ready: that is the usual case.
        if let Ok(socket) = UnixDatagram::unbound() {
            socket.send_to(LOG_ENDED, address).ok();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_dir;

    /// A script in the place of the daemon: it starts, then does `then`.
    fn scripted(then: &str) -> Command {
        let start = "import os, socket, sys, signal\n\
            s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
            print('starting', file=sys.stderr, flush=True)\n";
        let mut command = Command::new(crate::tools::PYTHON);
        command.args(["-c", &format!("{start}{then}")]);
        command
    }

    const READY: &str = "s.sendto(b'STATUS=loading', os.environ['NOTIFY_SOCKET'])\n\
        s.sendto(b'STATUS=up\\nREADY=1\\n', os.environ['NOTIFY_SOCKET'])\n";

    #[test]
    fn a_ready_daemon_is_returned_and_stops_on_request() {
        let dir = temp_dir();
        let script = format!(
            "signal.signal(signal.SIGTERM, lambda *_: (print('bye', file=sys.stderr), os._exit(7)))\n\
            {READY}signal.pause()\n"
        );
        let daemon = Daemon::spawn(scripted(&script), dir.path());
        let log = daemon.log_path().to_path_buf();
        assert_eq!(daemon.terminate().code(), Some(7));
        assert_eq!(std::fs::read_to_string(log).unwrap(), "starting\nbye\n");
    }

    #[test]
    fn a_killed_daemon_is_gone_and_can_be_started_again_in_the_same_place() {
        let dir = temp_dir();
        let script = format!("{READY}signal.pause()\n");
        let daemon = Daemon::spawn(scripted(&script), dir.path());
        let pid = daemon.pid();
        daemon.kill9();
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let again = Daemon::spawn(scripted(&script), dir.path());
        let log = again.log_path().to_path_buf();
        again.kill9();
        assert_eq!(std::fs::read_to_string(log).unwrap(), "starting\nstarting\n");
    }

    #[test]
    fn a_dropped_daemon_does_not_live_on() {
        let dir = temp_dir();
        let daemon = Daemon::spawn(scripted(&format!("{READY}signal.pause()\n")), dir.path());
        let pid = daemon.pid();
        drop(daemon);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    #[should_panic(expected = "ended before it was ready")]
    fn a_daemon_that_dies_first_fails_the_test_at_once() {
        let dir = temp_dir();
        let _daemon = Daemon::spawn(scripted("sys.exit('no such volume')"), dir.path());
    }
}
