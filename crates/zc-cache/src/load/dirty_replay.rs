//! Dirty records at a restart: from checkpoint, journal and intent log back to epochs.
//!
//! Records of a volume wait until their `Committed` comes. What no commit follows was never acknowledged as durable and
//! does not count; a `DirtyReset` says so for the next restart, before any new dirty record. Until it is durable, and
//! commits that came from the intent log or a summary are, requests of the volumes concerned wait: what readers were
//! shown once must not be decided otherwise after the next crash (G2).

use smallvec::SmallVec;
use zc_core::{Mode, VolumeId};
use zc_format::Record;

use crate::device::Core;
use crate::device::Device;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Place;
use crate::seam::{Action, Note};
use crate::write_back::VolumeDirty;
use crate::write_back::WriteBack;
use crate::write_back::dirty::{Body, Ended, EpochState};

/// What the replay of one volume has seen.
#[derive(Debug, Default)]
pub(crate) struct DirtyReplay {
    /// Dirty records since the last commit.
    dangling: Vec<Record>,
    /// The last commit.
    committed: u64,
    /// The last epoch on the origin.
    clean: u64,
    /// Committed epochs that are not clean, in order.
    epochs: Vec<(u64, Vec<Record>)>,
    /// Records of epochs that count no more, as the intent log alone tells.
    ended: Vec<Record>,
    /// The intent log or a summary has records of the volume's dirty data.
    unjournaled: bool,
}

impl Device {
    /// Whether a dirty record that counts names a unit that was replaced since. A slot with dirty data is not used
    /// again before that is known to be clean: what says so was lost, and an older state of the medium shows through.
    pub(crate) fn is_outdated(&self, record: &Record) -> bool {
        match *record {
            Record::Dirty { slot, generation, .. } => self.units.slots.get(slot).generation != generation,
            _ => false,
        }
    }
}

impl WriteBack {
    /// Ends the replay: makes versions of what counts, pins their slots, voids what does not count.
    pub(crate) fn install_dirty(&mut self, core: &mut Core) {
        let mut decided = false;
        for (volume, mut replay) in core::mem::take(&mut core.device.recovery.restart.dirty_replays) {
            let mut unsettled = replay.unjournaled;
            if core.base.volumes.get(&volume).is_some_and(|entry| !entry.cfg.may_be_dirty) {
                // Known to be clean elsewhere: an older state of the medium shows through.
                replay.clean = replay.committed;
                if !core::mem::take(&mut replay.epochs).is_empty() {
                    unsettled = true;
                    core.device.record(Record::Clean { volume, epoch: replay.clean }, &mut core.base);
                }
            }
            let mut dirty = VolumeDirty::new(replay.clean);
            dirty.last_request_ms = core.base.now_ms;
            self.volumes.insert(volume, dirty);
            for (number, records) in &replay.epochs {
                self.install_epoch(volume, *number, records, core);
            }
            let outdated =
                replay.epochs.iter().flat_map(|(_, records)| records).any(|r| core.device.is_outdated(r));
            if outdated {
                self.fence_incomplete(volume, core);
            }
            let dropped = core.device.recovery.restart.dropped_commits.contains(&volume);
            if !replay.dangling.is_empty() || dropped {
                unsettled = true;
                core.device.record(Record::DirtyReset { volume, epoch: replay.committed }, &mut core.base);
            }
            if unsettled {
                decided = true;
                let bodies = self.owe_ended(&replay.ended, core);
                self.unsettle(volume, bodies, core);
            }
            if dropped {
                core.base.port.emit(Action::Note(Note::CommitsDropped { volume, epoch: replay.committed }));
            }
            core.base.stats.dirty_replayed += zc_core::u64_from_usize(replay.epochs.len());
        }
        self.settle_modes(core);
        if decided {
            self.resets_until = core.device.meta.journal.want_all();
        }
        let doubtful = core.base.volumes.values().filter(|volume| self.is_doubtful(&volume.cfg, core));
        let volumes: SmallVec<[VolumeId; 8]> = doubtful.map(|volume| volume.cfg.id).collect();
        volumes.into_iter().for_each(|volume| self.fence_incomplete(volume, core));
    }

    /// Dirty data decides what a volume may do at first, whatever its settings say: it is brought to the origin before
    /// writes go past it.
    fn settle_modes(&mut self, core: &mut Core) {
        for volume in self.ids() {
            let Some(entry) = core.base.volumes.get_mut(&volume) else { continue };
            let dirty = self.volumes.get_mut(&volume).expect_held();
            if dirty.data.is_empty() {
                continue;
            }
            if !matches!(entry.cfg.mode, Mode::WriteBack | Mode::ReadOnly) {
                dirty.leave(entry.cfg.clone(), core.base.now_ms);
                entry.cfg.mode = Mode::WriteBack;
            }
        }
    }

