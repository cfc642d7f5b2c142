//! From the configuration's words to those of manager and front end.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use zc_cache::config as cache;
use zc_cache::index::{FileIndex, FingerprintIndex, IndexShape};
use zc_config::{
    Ack, Admission, CacheConfig, Compression, Config, Fingerprint, Mode, OnCacheLoss, RegionSize,
    VolumeConfig,
};
use zc_core::{Codec, FingerprintKind, VolumeId, limits};
use zc_format::Geometry;
use zc_nbd::server::{BlockSizes, ExportFlags, ExportInfo};

use crate::access::{Export, Rules};
use crate::error::EngineError;
use crate::status::RESIDENCY_CONTEXT;

/// Bits of a slot's generation in an index entry: the full sweep that separates equal ones is 255 reuses away.
const GENERATION_BITS: u8 = 8;
/// Journal records wait at most this long.
const JOURNAL_DELAY_MS: u64 = 500;
/// RAM of slot table, policy and header table per slot, rounded up.
const RAM_PER_SLOT: u64 = 128;
/// Regions of a volume whose region size is `auto`.
const REGIONS_AUTO: u64 = 4096;
/// Smallest region of `auto`.
const REGION_BYTES_MIN: u64 = 1 << 20;
/// Reduce threads at most, unless asked for.
const REDUCE_THREADS_AUTO_MAX: usize = 8;

/// Bounds of the front end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrontLimits {
    pub(crate) connections: usize,
    /// 0 = no bound.
    pub(crate) connections_per_client: usize,
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
    pub(crate) bytes_per_connection: u64,
    pub(crate) handshake_ms: u64,
    pub(crate) stall_ms: u64,
    /// 0 = off, as the next.
    pub(crate) idle_ms: u64,
    pub(crate) keepalive_ms: u64,
}

pub(crate) fn front_limits(config: &Config) -> FrontLimits {
    let nbd = &config.nbd;
    FrontLimits {
        connections: zc_core::usize_from_u32(nbd.connections_max),
        connections_per_client: zc_core::usize_from_u32(nbd.connections_per_client_max),
        requests: nbd.requests_in_flight_max,
        bytes: nbd.bytes_in_flight_max,
        bytes_per_connection: nbd.bytes_in_flight_per_connection_max,
        handshake_ms: nbd.handshake_timeout_ms,
        stall_ms: nbd.stall_timeout_ms,
        idle_ms: nbd.idle_timeout_ms,
        keepalive_ms: nbd.keepalive_ms,
    }
}

pub(crate) const fn fingerprint_kind(fingerprint: Fingerprint) -> FingerprintKind {
    match fingerprint {
        Fingerprint::Blake3 => FingerprintKind::Blake3,
        Fingerprint::Sha1 => FingerprintKind::Sha1,
    }
}

pub(crate) const fn codec(compression: Compression, level: u8) -> Codec {
    match compression {
        Compression::None => Codec::Raw,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zlib => Codec::Zlib(level),
        Compression::Zstd => Codec::Zstd(level),
    }
}

pub(crate) const fn mode(mode: Mode) -> cache::Mode {
    match mode {
        Mode::WriteThrough => cache::Mode::WriteThrough,
        Mode::WriteAround => cache::Mode::WriteAround,
        Mode::WriteBack => cache::Mode::WriteBack,
        Mode::ReadOnly => cache::Mode::ReadOnly,
        Mode::PassThrough => cache::Mode::PassThrough,
    }
}

pub(crate) const fn mode_name(mode: cache::Mode) -> &'static str {
    match mode {
        cache::Mode::WriteThrough => "write-through",
        cache::Mode::WriteAround => "write-around",
        cache::Mode::WriteBack => "write-back",
        cache::Mode::ReadOnly => "read-only",
        cache::Mode::PassThrough => "pass-through",
    }
}

pub(crate) fn mode_from_name(name: &str) -> Option<cache::Mode> {
    use cache::Mode::{PassThrough, ReadOnly, WriteAround, WriteBack, WriteThrough};
    let modes = [WriteThrough, WriteAround, WriteBack, ReadOnly, PassThrough];
    modes.into_iter().find(|mode| mode_name(*mode) == name)
}

/// The volume's settings for write-back; `durable_journal` is the default for when to acknowledge.
fn write_back(volume: &VolumeConfig, durable_journal: bool) -> cache::WriteBackConfig {
    let ack = match volume.ack {
        Some(Ack::Volatile) => cache::Ack::Volatile,
        Some(Ack::Durable) => cache::Ack::Durable,
        None if durable_journal => cache::Ack::Durable,
        None => cache::Ack::Volatile,
    };
    let on_loss = match volume.on_cache_loss {
        OnCacheLoss::Error => cache::OnLoss::Error,
        OnCacheLoss::ReadOnly => cache::OnLoss::ReadOnly,
    };
    cache::WriteBackConfig { ack, max_dirty_age_ms: volume.max_dirty_age_ms, on_loss }
}

/// Whether the journal has a place of its own that is persistent memory: writing there costs next to nothing.
pub(crate) fn has_durable_journal(config: &CacheConfig) -> bool {
    config.journal_path.as_deref().is_some_and(is_persistent_memory)
}

/// Block devices say so by their queue's `dax` (Linux, Documentation/ABI/stable/sysfs-block), files by the attribute
/// `STATX_ATTR_DAX` (statx(2)).
fn is_persistent_memory(path: &Path) -> bool {
    const ATTRIBUTE_DAX: u64 = 0x0020_0000;
    let Ok(metadata) = std::fs::metadata(path) else { return false };
    if metadata.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        let dax = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/dax"));
        return dax.is_ok_and(|dax| dax.trim() == "1");
    }
    let told = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    told.is_ok_and(|told| told.stx_attributes.bits() & ATTRIBUTE_DAX != 0)
}

