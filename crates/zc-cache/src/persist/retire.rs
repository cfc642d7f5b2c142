//! Retirements: the marks of regions that are not written any more go (see the module above for when they may).

use zc_core::{ErrorKind, VolumeId};

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::device::Device;
use crate::expect_held::ExpectHeld;
use crate::manager::CacheManager;
use crate::origin::tracker::FlushWaiter;
use crate::persist::regions::Retirement;
use crate::write_back::WriteBack;

/// Without writes for so long, all marks are retired, so that a power cut finds everything warm.
pub(super) const IDLE_RETIRE_MS: u64 = 2000;

/// A mark whose region was not written for so long is retired, ...
const RETIRE_AGE_MS: u64 = 30_000;
/// ... together with others: a retirement for age alone costs the origin a flush and comes so often at most.
const RETIRE_AGED_EVERY_MS: u64 = 5000;
/// After an origin flush failed, the next retirement waits for so long.
const RETIRE_BACKOFF_MS: u64 = 500;

/// The retirement that is under way, and when there may be another.
#[derive(Debug, Default)]
pub(super) struct Retirements {
    running: Option<Retiring>,
    /// Not before, as an origin did not flush.
    not_before_ms: u64,
    /// When marks are looked at for their age again.
    aged_at_ms: u64,
    /// Mappings from media were voided, and no region map names the journal block that says so yet.
    voids_owed: bool,
    /// The last attempt to end inherited marks failed for some volume.
    inherited_failed: bool,
}

impl Retirements {
    /// Whether one is under way.
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The one under way will not end.
    pub(super) fn give_up(&mut self) {
        self.running = None;
    }

    /// Mappings from media were voided.
    pub(super) const fn owe_voids(&mut self) {
        self.voids_owed = true;
    }
}

/// A retirement on its way.
#[derive(Debug)]
struct Retiring {
    /// None: the inherited regions.
    candidates: Option<Retirement>,
    /// Volumes whose origins are asked to flush. What an earlier session wrote to others may not be durable there.
    asked: Vec<VolumeId>,
    flushes: u32,
    journal: u64,
    /// Volumes whose origins did not flush.
    failed: Vec<(VolumeId, ErrorKind)>,
}

impl Device {
    pub(crate) fn retire_flush_done(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        if let Some(retiring) = &mut self.meta.retirements.running {
            retiring.flushes -= 1;
            retiring.failed.extend(result.err().map(|error| (volume, error)));
        }
    }

    /// Whether inherited marks would starve the writes of volumes that are served.
    pub(crate) fn is_map_crowded(&self) -> bool {
        self.meta.regions.inherited_len() > zc_core::usize_from_u32(zc_core::limits::ACTIVE_REGIONS_MAX / 2)
    }

    /// Whether volumes that are served have inherited marks. Those of others stay until they are served.
    pub(crate) fn has_inherited(&self, base: &Base) -> bool {
        self.is_map_crowded()
            || self.meta.regions.inherited_volumes().any(|id| base.volumes.contains_key(&id))
    }

    /// Whether a clean stop may say that no region of a served volume is marked.
    pub(crate) fn is_unmarked(&self, base: &Base) -> bool {
        self.meta.regions.len() == 0
            && !self.has_inherited(base)
            && !self.meta.maps.is_stale()
            && !self.meta.retirements.voids_owed
    }
}

impl WriteBack {
    fn start_retiring(
        &mut self,
        candidates: Option<Retirement>,
        mut volumes: Vec<VolumeId>,
        core: &mut Core,
    ) {
        volumes.retain(|id| core.base.volumes.contains_key(id));
        volumes.sort_unstable();
        let journal = core.device.meta.journal.want_all();
        let flushes = u32::try_from(volumes.len()).unwrap_or(u32::MAX);
        let asked = volumes.clone();
        core.device.meta.retirements.running =
            Some(Retiring { candidates, asked, flushes, journal, failed: Vec::new() });
        for volume in volumes {
            core.base.flush_origin(volume, FlushWaiter::Retire);
        }
        self.pump_journal(core);
    }

    /// Origins do not flush: writes that need room for their marks fail rather than hang. Those of other volumes wait if
    /// some room was made.
    fn fail_waiting_writes(
        &mut self,
        failed: &[(VolumeId, ErrorKind)],
        others_wait: bool,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        for id in core::mem::take(&mut clean.waiting.for_room) {
            let volume = clean.writes.get(&id).expect_held().volume;
            let own = failed.iter().find(|(failed, _)| *failed == volume);
            match own.or_else(|| failed.first().filter(|_| !others_wait)) {
                Some((_, error)) => self.end_write(id, Err(*error), core, clean),
                None => clean.waiting.for_room.push_back(id),
            }
        }
    }
}

