//! Unreadable ranges of a volume: their enumeration, and their removal by an operator (see `rotten`).

use core::ops::Range;

use smallvec::SmallVec;
use zc_core::{ExtentNo, SECTOR_BYTES, SectorSpan, VolumeId};

use crate::device::Core;
use crate::dirty::bounds::is_epoch_full;
use crate::dirty::commit::Commits;
use crate::dirty::versions::{Body, Version};
use crate::dirty::volume::{VolumeDirty, let_go};
use crate::dirty::volumes::DirtyVolumes;
use crate::expect_held::ExpectHeld;
use crate::seam::{Action, Note};

/// Unreadable data of a volume that no committed data covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Gap {
    /// Its first range, in bytes of the volume.
    pub(super) first: Range<u64>,
    /// Total length in bytes.
    pub(super) bytes: u64,
}

impl VolumeDirty {
    /// Rechecks the version that blocks destaging after an epoch is committed or clean, since it may be covered.
    pub(crate) fn look_at_gap(&mut self) {
        self.unreadable.prune(&self.data);
        if let Some((extent, version)) = self.destaging.stuck_at()
            && self.data.cover(*extent, version).open.is_empty()
        {
            self.destaging.try_again();
        }
    }

    /// Clears a version whose read has succeeded: the failure was temporary, and destaging is no longer blocked.
    pub(crate) fn read_after_all(&mut self, extent: ExtentNo, version: &Version) {
        self.unreadable.remove(extent, version);
        let is_it = |at: &(ExtentNo, Version)| {
            at.0 == extent && at.1.epoch == version.epoch && at.1.body == version.body
        };
        if self.destaging.stuck_at().is_some_and(is_it) {
            self.destaging.try_again();
        }
    }

    /// Unreadable ranges that no committed data covers, in bytes of the volume.
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

    /// All unreadable data that no committed data covers.
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

    /// Returns `true` if a write covers part of it.
    pub(crate) fn meets_gap(&self, extent_bytes: u32, written: &Range<u64>) -> bool {
        self.gaps(extent_bytes).any(|piece| piece.start < written.end && written.start < piece.end)
    }

    /// Returns `true` while an operator's request to drop it is not completed.
    pub(crate) fn is_giving_up(&self, extent_bytes: u32) -> bool {
        self.unreadable.giving_up || (self.commit.is_some() && self.gap(extent_bytes).bytes > 0)
    }

    /// Returns the next unreadable sectors that no write covers.
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

/// Drops only the unreadable part of a volume's dirty data, as an operator requested.
pub(crate) fn give_up_unreadable(
    volume: VolumeId,
    volumes: &mut DirtyVolumes,
    commits: &mut Commits,
    core: &mut Core,
) {
    if let Some(dirty) = volumes.get_mut(&volume) {
        dirty.unreadable.giving_up = true;
        pump_giving_up(volume, volumes, commits, core);
    }
}

/// Writes zeros over unreadable data, as far as the open epoch has capacity. A fence ends the request: then all dirty
/// data is out of reach.
pub(crate) fn pump_giving_up(
    volume: VolumeId,
    volumes: &mut DirtyVolumes,
    commits: &mut Commits,
    core: &mut Core,
) {
    let Some(dirty) = volumes.get_mut(&volume).filter(|dirty| dirty.unreadable.giving_up) else {
        return;
    };
    if dirty.is_incomplete() || dirty.phase.dropping().is_some() || !core.base.is_good() {
        dirty.unreadable.giving_up = false;
        return;
    }
    loop {
        let next = volumes.get(&volume).and_then(|dirty| dirty.next_unwritten(core.base.extent_bytes()));
        let Some((extent, sectors)) = next else { break };
        if core.device.catalog.meta().is_pressed() || is_epoch_full(volume, 2, volumes, core) {
            commits.request_commit(volume, None, volumes, core);
            return;
        }
        write_zeros_over(volume, extent, sectors, volumes, core);
    }
    volumes.get_mut(&volume).expect_held().unreadable.giving_up = false;
    commits.request_commit(volume, None, volumes, core);
}

fn write_zeros_over(
    volume: VolumeId,
    extent: ExtentNo,
    sectors: Range<u32>,
    volumes: &mut DirtyVolumes,
    core: &mut Core,
) {
    let span = SectorSpan::new(&sectors).expect_held();
    core.base.stats.dirty_given_up_bytes += u64::from(span.len_bytes());
    core.base.port.emit(Action::Note(Note::DirtyGivenUp { volume, extent, sectors: span }));
    let now_ms = core.base.now_ms();
    let dirty = volumes.get_mut(&volume).expect_held();
    let replaced = dirty.data.write(extent, sectors, Body::Zero { no_hole: true }, now_ms);
    let_go(volume, &replaced, core);
    core.base.owe_loss(volume);
}
