//! Volumes with a dirty layer, divided into those with pending work and those without.
//!
//! Separates the volumes that the manager checks after every event (*awake*) from those that need no check until an
//! event concerns them or a time is reached (*asleep*). A thousand idle volumes then cost nothing per event.
//!
//! Invariants: every volume is awake or asleep; a method that may change one wakes it; one with a commit or waiting
//! writes does not sleep. Records of dirty data are counted for all volumes without visiting those that sleep.
//!
//! Out of scope: deciding which volumes may sleep, and for how long (`rest`).

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;
use zc_core::{ErrorKind, ExtentKey, Mode, VolumeId};
use zc_format::Record;

use crate::base::volume::Volume;
use crate::config::OnLoss;
use crate::device::Core;
use crate::dirty::commit_state::{Commit, EPOCH_AGE_SHARE};
use crate::dirty::destaging::Destaging;
use crate::dirty::record_bounds::dirty_records_max;
use crate::dirty::rotten::Unreadable;
use crate::dirty::versions::{Body, EpochState, Visible};
use crate::dirty::volume::{VolumeDirty, let_go};
use crate::expect_held::ExpectHeld;
use crate::seam::{Action, Note};

/// Minimum slots of a cache for dirty data.
const SLOTS_MIN: u32 = 4;

#[derive(Debug, Default)]
pub(crate) struct DirtyVolumes {
    all: BTreeMap<VolumeId, VolumeDirty>,
    awake: BTreeSet<VolumeId>,
    asleep: BTreeMap<VolumeId, Asleep>,
    /// Times at which sleeping volumes wake up.
    alarms: BTreeSet<(u64, VolumeId)>,
    asleep_records: u64,
    /// Pressure at which sleeping volumes were checked.
    pressure: Pressure,
    /// Set if a write waits for shared capacity.
    is_short_of_room: bool,
    /// Journal position until which requests wait: a decision must not be made twice.
    decided_at: Option<u64>,
}

#[derive(Debug)]
struct Asleep {
    /// Wake-up time in milliseconds; `None`: only an event wakes it.
    until_ms: Option<u64>,
    records: u64,
}

/// Conditions of all volumes: sleeping volumes wake when one begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pressure {
    /// The manager stops, or the device is lost.
    ending: bool,
    /// Writes wait for capacity, or little is left.
    crowded: bool,
}

/// Pending work of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Pending work now, or an operation in progress.
    Awake,
    /// No work until this time, in milliseconds, or until an event concerns it.
    Until(Option<u64>),
}

