//! State of the open stores, for verdict, status and metrics.
//!
//! Job: request the state of every open store, and keep it. Invariants: the last state of a store stays if the store
//! does not answer in time, or is just being opened. Out of scope: the verdict (`verdict`).

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use zc_pool_io::PoolState;

use crate::limits::STORE_LOOK_MS;

/// State of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreLook {
    /// Its name in the configuration.
    pub name: String,
    /// Its file or device.
    pub path: PathBuf,
    /// Its condition.
    pub state: PoolState,
    /// Opened without changes that may have been flushed.
    pub torn: bool,
    /// All segments.
    pub total_bytes: u64,
    /// Space for contents after the cleaner has freed everything without references.
    pub left_bytes: u64,
    /// Volumes in it, served or not.
    pub volumes: u64,
    /// Snapshots in it.
    pub snapshots: u64,
    /// Pages of volume maps that cannot be read: the contents that they refer to are not freed.
    pub pages_lost: u64,
    /// Fingerprints of contents that came with their write since the store was opened.
    pub prints_known: u64,
    /// Fingerprints of contents that were computed since then.
    pub prints_computed: u64,
    /// Chunks that were stored as the cache had compressed them.
    pub encodings_known: u64,
    /// Chunks that the store compressed, or tried to.
    pub encodings_computed: u64,
    /// Requests that found no space since the store was opened.
    pub no_space: u64,
    /// Requests that had found no space when the store was last seen with space.
    #[serde(skip)]
    pub no_space_before: u64,
}

impl StoreLook {
    /// Lowers `Full` to `Low` unless the store has refused requests since it was last seen with space. The cleaner frees
    /// segments on demand, so a store without free ones is not full.
    fn compared(mut self, before: Option<&Self>) -> Self {
        if self.state != PoolState::Full {
            self.no_space_before = self.no_space;
            return self;
        }
        self.no_space_before = before.map_or(0, |before| before.no_space_before.min(self.no_space));
        if self.no_space == self.no_space_before {
            self.state = PoolState::Low;
        }
        self
    }
}

/// Last states of the stores.
#[derive(Debug, Default)]
pub struct StoreLooks(Mutex<Vec<StoreLook>>);

impl StoreLooks {
    /// Requests the states of the open stores, for a bounded time.
    ///
    /// `look` requests them, and may block; it returns `None` without an answer.
    pub async fn refresh(&self, look: impl FnOnce() -> Option<Vec<StoreLook>> + Send + 'static) {
        let look = tokio::task::spawn_blocking(look);
        let looked = tokio::time::timeout(Duration::from_millis(STORE_LOOK_MS), look).await;
        if let Ok(Ok(Some(looks))) = looked {
            self.take(looks);
        }
    }

    fn take(&self, looks: Vec<StoreLook>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = |look: &StoreLook| last.iter().find(|before| before.name == look.name);
        let looks = looks.into_iter().map(|look| {
            let before = before(&look);
            look.compared(before)
        });
        *last = looks.collect();
    }

    /// Returns the last states.
    pub fn last(&self) -> Vec<StoreLook> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_full_while_it_refuses_and_not_for_a_moment_without_space() {
        let looks = StoreLooks::default();
        let seen = |state, no_space| {
            looks.take(vec![StoreLook {
                name: "tank".to_owned(),
                path: "/dev/t".into(),
                torn: false,
                state,
                total_bytes: 100,
                left_bytes: 1,
                volumes: 1,
                snapshots: 0,
                pages_lost: 0,
                prints_known: 0,
                prints_computed: 0,
                encodings_known: 0,
                encodings_computed: 0,
                no_space,
                no_space_before: 0,
            }]);
            looks.last()[0].state
        };
        assert_eq!(seen(PoolState::Full, 0), PoolState::Low);
        assert_eq!(seen(PoolState::Full, 3), PoolState::Full);
        assert_eq!(seen(PoolState::Full, 3), PoolState::Full, "as long as there is no space");
        assert_eq!(seen(PoolState::Low, 3), PoolState::Low);
        assert_eq!(seen(PoolState::Full, 3), PoolState::Low);
        assert_eq!(seen(PoolState::Full, 4), PoolState::Full);
        // Opened again, it counts from zero.
        assert_eq!(seen(PoolState::Full, 0), PoolState::Low);
    }
}
