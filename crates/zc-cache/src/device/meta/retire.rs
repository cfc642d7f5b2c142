//! Retirement: removal of the marks of regions that are no longer written (conditions: see the parent module).

use zc_core::{ErrorKind, VolumeId};

use crate::base::Base;
use crate::base::origin::FlushWaiter;
use crate::device::meta::journal::Journal;
use crate::device::meta::region_map::{IDLE_RETIRE_MS, RegionMaps};
use crate::device::meta::regions::{Regions, Retirement};

/// Age of a region's last write after which its mark is retired.
const RETIRE_AGE_MS: u64 = 30_000;
/// Minimum interval of retirements for age, each of which costs the origin a flush.
const RETIRE_AGED_EVERY_MS: u64 = 5000;
/// Delay of the next retirement after a failed origin flush.
const RETIRE_BACKOFF_MS: u64 = 500;

/// Retirement in progress, and the earliest time of the next one.
#[derive(Debug, Default)]
pub(super) struct Retirements {
    running: Option<Retiring>,
    /// Earliest time of a retry after a failed origin flush.
    not_before_ms: u64,
    /// Time of the next check of marks for their age.
    aged_at_ms: u64,
    /// Mappings from media were invalidated, and no region map names the journal block with these records yet.
    voids_pending: bool,
    /// The last attempt to retire inherited marks failed for some volume.
    inherited_failed: bool,
    /// An origin failed to flush during the stop: marks remain on the device.
    marks_stay: bool,
    /// No further retirement may begin.
    closed: bool,
}

impl Retirements {
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Abandons the retirement in progress.
    pub(super) fn give_up(&mut self) {
        self.running = None;
    }

    /// Records that mappings from media were invalidated.
    pub(super) const fn want_voids(&mut self) {
        self.voids_pending = true;
    }

    /// Prevents further retirements before the final flush of the device.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }

    /// Returns `true` if marks remain on the device after a stop, because an origin does not flush.
    pub(super) const fn do_marks_stay(&self) -> bool {
        self.marks_stay
    }
}

/// Progress of retirements.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    /// A retirement began, for which the journal must become durable.
    pub(crate) began: bool,
    pub(crate) ended: Option<RetirementEnd>,
}

#[derive(Debug)]
pub(crate) struct RetirementEnd {
    /// Volumes whose origins failed to flush.
    pub(crate) failed: Vec<(VolumeId, ErrorKind)>,
    /// Capacity for new marks was freed.
    pub(crate) made_room: bool,
}

/// A retirement in progress.
#[derive(Debug)]
struct Retiring {
    /// `None`: the inherited regions.
    candidates: Option<Retirement>,
    /// Volumes whose origins are flushed. On other origins, writes of an earlier session may not be durable.
    asked: Vec<VolumeId>,
    flushes: u32,
    journal: u64,
    /// Volumes whose origins failed to flush.
    failed: Vec<(VolumeId, ErrorKind)>,
    /// The flushes were requested during a stop.
    at_stop: bool,
}

/// Components that retirements modify.
#[derive(Debug)]
pub(super) struct Marks<'a> {
    pub(super) regions: &'a mut Regions,
    pub(super) maps: &'a mut RegionMaps,
    pub(super) journal: &'a mut Journal,
}

/// Returns `true` if a served volume has inherited marks. Marks of other volumes remain until they are served.
fn has_inherited(regions: &Regions, base: &Base) -> bool {
    is_crowded(regions) || regions.inherited_volumes().any(|id| base.has_volume(id))
}

/// Returns `true` if inherited marks would starve the writes of served volumes.
fn is_crowded(regions: &Regions) -> bool {
    regions.inherited_len() > zc_core::usize_from_u32(zc_core::limits::ACTIVE_REGIONS_MAX / 2)
}

impl Retirements {
    /// Handles an origin flush of the retirement in progress.
    pub(super) fn flush_done(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        if let Some(retiring) = &mut self.running {
            retiring.flushes -= 1;
            retiring.failed.extend(result.err().map(|error| (volume, error)));
        }
    }

    /// Returns `true` if a clean stop may record that no region of a served volume is marked.
    pub(super) fn is_unmarked(&self, regions: &Regions, maps: &RegionMaps, base: &Base) -> bool {
        regions.len() == 0 && !has_inherited(regions, base) && !maps.is_stale() && !self.voids_pending
    }

