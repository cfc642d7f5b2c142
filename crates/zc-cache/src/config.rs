//! Settings of the manager before it starts.

use core::ops::Range;

use zc_core::limits::ACTIVE_REGIONS_DEFAULT;
use zc_core::units::SizeOrShare;
use zc_core::{Ack, Codec, DedupDomain, Destage, FingerprintKind, HashKey, Mode, Priority, VolumeId};
use zc_format::Geometry;

/// Default number of generation bits in an index entry: slots are reused 255 times between full sweeps that separate
/// equal generations.
pub const GENERATION_BITS_DEFAULT: u8 = 8;

/// Default minimum extents of a clearing that waits for dirty data, 64 MiB. As dirty data they take 8 ms, and each
/// needs an origin write later; 512 dirty extents take a disk some seconds at most.
const DRAIN_EXTENTS_MIN: u64 = 8192;

/// Settings of the cache as a whole.
#[derive(Debug, Clone)]
pub struct ManagerConfig {
    /// Layout of the cache device.
    pub geometry: Geometry,
    /// The cache's fingerprint function.
    pub fingerprint: FingerprintKind,
    /// Entries of the file index. Bounded by `max_ram`; a full bucket evicts its least recently used entry.
    pub file_index_entries: u64,
    /// Entries of the fingerprint index (0 = none): file index entries times the fingerprint index ratio.
    pub fingerprint_index_entries: u64,
    /// Bits of a slot's generation kept with each file index entry, 2-8.
    pub generation_bits: u8,
    /// Bytes of decoded extents kept for streams of small reads (0 = none).
    pub read_buffer_bytes: u32,
    /// Bytes of partly written extents kept until they are complete.
    pub staging_bytes: u32,
    /// Maximum bytes of extents being inserted; further insertions are skipped (G8).
    pub insert_bytes_max: u32,
    /// Age at which an open WEU is written even if it is not full.
    pub weu_max_age_ms: u64,
    /// Maximum delay of journal records before they are written.
    pub journal_delay_ms: u64,
    /// Consecutive bytes of a read stream from which it is prefetched.
    pub prefetch_threshold_bytes: u32,
    /// Maximum prefetch (0 = none).
    pub prefetch_max_bytes: u32,
    /// Memory for fingerprints of evicted extents, in bytes (0 = none). Requires a collision-resistant fingerprint;
    /// applies to volumes with `dedup` whose origin has no recipes of its own.
    pub learned_recipes_bytes: u64,
    /// Cached header fingerprints of WEUs that are not in memory.
    pub header_prints_max: u32,
    /// Maximum number of active regions.
    pub regions_active_max: u32,
    /// Minimum extents of a piece of a trim or zeroing that is cleared as a range, without mapping its zeros.
    pub range_extents_min: u64,
    /// Minimum extents of a trim or zeroing of a write-back volume that may bypass the dirty layer after destaging, if
    /// at most a sixteenth of its extents are dirty: as dirty data it would take a record for each extent.
    pub drain_extents_min: u64,
    /// Sampling rate of fingerprint verification: one in this number of extents read from the device is hashed and
    /// compared (0 = none).
    pub prove_hits: u32,
    /// Discard slots before reuse.
    pub discard: bool,
    /// Policy that chooses the WEU to evict when a slot is needed.
    pub replacement: Replacement,
    /// Policy that places extents in a WEU.
    pub packer: Packer,
    /// Time limit of operations of the cache device in milliseconds; exceeding it takes the cache offline (0 = no
    /// limit).
    pub device_deadline_ms: u64,
    /// Time limit of reads of clean stored extents in milliseconds, after which the origin is read (0 = no limit).
    pub slow_read_ms: u64,
    /// Write-back settings of the cache as a whole.
    pub dirty: DirtyConfig,
    /// Key for hashing extents in hash maps. Clients choose extents, so the key must be secret.
    pub hash_key: HashKey,
}

