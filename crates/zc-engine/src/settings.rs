//! From the configuration's words to those of manager and front end.

use zc_cache::config as cache;
use zc_cache::index::{FileIndex, FingerprintIndex, IndexShape};
use zc_config::{Admission, CacheConfig, Compression, Config, Fingerprint, Mode, RegionSize, VolumeConfig};
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
        Mode::ReadOnly => cache::Mode::ReadOnly,
        Mode::PassThrough => cache::Mode::PassThrough,
    }
}

pub(crate) const fn mode_name(mode: cache::Mode) -> &'static str {
    match mode {
        cache::Mode::WriteThrough => "write-through",
        cache::Mode::WriteAround => "write-around",
        cache::Mode::ReadOnly => "read-only",
        cache::Mode::PassThrough => "pass-through",
    }
}

pub(crate) fn mode_from_name(name: &str) -> Option<cache::Mode> {
    use cache::Mode::{PassThrough, ReadOnly, WriteAround, WriteThrough};
    [WriteThrough, WriteAround, ReadOnly, PassThrough].into_iter().find(|mode| mode_name(*mode) == name)
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

/// A volume's settings for the manager; `id`, size, regions and trust are given.
pub(crate) fn volume_config(
    volume: &VolumeConfig,
    id: VolumeId,
    size_bytes: u64,
    region_bytes: u64,
    trusted: bool,
) -> cache::VolumeConfig {
    cache::VolumeConfig {
        id,
        size_bytes,
        region_bytes,
        mode: mode(volume.mode),
        admission: admission(volume.admission),
        dedup: volume.dedup,
        codec: codec(volume.compression, volume.compression_level),
        index_share_percent: volume.index_share_percent,
        recipes: false,
        trusted,
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
