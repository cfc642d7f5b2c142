//! Daemons with volumes of known contents.
//!
//! Job: start one, and get all of a volume into its cache.
//!
//! Invariants: cache and origins are written once before, and opened with direct I/O, as disks would be.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::bail;

use super::certificate;
use super::daemon::{Daemon, fill_file, make_cache};
use crate::load::{self, Content, Load, Op, Order};

/// Most passes over a volume until all reads are hits.
const PASSES_MAX: u32 = 8;
/// Lines of a cache without read buffer and read-ahead: every hit comes from the SSD.
pub(crate) const HITS_FROM_SSD: &str = "read_buffer = 0\nprefetch_max = 0\nweu_max_age = \"500 ms\"\n";

/// A volume of the daemon.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Volume {
    pub(crate) name: &'static str,
    pub(crate) mode: &'static str,
    /// Its contents.
    pub(crate) content: Content,
}

impl Volume {
    pub(crate) const fn new(name: &'static str, mode: &'static str, content: Content) -> Self {
        Self { name, mode, content }
    }
}

/// The daemon around the volumes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) cache_bytes: u64,
    pub(crate) size_bytes: u64,
    /// Further lines of the cache's table.
    pub(crate) cache: &'static str,
    /// A TCP address for an additional listener, with optional TLS.
    pub(crate) tcp: Option<SocketAddr>,
}

/// The table of a volume.
pub(crate) fn table(name: &str, origin: &Path, lines: &str) -> String {
    format!("[[volume]]\nname = {name:?}\norigin = {origin:?}\n{lines}\n")
}

/// Lines of the table `[nbd]` for such an address, with a certificate that is made in `dir`.
pub(crate) fn listen(dir: &Path, tcp: Option<SocketAddr>, key_kind: &str) -> anyhow::Result<String> {
    let Some(address) = tcp else { return Ok("listen = []".to_owned()) };
    certificate::make(dir, key_kind)?;
    let (certificate, key) = (certificate::certificate(dir), certificate::key(dir));
    Ok(format!(
        "listen = [\"{address}\"]\ntls = \"allowed\"\ntls_certificate = {certificate:?}\ntls_key = {key:?}"
    ))
}

/// Starts a daemon in `dir` with a fresh cache and fresh origins.
pub(crate) fn start(dir: &Path, setting: Setting, volumes: &[Volume]) -> anyhow::Result<Daemon> {
    let Setting { cache_bytes, size_bytes, cache, tcp } = setting;
    std::fs::create_dir_all(dir)?;
    make_cache(dir, cache_bytes)?;
    let cache = format!("path = {:?}\nsize = {cache_bytes}\n{cache}", dir.join("cache.img"));
    let mut tables = String::new();
    for Volume { name, mode, .. } in volumes {
        let origin = dir.join(format!("{name}.img"));
        // Written, not sparse: a file system answers holes without its disk.
        fill_file(&origin, size_bytes)?;
        // Volumes with durable acknowledgement are recognised by name.
        let ack = if name.ends_with("durable") { "\nack = \"durable\"" } else { "" };
        write!(tables, "{}", table(name, &origin, &format!("direct = true\nmode = {mode:?}{ack}")))?;
    }
    Daemon::serve(dir, &cache, &tables, &listen(dir, tcp, "rsa:2048")?)
}

/// Writes a volume full and reads it until nothing is missed any more.
pub(crate) fn fill(daemon: &Daemon, volume: &Volume) -> anyhow::Result<()> {
    let write = Load {
        time_ns: u64::MAX,
        once: true,
        seed: 7,
        ..Load::new(Op::Write(volume.content), Order::Sequential, 128, 2)
    };
    load::run(daemon.socket(), volume.name, write)?;
    let read = Load { op: Op::Read, depth: 1, ..write };
    for _ in 0..PASSES_MAX {
        let before = daemon.counters()?;
        load::run(daemon.socket(), volume.name, read)?;
        let seen = daemon.counters()?.since(&before);
        if seen.get("hits") == seen.get("reads") {
            return Ok(());
        }
    }
    bail!("volume {} does not get into the cache; see `zcctl stats`", volume.name)
}