impl ManagerConfig {
    /// Creates the shipped configuration with `index_entries` entries in each index, but without learned recipes and
    /// discards, and with a fixed hash key: the caller decides on memory, the device's abilities and clients.
    #[must_use]
    pub fn new(geometry: Geometry, fingerprint: FingerprintKind, index_entries: u64) -> Self {
        Self {
            geometry,
            fingerprint,
            file_index_entries: index_entries,
            fingerprint_index_entries: index_entries,
            generation_bits: GENERATION_BITS_DEFAULT,
            read_buffer_bytes: 4 << 20,
            staging_bytes: 8 << 20,
            insert_bytes_max: 32 << 20,
            weu_max_age_ms: 10_000,
            journal_delay_ms: 500,
            prefetch_threshold_bytes: 256 << 10,
            prefetch_max_bytes: 128 << 10,
            learned_recipes_bytes: 0,
            // About 2 MiB.
            header_prints_max: 1 << 15,
            regions_active_max: ACTIVE_REGIONS_DEFAULT,
            range_extents_min: 513,
            drain_extents_min: DRAIN_EXTENTS_MIN,
            prove_hits: 128,
            discard: false,
            replacement: Replacement::default(),
            packer: Packer::default(),
            device_deadline_ms: 10_000,
            slow_read_ms: 2_000,
            dirty: DirtyConfig::default(),
            hash_key: HashKey::fixed(),
        }
    }
}

/// Bounds and rates of write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirtyConfig {
    /// High watermark: share of slots that may hold dirty extents, in per cent. Writes wait above it.
    pub high_percent: u8,
    /// Low watermark: share of slots from which destaging runs continuously.
    pub low_percent: u8,
    /// Maximum bytes of acknowledged writes that are in memory only.
    pub memory_bytes: u64,
    /// Time without client requests after which destaging begins.
    pub idle_ms: u64,
    /// Maximum origin writes in flight for the destaging of one volume.
    pub destage_writes: u32,
    /// Maximum bytes per second that destaging writes to all origins together (0 = no bound). It does not apply while
    /// writes wait for capacity, nor to a volume that is drained.
    pub destage_bytes_per_s: u64,
    /// Interval in milliseconds in which all committed dirty data is read back once (0 = never).
    pub scrub_interval_ms: u64,
}

impl Default for DirtyConfig {
    fn default() -> Self {
        Self {
            high_percent: 50,
            low_percent: 30,
            memory_bytes: 32 << 20,
            idle_ms: 1000,
            destage_writes: 16,
            destage_bytes_per_s: 0,
            scrub_interval_ms: 4 * 60 * 60 * 1000,
        }
    }
}

/// Policy that chooses the WEU to evict when a slot is needed. See the documentation of module `policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replacement {
    /// Least recently used first.
    Lru,
    /// Oldest first, except for frequently used units.
    FifoReinsert,
    /// S3-FIFO: new units early, except for frequently used ones.
    S3Fifo,
    /// Least recently used first, except for units whose content many addresses share.
    SharedLru,
    /// Least recently used first, weighted by the share of dead content.
    #[default]
    CostBenefit,
}

/// Policy that places extents in a WEU. See the documentation of module `packer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packer {
    /// Directly after the previous one.
    #[default]
    Append,
    /// In the first gap that fits without touching an additional 4 KiB page.
    FirstFit,
    /// In the smallest gap that fits without touching an additional 4 KiB page.
    BestFit,
}

/// Rule for extents that may enter the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// All extents.
    Always,
    /// Writes, and read misses at their second access.
    SecondTouch,
    /// The better of both for the cache as a whole, chosen by ghost caches.
    Auto,
    /// None: lookups and invalidation only.
    Never,
}

/// Behaviour of a volume whose dirty data is lost with the cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// Every request fails.
    #[default]
    Error,
    /// Reads of clean data are served from the origin; everything else fails. If the dirty set is unknown, because
    /// journal and checkpoint may be incomplete, everything fails as with [`OnLoss::Error`].
    ReadOnly,
}

/// Settings of a volume for write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBackConfig {
    /// Condition for the acknowledgement of a write.
    pub ack: Ack,
    /// Target for the maximum age of dirty extents, in milliseconds, while the origin can keep up.
    pub max_dirty_age_ms: u64,
    /// Order in which dirty data is destaged.
    pub destage: Destage,
    /// Destages when the volume's clients are idle. Otherwise dirty data waits for another trigger: its age, a
    /// shortage of capacity, an operator.
    pub destages_idly: bool,
    /// Behaviour when dirty data is lost.
    pub on_loss: OnLoss,
    /// Maximum wait of a write, in milliseconds, while the origin has no space; then it fails.
    pub full_wait_ms: u64,
}

