//! Coverage of a set of runs: a fuzzer that never reaches a path proves nothing about it.

use std::collections::BTreeMap;

/// Events that a full run must reach. A content comparison that finds a difference is not among them: no seed has two
/// contents with one SHA-1, and the tests of the manager construct one (`compares_differed` in `tests/manager`).
pub const REQUIRED: &[&str] = &[
    "event Submit",
    "origins late",
    "origins late: changes that arrived late",
    "origins late: flushes that failed for an abandoned one",
    "origins late: operations that had not begun",
    "origins late: operations withdrawn",
    "event OriginDone",
    "event DeviceDone",
    "event ExtentsRead",
    "event HeaderRead",
    "event ImageRead",
    "load_by_image",
    "image_bytes_written",
    "event Hashed",
    "event RecipeArrived",
    "recipe_hits",
    "recipe_hits_learned",
    "recipe_waits",
    "recipe_waits_hit",
    "event Compressed",
    "event Compared",
    "event Tick",
    "event Configure",
    "event DeviceLost",
    "event Stop",
    "power cuts",
    "kills",
    "clean stops",
    "crashes while the index loads",
    "crashes while stopping",
    "crashes soon after a start or a flush",
    "crashes aimed behind a flush",
    "profile plain",
    "profile shared",
    "profile tiny",
    "profile restarts",
    "profile rotting",
    "profile aimed",
    "profile full",
    "aimed: content that another volume stored",
    "aimed: pieces that hang",
    "aimed: epochs of which half is in another volume's piece",
    "aimed: flushes soon after a kill",
    "aimed: writes past the dirty layer soon after a kill",
    "aimed: units of summaries used again",
    "aimed: slots that come round",
    "aimed: content that rotted before it was shared",
    "aimed: last commits damaged",
    "stored extents rotted and written anew",
    "stored extents with another content",
    "rotten dirty data left out",
    "rotten dirty data given up alone",
    "dirty_scrubbed_bytes",
    "starts by intent log",
    "starts by summaries",
    "runs of one client that syncs",
    "starts without trust",
    "journal wraps",
    "generation wraps",
    "cut off while opening",
    "cut off while marking a clean stop",
    "intent log lost",
    "older images noticed",
    "device rolled back",
    "origins changed while stopped",
    "volumes added while serving",
    "volumes that changed their domain",
    "failed flushes that lost writes",
    "volumes grown while serving",
    "requests under way where a volume ended",
    "writes refused: read-only",
    "requests answered while WEU writes hang",
    "sessions that ended without the cache",
    "lost region maps that nothing tells of",
    "bits rotted",
    "slots rolled back",
    "pages became unreadable",
    "pages became zero",
    "unreadable pages read",
    "metadata rotted",
    "metadata became unreadable",
    "metadata became zero",
    "metadata write errors",
    "WEU write errors",
    "cache device full",
    "device died",
    "device gone and back",
    "reads misdirected",
    "writes lost: WEU",
    "writes lost: journal",
    "writes lost: region map",
    "writes lost: checkpoint",
    "writes lost: superblock",
    "writes misdirected: WEU",
    "writes misdirected: journal",
    "writes misdirected: region map",
    "writes misdirected: checkpoint",
    "writes replayed: WEU",
    "writes replayed: journal",
    "writes replayed: region map",
    "writes replayed: checkpoint",
    "slow: reads of slots",
    "slow: WEU writes",
    "slow: journal",
    "slow: region map",
    "slow: checkpoint",
    "slow: flush",
    "slow: origin reads",
    "slow: origin writes",
    "slow: reduce",
    "slow: state directory",
    "journal devices died",
    "journal devices replaced",
    "changes of the state directory that hung",
    "cache device and state directory full together",
    "starts that waited for the state directory",
    "stops that the state directory did not hear of",
    "state directories lost",
    "settings refused: the state directory fails",
    "settings that changed between two sessions",
    "cache devices that did not answer",
    "abandoned: reads",
    "abandoned: writes",
    "abandoned: writes that reached the device",
    "origin errors",
    "origins without space",
    "origins that got space by a discard",
    "discarded_ahead_bytes",
    "checkpoints",
    "compares",
    "device_read_errors",
    "device_write_errors",
    "slow_hits",
    "duplicate_outlived_base",
    "evictions",
    "evictions_headerless",
    "evictions_spared",
    "evictions_for_quota",
    "evictions_within_reserve",
    "insert_over_quota",
    "units_moved",
    "pins changed",
    "pins changed while the index is loaded",
    "starts by image with pinned ranges",
    "pinned extents that are safe",
    "pinned_extents_read",
    "pinned_extents_moved",
    "pinned_units_emptied",
    "evictions_while_reading",
    "extent_hits_memory",
    "extent_hits_zero",
    "extent_joins",
    "failed_hits",
    "file_index_evictions",
    "hint_header_reads",
    "insert_duplicates",
    "insert_once_only",
    "insert_sequential",
    "insert_skipped",
    "insert_stale",
    "load_distrusted",
    "load_mappings",
    "merges",
    "prefetched_used",
    "read_bypassed",
    "read_hits",
    "read_partial",
    "distrust_failures",
    "distrust_waits",
    "region_mark_waits",
    "region_room_waits",
    "regions_retired",
    "staged_dropped",
    "staged_whole",
    "sweep_passes",
    "swept_entries",
    "verified_hits",
    "proved_hits",
    "event Destage",
    "event GiveUpUnreadable",
    "event DropDirty",
    "changes to write-back",
    "changes from write-back while dirty",
    "destage_spared_bytes",
    "destage_writes",
    "destaging failed",
    "dirty data given up",
    "dirty data unreadable",
    "dirty_read_failures",
    "dirty_replayed",
    "dirty_shared",
    "dirty_stored",
    "dirty_waits",
    "epochs_clean",
    "epochs_closed",
    "epochs_committed",
    "epochs_committed_by_fua",
    "epochs_committed_by_summary",
    "origins gone",
    "origins judged alone",
    "promoted",
    "requests failed: dirty data out of reach",
    "requests failed: the origin did",
    "reads failed: dirty data damaged",
    "writes failed: destaging is stuck",
    "aimed: content that another volume stored",
    "aimed: pieces that hang",
    "aimed: flushes soon after a kill",
    "slow: dirty extents",
    "tentative commits dropped",
    "volumes clean by age",
    "volumes clean on demand",
    "volumes fenced",
    "durable writes",
    "starts that know of a fence",
    "epochs given up elsewhere",
    "write errors of dirty extents",
    "writes crowded out",
    "machines mended in the end",
    "caches taken up again at the end",
    "dirty data lost in the end",
    "exchange: reattach",
    "exchange: replace",
    "exchange: resize",
    "exchange: requests held back",
    "exchange: called off",
    "exchange: devices that lost power",
    "exchange: crashes",
    "store: volumes",
    "store: recipes",
    "store: chunks known",
    "extents to origins with their encoding",
    "extents to origins with their fingerprint",
    "store: snapshots",
    "store: snapshots deleted",
    "store: snapshots judged",
    "store: full",
    "store: device errors",
    "store: bits rotted",
    "store: damage told",
    "store: opened alone",
    "store: power cuts in a recovery",
];

