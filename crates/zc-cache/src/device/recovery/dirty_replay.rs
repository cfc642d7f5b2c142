//! Replay of dirty records at a restart: from checkpoint, journal and intent log to epochs.
//!
//! Records of a volume are held until their `Committed` record. Records without a later commit were never acknowledged
//! as durable and are dropped; a `DirtyReset` records that for the next restart, before any new dirty record. Requests
//! of a volume wait until this is durable, and until commits from the intent log or a summary are: data that readers
//! got once must not change after the next crash (G2).

use std::collections::BTreeMap;

use zc_core::VolumeId;
use zc_format::Record;

use crate::device::slots::table::SlotTable;

/// Replay state of one volume.
#[derive(Debug, Default)]
pub(crate) struct DirtyReplay {
    /// Dirty records since the last commit.
    pub(crate) dangling: Vec<Record>,
    pub(crate) committed: u64,
    /// Last epoch on the origin.
    pub(crate) clean: u64,
    /// Committed epochs that are not clean, in order.
    pub(crate) epochs: Vec<(u64, Vec<Record>)>,
    /// Records of epochs that ended according to the intent log alone.
    pub(crate) ended: Vec<Record>,
    /// The intent log or a summary contains records of the volume's dirty data.
    pub(crate) unjournaled: bool,
}

/// Replay state of all volumes.
#[derive(Debug)]
pub(crate) struct DirtyReplays {
    volumes: BTreeMap<VolumeId, DirtyReplay>,
    /// Journal and checkpoint contain all records of dirty data.
    is_complete: bool,
}

/// Returns `true` if a valid dirty record refers to a unit that was replaced since. A slot with dirty data is not
/// reused before that data is recorded as clean, so that record was lost and the medium shows an older state.
pub(crate) fn is_outdated(record: &Record, table: &SlotTable) -> bool {
    match *record {
        Record::Dirty { slot, generation, .. } => table.get(slot).generation() != generation,
        _ => false,
    }
}

impl DirtyReplays {
    /// Creates an empty replay; `is_complete`: journal and checkpoint contain all records of dirty data.
    pub(super) const fn new(is_complete: bool) -> Self {
        Self { volumes: BTreeMap::new(), is_complete }
    }

    pub(super) fn take(&mut self) -> BTreeMap<VolumeId, DirtyReplay> {
        core::mem::take(&mut self.volumes)
    }

    pub(super) const fn are_complete(&self) -> bool {
        self.is_complete
    }

    /// Replays a dirty record of checkpoint, journal or intent log.
    pub(super) fn replay(&mut self, record: &Record, table: &mut SlotTable) {
        match *record {
            // A slot outside the layout is corruption: the extent must not look clean.
            Record::Dirty { key, slot, generation, .. } if table.contains(slot) => {
                table.adopt_generation(slot, generation);
                self.replay_of(key.volume).dangling.push(*record);
            }
            Record::DirtyZero { key, .. } => self.replay_of(key.volume).dangling.push(*record),
            Record::Dirty { .. } => self.is_complete = false,
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

    /// Keeps the bodies of epochs that the intent log is about to end. The journal needs them until it contains that
    /// record, too.
    pub(super) fn keep_bodies(&mut self, record: &Record) {
        let (volume, ends): (_, Box<dyn Fn(u64) -> bool>) = match *record {
            Record::Clean { volume, epoch } => (volume, Box::new(move |number| number <= epoch)),
            Record::DirtyReset { volume, epoch } => (volume, Box::new(move |number| number > epoch)),
            _ => return,
        };
        let replay = self.replay_of(volume);
        let ended = replay.epochs.iter().filter(|(number, _)| ends(*number));
        replay.ended.extend(ended.flat_map(|(_, records)| records));
    }

    /// Records that an entry came from the intent log or a summary, and is not in the journal yet.
    pub(super) fn note_unjournaled(&mut self, record: &Record) {
        let volume = match *record {
            Record::Dirty { key, .. } | Record::DirtyZero { key, .. } => key.volume,
            Record::Committed { volume, .. }
            | Record::Clean { volume, .. }
            | Record::DirtyReset { volume, .. }
            | Record::Durable { volume, .. } => volume,
            _ => return,
        };
        self.replay_of(volume).unjournaled = true;
    }

    fn replay_of(&mut self, volume: VolumeId) -> &mut DirtyReplay {
        self.volumes.entry(volume).or_default()
    }
}
