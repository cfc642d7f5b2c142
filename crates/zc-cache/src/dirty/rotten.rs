//! Dirty data that the device does not give back, when it is to be destaged or scrubbed.
//!
//! Job: say whether the volume has anything newer in its place. If committed epochs behind it cover all of its
//! sectors, it is left out, and destaging goes on without a pause up to the last of them. If not, its run waits
//! (`CONSISTENCY.md`, G6), until clients write the sectors anew or an operator gives them up: zeros are written then.
//!
//! Invariants: only what was read twice in vain counts as unreadable, until it can be read; only what is committed
//! covers.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use zc_core::{ExtentNo, SectorMap};

use crate::dirty::versions::{Body, DirtyVolume, EpochState, Version};

/// What committed epochs behind a version leave of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Sectors that none of them has.
    pub(super) open: SectorMap,
    /// The last that was needed.
    pub(super) until: u64,
}

/// What is known to be unreadable of a volume.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    /// Bodies of each extent and epoch.
    pub(super) found: BTreeMap<(ExtentNo, u64), SmallVec<[Body; 1]>>,
    /// An operator gives up what nothing covers.
    pub(super) giving_up: bool,
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

    pub(super) fn remove(&mut self, extent: ExtentNo, version: &Version) {
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
    pub(super) fn prune(&mut self, data: &DirtyVolume) {
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
    pub(super) fn with_body(
        &self,
        extent: ExtentNo,
        epoch: u64,
        body: &Body,
    ) -> impl Iterator<Item = &Version> {
        self.versions(extent, &(epoch..=epoch)).iter().filter(move |version| version.body == *body)
    }

    /// Whether anything of a body is dirty that committed epochs do not cover.
    fn has_open(&self, extent: ExtentNo, epoch: u64, body: &Body) -> bool {
        self.with_body(extent, epoch, body).any(|version| !self.cover(extent, version).open.is_empty())
    }

    /// The sectors of a version that no later write has, whether it is committed or not.
    pub(super) fn unwritten(&self, extent: ExtentNo, version: &Version) -> SectorMap {
        let mut left = SectorMap::from_range(version.span.clone());
        for later in self.versions(extent, &(version.epoch + 1..=u64::MAX)) {
            left.remove(later.span.clone());
        }
        left
    }
}