    /// Begins a due retirement, or completes the one in progress if possible. `is_room_wanted`: writes wait for
    /// capacity for their marks.
    pub(super) fn pump(&mut self, marks: &mut Marks<'_>, is_room_wanted: bool, base: &mut Base) -> Retired {
        let mut retired = Retired::default();
        if self.running.is_none() {
            retired.began = self.begin(marks, is_room_wanted, base);
        }
        let journal = &*marks.journal;
        let may_end = |retiring: &Retiring| retiring.flushes == 0 && journal.is_durable(retiring.journal);
        if let Some(retiring) = self.running.take_if(|retiring| may_end(retiring)) {
            retired.ended = Some(self.end(retiring, marks, base));
        }
        retired
    }

    fn end(&mut self, retiring: Retiring, marks: &mut Marks<'_>, base: &mut Base) -> RetirementEnd {
        let Retiring { candidates, asked, failed, at_stop, .. } = retiring;
        let mut gone = 0;
        match candidates {
            Some(candidates) => {
                let flushed = |id| base.volume(id).map_or(0, |volume| volume.origin().writes_flushed());
                gone = marks.regions.retire(&candidates, flushed);
                base.stats.regions_retired += zc_core::u64_from_usize(gone);
                if gone > 0 {
                    marks.maps.mark_stale();
                }
            }
            None => {
                let has_failed = |id| failed.iter().any(|(volume, _)| *volume == id);
                let keeps = !is_crowded(marks.regions);
                marks.regions.drop_inherited(|id| has_failed(id) || (keeps && !asked.contains(&id)));
                self.inherited_failed = !failed.is_empty();
                self.voids_pending |= self.inherited_failed;
                marks.maps.mark_stale();
            }
        }
        if !failed.is_empty() {
            // An origin that does not flush must not block the stop. A flush that failed before the stop is retried
            // once at once.
            self.marks_stay |= at_stop;
            let pause_ms = if base.is_stopping() { 0 } else { RETIRE_BACKOFF_MS };
            self.not_before_ms = base.now_ms() + pause_ms;
        }
        RetirementEnd { failed, made_room: gone > 0 }
    }

    fn begin(&mut self, marks: &mut Marks<'_>, is_room_wanted: bool, base: &mut Base) -> bool {
        if !base.is_loaded()
            || self.closed
            || (self.marks_stay && !is_room_wanted)
            || base.now_ms() < self.not_before_ms
        {
            return false;
        }
        // If an origin does not flush, other marks are retired in turn.
        let others_first = core::mem::take(&mut self.inherited_failed) && marks.regions.len() > 0;
        if !others_first && (has_inherited(marks.regions, base) || core::mem::take(&mut self.voids_pending)) {
            self.voids_pending = false;
            let volumes = base.volumes().map(|volume| volume.cfg().id).collect();
            self.start(None, volumes, marks.journal, base);
            return true;
        }
        let idle = base.is_stopping() || base.is_idle_for(IDLE_RETIRE_MS);
        let regions = &mut *marks.regions;
        let crowded = regions.len() * 4 >= regions.max() * 3 || is_room_wanted;
        let aged = base.now_ms() >= self.aged_at_ms;
        if regions.len() == 0 || !(idle || crowded || aged) {
            return false;
        }
        let (count, until_ms) = if idle {
            (regions.len(), u64::MAX)
        } else if crowded {
            (regions.max() / 2, u64::MAX)
        } else {
            self.aged_at_ms = base.now_ms() + RETIRE_AGED_EVERY_MS;
            (regions.len(), base.now_ms().saturating_sub(RETIRE_AGE_MS))
        };
        let fails = |id| base.volume(id).is_some_and(|volume| volume.origin().has_flush_failed());
        let Some(candidates) = regions.retirement(count.max(1), until_ms, fails) else { return false };
        debug_assert!(candidates.len() <= regions.len());
        let volumes = regions.volumes(&candidates);
        self.start(Some(candidates), volumes, marks.journal, base);
        true
    }

    fn start(
        &mut self,
        candidates: Option<Retirement>,
        mut volumes: Vec<VolumeId>,
        journal: &mut Journal,
        base: &mut Base,
    ) {
        volumes.retain(|id| base.has_volume(*id));
        volumes.sort_unstable();
        let journal = journal.want_all();
        let flushes = u32::try_from(volumes.len()).unwrap_or(u32::MAX);
        let asked = volumes.clone();
        self.running = Some(Retiring {
            candidates,
            asked,
            flushes,
            journal,
            failed: Vec::new(),
            at_stop: base.is_stopping(),
        });
        for volume in volumes {
            base.flush_origin(volume, FlushWaiter::Retire);
        }
    }
}
