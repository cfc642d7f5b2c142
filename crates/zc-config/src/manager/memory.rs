//! Memory of the indexes, and the capacity that it covers.
//!
//! Job: resolve `max_ram` and `learned_recipes`, divide them over tables, and report a shortfall.
//!
//! It does not measure the machine's memory.

use core::fmt;

use crate::{CacheConfig, MaxRam};
use zc_cache::config as cache;
use zc_cache::index::{FileIndex, FingerprintIndex, IndexShape};
use zc_core::units::ByteSize;
use zc_format::Geometry;

/// RAM of slot table, policy and header table per slot, rounded up.
const RAM_PER_SLOT: u64 = 128;
/// Fraction of the bound (1/16) for fingerprints of evicted extents, unless the configuration sets it.
const LEARNED_SHARE: u64 = 16;
/// Fraction of the machine's memory (1/4) that `auto` may take.
const MACHINE_SHARE: u64 = 4;
/// Bound of `auto` on a machine with enough memory, for a cache of any size.
const AUTO_LEAST: u64 = 1 << 30;
/// Index entries of `auto` for each extent that fits without reduction.
const AUTO_REDUCTION: u64 = 2;
/// Proposed bounds are multiples of this.
const STEP: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// `max_ram` is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "max_ram of {max_ram_bytes} bytes is too little for a cache of {slots} write-evict units: {fixed_bytes} bytes go to \
     tables per unit and to learned recipes alone; raise it, or make the cache anew with larger units (`zcctl format \
     --weu-size`)"
)]
pub struct TooLittleRam {
    /// The bound.
    pub max_ram_bytes: u64,
    /// Slots of the cache.
    pub slots: u32,
    /// Part that does not depend on the number of extents.
    pub fixed_bytes: u64,
}

/// Memory of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bound of all indexes and tables.
    pub max_bytes: u64,
    /// Part of these for fingerprints of evicted extents.
    pub learned_bytes: u64,
}

/// Part of the cache device stays unused, because `max_ram` covers fewer extents than fit without reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// Configured bound.
    pub max_ram_bytes: u64,
    /// Bytes that the index has entries for.
    pub indexed_bytes: u64,
    /// Bytes that fit without reduction.
    pub room_bytes: u64,
    /// Bound that suffices.
    pub needed_bytes: u64,
    /// Size of an extent.
    pub extent_bytes: u32,
}

impl Shortfall {
    /// Returns the sentence with the command.
    #[must_use]
    pub fn advice(&self) -> String {
        format!("{self}: {}", self.command())
    }

    /// Returns the command that resolves the shortfall.
    #[must_use]
    pub fn command(&self) -> String {
        format!(
            "set cache.max_ram = \"{}\" and systemctl restart zcached, or make the cache anew with larger extents: zcctl \
             format --extent-size",
            ByteSize(self.needed_bytes)
        )
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "max_ram, {}, is enough to index {} of data in extents of {}, and the cache has room for {} or more",
            ByteSize(self.max_ram_bytes),
            ByteSize(self.indexed_bytes / MIB * MIB),
            ByteSize(self.extent_bytes.into()),
            ByteSize(self.room_bytes)
        )
    }
}

impl Memory {
    /// Returns the memory of a cache with this layout, on a machine with `machine_bytes`.
    #[must_use]
    pub fn of(config: &CacheConfig, geometry: &Geometry, machine_bytes: u64) -> Self {
        let max_bytes = match config.max_ram {
            MaxRam::Bytes(bytes) => bytes,
            MaxRam::Auto => {
                let wanted = needed(config, geometry, raw_extents(geometry).saturating_mul(AUTO_REDUCTION));
                wanted.max(AUTO_LEAST).min(machine_bytes / MACHINE_SHARE)
            }
        };
        let learned_bytes = config.learned_recipes_bytes.unwrap_or(max_bytes / LEARNED_SHARE);
        Self { max_bytes, learned_bytes }
    }

    /// Returns the entries of the file index and of the fingerprint index: as many as the layout is planned for and
    /// the bound allows.
    ///
    /// # Errors
    /// When the bound does not suffice for one extent per unit.
    pub fn index_entries(
        &self,
        config: &CacheConfig,
        geometry: &Geometry,
    ) -> Result<(u64, u64), TooLittleRam> {
        let fixed = u64::from(geometry.slots) * RAM_PER_SLOT + self.learned_bytes;
        let room = self.max_bytes.saturating_sub(fixed);
        let mut files = geometry.index_capacity;
        while files > 0 && index_bytes(config, geometry, files) > room {
            files -= (files / 64).max(1);
        }
        if files < u64::from(geometry.slots) {
            let max_ram_bytes = self.max_bytes;
            return Err(TooLittleRam { max_ram_bytes, slots: geometry.slots, fixed_bytes: fixed });
        }
        Ok((files, prints_of(config, files)))
    }

