//! The verdict on a running daemon: its problems, their effects, and the remedies.
//!
//! Job: judge the daemon's state, in one word with reasons.
//!
//! Invariants: *failed* means that a volume does not serve its clients; *degraded* that all are served, and something
//! costs speed, protection or trust. A state counts as long as it lasts. Problems that only a counter shows (errors,
//! failed verifications, a cold start) count for [`INCIDENT_MS`] after the last increment: a daemon that ran for that
//! long without another incident is healthy again.
//!
//! It does not act. Counters are read once in [`LOOK_MS`] and at every query.

use std::collections::BTreeMap;

use serde::Serialize;
use zc_config::manager::Shortfall;
use zc_core::units::ByteSize;
use zc_pool_io::PoolState;

use crate::session::absent::{Absent, Remedy};
use zc_engine::origin::store_looks::StoreLook;
use zc_engine::registry::VolumeInfo;
use zc_engine::shard::stats::{Dirty, ShardStats};
use zc_engine::state::ledger::Unserved;

/// Time for which an incident prevents *healthy*: an hour.
pub(crate) const INCIDENT_MS: u64 = 3_600_000;
/// Interval of reading the counters, in milliseconds.
pub(crate) const LOOK_MS: u64 = 10_000;
/// Tolerance of a recovery point beyond its bound, in milliseconds, besides a quarter of the bound: destaging starts
/// at the bound and takes time.
const LATE_MARGIN_MS: u64 = 5_000;
/// Time for a volume to become a block device after the start of the daemon, in milliseconds.
const ATTACH_MS: u64 = 60_000;
/// Wait of a write for space that counts as a problem, in milliseconds: an origin that keeps up frees space sooner.
const WAIT_MS: u64 = 5_000;
const STORE_LOW: &str = "store-low-space";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Level {
    /// No action is required.
    Healthy,
    /// Every volume is served; something needs attention.
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

/// Reason for not being healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    /// Identifier for programs.
    pub(crate) kind: &'static str,
    pub(crate) level: Level,
    /// Affected volume, if any.
    pub(crate) volume: Option<String>,
    /// Affected store, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    pub(crate) what: String,
    pub(crate) follows: String,
    /// Remedy: the command or action.
    pub(crate) command: String,
}

/// The verdict: the worst of the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) state: Level,
    pub(crate) reasons: Vec<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum IncidentKind {
    Verification,
    CacheError,
    OriginError,
    Unreadable,
    Dropped,
    Cold,
    StoreTorn,
}

/// Times of the last change of counters. Volumes and stores by name; the empty name is the cache.
#[derive(Debug, Default)]
pub(crate) struct Incidents(BTreeMap<(IncidentKind, String), IncidentState>);

#[derive(Debug, Clone, Copy)]
struct IncidentState {
    count: u64,
    at_ms: u64,
    /// An operator has acknowledged it, and it has not recurred.
    is_cleared: bool,
}

/// State of the daemon.
pub(crate) struct Look<'a> {
    pub(crate) stats: &'a ShardStats,
    pub(crate) cache: String,
    pub(crate) without_cache: bool,
    pub(crate) volumes: &'a [(String, VolumeInfo)],
    pub(crate) unserved: &'a [Unserved],
    /// Volumes whose origins could not be opened.
    pub(crate) absent: &'a [Absent],
    pub(crate) stores: &'a [StoreLook],
    /// Part of the cache that the index has no entries for.
    pub(crate) shortfall: Option<Shortfall>,
    /// Clients can connect to the daemon.
    pub(crate) listens: bool,
}

impl Incidents {
    /// Acknowledges the incidents of a volume or of all: they no longer count until they happen again. Returns their
    /// number.
    pub(crate) fn clear(&mut self, volume: Option<&str>, now_ms: u64) -> usize {
        let concerned = self.0.iter_mut().filter(|((_, name), _)| volume.is_none_or(|volume| name == volume));
        let lasting = concerned.filter(|(_, seen)| seen.counts_at(now_ms));
        lasting.map(|(_, seen)| seen.is_cleared = true).count()
    }