impl DirtyVolumes {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, id: &VolumeId) -> Option<&VolumeDirty> {
        self.all.get(id)
    }

    /// Returns a volume for changes, which wakes it.
    pub(crate) fn get_mut(&mut self, id: &VolumeId) -> Option<&mut VolumeDirty> {
        if !self.awake.contains(id) {
            self.wake(*id);
        }
        self.all.get_mut(id)
    }

    /// Records a client request, which restarts the idle time; nothing else changes.
    pub(crate) fn asked(&mut self, id: VolumeId, now_ms: u64) {
        if let Some(dirty) = self.all.get_mut(&id) {
            dirty.last_request_ms = now_ms;
        }
    }

    /// Returns the volume, creating it if it is absent.
    pub(crate) fn get_or_insert(
        &mut self,
        id: VolumeId,
        new: impl FnOnce() -> VolumeDirty,
    ) -> &mut VolumeDirty {
        self.wake(id);
        self.awake.insert(id);
        self.all.entry(id).or_insert_with(new)
    }

    pub(crate) fn insert(&mut self, id: VolumeId, dirty: VolumeDirty) {
        self.wake(id);
        self.awake.insert(id);
        self.all.insert(id, dirty);
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&VolumeId, &VolumeDirty)> {
        self.all.iter()
    }

    pub(crate) fn from(&self, id: VolumeId) -> impl Iterator<Item = (&VolumeId, &VolumeDirty)> {
        self.all.range(id..)
    }

    pub(crate) fn awake(&self) -> impl Iterator<Item = &VolumeDirty> {
        self.awake.iter().filter_map(|id| self.all.get(id))
    }

    pub(crate) fn each_awake(&mut self, mut change: impl FnMut(&mut VolumeDirty)) {
        for id in &self.awake {
            if let Some(dirty) = self.all.get_mut(id) {
                change(dirty);
            }
        }
    }

    /// The numbers of those that are awake, in order.
    pub(crate) fn awake_ids(&self) -> Vec<VolumeId> {
        self.awake.iter().copied().collect()
    }

    /// The numbers of all, in order.
    pub(crate) fn ids(&self) -> Vec<VolumeId> {
        self.all.keys().copied().collect()
    }

    /// Number of records that describe all dirty data.
    pub(crate) fn record_count(&self) -> u64 {
        self.asleep_records + self.awake().map(|dirty| dirty.data.record_count()).sum::<u64>()
    }

    fn wake(&mut self, id: VolumeId) {
        let Some(Asleep { until_ms, records }) = self.asleep.remove(&id) else { return };
        if let Some(until_ms) = until_ms {
            self.alarms.remove(&(until_ms, id));
        }
        self.asleep_records -= records;
        self.awake.insert(id);
    }

    fn wake_all(&mut self) {
        self.asleep.clear();
        self.alarms.clear();
        self.asleep_records = 0;
        self.awake = self.all.keys().copied().collect();
    }

    /// Wakes the volumes whose time has come, and all if the pressure has changed.
    fn wake_due(&mut self, now_ms: u64, pressure: Pressure) {
        if core::mem::replace(&mut self.pressure, pressure) != pressure {
            self.wake_all();
        }
        while let Some((_, id)) = self.alarms.first().copied().filter(|(until_ms, _)| *until_ms <= now_ms) {
            self.wake(id);
        }
    }

    fn sleep(&mut self, id: VolumeId, until_ms: Option<u64>) {
        let Some(dirty) = self.all.get(&id) else { return };
        let records = dirty.data.record_count();
        self.awake.remove(&id);
        self.asleep_records += records;
        if let Some(until_ms) = until_ms {
            self.alarms.insert((until_ms, id));
        }
        self.asleep.insert(id, Asleep { until_ms, records });
    }
}

impl DirtyVolumes {
    /// Returns `true` if writes wait for capacity.
    pub(crate) fn is_waiting(&self) -> bool {
        self.awake().any(|dirty| !dirty.waiting.is_empty())
    }

    /// Returns `true` if writes of the volume wait for capacity.
    pub(crate) fn is_waiting_of(&self, volume: VolumeId) -> bool {
        self.get(&volume).is_some_and(|dirty| !dirty.waiting.is_empty())
    }

    /// Returns `true` if destaging of a volume frees capacity that waiting writes need: its own, or shared capacity.
    pub(crate) fn is_pressed(&self, volume: VolumeId) -> bool {
        self.is_short_of_room || self.is_waiting_of(volume)
    }

    /// Records if a write waits for shared capacity.
    pub(crate) const fn set_short_of_room(&mut self, is_short: bool) {
        self.is_short_of_room = is_short;
    }

    pub(crate) fn commits(&self) -> impl Iterator<Item = &Commit> {
        self.awake().filter_map(|dirty| dirty.commit.as_ref())
    }

    pub(crate) fn each_commit(&mut self, mut change: impl FnMut(&mut Commit)) {
        self.each_awake(|dirty| {
            if let Some(commit) = &mut dirty.commit {
                change(commit);
            }
        });
    }

    /// The destaging of a volume.
    ///
    /// # Panics
    /// If the volume is unknown.
    pub(crate) fn destaging(&mut self, volume: VolumeId) -> &mut Destaging {
        &mut self.get_mut(&volume).expect_held().destaging
    }

