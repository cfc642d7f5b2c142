//! Dirty data that the device does not give back, when it is to be destaged or scrubbed.
//!
//! Job: say whether the volume has anything newer in its place. If committed epochs behind it cover all of its
//! sectors, it is left out, and destaging goes on without a pause up to the last of them. If not, its run waits
//! (`CONSISTENCY.md`, G6), until clients write the sectors anew or an operator gives them up: zeros are written then.
//!
//! Invariants: only what was read twice in vain counts as unreadable, until it can be read; only what is committed
//! covers.

use core::ops::Range;
use std::collections::BTreeMap;

use smallvec::SmallVec;
use zc_core::{ExtentNo, SECTOR_BYTES, SectorMap, SectorSpan, VolumeId};

use crate::clean::Clean;
use crate::device::Core;
use crate::dirty::destage::Gather;
use crate::dirty::versions::{Body, DirtyVolume, EpochState, Version};
use crate::dirty::{DirtyLayer, VolumeDirty, let_go};
use crate::expect_held::ExpectHeld;
use crate::seam::{Action, Note};

/// What committed epochs behind a version leave of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Sectors that none of them has.
    pub(in crate::dirty) open: SectorMap,
    /// The last that was needed.
    pub(in crate::dirty) until: u64,
}

/// What is known to be unreadable of a volume.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    /// Bodies of each extent and epoch.
    found: BTreeMap<(ExtentNo, u64), SmallVec<[Body; 1]>>,
    /// An operator gives up what nothing covers.
    giving_up: bool,
}

impl Unreadable {
    /// A version was read twice in vain. Whether that is news.
    pub(crate) fn add(&mut self, extent: ExtentNo, version: &Version) -> bool {
        let bodies = self.found.entry((extent, version.epoch)).or_default();
        let is_new = !bodies.contains(&version.body);
        if is_new {
            bodies.push(version.body);
        }
        is_new
    }

    /// Returns `true` if the version is known to be unreadable.
    pub(crate) fn has(&self, extent: ExtentNo, version: &Version) -> bool {
        let bodies = self.found.get(&(extent, version.epoch));
        bodies.is_some_and(|bodies| bodies.contains(&version.body))
    }

    fn remove(&mut self, extent: ExtentNo, version: &Version) {
        if let Some(bodies) = self.found.get_mut(&(extent, version.epoch)) {
            bodies.retain(|body| *body != version.body);
            if bodies.is_empty() {
                self.found.remove(&(extent, version.epoch));
            }
        }
    }

    /// Whether an operator waits for it to be given up.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.giving_up
    }

    /// Forgets what is not dirty any more, and what committed epochs cover.
    fn prune(&mut self, data: &DirtyVolume) {
        self.found.retain(|(extent, epoch), bodies| {
            bodies.retain(|body| data.has_open(*extent, *epoch, body));
            !bodies.is_empty()
        });
    }
}

impl DirtyVolume {
    /// Which sectors of a version committed epochs behind it have anew.
    pub(crate) fn cover(&self, extent: ExtentNo, version: &Version) -> Cover {
        let mut cover = Cover { open: SectorMap::from_range(version.span.clone()), until: version.epoch };
        let newer = version.epoch + 1..=u64::MAX;
        for later in self.versions(extent, &newer) {
            let committed = self.epoch(later.epoch).is_some_and(|epoch| epoch.state == EpochState::Committed);
            if cover.open.is_empty() || !committed {
                break;
            }
            cover.open.remove(later.span.clone());
            cover.until = later.epoch;
        }
        cover
    }

    /// The versions of an epoch with this body: one, or what later writes of the epoch left of it.
    fn with_body(&self, extent: ExtentNo, epoch: u64, body: &Body) -> impl Iterator<Item = &Version> {
        self.versions(extent, &(epoch..=epoch)).iter().filter(move |version| version.body == *body)
    }