/// Default maximum wait of a write for an origin without space, in milliseconds.
pub const FULL_WAIT_MS_DEFAULT: u64 = 10_000;

impl Default for WriteBackConfig {
    fn default() -> Self {
        let (ack, destage) = (Ack::Volatile, Destage::Epoch);
        let full_wait_ms = FULL_WAIT_MS_DEFAULT;
        Self {
            ack,
            max_dirty_age_ms: 30_000,
            destage,
            destages_idly: true,
            on_loss: OnLoss::Error,
            full_wait_ms,
        }
    }
}

/// A volume's share of the cache. Sizes are rounded down to whole units; shares are of the capacity for units. The
/// bounds are described in the documentation of module `device::slots::classes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareConfig {
    /// Maximum size of its clean content; `None`: unbounded.
    pub quota: Option<SizeOrShare>,
    /// Size of its content that other volumes cannot evict; `None`: none.
    pub reserve: Option<SizeOrShare>,
    /// Order of eviction among volumes.
    pub priority: Priority,
}

/// Settings of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Number of the volume on media.
    pub id: VolumeId,
    /// Size in bytes, a multiple of 512; it only grows while the volume is served.
    pub size_bytes: u64,
    /// Size of its regions in bytes, a multiple of the extent size; fixed when the volume is first added.
    pub region_bytes: u64,
    /// Cache mode.
    pub mode: Mode,
    /// Admission rule.
    pub admission: Admission,
    /// Bytes of a stream after which its misses and writes are not inserted (0 = no bound). The stream must be
    /// detected as one, see [`ManagerConfig::prefetch_threshold_bytes`].
    pub sequential_cutoff_bytes: u64,
    /// Deduplicates its extents.
    pub dedup: bool,
    /// Volumes with which it shares content; fixed while the volume is served. A volume that was last served in
    /// another domain must not be `trusted` or have dirty data: its stored content may be shared with volumes of that
    /// domain.
    pub domain: DedupDomain,
    /// Compression codec.
    pub codec: Codec,
    /// Share of fingerprints that are indexed, in per cent, chosen by fingerprint.
    pub index_share_percent: u8,
    /// The origin reports fingerprints of its contents, which the manager requests (see
    /// [`crate::seam::Action::WantRecipe`]).
    pub recipes: bool,
    /// Content cached by earlier sessions is trusted: the origin is still the paired one.
    pub trusted: bool,
    /// Share of the cache.
    pub share: ShareConfig,
    /// Ranges of bytes that are read into the cache and stay there, as far as the volume extends. See the
    /// documentation of module `device::slots::kept`.
    pub pins: Vec<Range<u64>>,
    /// Write-back settings, which also apply to remaining dirty data after a change of the mode.
    pub write_back: WriteBackConfig,
    /// Set if the volume may have had dirty data at the end of the last session. It is fenced if journal and
    /// checkpoint are incomplete.
    pub may_be_dirty: bool,
    /// Set if acknowledged writes were lost, or may have been, without a report to clients that are still connected
    /// (see [`crate::loss`]): the first client flush after the volume is added fails.
    pub lost_writes: bool,
    /// The origin was flushed and has not been written since, so the first client flush need not reach it.
    pub origin_is_flushed: bool,
}

impl VolumeConfig {
    /// Settings of a volume in the shipped configuration, paired with its origin, without dirty data of an earlier
    /// session.
    #[must_use]
    pub fn new(id: VolumeId, size_bytes: u64, region_bytes: u64) -> Self {
        Self {
            id,
            size_bytes,
            region_bytes,
            mode: Mode::WriteThrough,
            admission: Admission::Always,
            sequential_cutoff_bytes: 0,
            dedup: true,
            domain: DedupDomain::COMMON,
            codec: Codec::Lz4,
            index_share_percent: 100,
            recipes: false,
            trusted: true,
            share: ShareConfig::default(),
            pins: Vec::new(),
            write_back: WriteBackConfig::default(),
            may_be_dirty: false,
            lost_writes: false,
            origin_is_flushed: false,
        }
    }
}
