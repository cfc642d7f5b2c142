//! Numbers of a running engine, for `stats` and `status`.

use std::collections::BTreeMap;

use serde::Serialize;

use zc_cache::origin_deadlines::{OriginDeadlines, OriginWait};
use zc_cache::{CacheManager, NoFigure, VolumePins, VolumeShare};
use zc_core::VolumeId;

use crate::front::throttle::Waits;
use crate::origin::Origin;
use crate::origin::remote::RemoteState;
use crate::shard::metrics::{Durations, Latencies, Traffic};
use crate::shard::origin_limits::OriginLimits;
use crate::shard::volumes::{Volume, Volumes};
use crate::shard::warm::WarmUp;

/// Counters and gauges of a shard. Sizes are in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ShardStats {
    /// Milliseconds since the daemon began to start.
    pub uptime_ms: u64,
    /// Milliseconds from the start to the complete index; absent until then.
    pub index_loaded_ms: Option<u64>,
    /// Bytes of superblock, checkpoint and journal read at the start.
    pub restart_bytes_read: u64,
    /// The cache device works.
    pub cache_healthy: bool,
    /// Its fault, if it has failed.
    pub cache_fault: Option<String>,
    /// Reason for a missing intent log: a start after a kill is then like one after a power failure.
    pub intent_fault: Option<String>,
    /// Every counter of the cache manager by its name.
    pub manager: BTreeMap<&'static str, u64>,
    /// Basis of the hit ratio.
    pub extents: Extents,
    /// Estimated hit ratios of caches of other sizes.
    pub curve: Curve,
    /// RAM of the manager's growing structures.
    pub ram_bytes: BTreeMap<&'static str, u64>,
    /// The daemon is ending.
    pub stopping: bool,
    /// Write-evict units on the cache device, and the most there may be.
    pub slots: [u64; 2],
    /// Requests of clients, by volume.
    pub traffic: BTreeMap<String, Traffic>,
    /// Waits of requests for the limits of their volume, by volume.
    pub limits: BTreeMap<String, Waits>,
    /// Waits of origin requests for the limits of the origin, by volume; of volumes with such limits.
    pub origin_limits: BTreeMap<String, Waits>,
    /// Dirty data of all volumes against its bounds: units, records, and the most of both.
    pub dirty_fill: DirtyFill,
    /// Connections of remote origins, by volume.
    pub remote: BTreeMap<String, RemoteOrigin>,
    /// Late requests of other origins, by volume.
    pub late: BTreeMap<String, LateRequests>,
    /// Cache shares of volumes with a quota, a reserve or a priority, by volume.
    pub shares: BTreeMap<String, Share>,
    /// Pins of volumes, by volume.
    pub pins: BTreeMap<String, Pins>,
    /// Dirty data, by volume.
    pub dirty: BTreeMap<String, Dirty>,
    /// Progress of the last warm-up, by volume; of volumes that had one.
    pub warm: BTreeMap<String, WarmUp>,
    /// Regions marked active now, and the most there may be: their contents are distrusted after a power cut.
    pub regions_active: [u64; 2],
    /// Latencies per path.
    pub latency: Latencies,
    /// Latencies by volume and path, for Prometheus alone.
    #[serde(skip)]
    pub durations: BTreeMap<String, Durations>,
    /// Counters of the driver.
    pub driver: Driver,
}

/// Usage of the capacity for dirty data. Writes wait when one of the two bounds is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DirtyFill {
    /// Units with dirty data.
    pub units: u64,
    /// The most there may be.
    pub units_max: u64,
    /// Records of dirty data.
    pub records: u64,
    /// The most there may be.
    pub records_max: u64,
}

impl DirtyFill {
    pub(crate) const fn of(fill: zc_cache::DirtyFill) -> Self {
        let zc_cache::DirtyFill { units, units_max, records, records_max } = fill;
        Self { units, units_max, records, records_max }
    }