    fn install_epoch(&mut self, volume: VolumeId, number: u64, records: &[Record], core: &mut Core) {
        let now_ms = core.base.now_ms;
        for record in records {
            let (key, span, body) = match *record {
                Record::DirtyZero { key, span, no_hole } => (key, span, Body::Zero { no_hole }),
                Record::Dirty { key, span, slot, generation, offset_units, pages } => {
                    let generation = core.device.units.slots.short(generation);
                    let place = Place { slot, generation, offset_units, pages };
                    core.device.owe(slot, false);
                    // Whose entry it is was known to the session that stored it; here the place alone is.
                    (key, span, Body::Stored { place, own: false })
                }
                _ => continue,
            };
            let dirty = self.volumes.get_mut(&volume).expect_held();
            dirty.data.restore(number);
            let gone = dirty.data.write(key.extent, span.range(), body, now_ms);
            core.device.let_go(&gone);
        }
        let dirty = self.volumes.get_mut(&volume).expect_held();
        dirty.data.restore(number);
        dirty.data.close(Ended::ByFlush);
        if let Some(epoch) = dirty.data.epoch_mut(number) {
            epoch.state = EpochState::Committed;
        }
    }
}

impl WriteBack {
    /// Pins the slots of what ended, until the journal has that.
    fn owe_ended(&mut self, records: &[Record], core: &mut Core) -> Vec<Body> {
        let mut bodies = Vec::new();
        for record in records {
            let Record::Dirty { slot, generation, offset_units, pages, .. } = *record else { continue };
            let entry = core.device.units.slots.get(slot);
            if entry.generation == generation && !entry.retired {
                core.device.owe(slot, false);
                let generation = core.device.units.slots.short(generation);
                let place = Place { slot, generation, offset_units, pages };
                bodies.push(Body::Stored { place, own: false });
            }
        }
        bodies
    }
}

impl Device {
    /// Takes a dirty record of checkpoint, journal or intent log.
    pub(crate) fn replay_dirty(&mut self, record: &Record) {
        match *record {
            // A slot that the layout does not have is damage: the extent must not look clean.
            Record::Dirty { key, slot, generation, .. } if self.units.slots.contains(slot) => {
                self.adopt_generation(slot, generation);
                self.replay_of(key.volume).dangling.push(*record);
            }
            Record::DirtyZero { key, .. } => self.replay_of(key.volume).dangling.push(*record),
            Record::Dirty { .. } => self.recovery.restart.dirty_complete = false,
            Record::Committed { volume, epoch } => {
                let replay = self.replay_of(volume);
                let records = core::mem::take(&mut replay.dangling);
                if epoch > replay.committed {
                    replay.committed = epoch;
                    replay.epochs.push((epoch, records));
                }
            }
            Record::Clean { volume, epoch } => {
                let replay = self.replay_of(volume);
                replay.epochs.retain(|(number, _)| *number > epoch);
                replay.clean = replay.clean.max(epoch);
                replay.committed = replay.committed.max(epoch);
            }
            Record::DirtyReset { volume, epoch } => {
                let replay = self.replay_of(volume);
                replay.dangling.clear();
                replay.epochs.retain(|(number, _)| *number <= epoch);
                replay.committed = replay.committed.min(epoch.max(replay.clean));
            }
            _ => {}
        }
    }

    /// The intent log is about to end epochs. The journal counts on their bodies until it has that record, too.
    pub(crate) fn keep_bodies(&mut self, record: &Record) {
        let (volume, ends): (_, Box<dyn Fn(u64) -> bool>) = match *record {
            Record::Clean { volume, epoch } => (volume, Box::new(move |number| number <= epoch)),
            Record::DirtyReset { volume, epoch } => (volume, Box::new(move |number| number > epoch)),
            _ => return,
        };
        let replay = self.replay_of(volume);
        let ended = replay.epochs.iter().filter(|(number, _)| ends(*number));
        replay.ended.extend(ended.flat_map(|(_, records)| records));
    }

    /// The record came from the intent log or a summary: what it says is not in the journal yet.
    pub(crate) fn replayed_unjournaled(&mut self, record: &Record) {
        let volume = match *record {
            Record::Dirty { key, .. } | Record::DirtyZero { key, .. } => key.volume,
            Record::Committed { volume, .. }
            | Record::Clean { volume, .. }
            | Record::DirtyReset { volume, .. } => volume,
            _ => return,
        };
        self.replay_of(volume).unjournaled = true;
    }

    fn replay_of(&mut self, volume: VolumeId) -> &mut DirtyReplay {
        self.recovery.restart.dirty_replays.entry(volume).or_default()
    }
}