const fn admission(admission: Admission) -> cache::Admission {
    match admission {
        Admission::Always => cache::Admission::Always,
        Admission::SecondTouch => cache::Admission::SecondTouch,
        Admission::Never => cache::Admission::Never,
    }
}

/// Region size of a volume that is seen for the first time.
pub(crate) fn region_bytes(size: RegionSize, volume_bytes: u64) -> u64 {
    let wanted = match size {
        RegionSize::Auto => volume_bytes / REGIONS_AUTO,
        RegionSize::Bytes(bytes) => bytes,
    };
    wanted.max(REGION_BYTES_MIN).next_multiple_of(u64::from(limits::EXTENT_BYTES_MAX))
}

/// What of a volume is found at the start, not set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) id: VolumeId,
    pub(crate) size_bytes: u64,
    pub(crate) region_bytes: u64,
    pub(crate) trusted: bool,
    pub(crate) may_be_dirty: bool,
    /// See [`has_durable_journal`].
    pub(crate) durable_journal: bool,
}

/// A volume's settings for the manager.
pub(crate) fn volume_config(volume: &VolumeConfig, found: Found) -> cache::VolumeConfig {
    cache::VolumeConfig {
        id: found.id,
        size_bytes: found.size_bytes,
        region_bytes: found.region_bytes,
        mode: mode(volume.mode),
        admission: admission(volume.admission),
        dedup: volume.dedup,
        codec: codec(volume.compression, volume.compression_level),
        index_share_percent: volume.index_share_percent,
        recipes: false,
        trusted: found.trusted,
        write_back: write_back(volume, found.durable_journal),
        may_be_dirty: found.may_be_dirty,
    }
}

/// A volume's export and who may use it.
pub(crate) fn export(volume: &VolumeConfig, id: VolumeId, size_bytes: u64) -> Export {
    let read_only = volume.nbd.read_only || volume.mode == Mode::ReadOnly;
    let info = ExportInfo {
        name: volume.name.clone(),
        description: volume.nbd.description.clone(),
        size_bytes,
        flags: ExportFlags {
            read_only,
            rotational: false,
            // One shard orders all connections, and a flush covers what any of them was told is written.
            multi_conn: true,
            flush: true,
            fua: true,
            trim: !read_only,
            write_zeroes: !read_only,
            // Where zeros would have to be written it fails at once, as the flag is for.
            fast_zero: !read_only,
            cache: true,
        },
        blocks: BlockSizes::DEFAULT,
        contexts: vec![zc_nbd::proto::BASE_ALLOCATION.to_owned(), RESIDENCY_CONTEXT.to_owned()],
        token: u64::from(id.0),
    };
    Export { info, rules: Rules::new(&volume.nbd) }
}

/// Reduce threads for a setting of which 0 means automatic.
pub(crate) fn reduce_threads(setting: u16) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let auto = u32::try_from(cpus.min(REDUCE_THREADS_AUTO_MAX)).unwrap_or(1);
    if setting == 0 { auto } else { u32::from(setting) }
}

/// The manager's settings: as many index entries as the layout is planned for and `max_ram` allows.
pub(crate) fn manager_config(
    config: &CacheConfig,
    geometry: &Geometry,
    fingerprint: FingerprintKind,
) -> Result<cache::ManagerConfig, EngineError> {
    let (file_index_entries, fingerprint_index_entries) = index_entries(config, geometry)?;
    Ok(cache::ManagerConfig {
        geometry: geometry.clone(),
        fingerprint,
        file_index_entries,
        fingerprint_index_entries,
        generation_bits: GENERATION_BITS,
        read_buffer_bytes: config.read_buffer_bytes,
        staging_bytes: config.staging_bytes,
        insert_bytes_max: config.insert_bytes_max,
        weu_max_age_ms: config.weu_max_age_ms,
        journal_delay_ms: JOURNAL_DELAY_MS,
        prefetch_threshold_bytes: config.prefetch_threshold_bytes,
        prefetch_max_bytes: config.prefetch_max_bytes,
        regions_active_max: config.regions_active_max,
        discard: config.discard,
        dirty: cache::DirtyConfig {
            high_percent: config.dirty_high_percent,
            low_percent: config.dirty_low_percent,
            memory_bytes: config.dirty_memory_bytes,
            idle_ms: config.destage_idle_ms,
            destage_writes: config.destage_writes,
        },
    })
}

fn index_entries(config: &CacheConfig, geometry: &Geometry) -> Result<(u64, u64), EngineError> {
    let fixed = u64::from(geometry.slots) * RAM_PER_SLOT;
    let room = config.max_ram_bytes.saturating_sub(fixed);
    let prints_of = |files: u64| files * u64::from(config.fingerprint_index_percent) / 100;
    let shape = IndexShape {
        slots: geometry.slots,
        weu_bytes: geometry.weu_bytes,
        extent_bytes: geometry.extent_bytes,
        generation_bits: GENERATION_BITS,
    };
    let ram_of = |files: u64| {
        FileIndex::ram_bytes_for(shape, files) + FingerprintIndex::ram_bytes_for(shape, prints_of(files))
    };
    let mut files = geometry.index_capacity;
    while files > 0 && ram_of(files) > room {
        files -= (files / 64).max(1);
    }
    let least = u64::from(geometry.slots);
    if files < least {
        return Err(EngineError::Refused(format!(
            "max_ram of {} bytes is too little for a cache of {} write units: {} bytes go to tables per unit alone",
            config.max_ram_bytes, geometry.slots, fixed
        )));
    }
    Ok((files, prints_of(files)))
}
