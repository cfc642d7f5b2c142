//! What the manager has to be told before it starts.

use zc_core::{Codec, FingerprintKind, VolumeId};
use zc_format::Geometry;

/// Settings of the cache as a whole.
#[derive(Debug, Clone)]
pub struct ManagerConfig {
    /// Layout of the cache device.
    pub geometry: Geometry,
    /// The cache's fingerprint function.
    pub fingerprint: FingerprintKind,
    /// Entries of the file index. Bounded by `max_ram`; when full, the least recently used of a bucket goes.
    pub file_index_entries: u64,
    /// Entries of the fingerprint index (0 = none): file index entries times the fingerprint index ratio.
    pub fingerprint_index_entries: u64,
    /// Bits of a slot's generation kept with each file index entry, 2-8.
    pub generation_bits: u8,
    /// Bytes of decoded extents kept for streams of small reads (0 = none).
    pub read_buffer_bytes: u32,
    /// Bytes of partly written extents kept until they are complete.
    pub staging_bytes: u32,
    /// Bytes of extents that may be on their way into the cache at once; beyond, insertion is skipped (G8).
    pub insert_bytes_max: u32,
    /// A WEU that is open for so long is written as it is.
    pub weu_max_age_ms: u64,
    /// Journal records wait at most this long before they are written.
    pub journal_delay_ms: u64,
    /// Consecutive bytes of a read stream after which read-ahead starts.
    pub prefetch_threshold_bytes: u32,
    /// Largest read-ahead (0 = none).
    pub prefetch_max_bytes: u32,
    /// Regions that may be active at once.
    pub regions_active_max: u32,
    /// Discard slots before reuse.
    pub discard: bool,
}

/// How a volume treats writes and lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reads and writes fill the cache; a write is acknowledged when the origin has it.
    WriteThrough,
    /// Reads fill the cache, writes only invalidate.
    WriteAround,
    /// Reads fill the cache, writes are refused.
    ReadOnly,
    /// The cache is neither read nor filled; writes still invalidate.
    PassThrough,
}

/// Which extents enter the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// All.
    Always,
    /// Read misses on their second time; writes always.
    SecondTouch,
    /// None: lookups and invalidation only.
    Never,
}

/// Settings of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Its number on media.
    pub id: VolumeId,
    /// Its size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Size of its regions in bytes, a multiple of the extent size; fixed when the volume is first seen.
    pub region_bytes: u64,
    /// Its mode.
    pub mode: Mode,
    /// Its admission rule.
    pub admission: Admission,
    /// Whether its extents share content.
    pub dedup: bool,
    /// How its extents are compressed.
    pub codec: Codec,
    /// Share of its fingerprints that are indexed, in per cent, chosen by fingerprint.
    pub index_share_percent: u8,
    /// The origin knows fingerprints of its contents and is asked for them (see [`crate::seam::Action::WantRecipe`]).
    pub recipes: bool,
    /// Whether what the cache holds for it at start may be trusted (pairing with the origin held).
    pub trusted: bool,
}

/// Deliberate bugs, one per guarantee. Only in builds with the `canary` feature, only when asked for.
#[cfg(feature = "canary")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// G1: a miss fill that a write overtook is inserted all the same.
    StaleFill,
    /// G2: a write does not mark its region active.
    NoRegionMark,
    /// G3: a stored extent that fails verification is served. (Carried out by the driver.)
    TrustExtent,
    /// G4: an error of the cache device is passed on to the client.
    SurfaceCacheError,
    /// G7: content is shared on 16 equal bits of the fingerprint.
    ShortFingerprint,
}
