//! Connections that are closed because an operator asks for it.
//!
//! Invariants: a closed connection's requests that have begun run to their end, unanswered; those that have not never
//! do. An answer comes after its connections can ask for nothing any more.
//!
//! What it does not do: read what the operator typed (`control/disconnect`).

use zc_config::AddressRange;
use zc_core::VolumeId;

use crate::audit;
use crate::front::peer::Peer;
use crate::shard::Shard;
use crate::shard::clients::conn::Conn;

/// Which connections to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one with this number.
    Id(u64),
    /// Connections from these addresses.
    Range(AddressRange),
    /// Connections of this user on Unix sockets.
    User(u32),
    /// Connections that chose this volume.
    Volume(VolumeId),
}

impl Which {
    fn names(self, id: u64, conn: &Conn) -> bool {
        match (self, conn.peer) {
            (Self::Id(own), _) => own == id,
            (Self::Range(range), Peer::Ip(address)) => range.contains(address),
            (Self::User(user), Peer::User(own)) => user == own,
            (Self::Volume(volume), _) => conn.volume == Some(volume),
            (Self::Range(_) | Self::User(_), _) => false,
        }
    }
}

impl Shard {
    /// Closes connections; their numbers.
    pub(crate) fn disconnect(&mut self, which: &Which) -> Vec<u64> {
        let named = |(id, conn): &(&u64, &Conn)| !conn.dead && which.names(**id, conn);
        let mut ids: Vec<u64> = self.nbd.conns.iter().filter(named).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in &ids {
            let peer = self.nbd.conns.get(id).map_or(Peer::Unknown, |conn| conn.peer);
            tracing::info!(target: audit::TARGET, connection = id, %peer, "audit: client disconnected by an operator");
            self.kill(*id);
        }
        ids
    }
}
