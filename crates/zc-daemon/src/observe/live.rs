//! Data of the live page, as one JSON object.
//!
//! Job: select the data of the page from the daemon's state, with the meanings of `docs/src/operations.md`.
//! Invariants: counters are since the start, so a reader may miss any number of updates; members keep name and meaning
//! within a major version, and further ones may be added.
//!
//! It does not query (`control`), serve (`page_http`), or compute rates from counters (the page does).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::observe::events::Event;
use crate::observe::verdict::Verdict;
use crate::session::absent::Absent;
use zc_engine::origin::store_looks::StoreLook;
use zc_engine::registry::VolumeInfo;
use zc_engine::shard::metrics::{BOUNDS_NS, Durations, Path, Traffic};
use zc_engine::shard::stats::{Curve, Dirty, Extents, Pins, RemoteOrigin, ShardStats, Share};

/// Steps of latency, those that took longer than all bounds included.
const STEPS: usize = BOUNDS_NS.len() + 1;

/// State of the daemon at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Seconds since 1970, by the machine's clock.
    pub(crate) unix_s: u64,
    pub(crate) stats: Box<ShardStats>,
    pub(crate) cache_path: PathBuf,
    pub(crate) extent_bytes: u32,
    pub(crate) weu_bytes: u32,
    pub(crate) verdict: Verdict,
    pub(crate) volumes: Vec<(String, VolumeInfo)>,
    pub(crate) absent: Vec<Absent>,
    pub(crate) stores: Vec<StoreLook>,
    /// The newest first.
    pub(crate) events: Vec<Event>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Live {
    version: &'static str,
    unix_s: u64,
    uptime_ms: u64,
    stopping: bool,
    verdict: Verdict,
    cache: Cache,
    extents: Extents,
    curve: Curve,
    reads_from: ReadsFrom,
    insertion: Insertion,
    eviction: Eviction,
    latency_bounds_us: [u64; BOUNDS_NS.len()],
    paths: BTreeMap<&'static str, OnPath>,
    volumes: Vec<Volume>,
    absent: Vec<Absent>,
    stores: Vec<StoreLook>,
    events: Vec<Event>,
}

/// The cache device and its contents.
#[derive(Debug, Serialize)]
struct Cache {
    path: PathBuf,
    healthy: bool,
    fault: Option<String>,
    /// Capacity for units.
    size_bytes: u64,
    /// Size of the units in use.
    used_bytes: u64,
    holds_bytes: u64,
    /// Bytes taken in since the start.
    taken_in_bytes: u64,
    /// Bytes without zeros and duplicates.
    distinct_bytes: u64,
    compressed_bytes: u64,
}

/// Sources of the extents that reads requested, in parts.
#[derive(Debug, Serialize)]
struct ReadsFrom {
    cache_device: u64,
    memory: u64,
    zeros: u64,
    /// Read ahead from the origin: the first use of each.
    read_ahead: u64,
    origin: u64,
    /// Extents that waited for an origin read in progress.
    origin_joined: u64,
    /// Read requests, not extents: pass-through, or an offline cache.
    bypassed_requests: u64,
}

/// Outcome of insertions.
#[derive(Debug, Serialize)]
struct Insertion {
    offered: u64,
    /// Extents of origin reads among them.
    offered_read: u64,
    /// Extents of writes among them.
    offered_written: u64,
    stored: u64,
    duplicates: u64,
    zeros: u64,
    /// The cache was busy.
    skipped: u64,
    once_only: u64,
    present: u64,
    stale: u64,
    dropped: u64,
}

#[derive(Debug, Serialize)]
struct Eviction {
    units: u64,
    /// Units that the policy spared when they were next.
    spared: u64,
    while_reading: u64,
    index_entries: u64,
}

/// Requests of one path in all volumes.
#[derive(Debug, Default, Serialize)]
struct OnPath {
    requests: u64,
    bytes: u64,
    sum_us: u64,
    /// Number of requests up to the bound of the same index, and above the previous one.
    steps: [u64; STEPS],
}

#[derive(Debug, Serialize)]
struct Volume {
    name: String,
    mode: String,
    size_bytes: u64,
    max_dirty_age_ms: Option<u64>,
    traffic: Traffic,
    dirty: Option<Dirty>,
    /// Share of a volume, if it has one.
    share: Option<Share>,
    /// Pins of a volume, if it has any.
    pins: Option<Pins>,
    /// Connection to the server of a remote origin.
    remote: Option<RemoteOrigin>,
}

