//! The configuration as the daemon uses it: resolved, checked, in plain units.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::units::SizeOrShare;

/// How volumes treat writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Reads and writes fill the cache; a write is acknowledged when the origin has it.
    WriteThrough,
    /// Reads fill the cache, writes only invalidate.
    WriteAround,
    /// Reads fill the cache, writes are refused.
    ReadOnly,
    /// The cache is not used.
    PassThrough,
}

/// Which extents enter the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// All.
    Always,
    /// Read misses on their second time.
    SecondTouch,
    /// None.
    Never,
}

/// The codec family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Stored as it is.
    None,
    /// LZ4.
    Lz4,
    /// zlib, levels 1-9.
    Zlib,
    /// Zstandard, levels 1-19.
    Zstd,
}

/// The fingerprint function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fingerprint {
    /// BLAKE3, 256 bits.
    Blake3,
    /// SHA-1; bytes are compared before content is shared.
    Sha1,
}

/// The replacement policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Least recently used WEU.
    Lru,
}

/// Size of the regions that are marked before they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionSize {
    /// The volume's size divided by 4096, at least 1 MiB.
    Auto,
    /// Bytes, a power of two.
    Bytes(u64),
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The cache.
    pub cache: CacheConfig,
    /// The volumes.
    pub volumes: Vec<VolumeConfig>,
    /// The NBD server.
    pub nbd: NbdConfig,
    /// The control socket.
    pub control: ControlConfig,
    /// Logging.
    pub log: LogConfig,
}

/// `[cache]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// File or block device.
    pub path: PathBuf,
    /// Size; a share is of the volumes' sizes. `None`: the size of what is at `path`.
    pub size: Option<SizeOrShare>,
    /// Where pairing stamps and the intent log are kept.
    pub state_dir: PathBuf,
    /// Size of a WEU.
    pub weu_bytes: u32,
    /// Size of an extent.
    pub extent_bytes: u32,
    /// Default codec of volumes.
    pub compression: Compression,
    /// Its level.
    pub compression_level: u8,
    /// Fingerprint function.
    pub fingerprint: Fingerprint,
    /// Fingerprint index entries per file index entry, in per cent.
    pub fingerprint_index_percent: u8,
    /// Default of volumes: share content.
    pub dedup: bool,
    /// Discard slots before reuse.
    pub discard: bool,
    /// Use the page cache for the cache device (not recommended; for file systems without direct I/O).
    pub direct: bool,
    /// Hard cap of the RAM for indexes and slot tables.
    pub max_ram_bytes: u64,
    /// Reduce workers; 0 = one per CPU, at most 8.
    pub reduce_threads: u16,
    /// CPUs of the reduce workers; empty = any.
    pub reduce_cpus: Vec<u16>,
    /// Oldest age of an open WEU.
    pub weu_max_age_ms: u64,
    /// Consecutive bytes after which read-ahead starts.
    pub prefetch_threshold_bytes: u32,
    /// Largest read-ahead; 0 = off.
    pub prefetch_max_bytes: u32,
    /// Read buffer; 0 = off.
    pub read_buffer_bytes: u32,
    /// Partly written extents kept.
    pub staging_bytes: u32,
    /// Bytes that may be on their way into the cache.
    pub insert_bytes_max: u32,
    /// Regions that may be marked at once.
    pub regions_active_max: u32,
    /// Region size.
    pub region_size: RegionSize,
    /// Replacement policy.
    pub policy: Policy,
}

/// `[[volume]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Its name, also the name of its export.
    pub name: String,
    /// File or block device.
    pub origin: PathBuf,
    /// Size of a file origin that does not exist yet; it is created.
    pub create_bytes: Option<u64>,
    /// Mode.
    pub mode: Mode,
    /// Admission.
    pub admission: Admission,
    /// Share content.
    pub dedup: bool,
    /// Codec.
    pub compression: Compression,
    /// Its level.
    pub compression_level: u8,
    /// Share of the fingerprints that are indexed, in per cent.
    pub index_share_percent: u8,
    /// Direct I/O for the origin; `None` = devices yes, files no.
    pub direct: Option<bool>,
    /// Its export.
    pub nbd: VolumeNbd,
}

/// `[volume.nbd]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeNbd {
    /// Whether it is exported.
    pub export: bool,
    /// Description for clients that list.
    pub description: String,
    /// Writes are refused on this export.
    pub read_only: bool,
}

/// `[nbd]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdConfig {
    /// TCP addresses.
    pub listen: Vec<SocketAddr>,
    /// Unix sockets.
    pub unix: Vec<PathBuf>,
    /// Most connections.
    pub connections_max: u32,
    /// Most requests in flight per connection.
    pub requests_in_flight_max: u32,
    /// Most bytes of requests in flight over all connections.
    pub bytes_in_flight_max: u64,
    /// A client that has not chosen an export by then is dropped.
    pub handshake_timeout_ms: u64,
}

/// `[control]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlConfig {
    /// The control socket.
    pub socket: PathBuf,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Level or filter in the form of `RUST_LOG`.
    pub level: String,
}
