//! The proof of a commit: a record, durable on the device, that all the commit names was durable.
//!
//! A restart that finds an extent of the last commit damaged cannot see whether it was torn in flight or rotted after the
//! client was answered. `Durable` says which. It is recorded before the answer: the intent log has it at once, and the
//! next journal block or summary carries it. If neither is written soon, a block is written for it, so an idle device
//! proves its last commit (`CONSISTENCY.md`, G5).
//!
//! Invariant: at most one block is written for each commit, and none if another commit follows within [`PROOF_MS`].

use zc_core::VolumeId;
use zc_format::Record;

use crate::device::Core;
use crate::dirty::DirtyLayer;
use crate::expect_held::ExpectHeld;

/// A commit that no other one follows for so long is proved by a block of its own.
const PROOF_MS: u64 = 10;
/// A commit under way carries the proof of the last one, unless that takes longer.
const PROOF_WAIT_MS: u64 = 50;

/// The last commit, until a restart would find its proof.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unproved {
    volume: VolumeId,
    /// Journal position of its `Durable`.
    position: u64,
    ended_ms: u64,
}

impl Unproved {
    /// Returns `true` if it is a commit of this volume.
    pub(crate) fn is_of(&self, volume: VolumeId) -> bool {
        self.volume == volume
    }
}

impl DirtyLayer {
    /// The volume's commit has ended: records that, before a client is answered.
    pub(crate) fn record_durable(&mut self, volume: VolumeId, core: &mut Core) {
        let commit = self.volumes.get(&volume).and_then(|dirty| dirty.commit.as_ref());
        let epoch = commit.expect_held().epoch;
        core.device.catalog.record(Record::Durable { volume, epoch }, &mut core.base);
        let position = core.device.catalog.meta().journal().appended();
        self.unproved = Some(Unproved { volume, position, ended_ms: core.base.now_ms() });
    }

    /// Has the last commit proved, when none has followed it for a while.
    pub(crate) fn pump_proof(&mut self, core: &mut Core) {
        let Some(Unproved { position, ended_ms, .. }) = self.unproved else { return };
        if self.is_recorded(position, core) {
            self.unproved = None;
            return;
        }
        let idle_ms = core.base.now_ms().saturating_sub(ended_ms);
        let follows = self.commits().next().is_some();
        let due_ms = if follows { PROOF_WAIT_MS } else { PROOF_MS };
        if idle_ms >= due_ms {
            core.device.catalog.meta_mut().journal_mut().want(position);
        }
    }
}