    /// Returns `true` if the volume takes writes in write-back now.
    pub(crate) fn writes_back(&self, volume: VolumeId, core: &Core) -> bool {
        core.device.catalog.table().len() >= SLOTS_MIN
            && core.base.volume(volume).is_some_and(|volume| volume.cfg().mode == Mode::WriteBack)
            && (core.base.is_good() || self.fence(volume, core).is_some())
    }

    /// Returns `true` if the volume has anything in the dirty layer.
    pub(crate) fn has_dirty(&self, volume: VolumeId) -> bool {
        self.get(&volume).is_some_and(VolumeDirty::is_dirty)
    }

    /// Returns `true` if the volume's origin lacks data, or may lack some. A pending decision alone does not count.
    pub(crate) fn has_data(&self, volume: VolumeId) -> bool {
        self.get(&volume).is_some_and(VolumeDirty::has_data)
    }

    /// Returns the fallback behaviour while dirty data is out of reach.
    pub(crate) fn fence(&self, volume: VolumeId, core: &Core) -> Option<OnLoss> {
        let dirty = self.get(&volume)?;
        let config = core.base.volume(volume).map(Volume::cfg);
        let lost = !core.base.is_good();
        // If another record shows that no data is dirty, a start does not trust a device that claims otherwise.
        let believed = config.is_none_or(|config| config.may_be_dirty || config.mode == Mode::WriteBack);
        if dirty.is_incomplete() || (lost && dirty.phase.is_unrecorded() && believed) {
            // The set of sectors on the origin is unknown, so none can be read from it.
            return Some(OnLoss::Error);
        }
        let needed = lost && !(dirty.data.is_empty() && dirty.waiting.is_empty());
        needed.then(|| config.map_or(OnLoss::Error, |config| config.write_back.on_loss))
    }

    /// Returns the versions that readers of the sectors of an extent get from the dirty layer.
    pub(crate) fn overlay(&self, key: ExtentKey, sectors: &core::ops::Range<u32>) -> SmallVec<[Visible; 2]> {
        match self.get(&key.volume) {
            Some(dirty) => dirty.data.visible(key.extent, sectors),
            None => SmallVec::new(),
        }
    }
}

impl DirtyVolumes {
    pub(crate) fn refuse_waiting(&mut self, volume: VolumeId, error: ErrorKind, core: &mut Core) {
        let dirty = self.get_mut(&volume).expect_held();
        for write in core::mem::take(&mut dirty.waiting) {
            core.base.answer_write(&write.request, Err(error));
        }
    }

    /// Records a decision about a volume's dirty data: its requests wait until the journal is durable up to here.
    pub(crate) fn decide(&mut self, volume: VolumeId, bodies: Vec<Body>, core: &mut Core) {
        let Some(dirty) = self.get_mut(&volume) else { return };
        dirty.phase.decide(bodies);
        self.decided_at = Some(core.device.catalog.meta_mut().journal_mut().want_all());
    }

    /// Returns `true` if a decision is not durable yet.
    pub(crate) const fn is_undecided(&self) -> bool {
        self.decided_at.is_some()
    }

    /// Releases the bodies held for a decision that is durable, or can no longer become durable. Returns `false` while
    /// it is pending.
    pub(crate) fn pump_decided(&mut self, core: &mut Core) -> bool {
        let Some(position) = self.decided_at else { return true };
        let good = core.base.is_good();
        if good && !core.device.catalog.meta().journal().is_durable(position) {
            return false;
        }
        self.decided_at = None;
        for volume in self.ids() {
            let dirty = self.get_mut(&volume).expect_held();
            if good && let Some(bodies) = dirty.phase.recorded() {
                let_go(volume, &bodies, core);
            }
        }
        true
    }

