//! The state directory as a device: it fails, hangs, is full together with the cache device, and is lost.
//!
//! Job: carry out the changes that the manager asks for there, or fail them, or let them hang as long as the driver has
//! patience; withdraw the intent log and the risk file when they cannot be written; begin and end sessions accordingly;
//! and lose all of it between two sessions.
//!
//! A lost directory is an operator's mistake or a new disk. Clean contents are not believed then. Dirty data is refused
//! until an operator trusts the cache device with it, which is taken for granted here. What only the directory knew is
//! gone: which epochs were given up while the device was out of reach, which volumes are fenced, and to which clients a
//! loss is owed. So much is forgiven, and nothing else.
//!
//! What it does not do: tear files, which are replaced as a whole; fail the withdrawal of a file that could not be
//! written.

use rand::RngExt as _;
use zc_cache::CacheManager;
use zc_cache::seam::{Action, Event};
use zc_core::{ErrorKind, OpId, VolumeId};

use crate::world::World;

/// The driver waits so long for a change. The daemon waits for 5 s, in which little else would happen here.
const CHANGE_MS: u64 = 500;
/// The manager waits so long for a distrust to be recorded before it fails writes that need it.
const RECORD_PATIENCE_MS: u64 = 30_000;

impl World {
    /// Cache device and state directory are on one file system, which is full.
    pub(crate) fn is_full(&self) -> bool {
        self.faults.full.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    /// Nothing can be changed in the state directory now.
    pub(crate) fn is_state_failing(&self) -> bool {
        self.is_full() || self.faults.state_gone.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    /// What is asked of the state directory does not end now.
    pub(crate) fn is_state_hanging(&self) -> bool {
        self.faults.state_hangs.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    /// A distrust is recorded, or not.
    pub(crate) fn record_distrust(&mut self, op: OpId, volume: Option<VolumeId>) -> Event {
        if self.is_state_failing() || self.happens(self.faults.record_errors) {
            self.coverage.note("records in the state directory that failed");
            self.trouble.unrecorded_ms.get_or_insert(self.now_ms);
            let error = if self.is_full() { ErrorKind::NoSpace } else { ErrorKind::Io };
            return Event::DeviceDone { op, result: Err(error) };
        }
        self.distrust(volume);
        Event::DeviceDone { op, result: Ok(()) }
    }

    fn distrust(&mut self, volume: Option<VolumeId>) {
        match volume {
            Some(volume) => self.distrusted[usize::from(volume.0)] = true,
            None => self.distrusted.fill(true),
        }
    }

    /// Changes that hang are not waited for any longer. They may be carried out all the same.
    pub(crate) fn end_late_changes(&mut self) {
        let now_ms = self.now_ms;
        let is_late = |(action, asked_ms): &(Action, u64)| {
            matches!(action, Action::Distrust { .. }) && now_ms.saturating_sub(*asked_ms) >= CHANGE_MS
        };
        while let Some(index) = self.pending.iter().position(is_late) {
            let (action, _) = self.pending.swap_remove(index);
            let Action::Distrust { op, volume } = action else { return };
            self.coverage.note("changes of the state directory that hung");
            self.trouble.unrecorded_ms.get_or_insert(now_ms);
            if self.rng.random_bool(0.5) {
                self.distrust(volume);
            }
            self.event(Event::DeviceDone { op, result: Err(ErrorKind::TimedOut) });
        }
    }

    /// Files without a flush are withdrawn when they cannot be written.
    pub(crate) fn withdraw_files(&mut self) {
        if self.is_state_failing() {
            self.files.lose_intents();
            self.losses.lose_risks();
        }
    }

    /// Whether a write may fail because neither cache device nor state directory can tell the next start of it.
    pub(crate) fn is_unrecordable(&self) -> bool {
        let is_pending = self.manager.as_ref().is_some_and(CacheManager::is_distrust_pending);
        let waited_ms = self.trouble.unrecorded_ms.map_or(0, |since_ms| self.now_ms - since_ms);
        is_pending && waited_ms + 2 * CHANGE_MS >= RECORD_PATIENCE_MS
    }

    /// A start needs the state directory. It is mended first, and may have been lost.
    pub(crate) fn look_for_state(&mut self) {
        if self.is_state_failing() {
            self.coverage.note("starts that waited for the state directory");
            self.faults.state_gone = None;
            self.faults.full = None;
        }
        if self.faults.state_lost && !self.mended && self.rng.random_bool(0.1) {
            self.lose_state();
        }
    }

    fn lose_state(&mut self) {
        self.trace(|| "the state directory is lost".to_owned());
        self.coverage.note("state directories lost");
        self.files.lose_intents();
        self.files.session = 0;
        self.distrusted.fill(true);
        for volume in 0..self.volumes.len() {
            let was_given_up = self.files.given_up.remove(&volume).is_some();
            let was_fenced = self.files.incomplete.remove(&volume);
            // The device still says that the volume may be dirty.
            self.maybe_dirty[volume] |= was_given_up;
            if was_given_up || was_fenced {
                self.forgive(volume);
            }
            self.trouble.old_records |= was_fenced;
            self.losses.lose(volume, self.maybe_dirty[volume]);
        }
    }
}
