//! Settings of the manager before it starts.

use core::ops::Range;

use zc_core::limits::ACTIVE_REGIONS_DEFAULT;
use zc_core::units::SizeOrShare;
use zc_core::{Ack, Codec, DedupDomain, Destage, FingerprintKind, HashKey, Mode, Priority, VolumeId};
use zc_format::Geometry;

/// Bits of a slot's generation in an index entry by default: the full sweep that separates equal ones is 255 reuses
/// away.
pub const GENERATION_BITS_DEFAULT: u8 = 8;

/// Extents of a clearing that waits for dirty data by default, 64 MiB. As dirty data they take 8 ms, and each gets a
/// write of the origin later; 512 records of dirty data take a disk some seconds at most.
const DRAIN_EXTENTS_MIN: u64 = 8192;

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
    /// Memory for fingerprints of extents whose data was evicted, in bytes (0 = none are kept). Of use with a
    /// collision-resistant fingerprint, for volumes with `dedup` whose origin has no recipes of its own.
    pub learned_recipes_bytes: u64,
    /// Fingerprints kept of the headers of WEUs that are on the device alone.
    pub header_prints_max: u32,
    /// Regions that may be active at once.
    pub regions_active_max: u32,
    /// Minimum number of extents of a piece of a trim or zeroing that is cleared as a range, without mapping its
    /// zeros.
    pub range_extents_min: u64,
    /// Minimum number of extents of a trim or zeroing, of a volume in write-back, that waits until the origin has the
    /// dirty data, and bypasses the dirty layer, if that is a sixteenth of its extents at most: as dirty data, it
    /// takes a record for each extent.
    pub drain_extents_min: u64,
    /// One in this number of the stored extents that reads get from the device is hashed (0 = none): its content must
    /// match its fingerprint.
    pub prove_hits: u32,
    /// Discard slots before reuse.
    pub discard: bool,
    /// Policy that chooses the WEU to evict when a slot is needed.
    pub replacement: Replacement,
    /// Policy that places extents in a WEU.
    pub packer: Packer,
    /// An operation of the cache device that takes longer puts the cache out of order, in milliseconds (0 = none does).
    pub device_deadline_ms: u64,
    /// A read of stored extents that the origin has too goes there if it takes longer, in milliseconds (0 = none does).
    pub slow_read_ms: u64,
    /// Write-back, as far as it concerns the cache as a whole.
    pub dirty: DirtyConfig,
    /// Key of the places of extents in hash maps. Clients choose extents, and must not have it.
    pub hash_key: HashKey,
}

impl ManagerConfig {
    /// A cache with `index_entries` index entries each for files and fingerprints, otherwise as in the shipped
    /// configuration. It learns no recipes, discards nothing, and has the fixed hash key: the caller decides on
    /// memory, the device's abilities and clients.
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
            // 2 MiB or so.
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
    /// Share of the slots that may hold dirty extents, in per cent; writes wait beyond (the high watermark).
    pub high_percent: u8,
    /// Share of the slots from which on destaging runs without a pause (the low watermark).
    pub low_percent: u8,
    /// Bytes of acknowledged writes that may be in memory alone.
    pub memory_bytes: u64,
    /// Destaging begins after so long without a client request.
    pub idle_ms: u64,
    /// Origin writes of one volume's destaging that may be in flight.
    pub destage_writes: u32,
    /// Bound on the bytes a second that destaging writes to all origins together (0 = no bound). It does not apply
    /// while writes wait for capacity, nor to a volume that is drained.
    pub destage_bytes_per_s: u64,
    /// Interval in milliseconds in which committed dirty data is read back once (0 = never).
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
    /// The least recently used one.
    Lru,
    /// The oldest, unless it is used much.
    FifoReinsert,
    /// S3-FIFO: new ones soon, unless they are used much.
    S3Fifo,
    /// The least recently used one, unless many addresses share its content.
    SharedLru,
    /// The least recently used ones first, the emptier the sooner.
    #[default]
    CostBenefit,
}

/// Policy that places extents in a WEU. See the documentation of module `packer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packer {
    /// Behind the last one.
    #[default]
    Append,
    /// So that they touch the fewest pages of 4 KiB: into the first gap that fits.
    FirstFit,
    /// So that they touch the fewest pages of 4 KiB: into the smallest gap that fits.
    BestFit,
}

