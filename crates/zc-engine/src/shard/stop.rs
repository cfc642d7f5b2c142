//! The orderly end of a shard.
//!
//! In order: no new connections and requests; replies to requests in flight; sockets closed; the manager writes what it
//! has in memory and makes it durable; the shard ends. Clients that do not take their replies are cut off after
//! `DRAIN_MS`; devices are waited for. A write that waits for an origin that refuses is not.
//!
//! What this file does not do: the steps (`dispatch/stop`).

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// Not at all.
    Running,
    /// Clients get their replies.
    Draining { until_ms: u64 },
    /// Sockets are closed; the manager finishes.
    Finishing,
    /// Done.
    Stopped { clean: bool },
}

impl Stopping {
    pub(crate) const fn is_running(self) -> bool {
        matches!(self, Self::Running)
    }
}
