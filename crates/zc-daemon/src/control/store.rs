//! Orders for stores that the daemon has open, from `zcctl store`.
//!
//! Job: execute an operator's order on an open store, on a thread that may block. Invariants: at most one changing
//! order at a time, and none during a change of settings, which may open volumes; an order that would change a volume
//! under the cache that serves it is refused. It does not flush dirty data before a snapshot (the caller does).

use serde_json::Value;
use zc_pool_io::Order;

use crate::control::Shared;
use crate::control::request::Request;

/// Returns `true` if it is an order that changes nothing. Invalid orders are refused later.
pub(crate) fn only_looks(request: &Request) -> bool {
    match request {
        Request::Store { order, .. } => {
            serde_json::from_value::<Order>(order.clone()).is_ok_and(|order| order.only_looks())
        }
        _ => false,
    }
}

impl Shared {
    pub(crate) async fn order(&self, store: String, order: Value) -> Result<Value, String> {
        let order: Order = serde_json::from_value(order).map_err(|error| format!("not an order: {error}"))?;
        let _settings = if order.only_looks() { None } else { Some(self.settings().await?) };
        if let Some(name) = order.disturbs() {
            self.is_served(&store, name).map_or(Ok(()), |volume| Err(refusal(&order, name, &volume)))?;
        }
        let stores = std::sync::Arc::clone(&self.stores);
        let work = move || {
            let pool = stores.open(&store).map_err(|error| error.to_string())?;
            order.carry_out(pool.client()).map_err(|error| error.to_string())
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| "the order was interrupted".to_owned())?
    }

    /// The volume that serves a volume or snapshot of a store, if one does.
    fn is_served(&self, store: &str, name: &str) -> Option<String> {
        let origin = std::path::PathBuf::from(format!("store:{store}/{name}"));
        self.registry.volumes.iter().find(|entry| entry.origin == origin).map(|entry| entry.key().clone())
    }
}

fn refusal(order: &Order, name: &str, volume: &str) -> String {
    match order {
        Order::Grow { .. } => {
            format!("\"{name}\" is in use by volume \"{volume}\": `zcctl resize {volume}` enlarges both")
        }
        _ => format!(
            "\"{name}\" is in use by volume \"{volume}\"; type `zcctl volume remove {volume}` first, or \
             stop the daemon and name the store by its path"
        ),
    }
}