impl Live {
    pub(crate) fn of(seen: Snapshot) -> Self {
        let stats = &seen.stats;
        let paths = Path::WORDS.map(|(word, path)| (word, OnPath::of(path, stats.durations.values())));
        let volume = |(name, info): &(String, VolumeInfo)| Volume {
            name: name.clone(),
            mode: info.mode.clone(),
            size_bytes: info.size_bytes,
            max_dirty_age_ms: info.max_dirty_age_ms,
            traffic: stats.traffic.get(name).copied().unwrap_or_default(),
            dirty: stats.dirty.get(name).copied(),
            share: stats.shares.get(name).copied(),
            pins: stats.pins.get(name).copied(),
            remote: stats.remote.get(name).cloned(),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            unix_s: seen.unix_s,
            uptime_ms: stats.uptime_ms,
            stopping: stats.stopping,
            cache: Cache::of(&seen),
            extents: stats.extents,
            curve: stats.curve.clone(),
            reads_from: ReadsFrom::of(stats),
            insertion: Insertion::of(stats),
            eviction: Eviction::of(stats),
            latency_bounds_us: BOUNDS_NS.map(|bound_ns| bound_ns / 1000),
            paths: paths.into(),
            volumes: seen.volumes.iter().map(volume).collect(),
            verdict: seen.verdict,
            absent: seen.absent,
            stores: seen.stores,
            events: seen.events,
        }
    }
}

fn manager(stats: &ShardStats, name: &str) -> u64 {
    stats.manager.get(name).copied().unwrap_or(0)
}

impl Cache {
    fn of(seen: &Snapshot) -> Self {
        let stats = &seen.stats;
        let extents = |count: u64| count.saturating_mul(seen.extent_bytes.into());
        let units = |count: u64| count.saturating_mul(seen.weu_bytes.into());
        let distinct_bytes = manager(stats, "stored_raw_bytes");
        let same = ["insert_duplicates", "insert_zero", "dirty_shared"].map(|name| manager(stats, name));
        Self {
            path: seen.cache_path.clone(),
            healthy: stats.cache_healthy,
            fault: stats.cache_fault.clone(),
            size_bytes: units(stats.slots[1]),
            used_bytes: units(stats.slots[0]),
            holds_bytes: extents(manager(stats, "file_index_len")),
            taken_in_bytes: distinct_bytes.saturating_add(extents(same.iter().sum())),
            distinct_bytes,
            compressed_bytes: manager(stats, "stored_bytes"),
        }
    }
}

impl ReadsFrom {
    fn of(stats: &ShardStats) -> Self {
        let of = |name| manager(stats, name);
        let read_ahead = of("prefetched_hits");
        Self {
            cache_device: of("extent_hits_device"),
            // Prefetched extents are served from memory.
            memory: of("extent_hits_memory").saturating_sub(read_ahead),
            zeros: of("extent_hits_zero"),
            read_ahead,
            origin: of("extent_misses"),
            origin_joined: of("extent_joins"),
            bypassed_requests: of("read_bypassed"),
        }
    }
}

impl Insertion {
    fn of(stats: &ShardStats) -> Self {
        let of = |name| manager(stats, name);
        let (offered, offered_written) = (of("insert_offered"), of("insert_offered_written"));
        Self {
            offered,
            offered_read: offered.saturating_sub(offered_written),
            offered_written,
            stored: of("insert_stored"),
            duplicates: of("insert_duplicates"),
            zeros: of("insert_zero"),
            skipped: of("insert_skipped"),
            once_only: of("insert_once_only"),
            present: of("insert_present"),
            stale: of("insert_stale"),
            dropped: of("insert_dropped"),
        }
    }
}

impl Eviction {
    fn of(stats: &ShardStats) -> Self {
        let of = |name| manager(stats, name);
        Self {
            units: of("evictions"),
            spared: of("evictions_spared"),
            while_reading: of("evictions_while_reading"),
            index_entries: of("file_index_evictions"),
        }
    }
}

