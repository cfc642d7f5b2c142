//! The verdict on a running daemon: is everything as it should be, what is not, what follows, what to type?
//!
//! Job: judge what the daemon knows of itself, in one word with reasons.
//!
//! Invariants: *failed* means that a volume does not serve its clients; *degraded* that all are served, and something
//! costs speed, protection or trust. A state counts as long as it lasts. What only a counter tells (errors, failed
//! verifications, a cold start) counts for [`INCIDENT_MS`] after the last time that the counter moved: a daemon that ran
//! for that long without another incident is healthy again.
//!
//! What it does not do: act. Counters are looked at once in [`LOOK_MS`] and at every question.

use std::collections::BTreeMap;

use serde::Serialize;
use zc_core::units::ByteSize;
use zc_pool_io::PoolState;

use crate::origin::store_looks::StoreLook;
use crate::registry::VolumeInfo;
use crate::session::absent::Absent;
use crate::shard::stats::{Dirty, ShardStats};
use crate::state::ledger::Unserved;

/// How long an incident keeps the verdict from *healthy*: an hour.
pub(crate) const INCIDENT_MS: u64 = 3_600_000;
/// Time between two looks at the counters, in milliseconds.
pub(crate) const LOOK_MS: u64 = 10_000;
/// What a recovery point may be older than its bound, in milliseconds, beside a quarter of the bound: destaging begins
/// with the bound and takes its time.
const LATE_MARGIN_MS: u64 = 5_000;
/// A store has little space.
const STORE_LOW: &str = "store-low-space";

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Level {
    /// Nothing to do.
    Healthy,
    /// Every volume is served; something needs a look.
    Degraded,
    /// A volume is not served.
    Failed,
}

impl Level {
    /// In lower case, as metrics and events have it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// Why it is not healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    /// A word for programs.
    pub(crate) kind: &'static str,
    pub(crate) level: Level,
    /// The volume, if it is about one.
    pub(crate) volume: Option<String>,
    /// The store, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    /// What happened.
    pub(crate) what: String,
    /// What follows from it.
    pub(crate) follows: String,
    /// What to type, or to do.
    pub(crate) command: String,
}

/// The verdict: the worst of the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) state: Level,
    pub(crate) reasons: Vec<Reason>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Verification,
    CacheError,
    OriginError,
    Refused,
    Unreadable,
    Cold,
}

/// When counters moved last. Volumes by name; the empty name is the cache.
#[derive(Debug, Default)]
pub(crate) struct Incidents(BTreeMap<(Kind, String), Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    count: u64,
    at_ms: u64,
}

/// What the daemon knows of itself.
pub(crate) struct Look<'a> {
    pub(crate) stats: &'a ShardStats,
    pub(crate) cache: String,
    pub(crate) without_cache: bool,
    pub(crate) volumes: &'a [(String, VolumeInfo)],
    pub(crate) unserved: &'a [Unserved],
    /// Volumes whose origins could not be opened.
    pub(crate) absent: &'a [Absent],
    pub(crate) stores: &'a [StoreLook],
}

impl Incidents {
    /// Looks at the counters.
    pub(crate) fn observe(&mut self, stats: &ShardStats, volumes: &[(String, VolumeInfo)]) {
        let now_ms = stats.uptime_ms;
        let manager = |name: &str| stats.manager.get(name).copied().unwrap_or(0);
        self.count(Kind::Verification, "", manager("failed_hits"), now_ms);
        self.count(Kind::CacheError, "", stats.driver.device_errors, now_ms);
        for (name, traffic) in &stats.traffic {
            self.count(Kind::OriginError, name, traffic.origin_errors, now_ms);
        }
        for (name, dirty) in &stats.dirty {
            self.count(Kind::Refused, name, dirty.refused, now_ms);
            self.count(Kind::Unreadable, name, dirty.unreadable, now_ms);
        }
        for (name, info) in volumes {
            self.count(Kind::Cold, name, u64::from(info.cold_reason.is_some()), now_ms);
        }
    }