impl CacheManager {
    pub(super) fn pump_retiring(&mut self) {
        if self.core.device.meta.retirements.running.is_none() {
            self.begin_retiring();
        }
        let Some(retiring) = &self.core.device.meta.retirements.running else { return };
        if retiring.flushes > 0 || !self.core.device.meta.journal.is_durable(retiring.journal) {
            return;
        }
        let Some(Retiring { candidates, asked, failed, .. }) =
            self.core.device.meta.retirements.running.take()
        else {
            return;
        };
        let mut gone = 0;
        match candidates {
            Some(candidates) => {
                let volumes = &self.core.base.volumes;
                gone = self
                    .core
                    .device
                    .meta
                    .regions
                    .retire(&candidates, |id| volumes.get(&id).map_or(0, |v| v.origin.writes_flushed()));
                self.core.base.stats.regions_retired += zc_core::u64_from_usize(gone);
                if gone > 0 {
                    self.core.device.meta.maps.mark_stale();
                }
            }
            None => {
                let has_failed = |id| failed.iter().any(|(volume, _)| *volume == id);
                let keeps = !self.core.device.is_map_crowded();
                self.core
                    .device
                    .meta
                    .regions
                    .drop_inherited(|id| has_failed(id) || (keeps && !asked.contains(&id)));
                self.core.device.meta.retirements.inherited_failed = !failed.is_empty();
                self.core.device.meta.retirements.voids_owed |=
                    self.core.device.meta.retirements.inherited_failed;
                self.core.device.meta.maps.mark_stale();
            }
        }
        if !failed.is_empty() {
            self.core.device.meta.retirements.not_before_ms = self.core.base.now_ms + RETIRE_BACKOFF_MS;
            // An origin that does not flush must not keep the daemon from stopping: the marks stay.
            self.stop.unsettled |= self.core.base.stopping;
            self.dirty.fail_waiting_writes(&failed, gone > 0, &mut self.core, &mut self.clean);
        }
        self.admit_waiting();
    }

    fn begin_retiring(&mut self) {
        if self.core.device.recovery.load.is_some()
            || self.stop.flush.is_some()
            || (self.stop.unsettled && self.clean.waiting.for_room.is_empty())
            || self.core.base.now_ms < self.core.device.meta.retirements.not_before_ms
        {
            return;
        }
        // Where an origin does not flush, other marks have their turn, too.
        let others_first = core::mem::take(&mut self.core.device.meta.retirements.inherited_failed)
            && self.core.device.meta.regions.len() > 0;
        if !others_first
            && (self.core.device.has_inherited(&self.core.base)
                || core::mem::take(&mut self.core.device.meta.retirements.voids_owed))
        {
            self.core.device.meta.retirements.voids_owed = false;
            let volumes: Vec<_> = self.core.base.volumes.keys().copied().collect();
            self.dirty.start_retiring(None, volumes, &mut self.core);
            return;
        }
        let idle = self.core.base.stopping
            || self.core.base.now_ms.saturating_sub(self.core.base.last_write_ms) >= IDLE_RETIRE_MS;
        let crowded = self.core.device.meta.regions.len() * 4 >= self.core.device.meta.regions.max() * 3
            || !self.clean.waiting.for_room.is_empty();
        let aged = self.core.base.now_ms >= self.core.device.meta.retirements.aged_at_ms;
        if self.core.device.meta.regions.len() == 0 || !(idle || crowded || aged) {
            return;
        }
        let (count, until_ms) = if idle {
            (self.core.device.meta.regions.len(), u64::MAX)
        } else if crowded {
            (self.core.device.meta.regions.max() / 2, u64::MAX)
        } else {
            self.core.device.meta.retirements.aged_at_ms = self.core.base.now_ms + RETIRE_AGED_EVERY_MS;
            (self.core.device.meta.regions.len(), self.core.base.now_ms.saturating_sub(RETIRE_AGE_MS))
        };
        let volumes = &self.core.base.volumes;
        let fails = |id| volumes.get(&id).is_some_and(|volume| volume.origin.has_flush_failed());
        if let Some(candidates) = self.core.device.meta.regions.retirement(count.max(1), until_ms, fails) {
            debug_assert!(candidates.len() <= self.core.device.meta.regions.len());
            let volumes = self.core.device.meta.regions.volumes(&candidates);
            self.dirty.start_retiring(Some(candidates), volumes, &mut self.core);
        }
    }

    pub(crate) fn admit_waiting(&mut self) {
        while let Some(id) = self.clean.waiting.for_room.front().copied() {
            if !self.clean.mark_piece(id, &mut self.core) {
                return;
            }
            self.clean.waiting.for_room.pop_front();
        }
        self.pump_map();
    }
}
