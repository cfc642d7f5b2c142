//! Translates the configuration into settings of the cache manager.
//!
//! Job: one translation for both drivers of the manager, the daemon and the replay of traces, so that a simulated
//! cache equals the daemon's.
//!
//! It does not open devices or files. Their properties are arguments: [`Found`] and [`Geometry`].

mod memory;

use core::ops::Range;

use crate::{
    Admission, CacheConfig, Compression, Fingerprint, OnCacheLoss, Packer, Policy, RegionSize, VolumeConfig,
};
use zc_cache::config as cache;
use zc_core::units::SizeOrShare;
use zc_core::{Ack, Codec, DedupDomain, FingerprintKind, VolumeId, limits};
use zc_format::Geometry;

pub use memory::{Memory, Shortfall, TooLittleRam};

/// Regions of a volume whose region size is `auto`.
const REGIONS_AUTO: u64 = limits::REGIONS_PER_VOLUME;

/// Returns the manager's kind of a fingerprint function.
#[must_use]
pub const fn fingerprint_kind(fingerprint: Fingerprint) -> FingerprintKind {
    match fingerprint {
        Fingerprint::Blake3 => FingerprintKind::Blake3,
        Fingerprint::Sha1 => FingerprintKind::Sha1,
    }
}

/// The codec of a family and a level.
#[must_use]
pub const fn codec(compression: Compression, level: u8) -> Codec {
    match compression {
        Compression::None => Codec::Raw,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zlib => Codec::Zlib(level),
        Compression::Zstd => Codec::Zstd(level),
    }
}

/// The volume's settings for write-back; `durable_journal` is the default for when to acknowledge.
fn write_back(volume: &VolumeConfig, durable_journal: bool) -> cache::WriteBackConfig {
    let default = if durable_journal { Ack::Durable } else { Ack::Volatile };
    let on_loss = match volume.on_cache_loss {
        OnCacheLoss::Error => cache::OnLoss::Error,
        OnCacheLoss::ReadOnly => cache::OnLoss::ReadOnly,
    };
    cache::WriteBackConfig {
        ack: volume.ack.unwrap_or(default),
        max_dirty_age_ms: volume.max_dirty_age_ms,
        destage: volume.destage,
        // A volume with windows does not destage before it has received the time of day.
        destages_idly: volume.destage_window.is_empty(),
        on_loss,
        full_wait_ms: volume.full_wait_ms,
    }
}

fn share(volume: &VolumeConfig) -> cache::ShareConfig {
    let some = |size: SizeOrShare| Some(size).filter(|size| *size != SizeOrShare::Bytes(0));
    cache::ShareConfig { quota: some(volume.quota), reserve: some(volume.reserve), priority: volume.priority }
}

/// Returns the pinned ranges. A range without an end grows with the volume.
fn pins(volume: &VolumeConfig) -> Vec<Range<u64>> {
    volume.pins.iter().map(|pin| pin.of(u64::MAX)).collect()
}

/// The replacement policy.
#[must_use]
pub const fn replacement(policy: Policy) -> cache::Replacement {
    match policy {
        Policy::Lru => cache::Replacement::Lru,
        Policy::FifoReinsert => cache::Replacement::FifoReinsert,
        Policy::S3Fifo => cache::Replacement::S3Fifo,
        Policy::SharedLru => cache::Replacement::SharedLru,
        Policy::CostBenefit => cache::Replacement::CostBenefit,
    }
}

/// Returns the placement policy of extents in a unit.
#[must_use]
pub const fn packer(packer: Packer) -> cache::Packer {
    match packer {
        Packer::Append => cache::Packer::Append,
        Packer::FirstFit => cache::Packer::FirstFit,
        Packer::BestFit => cache::Packer::BestFit,
    }
}

const fn admission(admission: Admission) -> cache::Admission {
    match admission {
        Admission::Always => cache::Admission::Always,
        Admission::SecondTouch => cache::Admission::SecondTouch,
        Admission::Auto => cache::Admission::Auto,
        Admission::Never => cache::Admission::Never,
    }
}

/// Region size of a volume that is seen for the first time.
#[must_use]
pub fn region_bytes(size: RegionSize, volume_bytes: u64) -> u64 {
    let wanted = match size {
        RegionSize::Auto => volume_bytes / REGIONS_AUTO,
        RegionSize::Bytes(bytes) => bytes,
    };
    wanted.max(limits::REGION_BYTES_MIN).next_multiple_of(u64::from(limits::EXTENT_BYTES_MAX))
}

/// Properties of a volume that are detected at the start instead of configured.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its number on media.
    pub id: VolumeId,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Size of its regions in bytes.
    pub region_bytes: u64,
    /// `true` if cached content of the volume may be served.
    pub trusted: bool,
    /// `true` if it may have had dirty data when the last session ended.
    pub may_be_dirty: bool,
    /// `true` if the journal is on persistent memory.
    pub durable_journal: bool,
    /// The domain that it shares content in: see [`domain`].
    pub domain: DedupDomain,
}

