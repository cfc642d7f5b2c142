//! One daemon's surroundings: a folder with configuration, cache, origins and sockets, and the ways to talk to it.
//!
//! Invariants: everything lies in one temporary folder; the only sockets are Unix sockets in it.

use crate::daemon::{DEADLINE, Daemon};
use crate::{bounded, program, run_ok, temp_dir};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use zc_engine::NbdClient;

/// The bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// Shortest time between two polls of the counters. Polls without a pause take a core from the daemon and other tests.
const PAUSE: Duration = Duration::from_millis(5);

/// A folder for one daemon, which the test starts.
#[derive(Debug)]
pub struct World {
    dir: tempfile::TempDir,
    /// Lines for `[cache]`; `path` and `state_dir` are given.
    pub cache: String,
    /// Name, size in bytes and further lines of each volume. Its origin is `NAME.img` unless the lines name one.
    pub volumes: Vec<(String, u64, String)>,
    /// Lines for `[nbd]`; there is one Unix socket.
    pub nbd: String,
    /// Path of the cache, relative to the folder or absolute.
    pub cache_path: PathBuf,
    /// Path of the control socket, relative to the folder or absolute.
    pub control_path: PathBuf,
}

impl World {
    /// A folder with a cache of `cache_mib` and one volume, `disk`, of `volume_mib`. Open write units are written after
    /// 100 ms.
    #[must_use]
    pub fn new(cache_mib: u64, volume_mib: u64) -> Self {
        Self {
            dir: temp_dir(),
            cache: format!("size = \"{cache_mib} MiB\"\nweu_max_age = \"100 ms\"\n"),
            volumes: vec![("disk".to_owned(), volume_mib * MIB, String::new())],
            nbd: String::new(),
            cache_path: "cache.img".into(),
            control_path: "control.sock".into(),
        }
    }

    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The control socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.dir.path().join(&self.control_path)
    }

    /// A file of the daemon that need not outlive the machine, by its extension, wherever the daemon has it.
    #[must_use]
    pub fn volatile_file(&self, extension: &str) -> Option<PathBuf> {
        let beside = self.control_socket().parent().map(Path::to_owned);
        let files = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let all = beside.into_iter().chain([self.path("state")]).flat_map(files).map(|file| file.path());
        all.into_iter().find(|path| path.extension().is_some_and(|found| found == extension))
    }

    /// The cache file.
    #[must_use]
    pub fn cache_file(&self) -> PathBuf {
        self.dir.path().join(&self.cache_path)
    }

    /// The default origin of a volume.
    #[must_use]
    pub fn origin(&self, volume: &str) -> PathBuf {
        self.path(&format!("{volume}.img"))
    }

    /// Makes a store, `tank`, in the file `pool`. `size` is as `zcctl store create` takes it.
    pub fn add_store(&mut self, size: &str) {
        let pool = self.path("pool");
        run_ok(Command::new(program("zcctl")).args(["store", "create", "--size", size]).arg(&pool));
        self.cache.push_str(&format!("[[store]]\nname = \"tank\"\npath = \"{}\"\n", pool.display()));
    }

    /// Adds a volume of the store `tank`, with further lines. The daemon makes the volume when it starts.
    pub fn add_thin(&mut self, name: &str, mib: u64, lines: &str) {
        let lines = format!("origin = \"store:tank/{name}\"\ncreate_size = \"{mib} MiB\"\n{lines}");
        self.volumes.push((name.to_owned(), mib * MIB, lines));
    }

    /// Writes the configuration and returns its path.
    ///
    /// # Panics
    /// It cannot be written.
    #[must_use]
    pub fn configure(&self) -> PathBuf {
        let dir = self.dir.path().display();
        let cache = self.cache_file();
        let mut text =
            format!("[cache]\npath = \"{}\"\nstate_dir = \"{dir}/state\"\n{}", cache.display(), self.cache);
        for (name, size, lines) in &self.volumes {
            text.push_str(&format!("[[volume]]\nname = \"{name}\"\n{lines}"));
            if !lines.contains("origin =") {
                text.push_str(&format!("origin = \"{dir}/{name}.img\"\ncreate_size = {size}\n"));
            }
        }
        text.push_str(&format!("[nbd]\nlisten = []\nunix = [\"{dir}/nbd.sock\"]\n{}", self.nbd));
        text.push_str(&format!("[control]\nsocket = \"{}\"\n", self.control_socket().display()));
        let path = self.path("zcached.toml");
        std::fs::write(&path, text).expect("cannot write the configuration");
        path
    }

    /// Writes the configuration and starts the daemon with it.
    #[must_use]
    pub fn start(&self) -> Daemon {
        Daemon::start(&self.configure())
    }

    /// Writes the configuration and starts the daemon with it and further arguments.
    ///
    /// # Panics
    /// As [`Daemon::start`].
    #[must_use]
    pub fn start_with(&self, arguments: &[&str]) -> Daemon {
        let mut daemon = Command::new(program("zcached"));
        daemon.arg("--config").arg(self.configure()).args(arguments);
        Daemon::spawn(daemon, self.dir.path())
    }

    /// Starts a daemon that must refuse; returns its error output.
    ///
    /// # Panics
    /// It does not refuse, or with the wrong status.
    #[must_use]
    pub fn refused(&self, arguments: &[&str]) -> String {
        // One that does not refuse would serve until a test stops it.
        let mut daemon = bounded("env");
        daemon.arg(program("zcached")).arg("--config").arg(self.configure()).args(arguments);
        let output = daemon.output().expect("cannot start zcached");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// The URI of an export.
    #[must_use]
    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.path("nbd.sock").display())
    }

    /// A connection of our own client, which waits for an answer no longer than [`DEADLINE`].
    ///
    /// # Panics
    /// The daemon does not take it.
    #[must_use]
    pub fn connect(&self, volume: &str) -> NbdClient {
        let uri = self.uri(volume).parse().expect("the URI is well formed");
        NbdClient::connect_within(&uri, DEADLINE).expect("cannot connect")
    }

    /// Sends one command, an object, over the control socket and returns the answer.
    ///
    /// # Panics
    /// There is no answer in time, or it is not JSON.
    #[must_use]
    pub fn control(&self, command: &Value) -> Value {
        let mut stream = UnixStream::connect(self.control_socket()).expect("cannot reach the control socket");
        stream.set_read_timeout(Some(DEADLINE)).expect("cannot set a read timeout");
        writeln!(stream, "{command}").expect("cannot send a command");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("the control socket does not answer");
        serde_json::from_str(&line).expect("answers are JSON")
    }

    /// The daemon's counters.
    #[must_use]
    pub fn stats(&self) -> Value {
        self.control(&serde_json::json!({ "cmd": "stats" }))
    }

    /// One counter of the cache manager.
    ///
    /// # Panics
    /// There is no such counter.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let stats = self.stats();
        stats["manager"][name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {stats}"))
    }

    /// Returns the daemon's status.
    #[must_use]
    pub fn status(&self) -> Value {
        self.control(&serde_json::json!({ "cmd": "status" }))
    }

    /// Polls the counters until `done` holds, and returns them.
    ///
    /// # Panics
    /// It does not hold within [`DEADLINE`] of the daemon's own clock.
    pub fn stats_until(&self, what: &str, mut done: impl FnMut(&Value) -> bool) -> Value {
        let deadline_ms = u64::try_from(DEADLINE.as_millis()).expect("the deadline is short");
        let start = self.stats()["uptime_ms"].as_u64().expect("the uptime is a number");
        loop {
            let stats = self.stats();
            if done(&stats) {
                return stats;
            }
            let now = stats["uptime_ms"].as_u64().expect("the uptime is a number");
            assert!(now < start + deadline_ms, "{what}: not within {DEADLINE:?}: {stats}");
            self.pause();
        }
    }

    /// Waits until the daemon closes an idle connection because it ended, or for [`PAUSE`].
    fn pause(&self) {
        if let Ok(mut stream) = UnixStream::connect(self.control_socket()) {
            stream.set_read_timeout(Some(PAUSE)).expect("cannot set a read timeout");
            // The daemon sends nothing on it.
            stream.read_exact(&mut [0]).ok();
        }
    }

    /// Polls the status until `done` holds, and returns it.
    ///
    /// # Panics
    /// It does not hold within [`DEADLINE`] of the daemon's own clock.
    pub fn status_until(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let mut status = self.status();
        self.stats_until(what, |_| {
            status = self.status();
            done(&status)
        });
        status
    }

    /// Returns the status of a volume; `None` if it is not served.
    #[must_use]
    pub fn volume_of(status: &Value, volume: &str) -> Option<Value> {
        status["volumes"].as_array()?.iter().find(|served| served["name"] == volume).cloned()
    }

    /// Waits until a volume is served and accepts clients; returns its status.
    ///
    /// # Panics
    /// Errors of [`World::status_until`].
    #[must_use]
    pub fn serves(&self, volume: &str) -> Value {
        let status =
            self.status_until("the volume is served", |status| Self::volume_of(status, volume).is_some());
        // Its export follows in a moment.
        let uri = self.uri(volume).parse().expect("the URI is well formed");
        self.stats_until("clients can have it", |_| NbdClient::connect(&uri).is_ok());
        Self::volume_of(&status, volume).expect("it is served")
    }

    /// Waits until the whole index is loaded.
    pub fn loaded(&self) -> Value {
        self.stats_until("the index loads", |stats| stats["index_loaded_ms"].is_u64())
    }

    /// Waits until nothing was inserted, written or journalled for 1.5 s of the daemon's own clock: open write units
    /// are sealed then, and their records are in the journal.
    pub fn settled(&self) -> Value {
        let mut before = (Value::Null, 0);
        self.stats_until("the cache settles", move |stats| {
            let manager = &stats["manager"];
            let names =
                ["weu_writes", "journal_bytes_written", "insert_stored", "insert_duplicates", "insert_zero"];
            let state = Value::from(names.map(|name| manager[name].clone()).to_vec());
            let now = stats["uptime_ms"].as_u64().unwrap_or_default();
            if state != before.0 {
                before = (state, now);
            }
            now >= before.1 + 1500
        })
    }

    /// Waits until everything that was offered for insertion is inserted, or was not to be.
    pub fn inserted(&self) {
        self.stats_until("what was offered is inserted", |stats| {
            let count = |name: &str| stats["manager"][name].as_u64().unwrap_or_default();
            let ends = [
                "stored",
                "duplicates",
                "zero",
                "skipped",
                "dropped",
                "stale",
                "present",
                "once_only",
                "over_quota",
            ];
            let ended: u64 = ends.iter().map(|end| count(&format!("insert_{end}"))).sum();
            ended == count("insert_offered")
        });
    }

    /// Runs `zcctl` on this daemon with `--json` and returns its output.
    ///
    /// # Panics
    /// It fails or its output is not JSON.
    #[must_use]
    pub fn zcctl(&self, command: &str) -> Value {
        let mut zcctl = Command::new(program("zcctl"));
        zcctl.args([command, "--json", "--socket"]).arg(self.control_socket());
        serde_json::from_slice(&run_ok(&mut zcctl).stdout).expect("zcctl --json writes JSON")
    }

    /// Runs `zcctl` on this daemon and returns how it ended.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn zcctl_output(&self, arguments: &[&str]) -> Output {
        let mut zcctl = Command::new(program("zcctl"));
        zcctl.args(arguments).arg("--socket").arg(self.control_socket());
        zcctl.output().expect("cannot start zcctl")
    }

    /// Checks that the whole origin has these bytes; reports the first difference.
    ///
    /// # Panics
    /// It has other bytes.
    pub fn origin_is(&self, volume: &str, expected: &[u8]) {
        let bytes = std::fs::read(self.origin(volume)).expect("cannot read the origin");
        same(&bytes, expected, &format!("the origin of {volume}"));
    }
}

/// Compares in sectors and names the first difference instead of printing megabytes.
///
/// # Panics
/// They differ.
pub fn same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if found == expected {
        return;
    }
    let differs = |(_, (a, b)): &(usize, (&[u8], &[u8]))| a != b;
    let mut pairs = found.chunks(512).zip(expected.chunks(512)).enumerate().filter(differs);
    let (first, (a, b)) = pairs.next().expect("they differ");
    let more = pairs.count();
    panic!(
        "{what}: sector {first} differs and {more} more; found {:02x?}, expected {:02x?}",
        &a[..16],
        &b[..16]
    );
}

/// Reads a whole file.
///
/// # Panics
/// It cannot be read.
#[must_use]
pub fn read_file(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}
