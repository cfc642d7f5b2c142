//! A daemon under measurement.
//!
//! Job: configuration, start, and the counters of the control socket.
//!
//! Invariants: the daemon ends with its value.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::servers::{Server, beside};
use crate::measure::Sample;

/// Folder of files in memory on Linux.
const MEMORY_DIR: &str = "/dev/shm";
/// Bound on polls for the end of insertions after a run, and the interval.
const SETTLE_LOOKS_MAX: u32 = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    server: Server,
    control: PathBuf,
    /// Goes after the server.
    _run: TempDir,
}

/// Counters in benches: names in reports, and the summands among the counters of the manager.
const COUNTERS: [(&str, &[&str]); 13] = [
    ("reads", &["reads"]),
    ("hits", &["read_hits"]),
    ("device_reads", &["device_reads"]),
    ("offered", &["insert_offered"]),
    ("inserted", &["insert_stored", "insert_duplicates", "insert_zero", "insert_present"]),
    ("skipped", &["insert_skipped"]),
    ("stale", &["insert_stale"]),
    ("stored", &["insert_stored"]),
    ("duplicates", &["insert_duplicates"]),
    ("raw_bytes", &["stored_raw_bytes"]),
    ("stored_bytes", &["stored_bytes"]),
    ("ssd_bytes", &["weu_bytes_written"]),
    ("evictions", &["evictions"]),
];
/// Counters of the driver: turns of I/O threads, and how long threads waited for those of others.
const TURNS: [&str; 2] = ["turns_us", "turns_waited_us"];

/// A folder for the control socket: in memory if there is such a place, as `/run` is where a service runs. There the
/// daemon keeps its intent log, too. On a disk each turn that has records would wait for a thread that writes them.
fn run_dir(dir: &Path) -> anyhow::Result<TempDir> {
    let place = Path::new(MEMORY_DIR);
    let place = if place.is_dir() { place } else { dir };
    tempfile::Builder::new()
        .prefix("zcached-bench-")
        .tempdir_in(place)
        .context("no folder for the control socket")
}

impl Daemon {
    /// Starts a daemon in `dir`, where its socket for clients and its state are. `cache` and `nbd` are lines of these
    /// tables, and `volumes` whole tables.
    pub(crate) fn serve(dir: &Path, cache: &str, volumes: &str, nbd: &str) -> anyhow::Result<Self> {
        let run = run_dir(dir)?;
        let control = run.path().join("control.sock");
        let (state, socket) = (dir.join("state"), dir.join("nbd.sock"));
        let text = format!(
            "[cache]\nstate_dir = {state:?}\n{cache}\n{volumes}\n[nbd]\nunix = [{socket:?}]\n{nbd}\n\
             [log]\nlevel = \"warn\"\n[control]\nsocket = {control:?}\n"
        );
        let config = dir.join("zcached.toml");
        std::fs::write(&config, text)?;
        let mut command = Command::new(beside("zcached")?);
        command.arg("--config").arg(&config);
        let server = Server::start(&mut command, &socket)?;
        Ok(Self { server, control, _run: run })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) const fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn socket(&self) -> &Path {
        self.server.socket()
    }

    pub(crate) fn control(&self) -> &Path {
        &self.control
    }

    /// Returns the counters of benches.
    pub(crate) fn counters(&self) -> anyhow::Result<Sample> {
        let stats = ask(&self.control, &serde_json::json!({ "cmd": "stats" }))?;
        let field = |part: &str, name: &str| {
            let counter = find(&stats, part).and_then(|part| part.get(name)).and_then(Value::as_f64);
            counter.with_context(|| format!("the daemon has no counter {name}"))
        };
        let mut counters = Sample::default();
        for (name, parts) in COUNTERS {
            let sum = parts.iter().map(|part| field("manager", part)).sum::<anyhow::Result<f64>>()?;
            counters = counters.with(name, sum);
        }
        TURNS.iter().try_fold(counters, |counters, name| Ok(counters.with(name, field("driver", name)?)))
    }

    /// Waits until the origin has everything of a volume.
    pub(crate) fn flush(&self, volume: &str) -> anyhow::Result<()> {
        zcctl(Command::new(beside("zcctl")?).args(["flush", volume, "--socket"]).arg(&self.control))
    }

    /// The counters when insertions under way have ended: without, a run is credited with those of the one before.
    pub(crate) fn settled_counters(&self) -> anyhow::Result<Sample> {
        let ended = |counters: &Sample| ["inserted", "skipped", "stale"].map(|name| counters.get(name));
        let mut last = self.counters()?;
        for _ in 0..SETTLE_LOOKS_MAX {
            crate::clock::pause(SETTLE_PAUSE);
            let now = self.counters()?;
            if ended(&now) == ended(&last) {
                return Ok(now);
            }
            last = now;
        }
        Ok(last)
    }
}

/// Makes the cache file of a daemon in `dir`. It is written once before, as an SSD's blocks have been: a file system
/// that allocates blocks commits its own journal with every flush.
pub(crate) fn make_cache(dir: &Path, cache_bytes: u64) -> anyhow::Result<()> {
    let file = dir.join("cache.img");
    fill_file(&file, cache_bytes)?;
    zcctl(Command::new(beside("zcctl")?).args(["format", "--force"]).arg(&file))
}

fn zcctl(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().context("cannot start zcctl")?;
    ensure!(output.status.success(), "zcctl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The answer of a daemon's control socket to a command.
pub(crate) fn ask(control: &Path, command: &Value) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(control).context("cannot reach the control socket")?;
    writeln!(stream, "{command}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// `key` at the top of `value` or one level below.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let map = value.as_object()?;
    map.get(key).or_else(|| map.values().find_map(|inner| inner.get(key)))
}

/// A file of noise.
pub(crate) fn fill_file(path: &Path, size_bytes: u64) -> anyhow::Result<()> {
    const PIECE: u64 = 4 << 20;
    ensure!(size_bytes.is_multiple_of(PIECE), "sizes are multiples of 4 MiB");
    let mut file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut piece = crate::data::noise(zc_core::usize_from_u64(PIECE), 11);
    for number in 0..size_bytes / PIECE {
        piece[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&piece)?;
    }
    file.sync_data()?;
    Ok(())
}