    fn count(&mut self, kind: Kind, name: &str, count: u64, now_ms: u64) {
        let key = (kind, name.to_owned());
        let before = self.0.get(&key).copied();
        // A counter that is smaller than before began anew with another manager.
        if count > 0 && before.is_none_or(|before| before.count != count) {
            self.0.insert(key, Seen { count, at_ms: now_ms });
        }
    }

    /// How often, if it happened within the last hour.
    fn recent(&self, kind: Kind, name: &str, now_ms: u64) -> Option<u64> {
        let seen = self.0.get(&(kind, name.to_owned()))?;
        (now_ms.saturating_sub(seen.at_ms) < INCIDENT_MS).then_some(seen.count)
    }
}

impl Verdict {
    /// Judges.
    pub(crate) fn of(look: &Look<'_>, incidents: &Incidents) -> Self {
        let mut reasons = of_cache(look, incidents);
        for (name, info) in look.volumes {
            let dirty = look.stats.dirty.get(name).copied().unwrap_or_default();
            reasons.extend(of_volume(name, info, &dirty));
            reasons.extend(of_truncated(name, info));
            reasons.extend(of_gap(name, &dirty));
            reasons.extend(of_incidents(name, info, incidents, look.stats.uptime_ms));
        }
        // Of an absent volume its own reason says more.
        let is_absent = |name: &str| look.absent.iter().any(|absent| absent.name == name);
        reasons.extend(look.unserved.iter().filter(|unserved| !is_absent(&unserved.name)).map(of_unserved));
        reasons.extend(look.absent.iter().map(of_absent));
        reasons.extend(look.stores.iter().filter_map(of_store));
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
        let state = reasons.first().map_or(Level::Healthy, |reason| reason.level);
        Self { state, reasons }
    }
}

fn of_cache(look: &Look<'_>, incidents: &Incidents) -> Vec<Reason> {
    let reason = |kind: &'static str, what: String, follows: &str, command: String| {
        let (follows, volume) = (follows.to_owned(), None);
        Reason { kind, level: Level::Degraded, volume, store: None, what, follows, command }
    };
    let mut reasons = Vec::new();
    if !look.stats.cache_healthy {
        let fault = look.stats.cache_fault.as_deref().unwrap_or("it does not work");
        let command = if look.without_cache {
            "when the cache is back: systemctl restart zcached"
        } else {
            "when the cache is back: zcctl reattach"
        };
        reasons.push(reason(
            "cache-failed",
            format!("the cache is out of order: {fault}"),
            "reads and writes go to the origins alone",
            command.to_owned(),
        ));
    }
    if let Some(fault) = &look.stats.intent_fault {
        reasons.push(reason(
            "intent-log-void",
            fault.clone(),
            "after a kill the cache starts cold where clients were writing, as after a power cut",
            "make the state directory work, or put control.socket in /run: systemctl restart zcached"
                .to_owned(),
        ));
    }
    let now_ms = look.stats.uptime_ms;
    if let Some(count) = incidents.recent(Kind::Verification, "", now_ms) {
        reasons.push(reason(
            "verification-failed",
            format!("{count} reads of the cache failed verification, the last within the hour"),
            "what was damaged was read from the origin; the cache device may be failing",
            format!("smartctl -a on the device of {}; after a stop: zcctl check --data", look.cache),
        ));
    }
    if let Some(count) = incidents.recent(Kind::CacheError, "", now_ms) {
        reasons.push(reason(
            "cache-errors",
            format!("{count} operations of the cache device failed, the last within the hour"),
            "what failed went to the origin; the cache device may be failing",
            format!("dmesg; smartctl -a on the device of {}", look.cache),
        ));
    }
    reasons
}

