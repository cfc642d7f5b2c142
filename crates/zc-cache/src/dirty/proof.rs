//! The proof of a commit: a durable record on the device that all data of the commit was durable.
//!
//! A restart that finds an extent of the last commit damaged cannot distinguish a write torn in flight from
//! corruption after the answer. `Durable` distinguishes them. It is recorded before the answer: the intent log has it
//! at once, and the next journal block or summary carries it. If neither is written soon, a block is written for it,
//! so an idle device proves its last commit (`CONSISTENCY.md`, G5).
//!
//! Invariant: at most one block is written for each commit, and none if another commit follows within [`PROOF_MS`].

use zc_core::VolumeId;
/// A commit that no other one follows for so long is proved by a block of its own.
const PROOF_MS: u64 = 10;
/// Longest wait for a commit in progress to carry the proof of the last one.
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

impl Unproved {
    /// Proof of the volume's commit, which completed at this time; this is the journal position of its record.
    pub(super) const fn new(volume: VolumeId, position: u64, ended_ms: u64) -> Self {
        Self { volume, position, ended_ms }
    }

    /// The journal position of its record.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Returns `true` if a block is due for it alone; `follows`: another commit is in progress.
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
