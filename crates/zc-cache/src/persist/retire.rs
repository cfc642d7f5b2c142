//! Retirements: the marks of regions that are not written any more go (see the module above for when they may).

use zc_core::{ErrorKind, VolumeId};

use crate::expect_held::ExpectHeld;
use crate::manager::CacheManager;
use crate::origin::tracker::FlushWaiter;
use crate::persist::regions::Retirement;

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
pub(crate) struct Retirements {
    pub(crate) running: Option<Retiring>,
    /// Not before, as an origin did not flush.
    not_before_ms: u64,
    /// When marks are looked at for their age again.
    aged_at_ms: u64,
    /// Mappings from media were voided, and no region map names the journal block that says so yet.
    pub(crate) voids_owed: bool,
    /// The last attempt to end inherited marks failed for some volume.
    inherited_failed: bool,
}

/// A retirement on its way.
#[derive(Debug)]
pub(crate) struct Retiring {
    /// None: the inherited regions.
    candidates: Option<Retirement>,
    /// Volumes whose origins are asked to flush. What an earlier session wrote to others may not be durable there.
    asked: Vec<VolumeId>,
    flushes: u32,
    journal: u64,
    /// Volumes whose origins did not flush.
    failed: Vec<(VolumeId, ErrorKind)>,
}

impl CacheManager {
    pub(super) fn pump_retiring(&mut self) {
        if self.retirements.running.is_none() {
            self.begin_retiring();
        }
        let Some(retiring) = &self.retirements.running else { return };
        if retiring.flushes > 0 || !self.journal.is_durable(retiring.journal) {
            return;
        }
        let Some(Retiring { candidates, asked, failed, .. }) = self.retirements.running.take() else {
            return;
        };
        let mut gone = 0;
        match candidates {
            Some(candidates) => {
                let volumes = &self.volumes;
                gone = self
                    .regions
                    .retire(&candidates, |id| volumes.get(&id).map_or(0, |v| v.origin.writes_flushed()));
                self.stats.regions_retired += zc_core::u64_from_usize(gone);
                self.maps.stale |= gone > 0;
            }
            None => {
                let has_failed = |id| failed.iter().any(|(volume, _)| *volume == id);
                let keeps = !self.is_map_crowded();
                self.regions.drop_inherited(|id| has_failed(id) || (keeps && !asked.contains(&id)));
                self.retirements.inherited_failed = !failed.is_empty();
                self.retirements.voids_owed |= self.retirements.inherited_failed;
                self.maps.stale = true;
            }
        }
        if !failed.is_empty() {
            self.retirements.not_before_ms = self.now_ms + RETIRE_BACKOFF_MS;
            // An origin that does not flush must not keep the daemon from stopping: the marks stay.
            self.stop.unsettled |= self.stop.wanted;
            self.fail_waiting_writes(&failed, gone > 0);
        }
        self.admit_waiting();
    }

    fn begin_retiring(&mut self) {
        if self.load.is_some()
            || self.stop.flush.is_some()
            || (self.stop.unsettled && self.waiting.for_room.is_empty())
            || self.now_ms < self.retirements.not_before_ms
        {
            return;
        }
        // Where an origin does not flush, other marks have their turn, too.
        let others_first = core::mem::take(&mut self.retirements.inherited_failed) && self.regions.len() > 0;
        if !others_first && (self.has_inherited() || core::mem::take(&mut self.retirements.voids_owed)) {
            self.retirements.voids_owed = false;
            let volumes: Vec<_> = self.volumes.keys().copied().collect();
            self.start_retiring(None, volumes);
            return;
        }
        let idle = self.stop.wanted || self.now_ms.saturating_sub(self.last_write_ms) >= IDLE_RETIRE_MS;
        let crowded = self.regions.len() * 4 >= self.regions.max() * 3 || !self.waiting.for_room.is_empty();
        let aged = self.now_ms >= self.retirements.aged_at_ms;
        if self.regions.len() == 0 || !(idle || crowded || aged) {
            return;
        }
        let (count, until_ms) = if idle {
            (self.regions.len(), u64::MAX)
        } else if crowded {
            (self.regions.max() / 2, u64::MAX)
        } else {
            self.retirements.aged_at_ms = self.now_ms + RETIRE_AGED_EVERY_MS;
            (self.regions.len(), self.now_ms.saturating_sub(RETIRE_AGE_MS))
        };
        let volumes = &self.volumes;
        let fails = |id| volumes.get(&id).is_some_and(|volume| volume.origin.has_flush_failed());
        if let Some(candidates) = self.regions.retirement(count.max(1), until_ms, fails) {
            debug_assert!(candidates.len() <= self.regions.len());
            let volumes = self.regions.volumes(&candidates);
            self.start_retiring(Some(candidates), volumes);
        }
    }

    fn start_retiring(&mut self, candidates: Option<Retirement>, mut volumes: Vec<VolumeId>) {
        volumes.retain(|id| self.volumes.contains_key(id));
        volumes.sort_unstable();
        let journal = self.journal.want_all();
        let flushes = u32::try_from(volumes.len()).unwrap_or(u32::MAX);
        let asked = volumes.clone();
        self.retirements.running = Some(Retiring { candidates, asked, flushes, journal, failed: Vec::new() });
        for volume in volumes {
            self.flush_origin(volume, FlushWaiter::Retire);
        }
        self.pump_journal();
    }

    pub(crate) fn retire_flush_done(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        if let Some(retiring) = &mut self.retirements.running {
            retiring.flushes -= 1;
            retiring.failed.extend(result.err().map(|error| (volume, error)));
        }
    }

    /// Origins do not flush: writes that need room for their marks fail rather than hang. Those of other volumes wait if
    /// some room was made.
    fn fail_waiting_writes(&mut self, failed: &[(VolumeId, ErrorKind)], others_wait: bool) {
        for id in core::mem::take(&mut self.waiting.for_room) {
            let volume = self.writes.get(&id).expect_held().volume;
            let own = failed.iter().find(|(failed, _)| *failed == volume);
            match own.or_else(|| failed.first().filter(|_| !others_wait)) {
                Some((_, error)) => self.end_write(id, Err(*error)),
                None => self.waiting.for_room.push_back(id),
            }
        }
    }

    pub(crate) fn admit_waiting(&mut self) {
        while let Some(id) = self.waiting.for_room.front().copied() {
            if !self.mark_piece(id) {
                return;
            }
            self.waiting.for_room.pop_front();
        }
        self.pump_map();
    }

    /// Whether inherited marks would starve the writes of volumes that are served.
    fn is_map_crowded(&self) -> bool {
        self.regions.inherited_len() > zc_core::usize_from_u32(zc_core::limits::ACTIVE_REGIONS_MAX / 2)
    }

    /// Whether volumes that are served have inherited marks. Those of others stay until they are served.
    fn has_inherited(&self) -> bool {
        self.is_map_crowded() || self.regions.inherited_volumes().any(|id| self.volumes.contains_key(&id))
    }

    /// Whether a clean stop may say that no region of a served volume is marked.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.regions.len() == 0 && !self.has_inherited() && !self.maps.stale && !self.retirements.voids_owed
    }
}