/// Extents that enter the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// All.
    Always,
    /// Read misses on their second time; writes always.
    SecondTouch,
    /// The better of both for the cache as a whole, by ghost caches: all, or read misses on their second time.
    Auto,
    /// None: lookups and invalidation only.
    Never,
}

/// Reaction of a volume when the cache device is lost with dirty data on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// Every request fails.
    #[default]
    Error,
    /// Reads of clean data are served from the origin; everything else fails. Where the dirty set is unknown, because
    /// journal and checkpoint may be incomplete, everything fails as with [`OnLoss::Error`].
    ReadOnly,
}

/// Settings of a volume for write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBackConfig {
    /// Condition on which a write is acknowledged.
    pub ack: Ack,
    /// No dirty extent is to be older than this when the origin can keep up, in milliseconds.
    pub max_dirty_age_ms: u64,
    /// Order in which the origin gets dirty data.
    pub destage: Destage,
    /// Silence of the volume's clients is a reason to destage. If not, dirty data waits for another trigger: its age,
    /// a shortage of capacity, an operator.
    pub destages_idly: bool,
    /// Reaction when dirty data is out of reach.
    pub on_loss: OnLoss,
    /// Longest wait of a write for capacity while the origin has no space, in milliseconds, before it fails.
    pub full_wait_ms: u64,
}

/// Default wait of a write for an origin without space, in milliseconds.
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
    /// Its clean content takes at most so much; none: as much as there is.
    pub quota: Option<SizeOrShare>,
    /// Content of other volumes leaves so much of its content alone; none: nothing.
    pub reserve: Option<SizeOrShare>,
    /// Order in which it loses content: before other volumes, or after them.
    pub priority: Priority,
}

/// Settings of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Its number on media.
    pub id: VolumeId,
    /// Its size in bytes, a multiple of 512; it only grows while the volume is served.
    pub size_bytes: u64,
    /// Size of its regions in bytes, a multiple of the extent size; fixed when the volume is first seen.
    pub region_bytes: u64,
    /// Its mode.
    pub mode: Mode,
    /// Its admission rule.
    pub admission: Admission,
    /// Bytes of a stream after which its misses and writes are not inserted (0 = no bound). The stream must be
    /// detected as one, see [`ManagerConfig::prefetch_threshold_bytes`].
    pub sequential_cutoff_bytes: u64,
    /// Set if its extents share content.
    pub dedup: bool,
    /// Volumes that it shares content with; fixed while the volume is served. A volume that was in another domain
    /// when it was last served must not be `trusted`, nor have dirty data: its stored content may be shared with its
    /// neighbours of then.
    pub domain: DedupDomain,
    /// Compression of its extents.
    pub codec: Codec,
    /// Share of its fingerprints that are indexed, in per cent, chosen by fingerprint.
    pub index_share_percent: u8,
    /// The origin has fingerprints of its contents, which the manager requests (see
    /// [`crate::seam::Action::WantRecipe`]).
    pub recipes: bool,
    /// Set if its cached content at start may be trusted (pairing with the origin held).
    pub trusted: bool,
    /// Its share of the cache.
    pub share: ShareConfig,
    /// Ranges of it, in bytes, that stay in the cache and are brought there, as far as the volume goes. See the
    /// documentation of module `device::slots::kept`.
    pub pins: Vec<Range<u64>>,
    /// Write-back settings; also used while it still has dirty data after a change of its mode.
    pub write_back: WriteBackConfig,
    /// Set if it may have had dirty data when the last session ended: if journal and checkpoint are incomplete, it is
    /// fenced.
    pub may_be_dirty: bool,
    /// Set if acknowledged writes were lost, or may have been, without a report to clients that still live (see
    /// [`crate::loss`]): the first flush of a client fails. It counts when the volume is first served.
    pub lost_writes: bool,
    /// The driver has flushed the origin, and nothing was written to it since: the first flush of a client need not
    /// reach it.
    pub origin_is_flushed: bool,
}

impl VolumeConfig {
    /// A volume as the shipped configuration has it, paired with its origin, without dirty data of an earlier session.
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
