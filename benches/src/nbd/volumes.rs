//! Volumes of known contents, all of them cached.
//!
//! Job: start a daemon with them, and fill them.
//!
//! Invariants: the cache file is opened with direct I/O, and neither read buffer nor read-ahead is on: every hit comes
//! from the SSD. Origins are opened with direct I/O too, as a disk would be.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::bail;

use crate::harness::certificate;
use crate::harness::daemon::{Daemon, configuration, fill_file};
use crate::load::{self, Content, Durability, Load, Op, Order};

/// Reading a volume over and over until everything is a hit ends after so many times.
const PASSES_MAX: u32 = 8;

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

/// The daemon around the volumes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Size of the cache.
    pub cache_bytes: u64,
    /// Size of each volume.
    pub size_bytes: u64,
    /// As in the configuration, in microseconds.
    pub poll_max_us: u32,
    /// An address of TCP to serve on, too, with TLS for those who ask for it.
    pub tcp: Option<SocketAddr>,
    /// As in the configuration.
    pub io_threads: u32,
}

/// Starts a daemon in `dir` with fresh origins. The cache is what is in `dir` already, else a fresh one.
///
/// # Errors
/// Files cannot be made, or the daemon does not start.
pub fn start(dir: &Path, setting: Setting, volumes: &[Volume]) -> anyhow::Result<Daemon> {
    let Setting { cache_bytes, size_bytes, poll_max_us, tcp, io_threads } = setting;
    std::fs::create_dir_all(dir)?;
    let at = |name: &str| dir.join(name).display().to_string();
    let cache = format!(
        "path = {:?}\nsize = {cache_bytes}\nread_buffer = 0\nprefetch_max = 0\nweu_max_age = \"500 ms\"\n\
         poll_max = \"{poll_max_us} us\"\nio_threads = {io_threads}",
        at("cache.img")
    );
    let mut tables = String::new();
    for volume in volumes {
        let origin = format!("{}.img", volume.name);
        // Written, not sparse: a file system answers holes without its disk.
        fill_file(&dir.join(&origin), size_bytes)?;
        writeln!(tables, "[[volume]]\nname = {:?}\norigin = {:?}\ndirect = true", volume.name, at(&origin))?;
        writeln!(tables, "mode = {:?}\ncompression = {:?}", volume.mode, volume.compression)?;
        writeln!(tables, "dedup = {}", volume.dedup)?;
    }
    let nbd = match tcp {
        None => "listen = []".to_owned(),
        Some(address) => {
            certificate::make(dir, "rsa:2048")?;
            let (certificate, key) = (certificate::certificate(dir), certificate::key(dir));
            let listen = address.to_string();
            format!(
                "listen = [{listen:?}]\ntls = \"allowed\"\ntls_certificate = {certificate:?}\ntls_key = {key:?}"
            )
        }
    };
    Daemon::serve(dir, &configuration(dir, &cache, &tables, &nbd))
}

/// Writes a volume full and reads it until nothing is missed any more.
///
/// # Errors
/// The daemon fails, or some of the volume does not get into the cache.
pub fn fill(daemon: &Daemon, volume: &Volume) -> anyhow::Result<()> {
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
    load::run(daemon.socket(), volume.name, load)?;
    load.op = Op::Read;
    load.depth = 1;
    for _ in 0..PASSES_MAX {
        let before = daemon.counters()?;
        load::run(daemon.socket(), volume.name, load)?;
        let seen = daemon.counters()?.since(before);
        if seen.hits == seen.reads {
            return Ok(());
        }
    }
    bail!("volume {} does not get into the cache; see `zcctl stats`", volume.name)
}