/// Counter of writes whose content is unique.
pub(crate) const NEW_CONTENTS: &str = "writes of new contents";
/// Counter of writes of zeros or of pool contents.
pub(crate) const KNOWN_CONTENTS: &str = "writes of known contents";

/// Counters of crashes.
const CRASHES: [&str; 4] =
    ["power cuts", "kills", "cut off while opening", "cut off while marking a clean stop"];

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(crate) fn note(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    pub(crate) fn add(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            self.add(name, *count);
        }
    }

    /// Returns the required names that never occurred.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        REQUIRED.iter().copied().filter(|name| self.count(name) == 0).collect()
    }

    /// Returns the percentage of writes with unique content. A sector whose content is shared may be wrong
    /// undetected.
    #[must_use]
    pub fn unique_percent(&self) -> u64 {
        let [unique, known] = [NEW_CONTENTS, KNOWN_CONTENTS].map(|name| self.count(name));
        (100 * unique).checked_div(unique + known).unwrap_or(100)
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Returns the number of power cuts and kills, including those of starts and stops.
    #[must_use]
    pub fn crashes(&self) -> u64 {
        CRASHES.iter().map(|name| self.count(name)).sum()
    }

    /// Returns all counts by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counts.iter().map(|(name, count)| (*name, *count))
    }
}
