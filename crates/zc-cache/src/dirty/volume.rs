//! Write-back of one volume: its dirty data, and the operations in progress on it.
//!
//! Holds the state that commits, destaging and admission share, and determines the volume's pending work.

use std::collections::VecDeque;

use zc_core::{Mode, ReqId, VolumeId};

use crate::base::Base;
use crate::config::VolumeConfig;
use crate::device::Core;
use crate::dirty::commit_state::Commit;
use crate::dirty::destaging::{Destaging, EPOCHS_CROWDED};
use crate::dirty::phase::Phase;
use crate::dirty::rotten::Unreadable;
use crate::dirty::versions::{Body, DirtyVolume, EpochState};
use crate::seam::Request;

/// Write-back of one volume.
#[derive(Debug)]
pub(crate) struct VolumeDirty {
    pub(super) data: DirtyVolume,
    pub(super) commit: Option<Commit>,
    /// Requests that wait for the next commit.
    pub(super) next_waiters: Vec<ReqId>,
    pub(super) commit_again: bool,
    pub(super) waiting: VecDeque<WaitingWrite>,
    /// Time since which writes wait because the origin has no space, in milliseconds.
    pub(super) full_since_ms: Option<u64>,
    pub(super) destaging: Destaging,
    /// Data that the device fails to return.
    pub(super) unreadable: Unreadable,
    pub(super) phase: Phase,
    pub(super) last_request_ms: u64,
    /// Dirty bytes destaged to the origin since the manager opened the volume.
    pub(super) destaged_bytes: u64,
}

/// A write that is being admitted.
#[derive(Debug)]
pub(crate) struct WaitingWrite {
    pub(super) request: Request,
    pub(super) done_bytes: u64,
    /// Arrival time, in milliseconds.
    pub(super) since_ms: u64,
    /// A clearing whose wait for destaging has failed.
    pub(super) has_waited: bool,
}

impl VolumeDirty {
    pub(crate) fn new(clean: u64) -> Self {
        Self {
            data: DirtyVolume::new(clean),
            commit: None,
            next_waiters: Vec::new(),
            commit_again: false,
            waiting: VecDeque::new(),
            full_since_ms: None,
            destaging: Destaging::default(),
            unreadable: Unreadable::default(),
            phase: Phase::default(),
            last_request_ms: 0,
            destaged_bytes: 0,
        }
    }

    /// Applies new settings once no data is dirty.
    pub(crate) fn leave(&mut self, cfg: VolumeConfig, now_ms: u64) {
        self.phase.leave(cfg, now_ms);
    }

    /// Returns `true` if some of it is destaged without a pause.
    pub(super) fn is_draining(&self) -> bool {
        self.phase.is_draining()
    }

    /// Returns `true` if an epoch is destaged without a pause.
    pub(super) fn drains(&self, epoch: u64) -> bool {
        self.phase.drains_until().is_some_and(|until| epoch <= until)
    }

    /// Returns `true` if its oldest epoch is destaged without a pause, regardless of rate bounds.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_in_step() || self.data.epochs.front().is_some_and(|oldest| self.drains(oldest.number))
    }

    /// Returns `true` if its oldest epoch belongs to a step that runs without a pause.
    pub(super) fn is_in_step(&self) -> bool {
        self.data.epochs.front().is_some_and(|oldest| self.destaging.is_in_step(oldest.number))
    }

    /// Records that epochs have become clean, which may end a drain.
    pub(super) fn drained(&mut self) {
        self.phase.drained(self.data.clean);
    }

    /// Returns `true` if journal and checkpoint may be incomplete, or the origin has changed, so that an operator must
    /// decide.
    pub(super) fn is_incomplete(&self) -> bool {
        self.phase.is_fenced()
    }

    /// Returns `true` if it is being dropped, in whole or in part, or a decision about it is pending.
    pub(super) fn is_settling(&self) -> bool {
        self.phase.dropping().is_some() || self.phase.is_unrecorded() || self.unreadable.is_wanted()
    }

    pub(super) fn has_committed(&self) -> bool {
        self.data.epochs.iter().any(|epoch| epoch.state == EpochState::Committed)
    }

    /// Returns `true` if an operation is in flight or a decision is pending.
    pub(super) fn is_busy(&self) -> bool {
        self.commit.is_some() || self.destaging.is_busy() || self.phase.is_leaving() || self.is_settling()
    }

    /// Returns `true` if losing the cache device would lose acknowledged data.
    pub(super) fn is_dirty(&self) -> bool {
        self.has_data() || self.phase.is_unrecorded()
    }

    /// Returns `true` if the origin lacks data, or may lack some.
    pub(super) fn has_data(&self) -> bool {
        !self.data.is_empty() || !self.waiting.is_empty() || self.phase.is_fenced()
    }
}

impl VolumeDirty {
    /// Returns `true` if work is in progress or was requested, regardless of the time.
    pub(super) fn is_at_work(&self) -> bool {
        self.commit.is_some()
            || self.commit_again
            || !(self.next_waiters.is_empty() && self.waiting.is_empty())
            || self.destaging.is_busy()
            || self.destaging.is_refused()
            || self.destaging.is_stuck()
            || self.is_draining()
            || self.is_in_step()
            || self.is_settling()
            || self.data.epochs.len() > EPOCHS_CROWDED
    }
}

/// Returns `true` if a volume's dirty data must not be written to its origin.
pub(super) fn is_held_back(volume: VolumeId, dirty: &VolumeDirty, base: &Base) -> bool {
    let mode = base.volume(volume).map_or(Mode::ReadOnly, |entry| entry.cfg().mode);
    mode == Mode::ReadOnly || dirty.is_incomplete()
}

/// Releases bodies of a volume.
pub(super) fn let_go(volume: VolumeId, bodies: &[Body], core: &mut Core) {
    for body in bodies {
        if let Body::Stored { place, own } = *body {
            core.device.catalog.slots_mut().remove_dirty(volume, place.slot, own, &mut core.base);
        }
    }
}
