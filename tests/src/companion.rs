//! Other programs beside a test: a load generator, a proxy, a file server.
//!
//! Invariant: none outlives its test; each is ended by its own process id.

use crate::daemon::DEADLINE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Turns its standard input into the first socket of a socket activation, then becomes the program.
const ACTIVATE: &str = r#"exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@""#;

/// A running program. Dropping it kills and reaps this process, and no other.
#[derive(Debug)]
pub struct Companion(Child);

impl Companion {
    /// Starts a program without input and output.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
    }

    /// Starts a program with pipes to the test: its input, and both of its outputs.
    ///
    /// # Panics
    /// It cannot be started, or there are no pipes.
    #[must_use]
    pub fn converse(command: &mut Command) -> (Self, PipeWriter, PipeReader) {
        let (input, to) = std::io::pipe().expect("cannot make a pipe");
        let (from, output) = std::io::pipe().expect("cannot make a pipe");
        let both = output.try_clone().expect("cannot share a pipe");
        command.stdin(input).stdout(output).stderr(both);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        // Ours of the ends that the program has: its output ends with it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        (Self(child), to, from)
    }

    /// Starts a server that takes its listening socket from a service manager. The socket exists when this returns,
    /// so that a client may connect at once: it waits until the server accepts.
    ///
    /// # Panics
    /// The socket cannot be made, or the server cannot be started.
    #[must_use]
    pub fn serve(socket: &Path, server: &Path, arguments: &[&str]) -> Self {
        let listener = UnixListener::bind(socket)
            .unwrap_or_else(|error| panic!("cannot listen on {}: {error}", socket.display()));
        Self::activate(listener.into(), server, arguments)
    }

    /// As [`Self::serve`], with a socket that listens already.
    ///
    /// # Panics
    /// The server cannot be started.
    #[must_use]
    pub fn activate(listener: OwnedFd, server: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", ACTIVATE, "sh"]).arg(server).args(arguments);
        command.stdin(Stdio::from(listener)).stdout(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
    }

    /// Stops it, so that it answers nothing, and waits until all its threads stand still.
    ///
    /// # Panics
    /// It cannot be stopped.
    pub fn stop(&self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::STOP).expect("cannot stop a program");
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("the program stops");
    }

    /// Resumes a stopped program.
    ///
    /// # Panics
    /// It does not exist.
    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.0), Signal::CONT).expect("cannot resume a program");
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// Its status cannot be had.
    pub fn wait(mut self) -> std::process::ExitStatus {
        self.0.wait().expect("cannot wait for a program that was started here")
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // It may have ended by itself; only reaping it matters.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A named pipe through which a program reports that it is ready.
#[derive(Debug)]
pub struct Word {
    path: PathBuf,
    /// Open for both directions: opening does not wait for the other side.
    pipe: File,
}

impl Word {
    /// Makes the pipe.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("cannot make a named pipe");
        let pipe = File::options().read(true).write(true).open(&path).expect("cannot open a named pipe");
        Self { path, pipe }
    }

    /// Returns the path for the program.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until something was written.
    ///
    /// # Panics
    /// Nothing was within [`DEADLINE`].
    pub fn wait(&mut self, what: &str) {
        let deadline = Timespec::try_from(DEADLINE).expect("the deadline is a valid time");
        let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
        let said = poll(&mut fds, Some(&deadline)).expect("cannot poll a pipe");
        assert!(said > 0, "{what}: nothing was heard of it in {DEADLINE:?}");
        let mut byte = [0];
        self.pipe.read_exact(&mut byte).expect("cannot read from a pipe");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_dir;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_companion_ends_with_its_test() {
        let companion = Companion::start(Command::new("sleep").arg("600"));
        let process = format!("/proc/{}", companion.0.id());
        assert!(Path::new(&process).exists());
        drop(companion);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn a_server_gets_its_socket_as_the_third_descriptor() {
        let dir = temp_dir();
        let script = "import os, socket\n\
            assert os.environ['LISTEN_PID'] == str(os.getpid()) and os.environ['LISTEN_FDS'] == '1'\n\
            socket.socket(fileno=3).accept()[0].sendall(b'hello')\n";
        let path = dir.path().join("socket");
        let server = Companion::serve(&path, Path::new(crate::tools::PYTHON), &["-c", script]);
        let mut text = String::new();
        UnixStream::connect(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(server.wait().success());
    }

    #[test]
    fn a_word_is_heard() {
        let dir = temp_dir();
        let mut word = Word::new(dir.path().join("word"));
        let script = format!("echo > {}", word.path().display());
        let companion = Companion::start(Command::new("sh").args(["-c", &script]));
        word.wait("the script");
        assert!(companion.wait().success());
    }
}
