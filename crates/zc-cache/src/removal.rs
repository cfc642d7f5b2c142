//! A volume goes while the cache is used, and its number becomes free.
//!
//! Job: take all of a volume out of the cache, durably: what is under way for it, copies in memory, mappings, the marks
//! of its regions. What it stored goes on to serve other volumes of its domain until it is evicted.
//!
//! # Why nothing old is served under the number afterwards (G1, G2)
//! 1. Nothing begins any more, as the driver submits nothing, and what had begun ends. So nothing is mapped later.
//! 2. Headers are loaded. So what the index lacks is void on media already.
//! 3. The origin is flushed: it alone has all that clients were told.
//! 4. Each mapping that the index has is recorded as void, a bounded number in an event.
//! 5. The journal is durable, then a region map that names its last block. A start that cannot replay to there believes
//!    no mapping at all. That map has none of the volume's marks, which nothing needs: it has no mappings, and its
//!    origin no write that was not flushed.
//!
//! A crash before the end leaves a volume some of whose mappings are void, which is always true. Epochs of the dirty
//! layer go on counting under the number: a record `Clean` of the volume that is gone must not cover a commit of another.
//!
//! What it does not do: bring dirty data to the origin, or give it up; it waits until there is none.

use std::collections::BTreeMap;

use zc_core::{ErrorKind, VolumeId};

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::device::Device;
use crate::health::Health;
use crate::index::file_index::{Keep, SweepCursor};
use crate::manager::CacheManager;
use crate::origin::tracker::FlushWaiter;
use crate::seam::{Action, Note};

/// Index buckets looked through at once, ...
const BUCKETS: usize = 1024;
/// ... how often in an event, ...
const SWEEPS_MAX: usize = 8;
/// ... unless so many mappings were found.
const VOIDS_ENOUGH: usize = 4096;

/// Volumes that are going.
#[derive(Debug, Default)]
pub(crate) struct Removals(BTreeMap<VolumeId, Step>);

/// How far it is.
#[derive(Debug)]
enum Step {
    /// What is under way for it ends. Looked at once a tick: it is a walk over all that is under way.
    Ending { looked_ms: Option<u64> },
    /// Its origin is flushed.
    Flushing,
    /// Its mappings become void.
    Voiding(SweepCursor),
    /// The journal becomes durable up to here.
    Recording { position: u64 },
    /// A map of a higher sequence than this one becomes durable.
    Mapping { above: u64 },
}

impl Removals {
    /// Whether a region map is waited for.
    pub(crate) fn want_map(&self) -> bool {
        self.0.values().any(|step| matches!(step, Step::Mapping { .. }))
    }
}

impl Base {
    pub(crate) fn is_flushing(&self, volume: VolumeId) -> bool {
        self.volumes.get(&volume).is_some_and(|entry| entry.origin.is_flushing())
    }
}

impl Device {
    /// Voids the next mappings of the volume. Whether these were the last.
    pub(crate) fn void_some(&mut self, volume: VolumeId, cursor: &mut SweepCursor, base: &mut Base) -> bool {
        let mut voided = 0;
        for _ in 0..SWEEPS_MAX {
            if voided >= VOIDS_ENOUGH || self.journal_is_pressed() {
                return false;
            }
            let mut found = Vec::new();
            let is_last = self.index.files.sweep(cursor, BUCKETS, |key, _| {
                if key.volume == volume {
                    found.push(key);
                }
                Keep::Yes
            });
            voided += found.len();
            for key in found {
                self.forget(key, base);
            }
            if is_last {
                return true;
            }
        }
        false
    }
}

impl Clean {
    /// Lets go of copies in memory, and of the results of what is under way.
    fn let_go_of(&mut self, volume: VolumeId, core: &mut Core) {
        core.device.index.tracks.change_all(|key| key.volume == volume);
        self.recipes.remove_all(|key| key.volume == volume);
        let copies: Vec<_> = self.read_buffer.keys().filter(|key| key.volume == volume).collect();
        let ahead: Vec<_> = self.ahead.keys().filter(|key| key.volume == volume).collect();
        let staged: Vec<_> = self.staging.keys().filter(|key| key.volume == volume).collect();
        for key in copies {
            if let Some(buf) = self.read_buffer.invalidate(&key) {
                core.base.port.release(buf);
            }
        }
        ahead.into_iter().for_each(|key| self.drop_prefetched(key, core));
        staged.into_iter().for_each(|key| self.drop_idle_staged(key, core));
    }
}

