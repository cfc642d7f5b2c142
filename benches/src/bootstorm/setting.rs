//! A daemon with one volume for each machine.

use std::path::Path;

use super::plan::volume_name;
use crate::harness::daemon::Daemon;
use crate::harness::volumes::{HITS_FROM_SSD, table};

/// Settings of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) dedup: bool,
    pub(crate) compression: bool,
}

impl Setting {
    /// All four, in the order of the paper's figure.
    pub(crate) const ALL: [Self; 4] = [
        Self { dedup: false, compression: false },
        Self { dedup: false, compression: true },
        Self { dedup: true, compression: false },
        Self { dedup: true, compression: true },
    ];

    /// As the paper writes it.
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct Cache<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: u64,
}

/// Starts a daemon over the volumes in `origins`, with a fresh cache and all else in `dir`; without a setting in
/// pass-through.
pub(crate) fn start(
    dir: &Path,
    origins: &Path,
    machines: usize,
    setting: Option<Setting>,
    cache: Cache<'_>,
) -> anyhow::Result<Daemon> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    let mode = if setting.is_some() { "write-through" } else { "pass-through" };
    let dedup = setting.is_none_or(|setting| setting.dedup);
    let compression = if setting.is_none_or(|setting| setting.compression) { "lz4" } else { "none" };
    let cache = format!(
        "path = {:?}\nsize = {}\n{HITS_FROM_SSD}dedup = {dedup}\ncompression = {compression:?}",
        cache.path, cache.bytes
    );
    let volume = |machine| {
        let name = volume_name(machine);
        let origin = origins.join(format!("{name}.img"));
        table(&name, &origin, &format!("direct = true\nmode = {mode:?}"))
    };
    let volumes: String = (0..machines).map(volume).collect();
    Daemon::serve(dir, &cache, &volumes, "listen = []")
}
