//! A file whose requests pass through a filter of nbdkit: to fail on demand, or to be written down.

use crate::{World, read_file, require_tool, run_ok};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// nbdkit with a filter, mounted as a file. Killed and unmounted when dropped.
#[derive(Debug)]
pub struct FilteredFile {
    fuse: Child,
    mount: PathBuf,
    trigger: Option<PathBuf>,
}

impl FilteredFile {
    /// Presents `image` as a file that fails on demand.
    #[must_use]
    pub fn failing(world: &World, image: &Path) -> Self {
        let trigger = world.path("fail-now");
        let words = ["error=EIO", "error-rate=100%", &format!("error-file={}", trigger.display())];
        let mut file = Self::start(world, image, "error", &words);
        file.trigger = Some(trigger);
        file
    }

    /// Presents `image` as a file with writes that fail on demand.
    #[must_use]
    pub fn failing_writes(world: &World, image: &Path) -> Self {
        Self::failing_at(world, image, "pwrite")
    }

    /// Presents `image` as a file with reads that fail on demand.
    #[must_use]
    pub fn failing_reads(world: &World, image: &Path) -> Self {
        Self::failing_at(world, image, "pread")
    }

    fn failing_at(world: &World, image: &Path, operation: &str) -> Self {
        let trigger = world.path("fail-now");
        let words = [
            format!("error-{operation}=EIO"),
            format!("error-{operation}-rate=100%"),
            format!("error-{operation}-file={}", trigger.display()),
        ];
        let mut file = Self::start(world, image, "error", &words.each_ref().map(String::as_str));
        file.trigger = Some(trigger);
        file
    }

    /// Shows `image` as a file and writes down every request.
    #[must_use]
    pub fn logged(world: &World, image: &Path, log: &Path) -> Self {
        Self::start(world, image, "log", &[&format!("logfile={}", log.display())])
    }

    fn start(world: &World, image: &Path, filter: &str, words: &[&str]) -> Self {
        let mount = world.path("filtered.img");
        File::create(&mount).expect("cannot make the mount point");
        let pid = world.path("fuse.pid");
        run_ok(Command::new("mkfifo").arg(&pid));
        let mut command = Command::new(require_tool("nbdfuse"));
        command.arg("--pidfile").arg(&pid).arg(&mount).args(["--command"]).arg(require_tool("nbdkit"));
        command
            .args(["-s", "--exit-with-parent", &format!("--filter={filter}"), "file"])
            .arg(image)
            .args(words);
        let fuse = command.stdin(Stdio::null()).spawn().expect("cannot start nbdfuse");
        // It writes its process id when the file is there.
        let _pid = read_file(&pid);
        Self { fuse, mount, trigger: None }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The configuration of a volume whose origin this is.
    #[must_use]
    pub fn as_origin(&self) -> String {
        format!("origin = \"{}\"\ndirect = false\n", self.mount.display())
    }

    /// From now on every read and write fails, or every write only, or no more.
    ///
    /// # Panics
    /// It was not made to fail.
    pub fn fail(&self, fails: bool) {
        let trigger = self.trigger.as_ref().expect("the file can fail");
        let done = if fails { File::create(trigger).map(drop) } else { std::fs::remove_file(trigger) };
        done.expect("cannot begin or end the errors");
    }
}

impl FilteredFile {
    /// Suspends all answers until the returned value is dropped.
    ///
    /// # Panics
    /// The server cannot be reached.
    #[must_use]
    pub fn hang(&self) -> Hanging<'_> {
        let pid = Pid::from_child(&self.fuse);
        kill_process(pid, Signal::STOP).expect("cannot stop the server of the file");
        // It takes a moment until all its threads stand still.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), stopped).expect("the server of the file stops");
        Hanging(self)
    }
}

/// A file that answers no request. Without this a failed test would wait for its daemon, which waits for the file.
#[derive(Debug)]
pub struct Hanging<'a>(&'a FilteredFile);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.0.fuse), Signal::CONT).ok();
    }
}

impl Drop for FilteredFile {
    fn drop(&mut self) {
        Command::new("fusermount3").args(["-u", "-z"]).arg(&self.mount).status().ok();
        self.fuse.kill().ok();
        self.fuse.wait().ok();
    }
}
