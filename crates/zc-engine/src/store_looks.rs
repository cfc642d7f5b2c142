//! How the open stores are, for verdict, status and metrics.
//!
//! Job: look at every open store, and keep what was seen. Invariants: a store that does not answer in time, or is just
//! being opened, leaves what was seen before. What it does not do: judge (`verdict` does).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use zc_pool_io::PoolState;

use crate::limits::STORE_LOOK_MS;
use crate::stores::Stores;

/// What was seen of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StoreLook {
    pub(crate) name: String,
    /// Its file or device.
    pub(crate) path: PathBuf,
    pub(crate) state: PoolState,
    /// All segments.
    pub(crate) total_bytes: u64,
    /// What contents may still take: free, and not kept for the store's own work.
    pub(crate) left_bytes: u64,
    /// Requests that found no space since the store was opened.
    pub(crate) no_space: u64,
}

/// What was seen last.
#[derive(Debug, Default)]
pub(crate) struct StoreLooks(Mutex<Vec<StoreLook>>);

impl StoreLooks {
    /// Looks at the open stores, for a bounded time.
    pub(crate) async fn refresh(&self, stores: &Arc<Stores>) {
        let stores = Arc::clone(stores);
        let look = tokio::task::spawn_blocking(move || stores.looks());
        let looked = tokio::time::timeout(Duration::from_millis(STORE_LOOK_MS), look).await;
        if let Ok(Ok(Some(looks))) = looked {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = looks;
        }
    }

    /// What was seen last.
    pub(crate) fn last(&self) -> Vec<StoreLook> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
