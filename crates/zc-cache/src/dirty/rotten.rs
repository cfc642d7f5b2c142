//! Dirty data that the device fails to return to destaging or scrubbing.
//!
//! Determines if the volume has newer data in its place. If later committed epochs cover all of its sectors, it is
//! skipped, and destaging continues without a pause up to the last of them. Otherwise its run waits (`CONSISTENCY.md`,
//! G6) until clients write the sectors again or an operator drops them, which writes zeros.
//!
//! Invariants: data counts as unreadable after two failed reads, until a read succeeds; only committed data covers it.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use zc_core::{ExtentNo, SectorMap};

use crate::dirty::versions::{Body, DirtyVolume, EpochState, Version};

/// Coverage of a version by later committed epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Sectors that none of them covers.
    pub(super) open: SectorMap,
    /// Last epoch that contributes.
    pub(super) until: u64,
}

/// Known unreadable data of a volume.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    pub(super) found: BTreeMap<(ExtentNo, u64), SmallVec<[Body; 1]>>,
    /// An operator has requested to drop the uncovered data.
    pub(super) giving_up: bool,
}

impl Unreadable {
    /// Records a version after its second failed read. Returns `true` if it is new.
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

    pub(super) fn remove(&mut self, extent: ExtentNo, version: &Version) {
        if let Some(bodies) = self.found.get_mut(&(extent, version.epoch)) {
            bodies.retain(|body| *body != version.body);
            if bodies.is_empty() {
                self.found.remove(&(extent, version.epoch));
            }
        }
    }

    /// Returns `true` if an operator has requested a drop.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.giving_up
    }

    /// Removes data that is clean or covered by committed epochs.
    pub(super) fn prune(&mut self, data: &DirtyVolume) {
        self.found.retain(|(extent, epoch), bodies| {
            bodies.retain(|body| data.has_open(*extent, *epoch, body));
            !bodies.is_empty()
        });
    }
}

impl DirtyVolume {
    /// Determines the sectors of a version that later committed epochs overwrite.
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

    /// Returns the versions of an epoch with this body: one, or the parts left by later writes of the epoch.
    pub(super) fn with_body(
        &self,
        extent: ExtentNo,
        epoch: u64,
        body: &Body,
    ) -> impl Iterator<Item = &Version> {
        self.versions(extent, &(epoch..=epoch)).iter().filter(move |version| version.body == *body)
    }

    /// Returns `true` if part of a body is dirty and not covered by committed epochs.
    fn has_open(&self, extent: ExtentNo, epoch: u64, body: &Body) -> bool {
        self.with_body(extent, epoch, body).any(|version| !self.cover(extent, version).open.is_empty())
    }

    /// Sectors of a version that no later write covers, committed or not.
    pub(super) fn unwritten(&self, extent: ExtentNo, version: &Version) -> SectorMap {
        let mut left = SectorMap::from_range(version.span.clone());
        for later in self.versions(extent, &(version.epoch + 1..=u64::MAX)) {
            left.remove(later.span.clone());
        }
        left
    }
}
