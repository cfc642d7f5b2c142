//! The clean stop of a shard.
//!
//! In order: no new connections and requests; replies to requests in flight; sockets closed; the manager writes its
//! memory and makes it durable; the shard ends. Clients that do not receive their replies are disconnected after
//! `DRAIN_MS`; devices are waited for. A write that waits for a refusing origin is not.
//!
//! It does not execute the steps (`dispatch/stop`).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    Running,
    /// Clients get their replies.
    Draining {
        until_ms: u64,
    },
    /// Sockets are closed; the manager finishes.
    Finishing,
    Stopped {
        clean: bool,
    },
}

impl Stopping {
    pub(crate) const fn is_running(self) -> bool {
        matches!(self, Self::Running)
    }
}
