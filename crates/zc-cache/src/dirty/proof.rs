//! Proof of a commit: a record on the device that all data of the commit was durable.
//!
//! A restart that finds an extent of the last commit corrupt cannot distinguish a write torn in flight from corruption
//! after the acknowledgement. The record `Durable` distinguishes them. It is recorded before the acknowledgement: in
//! the intent log at once, and in the next journal block or summary. If neither is written soon, a block is written
//! for it, so that an idle device proves its last commit (`CONSISTENCY.md`, G5).
//!
//! Invariant: at most one block is written for each commit, and none if another commit follows within [`PROOF_MS`].

use zc_core::VolumeId;
/// Time without another commit after which a block is written for the proof alone.
const PROOF_MS: u64 = 10;
/// Maximum wait for a commit in progress to carry the previous proof.
const PROOF_WAIT_MS: u64 = 50;

/// The last commit, until its proof is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unproved {
    volume: VolumeId,
    /// Journal position of its `Durable`.
    position: u64,
    ended_ms: u64,
}

impl Unproved {
    pub(crate) fn is_of(&self, volume: VolumeId) -> bool {
        self.volume == volume
    }
}

impl Unproved {
    /// Creates the state of a commit completed at this time, with the journal position of its record.
    pub(super) const fn new(volume: VolumeId, position: u64, ended_ms: u64) -> Self {
        Self { volume, position, ended_ms }
    }

    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Returns `true` if a block is due for the proof alone; `follows`: another commit is in progress.
    pub(super) const fn is_due(&self, now_ms: u64, follows: bool) -> bool {
        let due_ms = if follows { PROOF_WAIT_MS } else { PROOF_MS };
        now_ms.saturating_sub(self.ended_ms) >= due_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_proved_by_a_block_of_its_own_when_none_follows_soon() {
        let unproved = Unproved::new(VolumeId(3), 70, 1000);
        assert!(unproved.is_of(VolumeId(3)) && !unproved.is_of(VolumeId(4)));
        assert_eq!(unproved.position(), 70);
        assert!(!unproved.is_due(1000 + PROOF_MS - 1, false) && unproved.is_due(1000 + PROOF_MS, false));
        assert!(!unproved.is_due(1000 + PROOF_WAIT_MS - 1, true), "the commit under way carries its proof");
        assert!(unproved.is_due(1000 + PROOF_WAIT_MS, true));
        assert!(!unproved.is_due(900, false), "time that goes back is no age");
    }
}