    /// Returns the time until writes wait if the capacity continues to fill at the average rate of the past
    /// `passed_ms`, assuming it was empty at first. `None`: it is not filling.
    pub fn left_ms(&self, passed_ms: u64) -> Option<u64> {
        let left = |held: u64, most: u64| {
            let missing = u128::from(most.saturating_sub(held));
            let ms = missing.checked_mul(passed_ms.into())?.checked_div(held.into())?;
            Some(u64::try_from(ms).unwrap_or(u64::MAX))
        };
        [left(self.units, self.units_max), left(self.records, self.records_max)].into_iter().flatten().min()
    }
}

/// Connection of an origin that is an NBD export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RemoteOrigin {
    /// `true` while requests are executed.
    pub connected: bool,
    /// Connections that carry them out.
    pub connections: u64,
    /// Duration of the outage so far; absent if there is none.
    pub outage_ms: Option<u64>,
    /// Requests fail when an outage has lasted this long; absent if they wait.
    pub outage_max_ms: Option<u64>,
    /// Reason of the outage.
    pub why: String,
    /// Memory of changes that are written again after a reconnect.
    pub owed_bytes: u64,
    /// Requests without an answer.
    pub waiting: u64,
    /// Connections that served requests after the first one.
    pub reconnects: u64,
    /// Bytes written again after a reconnect.
    pub replayed_bytes: u64,
    /// Requests that failed because an outage lasted too long.
    pub expired: u64,
    /// Bytes of reads that crossed no network, because the server had reported zeros there.
    pub hole_bytes: u64,
}

/// Requests that an origin on this machine has not answered in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LateRequests {
    /// Age of the oldest late request; absent if none is late.
    pub outage_ms: Option<u64>,
    /// Requests fail at this age; absent if they wait.
    pub outage_max_ms: Option<u64>,
    /// Late requests without an answer, failed ones included.
    pub waiting: u64,
    /// Requests that became late.
    pub late: u64,
    /// Requests that failed because they were too late.
    pub expired: u64,
}

/// Extents that reads requested, in parts: the basis of the hit ratio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Extents {
    /// All of them.
    pub read: u64,
    /// Extents that came without the origin. Their share is the hit ratio.
    pub hits: u64,
    /// Prefetched extents: the origin was read before they were requested.
    pub read_ahead: u64,
}

/// Hit ratios of caches of other sizes in the reads of late: the cache's own, scaled by a sample of these reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Curve {
    /// Reads of extents in the sample; older ones count for less.
    pub reads: u64,
    /// Sizes and their hit ratios, the smallest first. None before the first read.
    pub points: Vec<CurvePoint>,
    /// The hit ratio of the cache as it is, if read misses entered at their second time; absent if it is not known.
    pub second_touch_hit_ratio: Option<f64>,
    /// Volumes with `admission = "auto"` admit read misses at their second time now.
    pub second_touch: bool,
}

/// A point of a [`Curve`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Size relative to the cache.
    pub size: f64,
    /// Hit ratio, 0 to 1; absent if it is not known.
    pub hit_ratio: Option<f64>,
    /// Reason for which it is not known.
    pub missing: Option<&'static str>,
}

impl Curve {
    /// The manager's curve.
    pub(crate) fn of(seen: &zc_cache::Curve) -> Self {
        let point = |(size, hit_ratio): (f64, Result<f64, NoFigure>)| CurvePoint {
            size,
            hit_ratio: hit_ratio.ok(),
            missing: hit_ratio.err().map(NoFigure::words),
        };
        Self {
            reads: seen.reads,
            points: seen.points().map(point).collect(),
            second_touch_hit_ratio: seen.second_touch_hit_ratio.ok(),
            second_touch: seen.second_touch,
        }
    }
}

/// A volume's part of the cache, in bytes of write-evict units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Units that hold its clean content.
    pub held_bytes: u64,
    /// The most that this may be; absent without a quota.
    pub quota_bytes: Option<u64>,
    /// Capacity that content of other volumes leaves to it.
    pub reserve_bytes: u64,
    /// The order in which volumes lose content: `low` first, then `normal`, then `high`.
    pub priority: &'static str,
}

/// Pinned bytes of a volume, in whole extents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pins {
    /// All that its settings name.
    pub pinned_bytes: u64,
    /// Part that fits the cache.
    pub kept_bytes: u64,
    /// Part that was cached at the last check.
    pub cached_bytes: u64,
}