/// A store that fails, or has little space.
fn of_store(look: &StoreLook) -> Option<Reason> {
    let name = &look.name;
    let share = || {
        let (left, total) = (ByteSize(look.left_bytes), ByteSize(look.total_bytes));
        format!("{left} of {total} are left for contents, part of it in fragments")
    };
    let more = format!(
        "discard in the volumes (fstrim), or delete snapshots: zcctl store snapshots {name}; else use a larger device"
    );
    let (kind, level, what, follows, command) = match look.state {
        PoolState::Ok => return None,
        PoolState::Low => {
            (STORE_LOW, Level::Degraded, share(), "when nothing is left, writes to its volumes fail", more)
        }
        PoolState::Full => {
            let follows = "writes to its volumes fail; nothing that was acknowledged is lost";
            ("store-full", Level::Failed, "nothing is left for contents".to_owned(), follows, more)
        }
        PoolState::Failed => (
            "store-failed",
            Level::Failed,
            format!("its device failed: {}", look.path.display()),
            "it takes no changes; what was flushed is kept",
            "dmesg; when the device works: systemctl restart zcached".to_owned(),
        ),
    };
    let (follows, store) = (follows.to_owned(), Some(name.clone()));
    Some(Reason { kind, level, volume: None, store, what, follows, command })
}

fn of_absent(absent: &Absent) -> Reason {
    Reason {
        kind: "origin-missing",
        level: Level::Failed,
        volume: Some(absent.name.clone()),
        store: None,
        what: format!("it is not served: {}", absent.why),
        follows: "the other volumes are served, and its dirty data, if any, is kept".to_owned(),
        command: "bring its origin back; the daemon goes on looking, and serves it then".to_owned(),
    }
}

/// States that last.
fn of_volume(name: &str, info: &VolumeInfo, dirty: &Dirty) -> Option<Reason> {
    if dirty.fenced {
        return Some(Reason {
            kind: "fenced",
            level: Level::Failed,
            volume: Some(name.to_owned()),
            store: None,
            what: "it is fenced: its dirty data cannot be read now".to_owned(),
            follows: "its requests fail; its dirty data is kept".to_owned(),
            command: format!(
                "when the cache is back: zcctl reattach; to go on without what is lost: zcctl accept-loss {name}"
            ),
        });
    }
    let bound_ms = info.max_dirty_age_ms?;
    let late_ms = bound_ms.saturating_add(bound_ms / 4).saturating_add(LATE_MARGIN_MS);
    (dirty.oldest_age_ms > late_ms).then(|| Reason {
        kind: "recovery-point-late",
        level: Level::Degraded,
        volume: Some(name.to_owned()),
        store: None,
        what: format!(
            "its recovery point is {} s old, max_dirty_age is {} s",
            dirty.oldest_age_ms / 1000,
            bound_ms / 1000
        ),
        follows: "if the cache is lost now, more is lost than was allowed".to_owned(),
        command: format!("zcctl flush {name}; if the origin is too slow, raise max_dirty_age"),
    })
}

/// An origin that lost its end.
fn of_truncated(name: &str, info: &VolumeInfo) -> Option<Reason> {
    let (now_bytes, bytes) = (info.origin_truncated_bytes?, info.size_bytes);
    let origin = info.origin.display();
    Some(Reason {
        kind: "origin-truncated",
        level: Level::Failed,
        volume: Some(name.to_owned()),
        store: None,
        what: format!("{origin} was truncated from {bytes} to {now_bytes} bytes while it was served"),
        follows: "requests that need it fail, and dirty data stays on the cache".to_owned(),
        command: format!(
            "zcctl stop --keep-dirty; make it as long again (for a file: truncate --size={bytes} {origin}); start"
        ),
    })
}

/// Dirty data that the cache does not give back, and that nothing was written over.
fn of_gap(name: &str, dirty: &Dirty) -> Option<Reason> {
    let (bytes, offset) = (dirty.stuck_bytes, dirty.stuck_offset_bytes);
    (bytes > 0 && !dirty.fenced).then(|| Reason {
        kind: "dirty-stuck",
        level: Level::Degraded,
        volume: Some(name.to_owned()),
        store: None,
        what: format!(
            "{bytes} bytes at offset {offset} of dirty data cannot be read from the cache{}",
            match dirty.unreadable_bytes.saturating_sub(bytes) {
                0 => String::new(),
                others => format!("; {others} bytes at other offsets likewise"),
            }
        ),
        follows: "reads of them fail, and nothing that was written later reaches the origin".to_owned(),
        command: format!(
            "write these bytes anew and flush: the rest then goes to the origin; to put zeros there instead: zcctl \
             drop-dirty {name} --unreadable"
        ),
    })
}