/// The domain in which a volume shares content, on the cache of this uuid.
#[must_use]
pub fn domain(volume: &VolumeConfig, cache_uuid: &[u8; 16]) -> DedupDomain {
    zc_reduce::dedup_domain(cache_uuid, &volume.dedup_domain)
}

/// A volume's settings for the manager.
#[must_use]
pub fn volume_config(volume: &VolumeConfig, found: Found) -> cache::VolumeConfig {
    cache::VolumeConfig {
        mode: volume.mode,
        admission: admission(volume.admission),
        sequential_cutoff_bytes: volume.sequential_cutoff_bytes,
        dedup: volume.dedup,
        domain: found.domain,
        codec: codec(volume.compression, volume.compression_level),
        index_share_percent: volume.index_share_percent,
        // A store reports fingerprints that have no key.
        recipes: volume.in_store.is_some() && volume.dedup_domain.is_empty(),
        trusted: found.trusted,
        share: share(volume),
        pins: pins(volume),
        write_back: write_back(volume, found.durable_journal),
        may_be_dirty: found.may_be_dirty,
        ..cache::VolumeConfig::new(found.id, found.size_bytes, found.region_bytes)
    }
}

/// Returns the manager's settings: as many index entries as the layout is planned for and `max_ram` allows. Slots of a
/// block device are discarded unless the configuration disables it. `max_ram = "auto"` is a share of `machine_bytes`.
///
/// # Errors
/// When `max_ram` does not suffice for one extent per unit.
pub fn manager_config(
    config: &CacheConfig,
    geometry: &Geometry,
    fingerprint: FingerprintKind,
    on_block_device: bool,
    machine_bytes: u64,
) -> Result<cache::ManagerConfig, TooLittleRam> {
    let memory = Memory::of(config, geometry, machine_bytes);
    let (file_index_entries, fingerprint_index_entries) = memory.index_entries(config, geometry)?;
    Ok(cache::ManagerConfig {
        fingerprint_index_entries,
        read_buffer_bytes: config.read_buffer_bytes,
        staging_bytes: config.staging_bytes,
        insert_bytes_max: config.insert_bytes_max,
        weu_max_age_ms: config.weu_max_age_ms,
        device_deadline_ms: config.device_deadline_ms,
        slow_read_ms: config.slow_read_ms,
        prefetch_threshold_bytes: config.prefetch_threshold_bytes,
        prefetch_max_bytes: config.prefetch_max_bytes,
        learned_recipes_bytes: memory.learned_bytes,
        regions_active_max: config.regions_active_max,
        prove_hits: config.prove_hits,
        discard: config.discard.unwrap_or(on_block_device),
        replacement: replacement(config.policy),
        packer: packer(config.packer),
        dirty: cache::DirtyConfig {
            high_percent: config.dirty_high_percent,
            low_percent: config.dirty_low_percent,
            memory_bytes: config.dirty_memory_bytes,
            idle_ms: config.destage_idle_ms,
            destage_writes: config.destage_writes,
            destage_bytes_per_s: config.destage_bytes_per_s,
            scrub_interval_ms: config.dirty_scrub_ms,
        },
        ..cache::ManagerConfig::new(geometry.clone(), fingerprint, file_index_entries)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_format::PlanOptions;

    #[test]
    fn the_manager_s_own_defaults_are_those_of_the_configuration() {
        let text = "[cache]\npath = \"/c\"\nlearned_recipes = 0\n[[volume]]\nname = \"v\"\norigin = \"/v\"\n";
        let config = crate::Config::parse(text, "test").unwrap();
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes: 1 << 30,
            weu_bytes: config.cache.weu_bytes,
            extent_bytes: config.cache.extent_bytes,
            align_bytes: 0,
            journal_blocks: None,
        })
        .unwrap();
        let fingerprint = fingerprint_kind(config.cache.fingerprint);
        let made = manager_config(&config.cache, &geometry, fingerprint, false, u64::MAX).unwrap();
        let own = cache::ManagerConfig::new(geometry, fingerprint, made.file_index_entries);
        assert_eq!(format!("{made:?}"), format!("{own:?}"));
        let found = Found {
            id: VolumeId(3),
            size_bytes: 1 << 30,
            region_bytes: 1 << 20,
            trusted: true,
            may_be_dirty: false,
            durable_journal: false,
            domain: domain(&config.volumes[0], &[1; 16]),
        };
        assert_eq!(
            volume_config(&config.volumes[0], found),
            cache::VolumeConfig::new(VolumeId(3), 1 << 30, 1 << 20)
        );
    }
}