    /// Whether anything of a body is dirty that committed epochs do not cover.
    fn has_open(&self, extent: ExtentNo, epoch: u64, body: &Body) -> bool {
        self.with_body(extent, epoch, body).any(|version| !self.cover(extent, version).open.is_empty())
    }

    /// The sectors of a version that no later write has, whether it is committed or not.
    fn unwritten(&self, extent: ExtentNo, version: &Version) -> SectorMap {
        let mut left = SectorMap::from_range(version.span.clone());
        for later in self.versions(extent, &(version.epoch + 1..=u64::MAX)) {
            left.remove(later.span.clone());
        }
        left
    }
}

/// What a volume cannot read and nothing committed covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Gap {
    /// Its first piece, in bytes of the volume.
    pub(in crate::dirty) first: Range<u64>,
    /// All of it, in bytes.
    pub(in crate::dirty) bytes: u64,
}

impl VolumeDirty {
    /// An epoch is committed or clean: what destaging is stuck at may be covered by now.
    pub(crate) fn look_at_gap(&mut self) {
        self.unreadable.prune(&self.data);
        if let Some((extent, version)) = self.destaging.stuck_at()
            && self.data.cover(*extent, version).open.is_empty()
        {
            self.destaging.try_again();
        }
    }

    /// A version could be read after all: what failed was not the medium, and destaging is not stuck at it any more.
    pub(crate) fn read_after_all(&mut self, extent: ExtentNo, version: &Version) {
        self.unreadable.remove(extent, version);
        let is_it = |at: &(ExtentNo, Version)| {
            at.0 == extent && at.1.epoch == version.epoch && at.1.body == version.body
        };
        if self.destaging.stuck_at().is_some_and(is_it) {
            self.destaging.try_again();
        }
    }

    /// The pieces that cannot be read and that nothing committed covers, in bytes of the volume.
    fn gaps(&self, extent_bytes: u32) -> impl Iterator<Item = Range<u64>> {
        let sectors = extent_bytes / SECTOR_BYTES;
        let bodies = self.unreadable.found.iter();
        let bodies =
            bodies.flat_map(|((extent, epoch), found)| found.iter().map(|body| (*extent, *epoch, body)));
        let versions = bodies.flat_map(|(extent, epoch, body)| {
            self.data.with_body(extent, epoch, body).map(move |version| (extent, version))
        });
        versions.flat_map(move |(extent, version)| {
            let open = self.data.cover(extent, version).open;
            let at = move |sector: u32| {
                extent.0 * u64::from(extent_bytes) + u64::from(sector) * u64::from(SECTOR_BYTES)
            };
            let runs: SmallVec<[Range<u32>; 2]> = open.runs(sectors, true).collect();
            runs.into_iter().map(move |run| at(run.start)..at(run.end))
        })
    }

    /// All that cannot be read and that nothing committed covers.
    pub(crate) fn gap(&self, extent_bytes: u32) -> Gap {
        let mut gap = Gap::default();
        for piece in self.gaps(extent_bytes) {
            gap.bytes += piece.end - piece.start;
            if gap.first.is_empty() {
                gap.first = piece;
            }
        }
        gap
    }

    /// Whether a write has some of it anew.
    pub(crate) fn meets_gap(&self, extent_bytes: u32, written: &Range<u64>) -> bool {
        self.gaps(extent_bytes).any(|piece| piece.start < written.end && written.start < piece.end)
    }

    /// Whether an operator's wish to give it up is not fulfilled yet.
    pub(crate) fn is_giving_up(&self, extent_bytes: u32) -> bool {
        self.unreadable.giving_up || (self.commit.is_some() && self.gap(extent_bytes).bytes > 0)
    }