    /// Reads the counters.
    pub(crate) fn observe(
        &mut self,
        stats: &ShardStats,
        volumes: &[(String, VolumeInfo)],
        stores: &[StoreLook],
    ) {
        let now_ms = stats.uptime_ms;
        let manager = |name: &str| stats.manager.get(name).copied().unwrap_or(0);
        self.count(IncidentKind::Verification, "", manager("failed_hits"), now_ms);
        self.count(IncidentKind::CacheError, "", stats.driver.device_errors, now_ms);
        for (name, traffic) in &stats.traffic {
            // Errors of read-ahead and destaging fail no request of a client.
            let failed = traffic.origin_errors.min(traffic.failed_by_device);
            self.count(IncidentKind::OriginError, name, failed, now_ms);
        }
        for (name, dirty) in &stats.dirty {
            self.count(IncidentKind::Unreadable, name, dirty.unreadable, now_ms);
            self.count(IncidentKind::Dropped, name, dirty.dropped_commits, now_ms);
        }
        for (name, info) in volumes {
            self.count(IncidentKind::Cold, name, u64::from(info.cold_reason.is_some()), now_ms);
        }
        for store in stores {
            self.count(IncidentKind::StoreTorn, &store.name, u64::from(store.torn), now_ms);
        }
    }

    fn count(&mut self, kind: IncidentKind, name: &str, count: u64, now_ms: u64) {
        let key = (kind, name.to_owned());
        let before = self.0.get(&key).copied();
        // A counter that decreased belongs to a new manager.
        if count > 0 && before.is_none_or(|before| before.count != count) {
            self.0.insert(key, IncidentState { count, at_ms: now_ms, is_cleared: false });
        }
    }

    /// Returns the count, if it increased within the last hour.
    fn recent(&self, kind: IncidentKind, name: &str, now_ms: u64) -> Option<u64> {
        let seen = self.0.get(&(kind, name.to_owned()))?;
        seen.counts_at(now_ms).then_some(seen.count)
    }
}

impl IncidentState {
    const fn counts_at(&self, now_ms: u64) -> bool {
        !self.is_cleared && now_ms.saturating_sub(self.at_ms) < INCIDENT_MS
    }
}

impl Verdict {
    pub(crate) fn of(look: &Look<'_>, incidents: &Incidents) -> Self {
        let mut reasons = of_cache(look, incidents);
        for (name, info) in look.volumes {
            let dirty = look.stats.dirty.get(name).copied().unwrap_or_default();
            reasons.extend(of_volume(name, info, &dirty, look.stats.cache_healthy));
            reasons.extend(of_reach(name, info, look));
            reasons.extend(of_refusing(name, info, &dirty));
            reasons.extend(of_outage(name, info, &dirty, look.stats));
            reasons.extend(of_truncated(name, info));
            reasons.extend(of_gap(name, &dirty));
            reasons.extend(of_room(name, info, &dirty));
            reasons.extend(of_incidents(name, info, incidents, look.stats.uptime_ms));
        }
        // For an absent volume its own reason is more specific.
        let is_absent = |name: &str| look.absent.iter().any(|absent| absent.name == name);
        reasons.extend(look.unserved.iter().filter(|unserved| !is_absent(&unserved.name)).map(of_unserved));
        reasons.extend(look.absent.iter().map(of_absent));
        reasons.extend(look.stores.iter().filter_map(of_store));
        let is_torn = |store: &&StoreLook| {
            incidents.recent(IncidentKind::StoreTorn, &store.name, look.stats.uptime_ms).is_some()
        };
        reasons.extend(look.stores.iter().filter(is_torn).map(of_torn_store));
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
        let state = reasons.first().map_or(Level::Healthy, |reason| reason.level);
        Self { state, reasons }
    }

