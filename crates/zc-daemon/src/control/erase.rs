//! `erase`: overwrites the data of removed volumes on the cache device.
//!
//! Invariants: volumes in the cache's table lose only cached content, served or not.
//!
//! Out of scope: stores and origins; the device's own copies.

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::control::Shared;
use zc_engine::shard::commands::Command;

impl Shared {
    /// Erases cached data of removed volumes; replies on completion.
    pub(crate) async fn erase(&self) -> Result<Value, String> {
        if !self.stats().await?.cache_healthy {
            return Err("the cache device does not answer, so nothing on it can be erased".to_owned());
        }
        let keep = self.ledger.table().records.iter().map(|record| record.id).collect();
        let (reply, erased) = oneshot::channel();
        self.mailbox.send(Command::Erase { keep, reply });
        let cut_off =
            "the erasure was interrupted: the cache failed or was exchanged, or the daemon stops; try again";
        let erased = erased.await.ok().flatten().filter(|erased| erased.is_complete).ok_or(cut_off)?;
        tracing::info!("erased {} slots of the cache; {} could not be", erased.slots, erased.left);
        Ok(json!({ "slots": erased.slots, "left": erased.left }))
    }
}