    /// Drops its data, unless some of it is in flight, or the device that must record the drop is lost. Returns `true`
    /// on success.
    pub(crate) fn finish_dropping(&mut self, volume: VolumeId, core: &mut Core) -> bool {
        let good = core.base.is_good();
        let Some(dirty) = self.get_mut(&volume) else { return false };
        let Some(how) = dirty.phase.dropping() else { return false };
        let busy = dirty.commit.is_some() || dirty.destaging.is_busy();
        if (busy && good) || dirty.destaging.is_writing() {
            return false;
        }
        if !good && !how.is_remembered {
            dirty.phase.drop_failed();
            return false;
        }
        let (was_fenced, undecided) = dirty.phase.dropped();
        let loses = was_fenced || !dirty.data.is_empty();
        dirty.commit = None;
        dirty.destaging.give_up();
        dirty.unreadable = Unreadable::default();
        // The admitted pieces of a waiting write are dropped, too: it restarts.
        dirty.waiting.iter_mut().for_each(|write| write.done_bytes = 0);
        let mut bodies = dirty.data.forget_all();
        bodies.extend(undecided);
        dirty.drained();
        let epoch = dirty.data.clean;
        core.device.catalog.record(Record::Clean { volume, epoch }, &mut core.base);
        if loses {
            core.base.owe_loss(volume);
        }
        if let Some(entry) = core.base.volume_mut(volume) {
            // Its destaged data can now be read from the origin: it must be flushed, and its loss reported, as for
            // client writes.
            entry.origin_mut().count_all_as_direct();
        }
        if good {
            self.decide(volume, bodies, core);
        } else {
            let_go(volume, &bodies, core);
        }
        true
    }

    /// Fences a volume for which journal and checkpoint may be incomplete.
    pub(crate) fn fence_incomplete(&mut self, volume: VolumeId, core: &mut Core) {
        let dirty = self.get_or_insert(volume, || VolumeDirty::new(0));
        dirty.phase.fence();
        self.refuse_waiting(volume, ErrorKind::Io, core);
        core.base.port.emit(Action::Note(Note::Fenced { volume }));
    }

    /// Continues with the contents of journal and checkpoint; missing data is lost.
    pub(crate) fn accept_loss(&mut self, volume: VolumeId, core: &mut Core) {
        let Some(dirty) = self.get_mut(&volume) else { return };
        if !dirty.phase.accept_loss() {
            return;
        }
        let epoch = dirty.data.open().number - 1;
        core.device.catalog.record(Record::DirtyReset { volume, epoch }, &mut core.base);
        core.base.owe_loss(volume);
        self.decide(volume, Vec::new(), core);
    }
}

/// Sleep and wake-up of volumes.
impl DirtyVolumes {
    /// Wakes volumes whose time has come, or all if the pressure has changed.
    pub(crate) fn wake_some(&mut self, core: &mut Core) {
        if self.is_empty() {
            return;
        }
        let low =
            u64::from(core.device.catalog.table().len()) * u64::from(core.base.cfg().dirty.low_percent) / 100;
        let pressure = Pressure {
            ending: core.base.is_stopping() || !core.base.is_good(),
            crowded: self.is_waiting() || core.device.catalog.slots().dirty().filled() > low,
        };
        self.wake_due(core.base.now_ms(), pressure);
    }

    /// Puts volumes without pending work to sleep.
    pub(crate) fn rest_some(&mut self, core: &mut Core) {
        for volume in self.awake_ids() {
            if let Rest::Until(until_ms) = self.rest(volume, core) {
                self.sleep(volume, until_ms);
            }
        }
    }