    /// Names of volumes that do not serve their clients.
    pub(crate) fn failed_volumes(&self) -> Vec<String> {
        let failed = self.reasons.iter().filter(|reason| reason.level == Level::Failed);
        failed.filter_map(|reason| reason.volume.clone()).collect()
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
            format!("the cache is offline: {fault}"),
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
    if let Some(short) = &look.shortfall {
        let follows = "the rest of the cache device stays unused";
        reasons.push(reason("index-short", short.to_string(), follows, short.command()));
    }
    let now_ms = look.stats.uptime_ms;
    if let Some(count) = incidents.recent(IncidentKind::Verification, "", now_ms) {
        reasons.push(reason(
            "verification-failed",
            format!("{count} reads of the cache failed verification, the last within the hour"),
            "corrupt data was read from the origin; the cache device may be failing",
            format!(
                "smartctl -a on the device of {}; after a stop: zcctl check --data {}; if the device is good: zcctl \
                 clear",
                look.cache, look.cache
            ),
        ));
    }
    if let Some(count) = incidents.recent(IncidentKind::CacheError, "", now_ms) {
        reasons.push(reason(
            "cache-errors",
            format!("{count} operations of the cache device failed, the last within the hour"),
            "failed operations fell back to the origin; the cache device may be failing",
            format!("dmesg; smartctl -a on the device of {}; if it is good: zcctl clear", look.cache),
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
        // It lasts until a flush fails for it, which a poll may miss; so it is an incident.
        PoolState::Ok | PoolState::Dropped => return None,
        PoolState::Low => {
            (STORE_LOW, Level::Degraded, share(), "when the store is full, writes to its volumes fail", more)
        }
        PoolState::Full => {
            let follows = "writes to its volumes fail; nothing that was acknowledged is lost";
            ("store-full", Level::Failed, "no space is left for contents".to_owned(), follows, more)
        }
        PoolState::Failed => (
            "store-failed",
            Level::Failed,
            format!("its device failed: {}", look.path.display()),
            "it accepts no changes; flushed data is kept",
            "dmesg; when the device works: systemctl restart zcached".to_owned(),
        ),
    };
    let (follows, store) = (follows.to_owned(), Some(name.clone()));
    Some(Reason { kind, level, volume: None, store, what, follows, command })
}

/// A store that was opened without its last changes.
fn of_torn_store(look: &StoreLook) -> Reason {
    let name = &look.name;
    Reason {
        kind: "store-dropped",
        level: Level::Degraded,
        volume: None,
        store: Some(name.clone()),
        what: "when it was opened, the last write of its log was damaged and does not count".to_owned(),
        follows: "data flushed just before the stop may be lost; the next flush fails once".to_owned(),
        command: format!(
            "zcctl store scrub {name}; if the power did not fail, check the device; then: zcctl clear"
        ),
    }
}

fn of_absent(absent: &Absent) -> Reason {
    let (kind, command) = remedy(&absent.name, absent.remedy);
    Reason {
        kind,
        level: Level::Failed,
        volume: Some(absent.name.clone()),
        store: None,
        what: format!("it is not served: {}", absent.why),
        follows: "the other volumes are served, and its dirty data, if any, is kept".to_owned(),
        command,
    }
}

/// Returns the kind of an absent volume's reason, and the command that helps.
fn remedy(name: &str, remedy: Remedy) -> (&'static str, String) {
    let retries = "the daemon keeps retrying, and serves it when it is back";
    match remedy {
        Remedy::Destage => {
            let command = format!(
                "zcctl volume set {name} mode=write-through; when it is served: zcctl flush {name}; zcctl volume \
                 set {name} mode=read-only; zcctl stop --flush; then start the daemon"
            );
            ("dirty-doubtful", command)
        }
        Remedy::DecideOnDirty => {
            let command = format!(
                "restore the previous cache and origin; else zcctl stop --keep-dirty, and start once with \
                 --trust-dirty {name} (its dirty data goes to the origin as it is) or --drop-dirty {name} (it is lost)"
            );
            ("dirty-doubtful", command)
        }
        Remedy::DropDirty => {
            let command = format!(
                "restore what the reason names; else zcctl stop --keep-dirty, and start once with --drop-dirty {name} \
                 (its dirty data is lost)"
            );
            ("dirty-doubtful", command)
        }
        Remedy::ReadOnly => ("volume-refused", format!("zcctl volume set {name} mode=read-only; {retries}")),
        Remedy::CreateVolume => {
            ("origin-missing", format!("zcctl store create-volume STORE VOLUME SIZE; {retries}"))
        }
        Remedy::Extend => ("origin-missing", format!("truncate --size=SIZE its origin; {retries}")),
        Remedy::Permit => {
            let command = "let the daemon's user open its origin (chown, chmod; sandbox.paths names folders beside \
                those of the configuration)";
            ("origin-missing", format!("{command}; {retries}"))
        }
        Remedy::CheckServer => {
            ("origin-missing", format!("check the server or device behind its origin; {retries}"))
        }
        Remedy::RestoreOrigin => ("origin-missing", format!("restore its origin; {retries}")),
    }
}

/// A volume that no client can reach.
fn of_reach(name: &str, info: &VolumeInfo, look: &Look<'_>) -> Option<Reason> {
    let is_exported = look.listens && info.exported;
    let attaches = info.attaches && look.stats.uptime_ms < ATTACH_MS;
    if is_exported || info.device.is_some() || attaches {
        return None;
    }
    let (what, command) = if look.listens {
        (
            "no client can reach it: nbd.export is false, and it is no block device",
            format!("zcctl attach {name}; or zcctl volume set {name} nbd.export=true"),
        )
    } else {
        (
            "no client can reach it: the daemon listens nowhere, and it is no block device",
            format!(
                "zcctl attach {name}; or name a socket in nbd.listen or nbd.unix, and restart the daemon"
            ),
        )
    };
    Some(Reason {
        kind: "unreachable",
        level: Level::Degraded,
        volume: Some(name.to_owned()),
        store: None,
        what: what.to_owned(),
        follows: "it serves no client".to_owned(),
        command,
    })
}

/// An origin that currently refuses dirty data.
fn of_refusing(name: &str, info: &VolumeInfo, dirty: &Dirty) -> Option<Reason> {
    // `of_room` is more specific for an origin without space.
    let has_reason = dirty.fenced || dirty.no_space || dirty.stuck_bytes > 0;
    if !dirty.refusing || has_reason || info.origin_truncated_bytes.is_some() {
        return None;
    }
    let why = dirty.refused_error.map(|why| format!(" ({why})")).unwrap_or_default();
    let origin = info.origin.display();
    Some(Reason {
        kind: "origin-refused",
        level: Level::Degraded,
        volume: Some(name.to_owned()),
        store: None,
        what: format!("its origin refuses dirty data{why}"),
        follows: "the data stays on the cache and is retried; no request of a client fails for it".to_owned(),
        command: format!(
            "make {origin} writable: dmesg, and df if it is full; zcctl flush {name} retries at once"
        ),
    })
}

/// Returns the reason for an origin that does not answer.
fn of_outage(name: &str, info: &VolumeInfo, dirty: &Dirty, stats: &ShardStats) -> Option<Reason> {
    let (origin, remote) = (info.origin.display(), stats.remote.get(name));
    let late = stats.late.get(name).copied().unwrap_or_default();
    let (outage_ms, outage_max_ms, what, command) = match remote {
        Some(remote) => (
            remote.outage_ms?,
            remote.outage_max_ms,
            format!("its origin has been unreachable for {} s: {}", remote.outage_ms? / 1000, remote.why),
            format!("start the server of {origin}; the daemon connects by itself"),
        ),
        None => (
            late.outage_ms?,
            late.outage_max_ms,
            format!("its origin has not answered a request for {} s", late.outage_ms? / 1000),
            format!("find out why {origin} hangs: dmesg, smartctl, or the server of its file system"),
        ),
    };
    let fails = outage_max_ms.is_some_and(|most| outage_ms >= most);
    let waits = match outage_max_ms {
        None => "requests that need it wait; hits, and writes in write-back, continue".to_owned(),
        Some(_) if fails => "requests that need it fail until it is back".to_owned(),
        Some(most) => format!("requests that need it wait, and fail after {} s", most / 1000),
    };
    let dirty_bytes = match (dirty.bytes, stats.dirty_fill.left_ms(outage_ms)) {
        (0, _) => String::new(),
        (bytes, None) => format!("; {} of dirty data wait for it", ByteSize(bytes)),
        (bytes, Some(0)) => {
            format!("; {} of dirty data wait for it, and writes wait for space", ByteSize(bytes))
        }
        (bytes, Some(left_ms)) => format!(
            "; {} of dirty data wait for it, and at this rate writes wait for space in {} s",
            ByteSize(bytes),
            left_ms / 1000
        ),
    };
    Some(Reason {
        kind: "origin-unreachable",
        level: if fails { Level::Failed } else { Level::Degraded },
        volume: Some(name.to_owned()),
        store: None,
        what,
        follows: format!("{waits}{dirty_bytes}"),
        command,
    })
}

/// States that last.
fn of_volume(name: &str, info: &VolumeInfo, dirty: &Dirty, cache_healthy: bool) -> Option<Reason> {
    if dirty.fenced && cache_healthy {
        // Reattaching does not apply: a start found the journal corrupt, or the origin has changed.
        return Some(Reason {
            kind: "fenced",
            level: Level::Failed,
            volume: Some(name.to_owned()),
            store: None,
            what: "it is fenced: the cache's journal is damaged and may lack some of its dirty data, or its origin \
                has changed"
                .to_owned(),
            follows: "its requests fail; its dirty data is kept".to_owned(),
            command: format!(
                "if the undamaged cache and origin can come back: zcctl stop --keep-dirty, put them back, start; to \
                 continue with the recovered state: zcctl accept-loss {name} --yes"
            ),
        });
    }
    if dirty.fenced {
        return Some(Reason {
            kind: "fenced",
            level: Level::Failed,
            volume: Some(name.to_owned()),
            store: None,
            what: "it is fenced: its dirty data cannot be read now".to_owned(),
            follows: "its requests fail; its dirty data is kept".to_owned(),
            command: format!(
                "when the cache is back: zcctl reattach; to continue without it, and lose its dirty data: zcctl \
                 drop-dirty {name} --yes"
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
        follows: "if the cache is lost now, more data is lost than max_dirty_age allows".to_owned(),
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

/// Returns the reason for unreadable dirty data that was not overwritten.
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
        follows: "reads of them fail, and no later write reaches the origin".to_owned(),
        command: format!(
            "rewrite these bytes and flush: the rest then goes to the origin; to put zeros there instead: zcctl \
             drop-dirty {name} --unreadable --yes"
        ),
    })
}

/// Returns the reason for writes without space for dirty data: each affected volume is named.
fn of_room(name: &str, info: &VolumeInfo, dirty: &Dirty) -> Option<Reason> {
    let origin = info.origin.display();
    let of = |kind: &'static str, level, what: String, follows: &str, command: String| Reason {
        kind,
        level,
        volume: Some(name.to_owned()),
        store: None,
        what,
        follows: follows.to_owned(),
        command,
    };
    if dirty.no_space && !dirty.fenced {
        return Some(of(
            "origin-full",
            Level::Failed,
            format!(
                "its origin {origin} has no space for {} that the cache has of it",
                ByteSize(dirty.bytes)
            ),
            "acknowledged data is kept in the cache, reads continue; when its space in the cache is full, writes \
             fail with ENOSPC after full_wait",
            format!(
                "discard in the volume (fstrim), which goes to the origin at once, or make space under {origin}; it \
                 is retried automatically"
            ),
        ));
    }
    (dirty.waiting_ms > WAIT_MS && !dirty.fenced).then(|| {
        let (writes, seconds) = (dirty.waiting_writes, dirty.waiting_ms / 1000);
        of(
            "writes-wait",
            Level::Degraded,
            format!("{writes} writes wait for space for dirty data, the oldest for {seconds} s"),
            "they are as slow as its origin; other volumes have space of their own",
            format!("check {origin}: it is slow, or refuses writes; else use a larger cache"),
        )
    })
}

/// Returns the incidents of the last hour.
fn of_incidents(name: &str, info: &VolumeInfo, incidents: &Incidents, now_ms: u64) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut add = |kind: &'static str, what: String, follows: &str, command: String| {
        let (volume, follows) = (Some(name.to_owned()), follows.to_owned());
        reasons.push(Reason { kind, level: Level::Degraded, volume, store: None, what, follows, command });
    };
    let origin = info.origin.display();
    if let Some(count) = incidents.recent(IncidentKind::Unreadable, name, now_ms) {
        add(
            "dirty-unreadable",
            format!("dirty data could not be read from the cache {count} times, the last within the hour"),
            "reads of it fail, and it does not reach the origin",
            format!(
                "dmesg; to discard it: zcctl drop-dirty {name} --unreadable --yes; when it is repaired: zcctl clear \
                 {name}"
            ),
        );
    }
    if incidents.recent(IncidentKind::Dropped, name, now_ms).is_some() {
        add(
            "commits-dropped",
            "the last commits before the previous session ended are incomplete on the cache and do not count"
                .to_owned(),
            "the last writes may be missing; the next flush of surviving clients of that session fails",
            format!(
                "after a power cut without other faults nothing; else dmesg, and compare the volume with a backup; \
                 when it is repaired: zcctl clear {name}"
            ),
        );
    }
    if let Some(count) = incidents.recent(IncidentKind::OriginError, name, now_ms) {
        add(
            "origin-errors",
            format!("its origin failed {count} times, the last within the hour"),
            "requests that needed the origin got an error",
            format!("dmesg; check {origin}; when it works: zcctl clear {name}"),
        );
    }
    if let Some(why) = &info.cold_reason
        && incidents.recent(IncidentKind::Cold, name, now_ms).is_some()
    {
        add(
            "cold-start",
            format!("it started cold: {why}"),
            "reads go to the origin until the cache has filled",
            format!("zcctl clear {name}, if the reason was expected; else find what changed the origin"),
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
        follows: "the data is kept, and its space on the cache stays reserved".to_owned(),
        command: "add the volume to the configuration, then: systemctl restart zcached".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_engine::shard::stats::{DirtyFill, LateRequests, RemoteOrigin};

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
            exported: true,
            attaches: false,
            device: None,
        }
    }

    fn judged(stats: &ShardStats, info: &VolumeInfo, incidents: &mut Incidents) -> Verdict {
        let volumes = [("v".to_owned(), info.clone())];
        incidents.observe(stats, &volumes, &[]);
        let look = Look {
            stats,
            cache: "/dev/c".to_owned(),
            without_cache: false,
            volumes: &volumes,
            unserved: &[],
            absent: &[],
            stores: &[],
            shortfall: None,
            listens: true,
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
    fn an_outage_is_told_with_the_time_that_is_left() {
        let remote =
            RemoteOrigin { outage_ms: Some(60_000), why: "gone".to_owned(), ..RemoteOrigin::default() };
        let dirty = Dirty { bytes: 4096, ..Dirty::default() };
        let fill = DirtyFill { units: 10, units_max: 40, records: 1, records_max: 100 };
        let of = |remote: &RemoteOrigin, dirty_fill| {
            let stats = ShardStats {
                dirty_fill,
                remote: [("v".to_owned(), remote.clone())].into(),
                dirty: [("v".to_owned(), dirty)].into(),
                ..stats(1)
            };
            let verdict = judged(&stats, &info(), &mut Incidents::default());
            verdict.reasons.into_iter().find(|reason| reason.kind == "origin-unreachable")
        };
        let reason = of(&remote, fill).unwrap();
        assert_eq!(reason.level, Level::Degraded);
        assert!(reason.what.contains("for 60 s: gone"), "{reason:?}");
        assert!(reason.follows.contains("writes wait for space in 180 s"), "{reason:?}");
        let full = DirtyFill { records: 100, ..fill };
        assert!(of(&remote, full).unwrap().follows.ends_with("and writes wait for space"));
        assert!(of(&remote, DirtyFill::default()).unwrap().follows.ends_with("wait for it"));
        let bounded = RemoteOrigin { outage_max_ms: Some(60_000), ..remote };
        assert_eq!(of(&bounded, fill).unwrap().level, Level::Failed);
        assert_eq!(of(&RemoteOrigin::default(), fill), None);
    }

    #[test]
    fn a_local_origin_that_does_not_answer_is_told() {
        let of = |late: LateRequests| {
            let stats = ShardStats { late: [("v".to_owned(), late)].into(), ..stats(1) };
            let verdict = judged(&stats, &info(), &mut Incidents::default());
            verdict.reasons.into_iter().find(|reason| reason.kind == "origin-unreachable")
        };
        let late = LateRequests { outage_ms: Some(60_000), ..LateRequests::default() };
        let reason = of(late).unwrap();
        assert!(reason.level == Level::Degraded && reason.what.contains("not answered a request for 60 s"));
        assert_eq!(of(LateRequests { outage_max_ms: Some(60_000), ..late }).unwrap().level, Level::Failed);
        assert_eq!(of(LateRequests::default()), None);
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
    fn an_incident_that_was_seen_counts_again_when_it_happens_again() {
        let mut incidents = Incidents::default();
        assert_eq!(judged(&failed_hits(1_000, 2), &info(), &mut incidents).state, Level::Degraded);
        assert_eq!(incidents.clear(Some("v"), 1_001), 0, "it is the cache's");
        assert_eq!((incidents.clear(None, 1_001), incidents.clear(None, 1_001)), (1, 0));
        assert_eq!(judged(&failed_hits(1_002, 2), &info(), &mut incidents).state, Level::Healthy);
        assert_eq!(judged(&failed_hits(1_003, 3), &info(), &mut incidents).state, Level::Degraded);
    }

    #[test]
    fn an_origin_that_refuses_dirty_data_is_a_state_and_fails_no_request() {
        let mut incidents = Incidents::default();
        let dirty = Dirty {
            bytes: 1,
            refusing: true,
            refused: 7,
            refused_error: Some("no space (ENOSPC)"),
            ..Dirty::default()
        };
        let traffic = zc_engine::shard::metrics::Traffic { origin_errors: 7, ..Default::default() };
        let with = |dirty: Dirty, traffic| ShardStats {
            dirty: [("v".to_owned(), dirty)].into(),
            traffic: [("v".to_owned(), traffic)].into(),
            ..stats(5)
        };
        let verdict = judged(&with(dirty, traffic), &info(), &mut incidents);
        let kinds: Vec<_> = verdict.reasons.iter().map(|reason| reason.kind).collect();
        assert_eq!(kinds, ["origin-refused"], "{verdict:?}");
        assert!(verdict.reasons[0].what.contains("ENOSPC"), "{verdict:?}");
        let mended = Dirty { refusing: false, bytes: 0, ..dirty };
        assert_eq!(judged(&with(mended, traffic), &info(), &mut incidents).state, Level::Healthy);
        let failed = zc_engine::shard::metrics::Traffic { failed_by_device: 1, ..traffic };
        let verdict = judged(&with(mended, failed), &info(), &mut incidents);
        assert_eq!(verdict.reasons[0].kind, "origin-errors");
    }

    #[test]
    fn a_volume_that_no_client_can_reach_is_not_healthy() {
        let judged = |info: VolumeInfo, listens: bool, uptime_ms| {
            let (stats, volumes) = (stats(uptime_ms), [("v".to_owned(), info)]);
            let look = Look {
                stats: &stats,
                cache: "/dev/c".to_owned(),
                without_cache: false,
                volumes: &volumes,
                unserved: &[],
                absent: &[],
                stores: &[],
                shortfall: None,
                listens,
            };
            Verdict::of(&look, &Incidents::default()).reasons.first().map(|reason| reason.kind)
        };
        assert_eq!(judged(info(), true, 1), None);
        assert_eq!(judged(info(), false, 1), Some("unreachable"));
        assert_eq!(judged(VolumeInfo { exported: false, ..info() }, true, 1), Some("unreachable"));
        let attached = VolumeInfo { device: Some("/dev/ublkb0".to_owned()), ..info() };
        assert_eq!(judged(attached, false, 1), None);
        let attaches = VolumeInfo { attaches: true, ..info() };
        assert_eq!(judged(attaches.clone(), false, 1), None);
        assert_eq!(judged(attaches, false, ATTACH_MS), Some("unreachable"), "it was not attached");
    }

    #[test]
    fn the_remedy_of_an_absent_volume_follows_from_its_error() {
        use std::io;
        use zc_engine::error::EngineError;
        use zc_engine::error::refusal::Refusal;
        let (volume, cache, origin) =
            ("v".to_owned(), std::path::PathBuf::from("/c"), std::path::PathBuf::from("/o"));
        let what = "x".to_owned();
        let doubt = Refusal::DirtyInDoubt {
            volume: volume.clone(),
            cache: cache.clone(),
            origin: origin.clone(),
            what: what.clone(),
        };
        let elsewhere =
            Refusal::DirtyElsewhere { volume: volume.clone(), cache: what.clone(), what: what.clone() };
        let without = Refusal::DirtyWithoutCache {
            why: what.clone(),
            refusal: Box::new(EngineError::refused(elsewhere)),
        };
        let not_here = Refusal::DirtyNotHere { volume: volume.clone(), cache: cache.clone() };
        let read_only = Refusal::DirtyReadOnly { volume: volume.clone(), cache };
        let snapshot = Refusal::Snapshot { store: "s".to_owned(), volume: volume.clone() };
        let none = Refusal::NoStoreVolume { store: "s".to_owned(), volume: volume.clone() };
        let empty = Refusal::EmptyOrigin { volume: volume.clone(), origin: origin.clone() };
        let far = Refusal::RemoteOrigin { origin: what.clone(), why: what };
        let gone = Refusal::OriginGone { volume, origin };
        let refusals = [
            (doubt, "dirty-doubtful", "--trust-dirty v"),
            (without, "dirty-doubtful", "--drop-dirty v"),
            (not_here, "dirty-doubtful", "--drop-dirty v"),
            (read_only, "dirty-doubtful", "mode=write-through"),
            (snapshot, "volume-refused", "mode=read-only"),
            (none, "origin-missing", "create-volume"),
            (empty, "origin-missing", "truncate"),
            (far, "origin-missing", "server"),
            (gone, "origin-missing", "restore its origin"),
        ];
        let refusals = refusals.map(|(refusal, kind, words)| (EngineError::refused(refusal), kind, words));
        let failed = |errno| EngineError::io("cannot open /o", io::Error::from_raw_os_error(errno));
        let (eperm, enoent, eacces) = (1, 2, 13);
        let others = [
            (failed(eacces), "origin-missing", "chmod"),
            (failed(eperm), "origin-missing", "chmod"),
            (failed(enoent), "origin-missing", "restore its origin"),
            (EngineError::NoAnswer { place: "/o".to_owned() }, "origin-missing", "server"),
        ];
        for (error, kind, words) in refusals.into_iter().chain(others) {
            let (found, command) = remedy("v", Remedy::of(&error));
            assert!(found == kind && command.contains(words), "{error}: {found}, {command}");
        }
    }

    /// Every kind of reason, by the text of this file.
    fn kinds() -> Vec<&'static str> {
        let code = include_str!("verdict.rs").split("mod tests").next().unwrap();
        let quoted = code.split('"').skip(1).step_by(2);
        let is_kind = |text: &&str| {
            let is_word = text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            is_word && text.len() < 25 && text.contains('-') && !text.starts_with('-')
        };
        let mut kinds: Vec<_> = quoted.filter(is_kind).chain(["fenced", "unreachable"]).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    #[test]
    fn book_and_help_name_every_kind_of_reason() {
        let book = include_str!("../../../../docs/src/operations.md");
        let help = include_str!("../../../../bin/zcctl/src/cli.rs");
        let kinds = kinds();
        assert!(kinds.len() > 15 && kinds.contains(&"origin-truncated"), "{kinds:?}");
        for kind in kinds {
            assert!(book.contains(&format!("`{kind}`")), "{kind} is not in the book's list of events");
            assert!(help.contains(kind), "{kind} is not in the help of zcctl events");
        }
    }

    #[test]
    fn a_store_that_is_short_of_space_or_failed_is_told() {
        let look = |state| StoreLook {
            name: "tank".to_owned(),
            path: "/dev/t".into(),
            state,
            torn: false,
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
        let torn = StoreLook { torn: true, ..look(PoolState::Ok) };
        assert_eq!(of_store(&torn), None);
        assert!(of_torn_store(&torn).command.contains("zcctl clear"));
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
        let waits = |waiting_ms| Dirty { waiting_writes: 3, waiting_ms, ..old(1) };
        assert_eq!(state(&with(waits(5_000), true), &mut incidents).state, Level::Healthy);
        let waiting = state(&with(waits(24_000), true), &mut incidents);
        assert!(
            waiting.state == Level::Degraded && waiting.reasons[0].what.contains("the oldest for 24 s"),
            "{waiting:?}"
        );
        let full = state(&with(Dirty { no_space: true, ..waits(24_000) }, true), &mut incidents);
        assert_eq!((full.state, full.reasons.len(), full.reasons[0].kind), (Level::Failed, 1, "origin-full"));
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