impl OnPath {
    fn of<'a>(path: Path, volumes: impl Iterator<Item = &'a Durations>) -> Self {
        let mut sum = Self::default();
        for durations in volumes {
            let steps = durations.of(path);
            sum.bytes = sum.bytes.saturating_add(steps.bytes);
            sum.sum_us = sum.sum_us.saturating_add(steps.sum_ns / 1000);
            for (total, count) in sum.steps.iter_mut().zip(steps.counts) {
                *total += count;
            }
        }
        sum.requests = sum.steps.iter().sum();
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::verdict::Level;

    fn seen(stats: ShardStats) -> Snapshot {
        Snapshot {
            unix_s: 7,
            stats: Box::new(stats),
            cache_path: "/dev/c".into(),
            extent_bytes: 8192,
            weu_bytes: 1 << 20,
            verdict: Verdict { state: Level::Healthy, reasons: Vec::new() },
            volumes: Vec::new(),
            absent: Vec::new(),
            stores: Vec::new(),
            events: Vec::new(),
        }
    }

    #[test]
    fn capacity_is_told_before_and_after_each_reduction() {
        let manager = [
            ("stored_raw_bytes", 10 * 8192),
            ("stored_bytes", 30_000),
            ("insert_duplicates", 4),
            ("insert_zero", 2),
            ("dirty_shared", 1),
            ("file_index_len", 16),
        ];
        let stats = ShardStats { manager: manager.into(), slots: [3, 64], ..ShardStats::default() };
        let cache = Live::of(seen(stats)).cache;
        assert_eq!((cache.taken_in_bytes, cache.distinct_bytes), (17 * 8192, 10 * 8192));
        assert_eq!((cache.compressed_bytes, cache.holds_bytes), (30_000, 16 * 8192));
        assert_eq!((cache.used_bytes, cache.size_bytes), (3 << 20, 64 << 20));
    }

    #[test]
    fn what_was_read_ahead_counts_once() {
        let manager = [("extent_hits_memory", 9), ("prefetched_hits", 4), ("extent_joins", 2)];
        let stats = ShardStats { manager: manager.into(), ..ShardStats::default() };
        let from = Live::of(seen(stats)).reads_from;
        assert_eq!((from.memory, from.read_ahead, from.origin_joined), (5, 4, 2));
    }

    #[test]
    fn writes_are_no_misses_that_were_offered() {
        let manager = [("insert_offered", 9), ("insert_offered_written", 7)];
        let stats = ShardStats { manager: manager.into(), ..ShardStats::default() };
        let insertion = Live::of(seen(stats)).insertion;
        assert_eq!((insertion.offered, insertion.offered_read, insertion.offered_written), (9, 2, 7));
    }

    #[test]
    fn a_volume_has_its_share_and_its_pins() {
        let share = Share { held_bytes: 3 << 20, quota_bytes: Some(4 << 20), ..Share::default() };
        let pins = Pins { pinned_bytes: 2 << 20, kept_bytes: 2 << 20, cached_bytes: 1 << 20 };
        let stats = ShardStats {
            shares: [("vm".to_owned(), share)].into(),
            pins: [("db".to_owned(), pins)].into(),
            ..ShardStats::default()
        };
        let info = VolumeInfo {
            id: 1,
            size_bytes: 8 << 20,
            mode: "write-through".to_owned(),
            ack: None,
            destage: None,
            max_dirty_age_ms: None,
            origin: "/dev/o".into(),
            dedup_domain: String::new(),
            cold_reason: None,
            origin_truncated_bytes: None,
            exported: true,
            attaches: false,
            device: None,
        };
        let volumes = ["db", "vm"].map(|name| (name.to_owned(), info.clone()));
        let live = Live::of(Snapshot { volumes: volumes.into(), ..seen(stats) });
        let [db, vm] = live.volumes.as_slice() else { panic!("there are two volumes") };
        assert_eq!((db.share, db.pins), (None, Some(pins)));
        assert_eq!((vm.share, vm.pins), (Some(share), None));
    }

    #[test]
    fn paths_are_summed_over_volumes() {
        let (mut one, mut other) = (Durations::default(), Durations::default());
        one.count(Path::Hit, 20_000, 4096);
        other.count(Path::Hit, 9_000_000, 512);
        other.count(Path::Flush, 1_000, 0);
        let durations = [("a".to_owned(), one), ("b".to_owned(), other)].into();
        let live = Live::of(seen(ShardStats { durations, ..ShardStats::default() }));
        let hit = &live.paths["hit"];
        assert_eq!((hit.requests, hit.bytes, hit.sum_us), (2, 4608, 9020));
        assert_eq!(live.paths["flush"].requests, 1);
        assert_eq!(hit.steps.len(), live.latency_bounds_us.len() + 1);
        assert_eq!(hit.steps[1], 1, "at most 25 us");
    }
}
