//! A daemon with one volume for each machine.

use std::fmt::Write as _;
use std::path::Path;

use super::plan::volume_name;
use crate::harness::daemon::{Daemon, configuration};

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
) -> anyhow::Result<Daemon> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    let mode = if setting.is_some() { "write-through" } else { "pass-through" };
    let dedup = setting.is_none_or(|setting| setting.dedup);
    let compression = if setting.is_none_or(|setting| setting.compression) { "lz4" } else { "none" };
    let cache = format!(
        "path = {:?}\nsize = {}\nread_buffer = 0\nprefetch_max = 0\nweu_max_age = \"500 ms\"\ndedup = {dedup}\n\
         compression = {compression:?}",
        cache.path.display().to_string(),
        cache.bytes
    );
    let mut volumes = String::new();
    for machine in 0..machines {
        let name = volume_name(machine);
        let origin = origins.join(format!("{name}.img")).display().to_string();
        writeln!(
            volumes,
            "[[volume]]\nname = {name:?}\norigin = {origin:?}\ndirect = true\nmode = {mode:?}"
        )?;
    }
    Daemon::serve(dir, &configuration(dir, &cache, &volumes, "listen = []"))
}
