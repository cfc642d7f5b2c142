//! Installs the dirty data found by a start: checkpoint, journal and intent log become the dirty layer.
//!
//! Out of scope: reading these contents (see `device::recovery::dirty_replay`).

use smallvec::SmallVec;
use zc_core::{Mode, VolumeId};
use zc_format::Record;

use crate::device::Core;
use crate::device::recovery::dirty_replay::is_outdated;
use crate::dirty::DirtyLayer;
use crate::dirty::versions::{Body, Ended, EpochState};
use crate::dirty::volume::{VolumeDirty, let_go};
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Place;
use crate::seam::{Action, Note};

impl DirtyLayer {
    /// Completes the replay: creates versions of valid entries, pins their slots, and invalidates the other entries.
    pub(crate) fn install_dirty(&mut self, core: &mut Core) {
        let mut decided = false;
        for (volume, mut replay) in core.device.recovery.take_dirty_replays() {
            let mut unrecorded = replay.unjournaled;
            if core.base.volume(volume).is_some_and(|entry| !entry.cfg().may_be_dirty) {
                // Recorded as clean elsewhere: the medium shows an older state.
                replay.clean = replay.committed;
                if !core::mem::take(&mut replay.epochs).is_empty() {
                    unrecorded = true;
                    core.device.catalog.record(Record::Clean { volume, epoch: replay.clean }, &mut core.base);
                }
            }
            let mut dirty = VolumeDirty::new(replay.clean);
            dirty.last_request_ms = core.base.now_ms();
            self.volumes.insert(volume, dirty);
            for (number, records) in &replay.epochs {
                self.install_epoch(volume, *number, records, core);
            }
            let outdated = replay
                .epochs
                .iter()
                .flat_map(|(_, records)| records)
                .any(|r| is_outdated(r, core.device.catalog.table()));
            if outdated {
                self.volumes.fence_incomplete(volume, core);
            }
            let dropped = core.device.recovery.has_dropped_commits(volume);
            if !replay.dangling.is_empty() || dropped {
                unrecorded = true;
                core.device
                    .catalog
                    .record(Record::DirtyReset { volume, epoch: replay.committed }, &mut core.base);
            }
            if core.device.recovery.has_unproved_commit(volume) {
                // A later start would accept it only if all of it is still readable then.
                unrecorded = true;
                core.device
                    .catalog
                    .record(Record::Durable { volume, epoch: replay.committed }, &mut core.base);
            }
            if unrecorded {
                decided = true;
                let bodies = self.add_ended(volume, &replay.ended, core);
                self.volumes.decide(volume, bodies, core);
            }
            if dropped {
                let doubtful = core.device.recovery.drops_are_doubtful();
                let epoch = replay.committed;
                core.base.port.emit(Action::Note(Note::CommitsDropped { volume, epoch, doubtful }));
            }
            core.base.stats.dirty_replayed += zc_core::u64_from_usize(replay.epochs.len());
        }
        self.choose_modes(core);
        if decided {
            self.commits.reset_until(core.device.catalog.meta_mut().journal_mut().want_all());
        }
        let doubtful = core.base.volumes().filter(|volume| self.is_doubtful(volume.cfg(), core));
        let volumes: SmallVec<[VolumeId; 8]> = doubtful.map(|volume| volume.cfg().id).collect();
        volumes.into_iter().for_each(|volume| self.volumes.fence_incomplete(volume, core));
    }

    /// Sets the initial modes: dirty data is destaged before writes bypass it, regardless of the volume's settings.
    fn choose_modes(&mut self, core: &mut Core) {
        let now_ms = core.base.now_ms();
        for volume in self.volumes.ids() {
            let Some(entry) = core.base.volume_mut(volume) else { continue };
            let dirty = self.volumes.get_mut(&volume).expect_held();
            if dirty.data.is_empty() {
                continue;
            }
            if !matches!(entry.cfg().mode, Mode::WriteBack | Mode::ReadOnly) {
                dirty.leave(entry.cfg().clone(), now_ms);
                entry.set_mode(Mode::WriteBack);
            }
        }
    }

    fn install_epoch(&mut self, volume: VolumeId, number: u64, records: &[Record], core: &mut Core) {
        let now_ms = core.base.now_ms();
        for record in records {
            let (key, span, body) = match *record {
                Record::DirtyZero { key, span, no_hole } => (key, span, Body::Zero { no_hole }),
                Record::Dirty { key, span, slot, generation, offset_units, pages } => {
                    let generation = core.device.catalog.table().short(generation);
                    let place = Place { slot, generation, offset_units, pages };
                    core.device.catalog.slots_mut().add_dirty(volume, slot, false);
                    // The owner of the entry is known only to the session that stored it; the record has only the
                    // place.
                    (key, span, Body::Stored { place, own: false })
                }
                _ => continue,
            };
            let dirty = self.volumes.get_mut(&volume).expect_held();
            dirty.data.restore(number);
            let gone = dirty.data.write(key.extent, span.range(), body, now_ms);
            let_go(volume, &gone, core);
        }
        let dirty = self.volumes.get_mut(&volume).expect_held();
        dirty.data.restore(number);
        dirty.data.close(Ended::ByFlush);
        if let Some(epoch) = dirty.data.epoch_mut(number) {
            epoch.state = EpochState::Committed;
        }
    }

    /// Pins the slots of ended entries until the journal has recorded their end.
    fn add_ended(&mut self, volume: VolumeId, records: &[Record], core: &mut Core) -> Vec<Body> {
        let mut bodies = Vec::new();
        for record in records {
            let Record::Dirty { slot, generation, offset_units, pages, .. } = *record else { continue };
            if core.device.catalog.slots().holds(slot, generation) {
                core.device.catalog.slots_mut().add_dirty(volume, slot, false);
                let generation = core.device.catalog.table().short(generation);
                let place = Place { slot, generation, offset_units, pages };
                bodies.push(Body::Stored { place, own: false });
            }
        }
        bodies
    }
}
