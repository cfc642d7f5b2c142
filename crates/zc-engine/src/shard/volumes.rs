//! Volumes of the data plane, with the limits of their requests, and the taps of recorded ones.
//!
//! Job: hold each volume; submit each client request to its `Throttle`, keep delayed ones, and return the time until
//! the next may start; add and remove taps, and pass them the requests to the manager.
//!
//! Invariants: a volume at its limits does not delay others. A withdrawn origin receives no further requests.
//!
//! Out of scope: the limits (`throttle`), starting admitted requests (`clients`), recording a tap's notes (`record`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_config::{OriginReach, VolumeLimits};
use zc_core::{Map, VolumeId};
use zc_io::{AlignedBuf, SharedFd};
use zc_ublk::Request as DeviceRequest;

use crate::clock::Clock;
use crate::front::locks::RangeLocks;
use crate::front::throttle::{Cost, Throttle, Waits};
use crate::origin::Origin;
use crate::origin::map::punches_holes;
use crate::record::Tap;
use crate::shard::metrics::{Durations, Traffic};
use crate::shard::pending::Tag;

/// A request that waits for the limits of its volume.
#[derive(Debug)]
pub(crate) enum Throttled {
    /// Request of a connection, which holds it.
    Conn(u64),
    /// Request of a block device, with the bytes of a write.
    Device { tag: Tag, request: DeviceRequest, memory: Option<AlignedBuf> },
}

/// A volume as the data plane sees it.
#[derive(Debug)]
pub struct Volume {
    /// Its name.
    pub name: String,
    pub(crate) origin: Origin,
    pub(crate) locks: RangeLocks,
    pub(crate) zeroes_fast: bool,
    /// Times that its dirty data could not be read from the cache device, and that the origin refused it.
    pub(crate) unreadable: u64,
    /// Starts that found commits of it which do not count though clients may have been answered.
    pub(crate) dropped_commits: u64,
    pub(crate) refused: u64,
    /// Error with which the origin last refused dirty data.
    pub(crate) refused_error: Option<&'static str>,
    /// Its origin was truncated and gets no request any more.
    pub(crate) is_withdrawn: bool,
    /// `true` if clients had a pending notification of a loss at the end of the last turn.
    pub(crate) owed_loss: bool,
    /// Requests of clients.
    pub(crate) traffic: Traffic,
    /// Their durations. Boxed, because volumes are moved.
    pub(crate) durations: Box<Durations>,
    /// Time limits of its origin.
    pub(crate) reach: OriginReach,
    /// Configuration that the manager received last.
    pub config: VolumeConfig,
    /// Limits of clients, with waiting requests.
    throttle: Box<Throttle<Throttled>>,
    /// Tap that records its requests, if any.
    tap: Option<Box<Tap>>,
}

impl Volume {
    /// Creates a volume without requests. Tests whether its origin zeroes without writing, which blocks.
    pub fn new(
        name: String,
        origin: Origin,
        config: VolumeConfig,
        (limits, reach): (VolumeLimits, OriginReach),
    ) -> Self {
        let is_writable = origin.is_writable();
        let punches = |fd: &SharedFd| punches_holes(&**fd, is_writable);
        let zeroes_fast = origin.fd().map_or_else(|| origin.can_punch(), punches);
        Self {
            name,
            origin,
            locks: RangeLocks::default(),
            zeroes_fast,
            unreadable: 0,
            dropped_commits: 0,
            refused: 0,
            refused_error: None,
            is_withdrawn: false,
            owed_loss: false,
            traffic: Traffic::default(),
            durations: Box::default(),
            reach,
            config,
            throttle: Box::new(Throttle::new(limits.of_clients(), 0)),
            tap: None,
        }
    }

    /// Returns the tap that records its requests, if any.
    pub(crate) fn tap(&mut self) -> Option<&mut Tap> {
        self.tap.as_deref_mut()
    }
}

#[derive(Debug)]
pub(crate) struct Volumes {
    table: Map<VolumeId, Volume>,
    /// Volumes of which requests wait for their limits.
    throttled: BTreeSet<VolumeId>,
    taps: usize,
}

impl Volumes {
    pub(crate) fn new(volumes: Vec<(VolumeId, Volume)>) -> Self {
        Self { table: volumes.into_iter().collect(), throttled: BTreeSet::new(), taps: 0 }
    }

    /// A volume, if it is served.
    pub(crate) fn get(&self, id: VolumeId) -> Option<&Volume> {
        self.table.get(&id)
    }

    /// A volume, if it is served.
    pub(crate) fn get_mut(&mut self, id: VolumeId) -> Option<&mut Volume> {
        self.table.get_mut(&id)
    }

