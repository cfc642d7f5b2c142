//! A daemon with one volume for each machine.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::plan::volume_name;
use crate::nbd::daemon::{counter, stats};
use crate::nbd::servers::{Server, beside};

/// How the cache is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Equal contents are stored once.
    pub dedup: bool,
    /// LZ4.
    pub compression: bool,
}

impl Setting {
    /// All four, in the order of the paper's figure.
    pub const ALL: [Self; 4] = [
        Self { dedup: false, compression: false },
        Self { dedup: false, compression: true },
        Self { dedup: true, compression: false },
        Self { dedup: true, compression: true },
    ];

    /// As the paper writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.dedup, self.compression) {
            (false, false) => "ND,NC",
            (false, true) => "ND,C",
            (true, false) => "D,NC",
            (true, true) => "D,C",
        }
    }
}

/// A cache to be made.
#[derive(Debug, Clone, Copy)]
pub struct Cache<'a> {
    /// Its file.
    pub path: &'a Path,
    /// Its size.
    pub bytes: u64,
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    server: Server,
    control: PathBuf,
}

/// Counters of the manager.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Reads served without the origin.
    pub hits: u64,
    /// Reads of the cache device for hits.
    pub device_reads: u64,
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
    /// Extents offered for insertion.
    pub offered: u64,
    /// Extents skipped under pressure.
    pub skipped: u64,
}

impl Counters {
    /// What was counted since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            hits: self.hits - before.hits,
            device_reads: self.device_reads - before.device_reads,
            stored: self.stored - before.stored,
            duplicates: self.duplicates - before.duplicates,
            raw_bytes: self.raw_bytes - before.raw_bytes,
            stored_bytes: self.stored_bytes - before.stored_bytes,
            ssd_bytes: self.ssd_bytes - before.ssd_bytes,
            offered: self.offered - before.offered,
            skipped: self.skipped - before.skipped,
        }
    }
}

impl Daemon {
    /// Starts a daemon over the volumes in `origins`, with a fresh cache and all else in `dir`; without a setting in
    /// pass-through.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        dir: &Path,
        origins: &Path,
        machines: usize,
        setting: Option<Setting>,
        cache: Cache<'_>,
    ) -> anyhow::Result<Self> {
        if dir.exists() {
            std::fs::remove_dir_all(dir)?;
        }
        std::fs::create_dir_all(dir)?;
        let config = dir.join("zcached.toml");
        std::fs::write(&config, configuration(dir, origins, machines, setting, cache)?)?;
        let mut command = Command::new(beside("zcached")?);
        command.arg("--config").arg(&config);
        let server = Server::start(&mut command, &dir.join("nbd.sock"))?;
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

    /// The counters.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        let stats = stats(&self.control)?;
        let get = |name: &str| counter(&stats, name);
        Ok(Counters {
            reads: get("reads")?,
            hits: get("read_hits")?,
            device_reads: get("device_reads")?,
            stored: get("insert_stored")?,
            duplicates: get("insert_duplicates")?,
            raw_bytes: get("stored_raw_bytes")?,
            stored_bytes: get("stored_bytes")?,
            ssd_bytes: get("weu_bytes_written")?,
            offered: get("insert_offered")?,
            skipped: get("insert_skipped")?,
        })
    }
}

fn configuration(
    dir: &Path,
    origins: &Path,
    machines: usize,
    setting: Option<Setting>,
    cache: Cache<'_>,
) -> anyhow::Result<String> {
    let at = |name: &str| dir.join(name).display().to_string();
    let mode = if setting.is_some() { "write-through" } else { "pass-through" };
    let dedup = setting.is_none_or(|setting| setting.dedup);
    let compression = if setting.is_none_or(|setting| setting.compression) { "lz4" } else { "none" };
    let mut text = String::new();
    writeln!(text, "[cache]\npath = {:?}\nsize = {}", cache.path.display().to_string(), cache.bytes)?;
    writeln!(text, "state_dir = {:?}\nread_buffer = 0\nprefetch_max = 0", at("state"))?;
    writeln!(text, "weu_max_age = \"500 ms\"\ndedup = {dedup}\ncompression = {compression:?}")?;
    for machine in 0..machines {
        let name = volume_name(machine);
        let origin = origins.join(format!("{name}.img")).display().to_string();
        writeln!(text, "[[volume]]\nname = {name:?}\norigin = {origin:?}\ndirect = true\nmode = {mode:?}")?;
    }
    writeln!(text, "[nbd]\nlisten = []\nunix = [{:?}]", at("nbd.sock"))?;
    writeln!(text, "[control]\nsocket = {:?}\n[log]\nlevel = \"warn\"", at("control.sock"))?;
    Ok(text)
}
