//! The orderly end of a shard.
//!
//! In order: no new connections and requests; replies to requests in flight; sockets closed; the manager writes what it
//! has in memory and makes it durable; the shard ends. Clients that do not take their replies are cut off after
//! [`DRAIN_MS`]; devices are waited for. A write that waits for an origin that refuses is not.

use zc_cache::seam::Event;

use crate::limits::DRAIN_MS;
use crate::shard::Shard;

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

impl Shard {
    pub(crate) fn begin_stop(&mut self) {
        if !self.stopping.is_running() {
            return;
        }
        self.stopping = Stopping::Draining { until_ms: self.clock.now_ms() + DRAIN_MS };
        tracing::info!(connections = self.nbd.conns.len(), requests = self.clients.len(), "stopping");
        self.lift_limits();
        for conn in self.nbd.conns.values_mut() {
            conn.session.begin_shutdown();
        }
    }

    /// Goes on with the end as far as possible.
    pub(crate) fn pump_stop(&mut self) {
        let Stopping::Draining { until_ms } = self.stopping else { return };
        let late = self.clock.now_ms() >= until_ms;
        let drained: Vec<u64> = self
            .nbd
            .conns
            .iter()
            .filter(|(_, conn)| !conn.dead && (late || (conn.is_drained() && conn.payload.is_none())))
            .map(|(id, _)| *id)
            .collect();
        for id in drained {
            self.kill(id);
        }
        self.nbd.to_send.append(&mut self.nbd.touched.clone());
        // Requests that are left then wait for room that no origin makes: the manager refuses them, which it does when it
        // knows that nothing else is to be waited for.
        if self.nbd.conns.values().all(|conn| conn.dead) && (late || self.clients.is_empty()) {
            self.stopping = Stopping::Finishing;
            self.events.push_back(Event::Stop);
        }
    }
}