/// What happened within the last hour.
fn of_incidents(name: &str, info: &VolumeInfo, incidents: &Incidents, now_ms: u64) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut add = |kind: &'static str, what: String, follows: &str, command: String| {
        let (volume, follows) = (Some(name.to_owned()), follows.to_owned());
        reasons.push(Reason { kind, level: Level::Degraded, volume, store: None, what, follows, command });
    };
    let origin = info.origin.display();
    if let Some(count) = incidents.recent(Kind::Unreadable, name, now_ms) {
        add(
            "dirty-unreadable",
            format!("dirty data could not be read from the cache {count} times, the last within the hour"),
            "reads of it fail, and it does not reach the origin",
            format!("dmesg; to give it up: zcctl drop-dirty {name} --unreadable"),
        );
    }
    if let Some(count) = incidents.recent(Kind::Refused, name, now_ms) {
        add(
            "origin-refused",
            format!("its origin refused dirty data {count} times, the last within the hour"),
            "the data stays on the cache and is tried again",
            format!("dmesg; look at {origin}"),
        );
    }
    if let Some(count) = incidents.recent(Kind::OriginError, name, now_ms) {
        add(
            "origin-errors",
            format!("its origin failed {count} times, the last within the hour"),
            "requests that needed the origin got an error",
            format!("dmesg; look at {origin}"),
        );
    }
    if let Some(why) = &info.cold_reason
        && incidents.recent(Kind::Cold, name, now_ms).is_some()
    {
        add(
            "cold-start",
            format!("it started cold: {why}"),
            "reads go to the origin until the cache has filled",
            "nothing, if the reason was expected; else find what changed the origin".to_owned(),
        );
    }
    reasons
}