    /// Determines the pending work of a volume. In doubt it stays awake.
    fn rest(&self, volume: VolumeId, core: &Core) -> Rest {
        let Some(dirty) = self.get(&volume) else { return Rest::Awake };
        if dirty.is_at_work() || core.base.is_stopping() || !core.base.is_good() {
            return Rest::Awake;
        }
        let Some(entry) = core.base.volume(volume) else { return Rest::Until(None) };
        if dirty.data.is_empty() {
            return Rest::Until(None);
        }
        let half = dirty.data.record_count() * 2 > dirty_records_max(&core.base);
        if half || self.pressure.crowded || self.is_waiting() {
            return Rest::Awake;
        }
        let age_ms = entry.cfg().write_back.max_dirty_age_ms;
        let mut until_ms = u64::MAX;
        if let Some(open) = dirty.data.epochs.back().filter(|open| !open.extents.is_empty()) {
            until_ms = until_ms.min(open.began_ms.saturating_add(age_ms / EPOCH_AGE_SHARE));
        }
        let destages = !dirty.is_incomplete() && entry.cfg().mode != Mode::ReadOnly;
        let oldest = dirty.data.epochs.front().filter(|oldest| oldest.state == EpochState::Committed);
        if let Some(oldest) = oldest.filter(|_| destages) {
            until_ms = until_ms.min(oldest.began_ms.saturating_add(age_ms / 2));
            if entry.cfg().write_back.destages_idly {
                let idle_ms = core.base.cfg().dirty.idle_ms;
                until_ms = until_ms.min(dirty.last_request_ms.saturating_add(idle_ms));
            }
        }
        match until_ms {
            u64::MAX => Rest::Until(None),
            until_ms if until_ms <= core.base.now_ms() => Rest::Awake,
            until_ms => Rest::Until(Some(until_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use zc_core::ExtentNo;

    use super::*;
    use crate::dirty::versions::Body;

    const A: VolumeId = VolumeId(1);
    const B: VolumeId = VolumeId(7);

    fn two() -> DirtyVolumes {
        let mut volumes = DirtyVolumes::default();
        for id in [A, B] {
            let mut dirty = VolumeDirty::new(0);
            for extent in 0..u64::from(id.0) {
                let _replaced = dirty.data.write(ExtentNo(extent), 0..16, Body::Zero { no_hole: true }, 0);
            }
            volumes.insert(id, dirty);
        }
        volumes
    }

    #[test]
    fn who_sleeps_is_not_walked_and_still_counts() {
        let mut volumes = two();
        let all = volumes.record_count();
        assert!(all > 8 && volumes.awake_ids() == [A, B]);
        volumes.sleep(B, Some(100));
        volumes.asked(B, 50);
        assert_eq!((volumes.awake_ids(), volumes.awake().count(), volumes.record_count()), (vec![A], 1, all));
        assert_eq!(
            (volumes.ids(), volumes.get(&B).map(|dirty| dirty.last_request_ms)),
            (vec![A, B], Some(50))
        );
        volumes.sleep(A, None);
        assert_eq!((volumes.awake_ids(), volumes.record_count()), (vec![], all));
    }

    #[test]
    fn time_wakes_those_whose_it_is_and_a_change_of_pressure_all() {
        let mut volumes = two();
        volumes.sleep(A, None);
        volumes.sleep(B, Some(100));
        volumes.wake_due(99, Pressure::default());
        assert_eq!(volumes.awake_ids(), []);
        volumes.wake_due(100, Pressure::default());
        assert_eq!(volumes.awake_ids(), [B]);
        let crowded = Pressure { crowded: true, ..Pressure::default() };
        for pressure in [crowded, Pressure::default()] {
            volumes.wake_due(100, pressure);
            assert_eq!(volumes.awake_ids(), [A, B]);
            volumes.sleep(A, None);
            volumes.sleep(B, Some(200));
            volumes.wake_due(150, pressure);
            assert_eq!(volumes.awake_ids(), []);
        }
    }

    #[test]
    fn who_changes_one_wakes_it_and_its_alarm_is_gone() {
        let mut volumes = two();
        volumes.sleep(B, Some(100));
        let records = volumes.record_count();
        let dirty = volumes.get_mut(&B).unwrap();
        let _replaced = dirty.data.write(ExtentNo(9), 0..16, Body::Zero { no_hole: true }, 0);
        assert_eq!((volumes.awake_ids(), volumes.record_count()), (vec![A, B], records + 1));
        volumes.sleep(B, None);
        volumes.wake_due(100, Pressure::default());
        assert_eq!(volumes.awake_ids(), [A]);
        assert!(volumes.get_mut(&VolumeId(3)).is_none());
    }
}