/// Dirty data of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Dirty {
    /// Bytes, older versions that are still dirty included.
    pub bytes: u64,
    /// Extents concerned.
    pub extents: u64,
    /// Epochs that are not on the origin.
    pub epochs: u64,
    /// The recovery point: how long ago the oldest of them began, in milliseconds.
    pub oldest_age_ms: u64,
    /// The newest epoch.
    pub newest_epoch: u64,
    /// Newest epoch with dirty data. Present dirty data is on the origin once `clean_epoch` reaches it.
    pub dirty_epoch: u64,
    /// The newest epoch that is on the origin with all before it.
    pub clean_epoch: u64,
    /// Dirty bytes destaged since the manager has the volume.
    pub destaged_bytes: u64,
    /// `true` while dirty data is destaged without a pause.
    pub draining: bool,
    /// `true` while requests fail because dirty data is unreachable.
    pub fenced: bool,
    /// Writes that wait for space for dirty data.
    pub waiting_writes: u64,
    /// Wait of the oldest of them, in milliseconds.
    pub waiting_ms: u64,
    /// The origin has no space for it.
    pub no_space: bool,
    /// Offset of unreadable dirty data that was not overwritten: later writes do not reach the origin.
    pub stuck_offset_bytes: u64,
    /// Length of that piece; 0: there is none.
    pub stuck_bytes: u64,
    /// Known unreadable bytes of dirty data.
    pub unreadable_bytes: u64,
    /// Times that some of it could not be read back from the cache device.
    pub unreadable: u64,
    /// 1 if this start found commits that do not count though clients may have been answered.
    pub dropped_commits: u64,
    /// Times that the origin refused it; it is tried again.
    pub refused: u64,
    /// The origin refused the last attempt.
    pub refusing: bool,
    /// The last commit is durable, and its proof is not yet: a start could take damage to it for a write cut off.
    pub unproved: bool,
    /// The error of that refusal.
    pub refused_error: Option<&'static str>,
}

/// Counters of the driver.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Driver {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections refused at the bound.
    pub connections_refused: u64,
    /// Connections closed before they chose an export, in favour of others.
    pub connections_displaced: u64,
    /// Failed attempts to accept a connection.
    pub accept_errors: u64,
    /// Connections closed because the client violated the protocol or stalled.
    pub connections_broken: u64,
    /// Requests being worked on.
    pub requests_in_flight: u64,
    /// Memory of payloads in flight.
    pub payload_bytes: u64,
    /// Memory of replies that clients have not taken.
    pub unsent_bytes: u64,
    /// Times a connection had to wait for payload memory.
    pub payload_stalls: u64,
    /// Errors of origins.
    pub origin_errors: u64,
    /// Errors of the cache device.
    pub device_errors: u64,
    /// Jobs waiting for reduce workers.
    pub reduce_jobs_waiting: u64,
    /// Jobs that the data plane ran because the queues were full.
    pub reduce_jobs_inline: u64,
    /// Waits of the data plane that completed while polling (`poll_max`).
    pub waits_met: u64,
    /// Waits of the data plane that ended in sleep.
    pub waits_slept: u64,
    /// Microseconds it spent looking.
    pub looked_us: u64,
    /// Acquisitions of the shard lock by I/O threads.
    pub turns: u64,
    /// Microseconds that these took: one thread at a time has a turn.
    pub turns_us: u64,
    /// Microseconds that I/O threads waited for another's turn to end.
    pub turns_waited_us: u64,
    /// Buffers in use.
    pub buffers: u64,
}

/// The connections of the volumes whose origins are NBD exports.
pub(crate) fn remote_by_volume(volumes: &Volumes) -> BTreeMap<String, RemoteOrigin> {
    let of = |(_, volume): (VolumeId, &Volume)| {
        let Origin::Remote(remote) = &volume.origin else { return None };
        let RemoteState { snapshot, outage_ms } = remote.state();
        let made = RemoteOrigin {
            connected: snapshot.is_up,
            connections: snapshot.connections,
            outage_ms,
            outage_max_ms: volume.reach.remote_bound_ms(volume.config.mode),
            why: snapshot.why,
            owed_bytes: snapshot.owed_bytes,
            waiting: snapshot.waiting,
            reconnects: snapshot.reconnects,
            replayed_bytes: snapshot.replayed_bytes,
            expired: snapshot.expired,
            hole_bytes: snapshot.hole_bytes,
        };
        Some((volume.name.clone(), made))
    };
    volumes.iter().filter_map(of).collect()
}

