//! Removal of a volume while the cache is in use, after which its number is free.
//!
//! Job: take all of a volume out of the cache, durably: operations in progress for it, copies in memory, mappings,
//! the marks of its regions. Its stored content continues to serve other volumes of its domain until it is evicted.
//!
//! # Reasons that nothing old is served under the number afterwards (G1, G2)
//! 1. Nothing begins any more, as the driver submits nothing, and what had begun ends. So nothing is mapped later.
//! 2. Headers are loaded. So mappings that the index lacks are invalid on media already.
//! 3. The origin is flushed: only it has all data acknowledged to clients.
//! 4. Each mapping of the index is recorded as invalid, a bounded number in an event.
//! 5. The journal is durable, then a region map that names its last block. A start that cannot replay to there trusts
//!    no mapping at all. That map has none of the volume's marks, which nothing needs: it has no mappings, and its
//!    origin no write that was not flushed.
//!
//! A crash before the end leaves a volume some of whose mappings are invalid, which is always correct. Epochs of the
//! dirty layer continue to count under the number: a record `Clean` of the removed volume must not cover a commit of
//! another.
//!
//! Out of scope: bringing dirty data to the origin, or dropping it; the removal waits until there is none.

use std::collections::BTreeMap;

use zc_core::{ErrorKind, VolumeId};

use crate::base::origin::FlushWaiter;
use crate::clean::Clean;
use crate::config::ShareConfig;
use crate::device::Core;
use crate::dirty::DirtyLayer;
use crate::index::file_index::SweepCursor;
use crate::seam::{Action, Note};

#[derive(Debug, Default)]
pub(crate) struct Removals(BTreeMap<VolumeId, RemovalPhase>);

#[derive(Debug)]
enum RemovalPhase {
    /// Operations in progress for it are completing. Checked once a tick, since it is a walk over all operations in
    /// progress.
    Ending {
        looked_ms: Option<u64>,
    },
    Flushing,
    /// Its mappings become invalid.
    Voiding(SweepCursor),
    /// The journal becomes durable up to here.
    Recording {
        position: u64,
    },
    /// A map with a higher sequence than this becomes durable.
    Mapping {
        above: u64,
    },
}

impl Removals {
    /// Returns `true` if volumes are being removed.
    pub(crate) fn is_active(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn remove_volume(&mut self, volume: VolumeId, core: &mut Core) {
        if core.base.has_volume(volume) {
            self.0.entry(volume).or_insert(RemovalPhase::Ending { looked_ms: None });
            // Nothing more of it is brought into the cache.
            core.configure_pins(volume, &[], 0);
        }
    }

    /// Continues each of them as far as is possible now.
    pub(crate) fn pump_removals(&mut self, core: &mut Core, clean: &mut Clean, dirty: &mut DirtyLayer) {
        if self.0.is_empty() {
            return;
        }
        let is_over = !core.base.is_good() || core.base.is_stopping();
        for volume in self.0.keys().copied().collect::<Vec<_>>() {
            if is_over {
                self.removal_ends(volume, Err(ErrorKind::Io), core, clean);
                continue;
            }
            while let Some(step) = self.0.remove(&volume) {
                let (step, goes_on) = self.step_removal(volume, step, core, clean, dirty);
                let Some(step) = step else {
                    self.removal_ends(volume, Ok(()), core, clean);
                    break;
                };
                self.0.insert(volume, step);
                if !goes_on {
                    break;
                }
            }
        }
    }

    /// Returns the next step, and `true` if it can be taken now; `None` when the removal is complete.
    fn step_removal(
        &mut self,
        volume: VolumeId,
        step: RemovalPhase,
        core: &mut Core,
        clean: &mut Clean,
        dirty: &mut DirtyLayer,
    ) -> (Option<RemovalPhase>, bool) {
        let is_new = |looked_ms: Option<u64>| looked_ms != Some(core.base.now_ms());
        match step {
            RemovalPhase::Ending { looked_ms } if is_new(looked_ms) => {
                clean.copies_mut().let_go_of(volume, core);
                if !self.is_quiet(volume, core, clean, dirty) {
                    return (Some(RemovalPhase::Ending { looked_ms: Some(core.base.now_ms()) }), false);
                }
                core.base.flush_origin(volume, FlushWaiter::Remove);
                (Some(RemovalPhase::Flushing), false)
            }
            RemovalPhase::Voiding(mut cursor) => {
                let is_done = core.device.catalog.void_some(volume, &mut cursor, &mut core.base);
                let position =
                    if is_done { core.device.catalog.meta_mut().journal_mut().want_all() } else { 0 };
                (
                    Some(if is_done {
                        RemovalPhase::Recording { position }
                    } else {
                        RemovalPhase::Voiding(cursor)
                    }),
                    is_done,
                )
            }
            RemovalPhase::Recording { position }
                if core.device.catalog.meta().journal().is_durable(position) =>
            {
                core.device.catalog.meta_mut().regions_mut().remove(volume);
                let above = core.device.catalog.meta().newest_map();
                core.device.catalog.meta_mut().want_map();
                core.device.catalog.meta_mut().await_map(above);
                (Some(RemovalPhase::Mapping { above }), false)
            }
            // Regions of all volumes may be retired in the meantime, with a flush of this origin too.
            RemovalPhase::Mapping { above }
                if core.device.catalog.meta().durable_map() > above && !core.base.is_flushing(volume) =>
            {
                (None, false)
            }
            step => (Some(step), false),
        }
    }

    /// The origin was flushed, or could not be.
    pub(crate) fn removal_flushed(
        &mut self,
        volume: VolumeId,
        result: Result<(), ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        if !self.0.contains_key(&volume) {
            return;
        }
        match result {
            Ok(()) => drop(self.0.insert(volume, RemovalPhase::Voiding(SweepCursor::default()))),
            Err(error) => self.removal_ends(volume, Err(error), core, clean),
        }
    }

    fn removal_ends(
        &mut self,
        volume: VolumeId,
        result: Result<(), ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        self.0.remove(&volume);
        if result.is_ok() {
            clean.copies_mut().recipes_mut().remove_all(|key| key.volume == volume);
            core.base.remove_volume(volume);
            core.device.recovery.probes_mut().remove(volume);
            core.configure_share(volume, &ShareConfig::default());
            core.base.tell_contents(volume, false);
            core.base.stats.volumes_removed += 1;
        } else if let Some(cfg) = core.base.volume(volume).map(|volume| volume.cfg().clone()) {
            core.configure_pins(volume, &cfg.pins, cfg.size_bytes);
        }
        core.base.port.emit(Action::Note(Note::Removed { volume, result }));
    }

    /// Returns `true` if nothing is in progress for the volume, and nothing of it is left to be loaded.
    fn is_quiet(&self, volume: VolumeId, core: &Core, clean: &Clean, dirty: &DirtyLayer) -> bool {
        core.base.is_loaded()
            && dirty.is_quiet(volume)
            && clean.is_quiet(volume)
            && !core.base.is_flushing(volume)
            && !core.base.tracks.has(|key| key.volume == volume)
            && !core.device.recovery.probes().has_outstanding(volume)
    }
}
