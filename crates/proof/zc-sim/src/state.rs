//! The state directory: what the machine keeps beside the cache device.
//!
//! Job: carry out the changes that the manager asks for there, or fail them; and know across sessions which volumes are
//! distrusted, may be dirty, were given up, or have a fence.
//!
//! A lost directory is an operator's mistake or a new disk. Clean contents are not believed then. Dirty data is refused
//! until an operator trusts the cache device with it, which is taken for granted here. What only the directory knew is
//! gone: which epochs were given up while the device was out of reach, which volumes are fenced, and to which clients a
//! loss is owed. So much is forgiven, and nothing else.
//!
//! What it does not do: tear files, which are replaced as a whole; fail the withdrawal of a file that could not be
//! written.

use std::collections::{BTreeMap, BTreeSet};

use zc_cache::seam::Event;
use zc_core::{ErrorKind, OpId, VolumeId};

use crate::drawn::Faults;
use crate::env::Env;
use crate::intents::IntentLog;
use crate::trouble::Trouble;

/// The state directory and the intent log.
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    /// The newest session that the directory knows.
    session: u64,
    /// The newest session of all, as a clock would tell.
    newest: u64,
    log: IntentLog,
    /// Volumes whose contents on the cache device are not to be believed.
    distrusted: Vec<bool>,
    /// Volumes that may have data that only the cache device has.
    dirty: Vec<bool>,
    /// Volumes of which a start could not tell all dirty data, and the operator has not accepted that since.
    incomplete: BTreeSet<usize>,
    /// Epochs to here were given up while the cache could not be told, by volume.
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

    /// The newest session that the directory knows.
    pub(crate) const fn session(&self) -> u64 {
        self.session
    }

    /// A number above those of all sessions.
    pub(crate) fn next_session(&self) -> u64 {
        self.newest.max(self.session) + 1
    }

    /// A session begins.
    pub(crate) fn begin(&mut self, session: u64) {
        self.session = session;
        self.newest = self.newest.max(session);
    }

    /// The cache is formatted anew: nothing is known of it.
    pub(crate) fn begin_anew(&mut self) {
        self.session = self.newest + 1;
        self.incomplete.clear();
        self.given_up.clear();
    }

    /// The directory is lost: nothing is trusted.
    pub(crate) fn lose(&mut self) {
        self.log.lose();
        self.session = 0;
        self.distrust_all();
    }

    /// The machine starts anew.
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

    /// The volume may be dirty from here on, if it `is_dirty`.
    pub(crate) fn note_dirty(&mut self, volume: usize, is_dirty: bool) {
        self.dirty[volume] |= is_dirty;
    }

    pub(crate) fn set_dirty(&mut self, volume: usize, is_dirty: bool) {
        self.dirty[volume] = is_dirty;
    }

    /// The volume is clean. Returns `true` if it might have been dirty.
    pub(crate) fn take_dirty(&mut self, volume: usize) -> bool {
        core::mem::take(&mut self.dirty[volume])
    }

    pub(crate) fn all_clean(&mut self) {
        self.dirty.fill(false);
    }

    /// A start could not tell all dirty data of any volume.
    pub(crate) fn fence_dirty(&mut self) {
        let dirty = self.dirty.iter().enumerate().filter(|(_, is_dirty)| **is_dirty);
        self.incomplete.extend(dirty.map(|(volume, _)| volume));
    }

    /// Volumes with a fence: a clean one has none any more.
    pub(crate) fn fenced(&mut self) -> Vec<VolumeId> {
        self.incomplete.retain(|volume| self.dirty[*volume]);
        self.incomplete.iter().map(|volume| VolumeId(*volume as u16)).collect()
    }

    pub(crate) fn is_incomplete(&self, volume: usize) -> bool {
        self.incomplete.contains(&volume)
    }

    /// An operator accepts what is known. Returns `true` if the volume had a fence.
    pub(crate) fn complete(&mut self, volume: usize) -> bool {
        self.incomplete.remove(&volume)
    }

    /// All epochs of the volume up to this one are given up.
    pub(crate) fn give_up(&mut self, volume: usize, epoch: u64) {
        let newest = self.given_up.entry(volume).or_default();
        *newest = epoch.max(*newest);
    }

    /// The cache device has been closed: epochs to here, and no others, were given up.
    pub(crate) fn set_given_up(&mut self, volume: usize, epoch: u64) {
        self.given_up.insert(volume, epoch);
    }

    pub(crate) fn was_given_up(&self, volume: usize) -> bool {
        self.given_up.contains_key(&volume)
    }

    /// What was given up, by volume.
    pub(crate) const fn given_up(&self) -> &BTreeMap<usize, u64> {
        &self.given_up
    }

    /// Forgets what was given up of a volume. Returns `true` if anything was.
    pub(crate) fn forget_given_up_of(&mut self, volume: usize) -> bool {
        self.given_up.remove(&volume).is_some()
    }

    /// The cache device has been told.
    pub(crate) fn forget_given_up(&mut self) {
        self.given_up.clear();
    }

    /// Returns `true` if there are fences, or epochs that were given up.
    pub(crate) fn has_open_cases(&self) -> bool {
        !self.incomplete.is_empty() || !self.given_up.is_empty()
    }

    /// A distrust is recorded, or not.
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

    /// A distrust is recorded: of one volume, or of all.
    pub(crate) fn record_now(&mut self, volume: Option<VolumeId>) {
        match volume {
            Some(volume) => self.distrust(usize::from(volume.0)),
            None => self.distrust_all(),
        }
    }
}