/// Returns the late requests of the volumes whose origins are on this machine.
pub(crate) fn late_by_volume(
    volumes: &Volumes,
    deadlines: &OriginDeadlines,
) -> BTreeMap<String, LateRequests> {
    let of = |(id, volume): (VolumeId, &Volume)| {
        let OriginWait { outage_ms, late, expired, late_total } = deadlines.state(id);
        let outage_max_ms = deadlines.patience(id).fail_ms;
        let made = LateRequests { outage_ms, outage_max_ms, waiting: late, late: late_total, expired };
        (!matches!(volume.origin, Origin::Remote(_))).then(|| (volume.name.clone(), made))
    };
    volumes.iter().filter_map(of).collect()
}

/// The shares of the volumes that have one of their own.
pub(crate) fn shares_by_volume(volumes: &Volumes, manager: &CacheManager) -> BTreeMap<String, Share> {
    let of = |share: VolumeShare| {
        let bytes = |units: u32| u64::from(units) * u64::from(share.unit_bytes);
        let made = Share {
            held_bytes: bytes(share.units),
            quota_bytes: share.quota.map(bytes),
            reserve_bytes: bytes(share.reserve),
            priority: share.priority.word(),
        };
        let (_, volume) = volumes.iter().find(|(id, _)| *id == share.volume)?;
        Some((volume.name.clone(), made))
    };
    manager.shares().into_iter().filter_map(of).collect()
}

/// Returns the waits of origin requests for their limits.
pub(crate) fn origin_waits(volumes: &Volumes, limits: &OriginLimits) -> BTreeMap<String, Waits> {
    let of = |(id, waits)| Some((volumes.get(id)?.name.clone(), waits));
    limits.waits().filter_map(of).collect()
}

/// Returns the pins of volumes.
pub(crate) fn pins_by_volume(volumes: &Volumes, manager: &CacheManager) -> BTreeMap<String, Pins> {
    let of = |pins: VolumePins| {
        let made = Pins {
            pinned_bytes: pins.asked_bytes,
            kept_bytes: pins.kept_bytes,
            cached_bytes: pins.safe_bytes,
        };
        let (_, volume) = volumes.iter().find(|(id, _)| *id == pins.volume)?;
        Some((volume.name.clone(), made))
    };
    manager.pins().into_iter().filter_map(of).collect()
}

/// The dirty data of each volume that has a state of it.
pub(crate) fn dirty_by_volume(volumes: &Volumes, manager: &CacheManager) -> BTreeMap<String, Dirty> {
    let of = |(id, volume): (VolumeId, &Volume)| {
        let state = manager.dirty(id)?;
        let dirty = Dirty {
            bytes: state.bytes,
            extents: state.extents,
            epochs: state.epochs,
            oldest_age_ms: state.oldest_age_ms,
            newest_epoch: state.newest_epoch,
            dirty_epoch: state.dirty_epoch,
            clean_epoch: state.clean_epoch,
            destaged_bytes: state.destaged_bytes,
            draining: state.draining,
            fenced: state.fenced,
            waiting_writes: state.waiting,
            waiting_ms: state.waiting_ms,
            no_space: state.no_space,
            stuck_offset_bytes: state.stuck_offset_bytes,
            stuck_bytes: state.stuck_bytes,
            unreadable_bytes: state.unreadable_bytes,
            unreadable: volume.unreadable,
            dropped_commits: volume.dropped_commits,
            refused: volume.refused,
            refusing: state.refusing,
            unproved: state.unproved,
            refused_error: volume.refused_error,
        };
        Some((volume.name.clone(), dirty))
    };
    volumes.iter().filter_map(of).collect()
}
