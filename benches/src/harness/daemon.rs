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

/// Where Linux keeps files in memory for whoever wants to.
const MEMORY_DIR: &str = "/dev/shm";
/// Looks at insertions that go on after a run, and the time between two.
const SETTLE_LOOKS_MAX: u32 = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    server: Server,
    control: PathBuf,
    /// Goes after the server.
    _run: TempDir,
}

/// Counters of the manager that benchmarks look at, or their differences.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Reads served without the origin.
    pub hits: u64,
    /// Reads of the cache device for hits.
    pub device_reads: u64,
    /// Extents offered for insertion.
    pub offered: u64,
    /// Offered extents that got into the cache: stored, duplicates, zeroes, or there already.
    pub inserted: u64,
    /// Offered extents that were skipped under pressure.
    pub skipped: u64,
    /// Offered extents that a later write overtook.
    pub stale: u64,
    /// Extents stored.
    pub stored: u64,
    /// Extents found as duplicates.
    pub duplicates: u64,
    /// Bytes of stored extents before compression.
    pub raw_bytes: u64,
    /// Bytes of stored extents after compression.
    pub stored_bytes: u64,
    /// Bytes written to the cache device in units.
    pub ssd_bytes: u64,
}

impl Counters {
    /// What an answer of the control socket to `stats` says.
    fn of(stats: &Value) -> anyhow::Result<Self> {
        let get = |name: &str| counter(stats, name);
        let (stored, duplicates) = (get("insert_stored")?, get("insert_duplicates")?);
        Ok(Self {
            reads: get("reads")?,
            hits: get("read_hits")?,
            device_reads: get("device_reads")?,
            offered: get("insert_offered")?,
            inserted: stored + duplicates + get("insert_zero")? + get("insert_present")?,
            skipped: get("insert_skipped")?,
            stale: get("insert_stale")?,
            stored,
            duplicates,
            raw_bytes: get("stored_raw_bytes")?,
            stored_bytes: get("stored_bytes")?,
            ssd_bytes: get("weu_bytes_written")?,
        })
    }

    /// What was counted since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            hits: self.hits - before.hits,
            device_reads: self.device_reads - before.device_reads,
            offered: self.offered - before.offered,
            inserted: self.inserted - before.inserted,
            skipped: self.skipped - before.skipped,
            stale: self.stale - before.stale,
            stored: self.stored - before.stored,
            duplicates: self.duplicates - before.duplicates,
            raw_bytes: self.raw_bytes - before.raw_bytes,
            stored_bytes: self.stored_bytes - before.stored_bytes,
            ssd_bytes: self.ssd_bytes - before.ssd_bytes,
        }
    }
}

/// Turns of a daemon's I/O threads, or their difference, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turns {
    /// What they took.
    pub took_us: u64,
    /// What threads waited for another's to end.
    pub waited_us: u64,
}

impl Turns {
    /// What passed since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self { took_us: self.took_us - before.took_us, waited_us: self.waited_us - before.waited_us }
    }
}

/// The configuration of a daemon whose socket for clients and state are in `dir`, but for its control socket. `cache`
/// and `nbd` are further lines of these tables, and `volumes` whole tables.
#[must_use]
pub fn configuration(dir: &Path, cache: &str, volumes: &str, nbd: &str) -> String {
    let at = |name: &str| dir.join(name).display().to_string();
    let (state, clients) = (at("state"), at("nbd.sock"));
    format!(
        "[cache]\nstate_dir = {state:?}\n{cache}\n{volumes}\n[nbd]\nunix = [{clients:?}]\n{nbd}\n[log]\nlevel = \"warn\"\n"
    )
}

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
    /// Starts a daemon in `dir` with this text of [`configuration`].
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(dir: &Path, configuration: &str) -> anyhow::Result<Self> {
        let config = dir.join("zcached.toml");
        let run = run_dir(dir)?;
        let control = run.path().join("control.sock");
        std::fs::write(&config, format!("{configuration}[control]\nsocket = {control:?}\n"))?;
        let socket = dir.join("nbd.sock");
        let mut command = Command::new(beside("zcached")?);
        command.arg("--config").arg(&config);
        let server = Server::start(&mut command, &socket)?;
        Ok(Self { server, control, _run: run })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The server.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Where it serves.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.server.socket()
    }

    /// Where it is controlled.
    #[must_use]
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// The answer of the control socket to `stats`.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn stats(&self) -> anyhow::Result<Value> {
        ask(&self.control, &serde_json::json!({ "cmd": "stats" }))
    }

    /// The counters that benchmarks look at.
    ///
    /// # Errors
    /// As [`Self::stats`], or a counter is missing.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        Counters::of(&self.stats()?)
    }

    /// The turns of its I/O threads.
    ///
    /// # Errors
    /// As [`Self::stats`], or a counter is missing.
    pub fn turns(&self) -> anyhow::Result<Turns> {
        let stats = self.stats()?;
        let driver = find(&stats, "driver").context("no counters of the driver")?;
        let get = |name: &str| driver.get(name).and_then(Value::as_u64).with_context(|| name.to_owned());
        Ok(Turns { took_us: get("turns_us")?, waited_us: get("turns_waited_us")? })
    }

    /// Waits until the origin has everything of a volume.
    ///
    /// # Errors
    /// `zcctl` is missing, or says that it does not work.
    pub fn flush(&self, volume: &str) -> anyhow::Result<()> {
        zcctl(Command::new(beside("zcctl")?).args(["flush", volume, "--socket"]).arg(&self.control))
    }

    /// The counters when insertions under way have ended: without, a run is credited with those of the one before.
    ///
    /// # Errors
    /// As [`Self::counters`].
    pub fn settled_counters(&self) -> anyhow::Result<Counters> {
        let ended = |counters: Counters| (counters.inserted, counters.skipped, counters.stale);
        let mut last = self.counters()?;
        for _ in 0..SETTLE_LOOKS_MAX {
            crate::clock::pause(SETTLE_PAUSE);
            let now = self.counters()?;
            if ended(now) == ended(last) {
                return Ok(now);
            }
            last = now;
        }
        Ok(last)
    }
}

/// Makes the cache file of a daemon in `dir`. It is written once before, as an SSD's blocks have been: a file system
/// that allocates blocks commits its own journal with every flush.
///
/// # Errors
/// The disk is full, or `zcctl` is missing or says that it does not work.
pub fn make_cache(dir: &Path, cache_bytes: u64) -> anyhow::Result<()> {
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
///
/// # Errors
/// The daemon is gone.
pub fn ask(control: &Path, command: &Value) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(control).context("cannot reach the control socket")?;
    writeln!(stream, "{command}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// A counter of the manager in such an answer.
///
/// # Errors
/// There is none of that name.
pub fn counter(stats: &Value, name: &str) -> anyhow::Result<u64> {
    let manager = find(stats, "manager").context("no counters")?;
    manager.get(name).and_then(Value::as_u64).with_context(|| name.to_owned())
}

/// `key` at the top of `value` or one level below.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let map = value.as_object()?;
    map.get(key).or_else(|| map.values().find_map(|inner| inner.get(key)))
}

/// A file of noise.
///
/// # Errors
/// The disk is full.
pub fn fill_file(path: &Path, size_bytes: u64) -> anyhow::Result<()> {
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
