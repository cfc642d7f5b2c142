//! Draws of a seed that shape its run: habits, and the kinds of turns.

use crate::profile::Habits;

/// Properties drawn once for the whole run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Habits of clients, and chances of crashes.
    pub(crate) habits: Habits,
    /// Volumes may write back.
    pub(crate) write_back: bool,
    /// At times only one client is active, and it syncs after each write.
    pub(crate) syncing: bool,
    /// Volumes grow at times.
    pub(crate) growing: bool,
    /// Volumes return in another domain at times.
    pub(crate) moving: bool,
    /// Another volume takes over a number at times.
    pub(crate) replacing: bool,
    /// Volumes have shares of the cache, which change.
    pub(crate) sharing: bool,
    /// Ranges of volumes are pinned; the pins change later.
    pub(crate) pinning: bool,
}