fn of_unserved(unserved: &Unserved) -> Reason {
    Reason {
        kind: "dirty-unserved",
        level: Level::Degraded,
        volume: Some(unserved.name.clone()),
        store: None,
        what: format!(
            "the cache has dirty data of it, and it is not in the configuration; its origin is {}",
            unserved.origin.display()
        ),
        follows: "the data is kept, and its room on the cache is not used for anything else".to_owned(),
        command: "add the volume to the configuration, then: systemctl restart zcached".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> VolumeInfo {
        VolumeInfo {
            id: 0,
            size_bytes: 512,
            mode: "write-back".to_owned(),
            ack: None,
            destage: None,
            max_dirty_age_ms: Some(30_000),
            origin: "/srv/v".into(),
            dedup_domain: String::new(),
            cold_reason: None,
            origin_truncated_bytes: None,
            device: None,
        }
    }

    fn judged(stats: &ShardStats, info: &VolumeInfo, incidents: &mut Incidents) -> Verdict {
        let volumes = [("v".to_owned(), info.clone())];
        incidents.observe(stats, &volumes);
        let look = Look {
            stats,
            cache: "/dev/c".to_owned(),
            without_cache: false,
            volumes: &volumes,
            unserved: &[],
            absent: &[],
            stores: &[],
        };
        Verdict::of(&look, incidents)
    }

    fn stats(uptime_ms: u64) -> ShardStats {
        ShardStats { uptime_ms, cache_healthy: true, ..ShardStats::default() }
    }

    fn failed_hits(uptime_ms: u64, count: u64) -> ShardStats {
        ShardStats { manager: [("failed_hits", count)].into(), ..stats(uptime_ms) }
    }

    #[test]
    fn an_incident_counts_for_an_hour_after_the_last() {
        let mut incidents = Incidents::default();
        let mut state =
            |uptime_ms, count| judged(&failed_hits(uptime_ms, count), &info(), &mut incidents).state;
        assert_eq!(state(1, 0), Level::Healthy);
        assert_eq!(state(1_000, 2), Level::Degraded);
        assert_eq!(state(INCIDENT_MS, 3), Level::Degraded);
        assert_eq!(state(2 * INCIDENT_MS - 1, 3), Level::Degraded);
        assert_eq!(state(2 * INCIDENT_MS, 3), Level::Healthy);
        // Another manager counts from zero.
        assert_eq!(state(2 * INCIDENT_MS + 1, 0), Level::Healthy);
        assert_eq!(state(2 * INCIDENT_MS + 2, 1), Level::Degraded);
    }

    #[test]
    fn a_store_that_is_short_of_space_or_failed_is_told() {
        let look = |state| StoreLook {
            name: "tank".to_owned(),
            path: "/dev/t".into(),
            state,
            total_bytes: 100 << 30,
            left_bytes: 2 << 30,
            volumes: 1,
            snapshots: 0,
            pages_lost: 0,
            prints_known: 0,
            prints_computed: 0,
            encodings_known: 0,
            encodings_computed: 0,
            no_space: 0,
            no_space_before: 0,
        };
        assert_eq!(of_store(&look(PoolState::Ok)), None);
        for (state, kind, level) in [
            (PoolState::Low, "store-low-space", Level::Degraded),
            (PoolState::Full, "store-full", Level::Failed),
            (PoolState::Failed, "store-failed", Level::Failed),
        ] {
            let reason = of_store(&look(state)).unwrap();
            assert_eq!((reason.kind, reason.level, reason.store.as_deref()), (kind, level, Some("tank")));
        }
        let low = of_store(&look(PoolState::Low)).unwrap();
        assert!(low.what.contains("2 GiB of 100 GiB"), "{low:?}");
    }

    #[test]
    fn a_state_counts_as_long_as_it_lasts_and_the_worst_comes_first() {
        let mut incidents = Incidents::default();
        let with = |dirty: Dirty, cache_healthy: bool| ShardStats {
            dirty: [("v".to_owned(), dirty)].into(),
            cache_healthy,
            ..stats(5)
        };
        let old = |oldest_age_ms| Dirty { bytes: 1, oldest_age_ms, ..Dirty::default() };
        let state = |stats: &ShardStats, incidents: &mut Incidents| judged(stats, &info(), incidents);
        assert_eq!(state(&with(old(40_000), true), &mut incidents).state, Level::Healthy);
        let late = state(&with(old(43_000), true), &mut incidents);
        assert!(late.state == Level::Degraded && late.reasons[0].what.contains("43 s old"), "{late:?}");
        let gap = Dirty { stuck_offset_bytes: 8192, stuck_bytes: 512, ..old(1) };
        let stuck = state(&with(gap, true), &mut incidents);
        assert!(
            stuck.state == Level::Degraded && stuck.reasons[0].what.contains("512 bytes at offset 8192"),
            "{stuck:?}"
        );
        let cut = VolumeInfo { origin_truncated_bytes: Some(77), ..info() };
        let truncated = judged(&stats(5), &cut, &mut incidents);
        assert!(
            truncated.state == Level::Failed
                && truncated.reasons[0].command.contains("truncate --size=512 /srv/v"),
            "{truncated:?}"
        );
        let fenced = Dirty { fenced: true, ..Dirty::default() };
        let verdict = state(&with(fenced, false), &mut incidents);
        assert_eq!((verdict.state, verdict.reasons.len()), (Level::Failed, 2));
        assert_eq!(verdict.reasons[0].volume.as_deref(), Some("v"));
        assert_eq!(state(&stats(INCIDENT_MS), &mut incidents).state, Level::Healthy);
        let cold = VolumeInfo { cold_reason: Some("its origin changed".to_owned()), ..info() };
        assert_eq!(judged(&stats(1), &cold, &mut incidents).state, Level::Degraded);
    }
}
