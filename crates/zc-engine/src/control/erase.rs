//! `erase`: what the cache device still holds of volumes that are gone is overwritten.
//!
//! Invariants: volumes that the cache knows lose nothing but cached content, whether they are served or not.
//!
//! Out of scope: stores and origins; the device's own copies.

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::control::Shared;
use crate::shard::commands::Command;

impl Shared {
    /// Erases what the cache holds of volumes that are gone; answers when that has ended.
    pub(crate) async fn erase(&self) -> Result<Value, String> {
        if !self.stats().await?.cache_healthy {
            return Err("the cache device does not answer, so nothing on it can be erased".to_owned());
        }
        let keep = self.ledger.table().records.iter().map(|record| record.id).collect();
        let (reply, erased) = oneshot::channel();
        self.mailbox.send(Command::Erase { keep, reply });
        let cut_off =
            "the erasure was cut off: the cache failed or was exchanged, or the daemon stops; try again";
        let erased = erased.await.ok().flatten().filter(|erased| erased.is_complete).ok_or(cut_off)?;
        tracing::info!("erased {} slots of the cache; {} could not be", erased.slots, erased.left);
        Ok(json!({ "slots": erased.slots, "left": erased.left }))
    }
}
