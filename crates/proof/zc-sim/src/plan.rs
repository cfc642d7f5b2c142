//! What a seed draws of its course: habits, and which kinds of turns it has.

use crate::profile::Habits;

/// What is drawn once, and holds for the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// What clients do, and when the machine is cut off.
    pub(crate) habits: Habits,
    /// Volumes may write back.
    pub(crate) write_back: bool,
    /// At times one client syncs after each write, and no other client is there.
    pub(crate) syncing: bool,
    /// At times a volume grows.
    pub(crate) growing: bool,
    /// At times a volume comes back in another domain.
    pub(crate) moving: bool,
    /// At times another volume takes the number of one.
    pub(crate) replacing: bool,
    /// Volumes have shares of the cache, which change.
    pub(crate) sharing: bool,
    /// Ranges of volumes are pinned, and others later.
    pub(crate) pinning: bool,
}