    /// The next sectors that cannot be read and that no write has anew.
    fn next_unwritten(&self, extent_bytes: u32) -> Option<(ExtentNo, Range<u32>)> {
        self.unreadable.found.iter().find_map(|((extent, epoch), bodies)| {
            bodies.iter().find_map(|body| {
                let mut versions = self.data.with_body(*extent, *epoch, body);
                let sectors = versions.find_map(|version| {
                    self.data.unwritten(*extent, version).runs(extent_bytes / SECTOR_BYTES, true).next()
                });
                sectors.map(|sectors| (*extent, sectors))
            })
        })
    }
}

impl DirtyLayer {
    /// Parts of a write of destaging could not be read.
    pub(crate) fn gather_failed(&mut self, gather: Gather, core: &mut Core, clean: &mut Clean) {
        let Gather { volume, batch, failed, again, .. } = gather;
        if !again {
            self.gather(volume, batch, true, core, clean);
            return;
        }
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        let parts = || failed.iter().filter_map(|part| batch.parts.get(*part));
        for (extent, version) in parts() {
            let _known = dirty.unreadable.add(*extent, version);
        }
        let open = parts().find(|(extent, version)| !dirty.data.cover(*extent, version).open.is_empty());
        if let Some((extent, version)) = open.cloned() {
            core.base.stats.dirty_unreadable += 1;
            self.destage_stuck(volume, extent, version, core);
            return;
        }
        let until = parts().map(|(extent, version)| dirty.data.cover(*extent, version).until).max();
        for (extent, version) in parts() {
            let sectors = SectorSpan::new(&version.span).expect_held();
            core.base.stats.dirty_skipped_bytes += u64::from(sectors.len_bytes());
            core.base.port.emit(Action::Note(Note::DirtySkipped { volume, extent: *extent, sectors }));
        }
        self.destaging(volume).hurry_until(until.unwrap_or(0));
        self.replace_batch(volume, &batch, batch.without(&failed), core, clean);
    }

    /// An operator gives up what cannot be read of a volume's dirty data, and nothing else.
    pub(crate) fn give_up_unreadable(&mut self, volume: VolumeId, core: &mut Core) {
        if let Some(dirty) = self.volumes.get_mut(&volume) {
            dirty.unreadable.giving_up = true;
            self.pump_giving_up(volume, core);
        }
    }

    /// Writes zeros where nothing can be read, as far as the open epoch has room. A fence ends it: what is out of
    /// reach as a whole is not for this.
    pub(crate) fn pump_giving_up(&mut self, volume: VolumeId, core: &mut Core) {
        let Some(dirty) = self.volumes.get_mut(&volume).filter(|dirty| dirty.unreadable.giving_up) else {
            return;
        };
        if dirty.is_incomplete() || dirty.phase.dropping().is_some() || !core.base.is_good() {
            dirty.unreadable.giving_up = false;
            return;
        }
        loop {
            let next =
                self.volumes.get(&volume).and_then(|dirty| dirty.next_unwritten(core.base.extent_bytes()));
            let Some((extent, sectors)) = next else { break };
            if core.device.catalog.meta().is_pressed() || self.is_epoch_full(volume, 2, core) {
                self.request_commit(volume, None, core);
                return;
            }
            self.write_zeros_over(volume, extent, sectors, core);
        }
        self.volumes.get_mut(&volume).expect_held().unreadable.giving_up = false;
        self.request_commit(volume, None, core);
    }

    fn write_zeros_over(&mut self, volume: VolumeId, extent: ExtentNo, sectors: Range<u32>, core: &mut Core) {
        let span = SectorSpan::new(&sectors).expect_held();
        core.base.stats.dirty_given_up_bytes += u64::from(span.len_bytes());
        core.base.port.emit(Action::Note(Note::DirtyGivenUp { volume, extent, sectors: span }));
        let now_ms = core.base.now_ms();
        let dirty = self.volumes.get_mut(&volume).expect_held();
        let replaced = dirty.data.write(extent, sectors, Body::Zero { no_hole: true }, now_ms);
        let_go(volume, &replaced, core);
        core.base.owe_loss(volume);
    }
}
