//! Volumes as the data plane sees them, the limits that their requests wait for, and the taps of those that are recorded.
//!
//! Job: hold each volume; ask its `Throttle` for each request of its clients, keep what may not begin, and say how long
//! the data plane may sleep until it may; put taps in and out, and show them what the manager is asked.
//!
//! Invariants: other volumes than the one at its limits do not wait. An origin that was withdrawn gets no request any
//! more.
//!
//! Out of scope: the limits (`throttle`), begin what may go on (`clients`), note or pass on what a tap is shown
//! (`record`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_config::VolumeLimits;
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
    /// That of a connection, which keeps it.
    Conn(u64),
    /// That of a block device, with the bytes of a write.
    Device { tag: Tag, request: DeviceRequest, memory: Option<AlignedBuf> },
}

/// A volume as the data plane sees it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) locks: RangeLocks,
    /// Zeros are written fast.
    pub(crate) zeroes_fast: bool,
    /// Times that its dirty data could not be read from the cache device, and that the origin refused it.
    pub(crate) unreadable: u64,
    /// Starts that found commits of it which do not count though clients may have been answered.
    pub(crate) dropped_commits: u64,
    pub(crate) refused: u64,
    /// What the origin said when it refused dirty data last.
    pub(crate) refused_error: Option<&'static str>,
    /// Its origin was truncated and gets no request any more.
    pub(crate) is_withdrawn: bool,
    /// At the end of the last turn clients had yet to be told of a loss.
    pub(crate) owed_loss: bool,
    /// What clients asked of it.
    pub(crate) traffic: Traffic,
    /// How long that took. In a box: volumes are moved.
    pub(crate) durations: Box<Durations>,
    /// What the manager was told last.
    pub(crate) config: VolumeConfig,
    /// What clients may ask for, and what waits for it.
    throttle: Box<Throttle<Throttled>>,
    /// Where its requests are noted, if it is recorded.
    tap: Option<Box<Tap>>,
}

impl Volume {
    /// A volume that no request has come for yet. Finds out whether its origin makes zeros without writing them: blocks.
    pub(crate) fn new(name: String, origin: Origin, config: VolumeConfig, limits: VolumeLimits) -> Self {
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
            config,
            throttle: Box::new(Throttle::new(limits.of_clients(), 0)),
            tap: None,
        }
    }

    /// Where its requests are noted, if it is recorded.
    pub(crate) fn tap(&mut self) -> Option<&mut Tap> {
        self.tap.as_deref_mut()
    }
}

/// The volumes that are served.
#[derive(Debug)]
pub(crate) struct Volumes {
    table: Map<VolumeId, Volume>,
    /// Volumes of which requests wait for their limits.
    throttled: BTreeSet<VolumeId>,
    /// Volumes that are recorded.
    taps: usize,
}

impl Volumes {
    /// These.
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

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (VolumeId, &Volume)> {
        self.table.iter().map(|(id, volume)| (*id, volume))
    }

    /// All of them.
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

/// Limits.
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

    /// How long the data plane may sleep before the next of those that wait may begin.
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

    /// Other limits hold.
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

    /// How requests waited, by volume.
    pub(crate) fn waits(&self) -> BTreeMap<String, Waits> {
        let of = |volume: &Volume| (volume.name.clone(), volume.throttle.waits());
        self.table.values().map(of).collect()
    }
}

/// Recordings.
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

    /// Once a tick: what is there goes on, so that a recording is never far behind. Taps without a listener go.
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

    /// There is another manager: it has to tell what the old one did.
    pub(crate) fn tell_contents_again(&self, manager: &mut CacheManager) {
        for (id, volume) in &self.table {
            manager.tell_contents(*id, volume.tap.is_some());
        }
    }
}
