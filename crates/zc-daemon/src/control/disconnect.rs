//! Connections that an operator closes.
//!
//! Job: turn the operator's selection into a set of connections ([`ConnectionFilter`]), and close them.
//!
//! It does not prevent reconnects; `nbd.allow` and the rules of volumes do.

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::control::Shared;
use zc_engine::shard::clients::nbd::ConnectionFilter;
use zc_engine::shard::commands::Command;

/// The clients that a text names: an address, a range, or `user N`, as `connections` shows them.
fn client(text: &str) -> Result<ConnectionFilter, String> {
    if let Some(user) = text.strip_prefix("user ") {
        let number = user.parse().map_err(|_| format!("\"{user}\" is not the number of a user"))?;
        return Ok(ConnectionFilter::User(number));
    }
    let range = text.parse().map_err(|error| format!("client: {error}, and not \"user N\" either"))?;
    Ok(ConnectionFilter::Range(range))
}

impl Shared {
    pub(crate) async fn disconnect(
        &self,
        id: Option<u64>,
        client: Option<&str>,
        volume: Option<&str>,
    ) -> Result<Value, String> {
        let which = match (id, client, volume) {
            (Some(id), None, None) => ConnectionFilter::Id(id),
            (None, Some(client), None) => self::client(client)?,
            (None, None, Some(volume)) => ConnectionFilter::Volume(self.id_of(volume)?),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_as_they_are_shown() {
        assert_eq!(client("user 1000"), Ok(ConnectionFilter::User(1000)));
        assert_eq!(client("192.0.2.7"), Ok(ConnectionFilter::Range("192.0.2.7".parse().unwrap())));
        assert_eq!(client("2001:db8::/64"), Ok(ConnectionFilter::Range("2001:db8::/64".parse().unwrap())));
        for wrong in ["", "user", "user x", "host.example", "192.0.2.0/33"] {
            client(wrong).unwrap_err();
        }
    }
}