    /// Returns the shortfall of the index below the content that fits without reduction, if any; also for an
    /// impossible cache.
    #[must_use]
    pub fn shortfall(&self, config: &CacheConfig, geometry: &Geometry) -> Option<Shortfall> {
        let files = self.index_entries(config, geometry).map_or(0, |(files, _)| files);
        let extents = raw_extents(geometry).min(geometry.index_capacity);
        let of = |extents: u64| extents.saturating_mul(geometry.extent_bytes.into());
        (files < extents).then(|| Shortfall {
            max_ram_bytes: self.max_bytes,
            indexed_bytes: of(files),
            room_bytes: of(extents),
            needed_bytes: needed(config, geometry, extents),
            extent_bytes: geometry.extent_bytes,
        })
    }
}

/// Extents that fit without reduction.
fn raw_extents(geometry: &Geometry) -> u64 {
    (u64::from(geometry.slots) * u64::from(geometry.weu_bytes)).div_ceil(geometry.extent_bytes.into())
}

/// Returns the bound that suffices for an index of `extents` entries.
fn needed(config: &CacheConfig, geometry: &Geometry, extents: u64) -> u64 {
    let extents = extents.min(geometry.index_capacity);
    // Entries are searched in steps of a 64th.
    let index = index_bytes(config, geometry, extents.saturating_add(extents / 32));
    let bytes = index.saturating_add(u64::from(geometry.slots) * RAM_PER_SLOT);
    let whole = match config.learned_recipes_bytes {
        Some(learned) => bytes.saturating_add(learned),
        None => bytes.saturating_add(bytes / (LEARNED_SHARE - 1)).saturating_add(1),
    };
    whole.checked_next_multiple_of(STEP).unwrap_or(whole)
}

fn prints_of(config: &CacheConfig, files: u64) -> u64 {
    files * u64::from(config.fingerprint_index_percent) / 100
}

fn index_bytes(config: &CacheConfig, geometry: &Geometry, files: u64) -> u64 {
    let shape = IndexShape {
        slots: geometry.slots,
        weu_bytes: geometry.weu_bytes,
        extent_bytes: geometry.extent_bytes,
        generation_bits: cache::GENERATION_BITS_DEFAULT,
    };
    FileIndex::ram_bytes_for(shape, files)
        .saturating_add(FingerprintIndex::ram_bytes_for(shape, prints_of(config, files)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_format::PlanOptions;

    const GIB: u64 = 1 << 30;

    fn cache(settings: &str, device_bytes: u64) -> (CacheConfig, Geometry) {
        let text = format!("[cache]\npath = \"/c\"\n{settings}[[volume]]\nname = \"v\"\norigin = \"/v\"\n");
        let config = crate::Config::parse(&text, "test").unwrap().cache;
        let plan = PlanOptions {
            device_bytes,
            weu_bytes: config.weu_bytes,
            extent_bytes: config.extent_bytes,
            align_bytes: 0,
            journal_blocks: None,
        };
        let geometry = Geometry::plan(&plan).unwrap();
        (config, geometry)
    }

    #[test]
    fn the_default_indexes_every_cache_that_a_quarter_of_the_memory_can() {
        for size in [GIB, 100 * GIB, 1024 * GIB, 4096 * GIB] {
            let (config, geometry) = cache("", size);
            let memory = Memory::of(&config, &geometry, 256 * GIB);
            assert_eq!(memory.shortfall(&config, &geometry), None, "{size}");
            let (files, _) = memory.index_entries(&config, &geometry).unwrap();
            assert!(files >= raw_extents(&geometry) * AUTO_REDUCTION * 31 / 32, "{size}: {files}");
        }
        let (config, geometry) = cache("", GIB);
        assert_eq!(Memory::of(&config, &geometry, 16 * GIB).max_bytes, AUTO_LEAST);
        assert_eq!(Memory::of(&config, &geometry, 2 * GIB).max_bytes, GIB / 2);
    }

    #[test]
    fn a_shortfall_names_a_bound_that_suffices() {
        for (settings, machine) in [
            ("max_ram = \"1 GiB\"\n", 64 * GIB),
            ("max_ram = \"1 GiB\"\nlearned_recipes = 0\n", 64 * GIB),
            ("max_ram = \"1 GiB\"\nfingerprint_index_ratio = \"10%\"\n", 64 * GIB),
            ("", 2 * GIB),
            ("max_ram = \"1 MiB\"\n", 64 * GIB),
        ] {
            let (config, geometry) = cache(settings, 1024 * GIB);
            let short = Memory::of(&config, &geometry, machine).shortfall(&config, &geometry).unwrap();
            assert!(short.indexed_bytes < short.room_bytes && short.max_ram_bytes < short.needed_bytes);
            let text = short.command();
            let named = text.split('"').nth(1).unwrap();
            let enough =
                CacheConfig { max_ram: MaxRam::Bytes(named.parse::<ByteSize>().unwrap().0), ..config };
            let memory = Memory::of(&enough, &geometry, machine);
            assert_eq!(memory.shortfall(&enough, &geometry), None, "{settings}: {text}");
            assert!(memory.max_bytes < 2 * short.needed_bytes);
        }
    }
}