impl CacheManager {
    /// Whether volumes are going, which takes time alone: ticks must not become rare.
    #[must_use]
    pub fn is_removing(&self) -> bool {
        !self.removals.0.is_empty()
    }

    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        if self.core.base.volumes.contains_key(&volume) {
            self.removals.0.entry(volume).or_insert(Step::Ending { looked_ms: None });
        }
    }

    /// Goes on with each of them as far as that is possible now.
    pub(crate) fn pump_removals(&mut self) {
        if self.removals.0.is_empty() {
            return;
        }
        let is_over = self.core.base.health != Health::Good || self.core.base.stopping;
        for volume in self.removals.0.keys().copied().collect::<Vec<_>>() {
            if is_over {
                self.removal_ends(volume, Err(ErrorKind::Io));
                continue;
            }
            while let Some(step) = self.removals.0.remove(&volume) {
                let (step, goes_on) = self.step_removal(volume, step);
                let Some(step) = step else {
                    self.removal_ends(volume, Ok(()));
                    break;
                };
                self.removals.0.insert(volume, step);
                if !goes_on {
                    break;
                }
            }
        }
    }

    /// The next step, and whether it can be taken now; none: it is gone.
    fn step_removal(&mut self, volume: VolumeId, step: Step) -> (Option<Step>, bool) {
        let is_new = |looked_ms: Option<u64>| looked_ms != Some(self.core.base.now_ms);
        match step {
            Step::Ending { looked_ms } if is_new(looked_ms) => {
                self.clean.let_go_of(volume, &mut self.core);
                if !self.is_quiet(volume) {
                    return (Some(Step::Ending { looked_ms: Some(self.core.base.now_ms) }), false);
                }
                self.core.base.flush_origin(volume, FlushWaiter::Remove);
                (Some(Step::Flushing), false)
            }
            Step::Voiding(mut cursor) => {
                let is_done = self.core.device.void_some(volume, &mut cursor, &mut self.core.base);
                let position = if is_done { self.core.device.meta.journal.want_all() } else { 0 };
                (Some(if is_done { Step::Recording { position } } else { Step::Voiding(cursor) }), is_done)
            }
            Step::Recording { position } if self.core.device.meta.journal.is_durable(position) => {
                self.core.device.meta.regions.remove(volume);
                self.core.device.meta.want_map();
                (Some(Step::Mapping { above: self.core.device.meta.newest_map() }), false)
            }
            // Regions of all volumes may be retired meanwhile, with a flush of this origin too.
            Step::Mapping { above }
                if self.core.device.meta.durable_map() > above && !self.core.base.is_flushing(volume) =>
            {
                (None, false)
            }
            step => (Some(step), false),
        }
    }

    /// The origin was flushed, or could not be.
    pub(crate) fn removal_flushed(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        if !self.removals.0.contains_key(&volume) {
            return;
        }
        match result {
            Ok(()) => drop(self.removals.0.insert(volume, Step::Voiding(SweepCursor::default()))),
            Err(error) => self.removal_ends(volume, Err(error)),
        }
    }

    fn removal_ends(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        self.removals.0.remove(&volume);
        if result.is_ok() {
            self.clean.recipes.remove_all(|key| key.volume == volume);
            self.core.base.volumes.remove(&volume);
            self.core.device.recovery.probes.remove(volume);
            self.tell_contents(volume, false);
            self.core.base.stats.volumes_removed += 1;
        }
        self.core.base.port.emit(Action::Note(Note::Removed { volume, result }));
    }

    /// Whether nothing is under way for the volume, and nothing of it is left to be loaded.
    fn is_quiet(&self, volume: VolumeId) -> bool {
        let has_work = self.dirty.jobs.values().any(|job| job.key.volume == volume)
            || self.dirty.volumes.get(&volume).is_some_and(|dirty| dirty.is_dirty() || dirty.is_busy());
        self.core.device.recovery.load.is_none()
            && !has_work
            && !self.core.base.is_flushing(volume)
            && !self.core.device.index.tracks.has(|key| key.volume == volume)
            && !self.clean.staging.keys().any(|key| key.volume == volume)
            && !self.clean.writes.values().any(|write| write.volume == volume)
            && !self.clean.reads.values().any(|read| read.volume() == volume)
            && !self.clean.fills.values().any(|fill| fill.volume() == volume)
            && !self.clean.recipes.is_asking(volume)
            && !self.core.device.recovery.probes.has_outstanding(volume)
    }
}