    /// A volume that is in use, and so has to be there.
    pub(crate) fn used(&mut self, id: VolumeId) -> &mut Volume {
        let Some(volume) = self.table.get_mut(&id) else { panic!("{id:?} is used but unknown") };
        volume
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (VolumeId, &Volume)> {
        self.table.iter().map(|(id, volume)| (*id, volume))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (VolumeId, &mut Volume)> {
        self.table.iter_mut().map(|(id, volume)| (*id, volume))
    }

    /// Serves another one.
    pub(crate) fn insert(&mut self, id: VolumeId, volume: Volume) {
        self.table.insert(id, volume);
    }

    /// Serves one no more, and records it no more.
    pub(crate) fn remove(&mut self, id: VolumeId) -> Option<Volume> {
        self.table.remove(&id)
    }
}

impl Volumes {
    /// The request, if it does not have to wait for the limits of its volume.
    pub(crate) fn passes(
        &mut self,
        id: VolumeId,
        waiting: Throttled,
        cost: Option<Cost>,
        clock: &Clock,
    ) -> Option<Throttled> {
        let throttle = &mut self.used(id).throttle;
        let Some(cost) = cost.filter(|_| !throttle.is_off()) else { return Some(waiting) };
        let passed = throttle.ask(waiting, cost, clock.now_ns());
        if passed.is_none() {
            self.throttled.insert(id);
        }
        passed
    }

    /// The volumes of which requests wait for their limits.
    pub(crate) const fn throttled(&self) -> &BTreeSet<VolumeId> {
        &self.throttled
    }

    /// The next request of a volume that waited and may begin now. When there is none, and none waits any more, the
    /// volume is not a throttled one.
    pub(crate) fn next_to_go_on(&mut self, id: VolumeId, now_ns: u64) -> Option<Throttled> {
        let throttle = self.table.get_mut(&id).map(|volume| &mut volume.throttle);
        let (next, are_waiting) = throttle.map_or((None, false), |throttle| {
            let next = throttle.next(now_ns);
            (next, throttle.are_waiting())
        });
        if next.is_none() && !are_waiting {
            self.throttled.remove(&id);
        }
        next
    }

    /// Returns the time that the data plane may sleep before the next waiting request may start.
    pub(crate) fn throttled_for(&mut self, clock: &Clock) -> Option<Duration> {
        if self.throttled.is_empty() {
            return None;
        }
        let now_ns = clock.now_ns();
        let due_ns = self.throttled.iter().filter_map(|id| self.table.get_mut(id)?.throttle.due_ns(now_ns));
        due_ns.min().map(Duration::from_nanos)
    }

    /// A connection's request will not be served.
    pub(crate) fn withdraw_conn(&mut self, id: VolumeId, conn: u64, clock: &Clock) {
        if self.throttled.contains(&id) {
            let is_own = |waiting: &Throttled| matches!(waiting, Throttled::Conn(of) if *of == conn);
            self.used(id).throttle.take_out(is_own, clock.now_ns());
        }
    }

    /// The kernel takes a device away: its requests, which wait no more.
    pub(crate) fn withdraw_device(&mut self, id: VolumeId, device: u32, clock: &Clock) -> Vec<Throttled> {
        let is_own =
            |waiting: &Throttled| matches!(waiting, Throttled::Device { tag, .. } if tag.is_of(device));
        self.used(id).throttle.take_out(is_own, clock.now_ns())
    }

    pub(crate) fn set_limits(&mut self, limits: Vec<(VolumeId, VolumeLimits)>, now_ns: u64) {
        for (id, limits) in limits {
            if let Some(volume) = self.table.get_mut(&id) {
                volume.throttle.set(limits.of_clients(), now_ns);
            }
        }
    }

    /// No limit holds any more.
    pub(crate) fn lift_limits(&mut self, now_ns: u64) {
        for volume in self.table.values_mut() {
            volume.throttle.set(VolumeLimits::default(), now_ns);
        }
    }

    pub(crate) fn waits(&self) -> BTreeMap<String, Waits> {
        let of = |volume: &Volume| (volume.name.clone(), volume.throttle.waits());
        self.table.values().map(of).collect()
    }
}

impl Volumes {
    /// Begins to record a volume, or ends it. Whoever recorded it before gets the rest and the end.
    pub(crate) fn set_tap(
        &mut self,
        id: VolumeId,
        tap: Option<Box<Tap>>,
        manager: &mut CacheManager,
        clock: &Clock,
    ) {
        let Some(volume) = self.table.get_mut(&id) else { return };
        volume.tap = tap;
        if let Some(tap) = &mut volume.tap {
            tap.began_ns = Some(clock.now_ns());
        }
        manager.tell_contents(id, volume.tap.is_some());
        self.taps = self.table.values().filter(|volume| volume.tap.is_some()).count();
    }

    /// An event goes to the manager. Requests are recorded here, in the order in which it sees them.
    pub(crate) fn note_request(&mut self, event: &Event, clock: &Clock) {
        let Event::Submit(request) = event else { return };
        if self.taps == 0 {
            return;
        }
        if let Some(tap) = self.table.get_mut(&request.volume).and_then(Volume::tap) {
            tap.asked(request, clock.now_ns());
        }
    }

    /// Once a tick: passes notes on, so that a recording is never far behind. Taps without a listener are removed.
    pub(crate) fn hand_over_taps(&mut self, manager: &mut CacheManager, clock: &Clock) {
        if self.taps == 0 {
            return;
        }
        let mut over = Vec::new();
        for (id, volume) in &mut self.table {
            if let Some(tap) = &mut volume.tap {
                tap.hand_over();
                if tap.is_over() {
                    over.push(*id);
                }
            }
        }
        for id in over {
            self.set_tap(id, None, manager, clock);
        }
    }

    /// Instructs a new manager to report contents like the old one.
    pub(crate) fn tell_contents_again(&self, manager: &mut CacheManager) {
        for (id, volume) in &self.table {
            manager.tell_contents(*id, volume.tap.is_some());
        }
    }
}
