//! New bounds and exports of the front end are put in force.
//!
//! Invariants: a connection keeps the export it chose and what its session was made with; new bounds of time, memory
//! and number hold for all at once. A connection that new settings of TLS would not let in ends: a replaced authority,
//! an expired or a revoked certificate leaves no client behind.
//!
//! What it does not do: read a configuration (`front/reloadable`).

use crate::audit;
use crate::front::peer::Peer;
use crate::front::reloadable::FrontSettings;
use crate::shard::Shard;

impl Shard {
    /// Puts them in force.
    pub(crate) fn apply_front(&mut self, front: FrontSettings) {
        self.limits = front.limits;
        self.nbd.exports = front.exports;
        self.nbd.allow = front.allow;
        self.nbd.tls = front.tls;
        self.set_limits(front.volumes);
        self.end_refused();
        // What waited for memory may go on with more of it.
        self.recount_all();
    }

    /// Ends connections that the settings of TLS do not let in any more.
    fn end_refused(&mut self) {
        let tls = &self.nbd.tls;
        let live = self.nbd.conns.iter().filter(|(_, conn)| !conn.dead);
        let refused: Vec<(u64, Peer, String)> =
            live.filter_map(|(id, conn)| Some((*id, conn.peer, conn.is_refused_by(tls)?))).collect();
        for (id, peer, why) in refused {
            tracing::warn!(target: audit::TARGET, connection = id, %peer, "audit: client disconnected by a reload: {why}");
            self.kill(id);
        }
    }
}
