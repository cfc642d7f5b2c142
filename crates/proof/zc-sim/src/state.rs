//! State directory: the files kept beside the cache device.
//!
//! Job: execute or fail the changes that the manager requests there. Across sessions, record the volumes that are
//! distrusted, may be dirty, were given up, or are fenced.
//!
//! A lost directory stands for an operator's mistake or a new disk. Clean contents are then distrusted. Dirty data is
//! refused until an operator trusts the cache device with it, which is assumed here. Facts that only the directory
//! held are lost: epochs given up while the device was out of reach, fenced volumes, and owed losses. Only these are
//! forgiven.
//!
//! It does not tear files, which are replaced as a whole, or fail the withdrawal of a file that could not be written.

use std::collections::{BTreeMap, BTreeSet};

use zc_cache::seam::Event;
use zc_core::{ErrorKind, OpId, VolumeId};

use crate::drawn::Faults;
use crate::env::Env;
use crate::intents::IntentLog;
use crate::trouble::Trouble;

/// State directory and intent log.
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    /// Newest session that the directory records.
    session: u64,
    /// Newest session of all, as a clock would give it.
    newest: u64,
    log: IntentLog,
    /// Volumes whose contents on the cache device are distrusted.
    distrusted: Vec<bool>,
    /// Volumes that may have data that only the cache device has.
    dirty: Vec<bool>,
    /// Volumes whose dirty data a start could not determine completely, and which no operator has accepted since.
    incomplete: BTreeSet<usize>,
    /// Epochs given up while the cache device could not be updated, as the newest one by volume.
    given_up: BTreeMap<usize, u64>,
}

impl StateDir {
    pub(crate) fn new(volumes: usize) -> Self {
        Self {
            session: 0,
            newest: 0,
            log: IntentLog::default(),
            distrusted: vec![false; volumes],
            dirty: vec![false; volumes],
            incomplete: BTreeSet::new(),
            given_up: BTreeMap::new(),
        }
    }

    /// Returns the newest session that the directory records.
    pub(crate) const fn session(&self) -> u64 {
        self.session
    }

    /// Returns a number above those of all sessions.
    pub(crate) fn next_session(&self) -> u64 {
        self.newest.max(self.session) + 1
    }

    pub(crate) fn begin(&mut self, session: u64) {
        self.session = session;
        self.newest = self.newest.max(session);
    }

    /// Resets the records for a newly formatted cache.
    pub(crate) fn begin_anew(&mut self) {
        self.session = self.newest + 1;
        self.incomplete.clear();
        self.given_up.clear();
    }

    /// Loses the directory: nothing is trusted.
    pub(crate) fn lose(&mut self) {
        self.log.lose();
        self.session = 0;
        self.distrust_all();
    }

    pub(crate) const fn reboot(&mut self) {
        self.log.reboot();
    }

    pub(crate) const fn log(&self) -> &IntentLog {
        &self.log
    }

    pub(crate) const fn log_mut(&mut self) -> &mut IntentLog {
        &mut self.log
    }

    pub(crate) fn is_distrusted(&self, volume: usize) -> bool {
        self.distrusted[volume]
    }

    pub(crate) fn distrust(&mut self, volume: usize) {
        self.distrusted[volume] = true;
    }

    pub(crate) fn distrust_all(&mut self) {
        self.distrusted.fill(true);
    }

    pub(crate) fn trust(&mut self, volume: usize) {
        self.distrusted[volume] = false;
    }

    pub(crate) fn trust_all(&mut self) {
        self.distrusted.fill(false);
    }

    pub(crate) fn may_be_dirty(&self, volume: usize) -> bool {
        self.dirty[volume]
    }

    pub(crate) fn any_dirty(&self) -> bool {
        self.dirty.contains(&true)
    }

    /// Records that the volume may be dirty from now on, if it `is_dirty`.
    pub(crate) fn note_dirty(&mut self, volume: usize, is_dirty: bool) {
        self.dirty[volume] |= is_dirty;
    }

    pub(crate) fn set_dirty(&mut self, volume: usize, is_dirty: bool) {
        self.dirty[volume] = is_dirty;
    }

    /// Marks the volume clean. Returns `true` if it might have been dirty.
    pub(crate) fn take_dirty(&mut self, volume: usize) -> bool {
        core::mem::take(&mut self.dirty[volume])
    }

    pub(crate) fn all_clean(&mut self) {
        self.dirty.fill(false);
    }

    /// Fences all volumes that may be dirty, after a start that could not determine all dirty data.
    pub(crate) fn fence_dirty(&mut self) {
        let dirty = self.dirty.iter().enumerate().filter(|(_, is_dirty)| **is_dirty);
        self.incomplete.extend(dirty.map(|(volume, _)| volume));
    }

    /// Returns the volumes with a fence. A clean volume loses its fence.
    pub(crate) fn fenced(&mut self) -> Vec<VolumeId> {
        self.incomplete.retain(|volume| self.dirty[*volume]);
        self.incomplete.iter().map(|volume| VolumeId(*volume as u16)).collect()
    }

    pub(crate) fn is_incomplete(&self, volume: usize) -> bool {
        self.incomplete.contains(&volume)
    }

    /// Records that an operator accepts the known data. Returns `true` if the volume had a fence.
    pub(crate) fn complete(&mut self, volume: usize) -> bool {
        self.incomplete.remove(&volume)
    }

    /// Gives up all epochs of the volume up to this one.
    pub(crate) fn give_up(&mut self, volume: usize, epoch: u64) {
        let newest = self.given_up.entry(volume).or_default();
        *newest = epoch.max(*newest);
    }

    /// Sets the newest epoch given up, after the cache device was closed.
    pub(crate) fn set_given_up(&mut self, volume: usize, epoch: u64) {
        self.given_up.insert(volume, epoch);
    }

    pub(crate) fn was_given_up(&self, volume: usize) -> bool {
        self.given_up.contains_key(&volume)
    }

    /// Returns the newest epoch given up, by volume.
    pub(crate) const fn given_up(&self) -> &BTreeMap<usize, u64> {
        &self.given_up
    }

    /// Forgets epochs given up of a volume. Returns `true` if there were any.
    pub(crate) fn forget_given_up_of(&mut self, volume: usize) -> bool {
        self.given_up.remove(&volume).is_some()
    }

    /// Forgets all epochs given up, because the cache device has recorded them.
    pub(crate) fn forget_given_up(&mut self) {
        self.given_up.clear();
    }

    /// Returns `true` if there are fences, or epochs that were given up.
    pub(crate) fn has_open_cases(&self) -> bool {
        !self.incomplete.is_empty() || !self.given_up.is_empty()
    }

    /// Records a distrust, or fails to.
    pub(crate) fn record(
        &mut self,
        env: &mut Env,
        faults: &Faults,
        trouble: &mut Trouble,
        (op, volume): (OpId, Option<VolumeId>),
    ) -> Event {
        if faults.is_state_failing(env.now()) || env.happens(faults.record_errors) {
            env.note("records in the state directory that failed");
            let now_ms = env.now_ms();
            trouble.unrecorded_ms.get_or_insert(now_ms);
            let error = if faults.is_full(env.now()) { ErrorKind::NoSpace } else { ErrorKind::Io };
            return Event::DeviceDone { op, result: Err(error) };
        }
        self.record_now(volume);
        Event::DeviceDone { op, result: Ok(()) }
    }

    /// Records a distrust of one volume, or of all.
    pub(crate) fn record_now(&mut self, volume: Option<VolumeId>) {
        match volume {
            Some(volume) => self.distrust(usize::from(volume.0)),
            None => self.distrust_all(),
        }
    }
}
