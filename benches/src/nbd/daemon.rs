//! The daemon with volumes of known contents, all of them cached.
//!
//! Job: configuration, filling, and the counters of the control socket.
//!
//! Invariants: the cache file is opened with direct I/O, and neither read buffer nor read-ahead is on: every hit comes
//! from the SSD. Origins are opened with direct I/O too, as a disk would be.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::servers::{Server, beside};
use crate::load::{self, Content, Durability, Load, Op, Order};

/// Reading a volume over and over until everything is a hit ends after so many times.
const PASSES_MAX: u32 = 8;
/// Looks at insertions that go on after a run, and the time between two.
const SETTLE_LOOKS_MAX: u32 = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// A volume of the daemon.
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    /// Name of volume and export.
    pub name: &'static str,
    /// As in the configuration.
    pub mode: &'static str,
    /// As in the configuration.
    pub compression: &'static str,
    /// Whether equal contents are stored once.
    pub dedup: bool,
    /// What it is filled with.
    pub content: Content,
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    server: Server,
    control: PathBuf,
}

/// Differences of the daemon's counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Reads served without the origin.
    pub hits: u64,
    /// Reads.
    pub reads: u64,
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
}

impl Counters {
    /// What was counted since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            hits: self.hits - before.hits,
            reads: self.reads - before.reads,
            device_reads: self.device_reads - before.device_reads,
            offered: self.offered - before.offered,
            inserted: self.inserted - before.inserted,
            skipped: self.skipped - before.skipped,
            stale: self.stale - before.stale,
        }
    }
}

impl Daemon {
    /// Starts a daemon in `dir` with fresh origins and a fresh cache of `cache_bytes`.
    ///
    /// # Errors
    /// Files cannot be made, or the daemon does not start.
    pub fn start(
        dir: &Path,
        cache_bytes: u64,
        volumes: &[Volume],
        size_bytes: u64,
        poll_max_us: u32,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        for volume in volumes {
            // Written, not sparse: a file system answers holes without its disk.
            fill_file(&dir.join(format!("{}.img", volume.name)), size_bytes)?;
        }
        Self::serve(dir, &configuration(dir, cache_bytes, volumes, poll_max_us)?)
    }

    /// Starts a daemon in `dir` with this configuration, which serves `nbd.sock` and `control.sock` there.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(dir: &Path, configuration: &str) -> anyhow::Result<Self> {
        let config = dir.join("zcached.toml");
        std::fs::write(&config, configuration)?;
        let socket = dir.join("nbd.sock");
        let mut command = Command::new(beside("zcached")?);
        command.arg("--config").arg(&config);
        let server = Server::start(&mut command, &socket)?;
        Ok(Self { server, control: dir.join("control.sock") })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid()
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
        stats(&self.control)
    }

    /// The counters that benchmarks look at.
    ///
    /// # Errors
    /// As [`Self::stats`], or a counter is missing.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        let stats = self.stats()?;
        let get = |name: &str| counter(&stats, name);
        Ok(Counters {
            hits: get("read_hits")?,
            reads: get("reads")?,
            device_reads: get("device_reads")?,
            offered: get("insert_offered")?,
            inserted: get("insert_stored")?
                + get("insert_duplicates")?
                + get("insert_zero")?
                + get("insert_present")?,
            skipped: get("insert_skipped")?,
            stale: get("insert_stale")?,
        })
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

    /// Writes a volume full and reads it until nothing is missed any more.
    ///
    /// # Errors
    /// The daemon fails, or some of the volume does not get into the cache.
    pub fn fill(&self, volume: &Volume) -> anyhow::Result<()> {
        let mut load = Load {
            op: Op::Write(volume.content),
            order: Order::Sequential,
            block_bytes: 128 << 10,
            depth: 2,
            connections: 1,
            time_ns: u64::MAX,
            durability: Durability::None,
            once: true,
            seed: 7,
        };
        load::run(self.socket(), volume.name, load)?;
        load.op = Op::Read;
        load.depth = 1;
        for _ in 0..PASSES_MAX {
            let before = self.counters()?;
            load::run(self.socket(), volume.name, load)?;
            let seen = self.counters()?.since(before);
            if seen.hits == seen.reads {
                return Ok(());
            }
        }
        bail!("volume {} does not get into the cache; see `zcctl stats`", volume.name)
    }
}

/// The answer of a daemon's control socket to `stats`.
///
/// # Errors
/// The daemon is gone.
pub fn stats(control: &Path) -> anyhow::Result<Value> {
    ask(control, &serde_json::json!({ "cmd": "stats" }))
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

fn configuration(
    dir: &Path,
    cache_bytes: u64,
    volumes: &[Volume],
    poll_max_us: u32,
) -> anyhow::Result<String> {
    let at = |name: &str| dir.join(name).display().to_string();
    let mut text = String::new();
    writeln!(text, "[cache]\npath = {:?}\nsize = {cache_bytes}", at("cache.img"))?;
    writeln!(text, "state_dir = {:?}\nread_buffer = 0\nprefetch_max = 0", at("state"))?;
    writeln!(text, "weu_max_age = \"500 ms\"\npoll_max = \"{poll_max_us} us\"")?;
    for volume in volumes {
        writeln!(text, "[[volume]]\nname = {:?}", volume.name)?;
        writeln!(text, "origin = {:?}\ndirect = true", at(&format!("{}.img", volume.name)))?;
        writeln!(text, "mode = {:?}\ncompression = {:?}", volume.mode, volume.compression)?;
        writeln!(text, "dedup = {}", volume.dedup)?;
    }
    writeln!(text, "[nbd]\nlisten = []\nunix = [{:?}]", at("nbd.sock"))?;
    writeln!(text, "[control]\nsocket = {:?}\n[log]\nlevel = \"warn\"", at("control.sock"))?;
    Ok(text)
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
