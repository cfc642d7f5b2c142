//! Connections that an operator closes.
//!
//! Job: turn what was asked for into a choice of connections ([`Which`]), and close those that there are.
//!
//! Invariants: a closed connection's requests that have begun run to their end, unanswered; those that have not never
//! do. An answer comes after its connections can ask for nothing any more.
//!
//! What it does not do: keep a client from coming back; `nbd.allow` and the rules of volumes do.

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_config::AddressRange;
use zc_core::VolumeId;

use crate::audit;
use crate::commands::Command;
use crate::conn::Conn;
use crate::control::Shared;
use crate::peer::Peer;
use crate::shard::Shard;

/// Which connections to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one with this number.
    Id(u64),
    /// Those from here.
    Range(AddressRange),
    /// Those of this user on Unix sockets.
    User(u32),
    /// Those that chose this volume.
    Volume(VolumeId),
}

impl Which {
    /// The clients that a text names: an address, a range, or `user N`, as `connections` shows them.
    fn client(text: &str) -> Result<Self, String> {
        if let Some(user) = text.strip_prefix("user ") {
            let number = user.parse().map_err(|_| format!("\"{user}\" is not the number of a user"))?;
            return Ok(Self::User(number));
        }
        let range = text.parse().map_err(|error| format!("client: {error}, and not \"user N\" either"))?;
        Ok(Self::Range(range))
    }

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

impl Shared {
    pub(crate) async fn disconnect(
        &self,
        id: Option<u64>,
        client: Option<&str>,
        volume: Option<&str>,
    ) -> Result<Value, String> {
        let which = match (id, client, volume) {
            (Some(id), None, None) => Which::Id(id),
            (None, Some(client), None) => Which::client(client)?,
            (None, None, Some(volume)) => Which::Volume(self.id_of(volume)?),
            _ => return Err("one of id, client and volume says which connections to close".to_owned()),
        };
        let (reply, closed) = oneshot::channel();
        self.mailbox.send(Command::Disconnect(which, reply));
        let closed = closed.await.map_err(|_| "the data plane is busy or has ended; try again".to_owned())?;
        if closed.is_empty() {
            return Err(
                "there is no such connection; `zcctl connections` shows those that there are".to_owned()
            );
        }
        Ok(json!({ "disconnected": closed }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_as_they_are_shown() {
        assert_eq!(Which::client("user 1000"), Ok(Which::User(1000)));
        assert_eq!(Which::client("192.0.2.7"), Ok(Which::Range("192.0.2.7".parse().unwrap())));
        assert_eq!(Which::client("2001:db8::/64"), Ok(Which::Range("2001:db8::/64".parse().unwrap())));
        for wrong in ["", "user", "user x", "host.example", "192.0.2.0/33"] {
            Which::client(wrong).unwrap_err();
        }
    }
}
