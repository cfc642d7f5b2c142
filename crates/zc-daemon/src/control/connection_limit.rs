//! The limit of control connections.
//!
//! Job: bound the connections without letting idle ones block others: a new connection without a slot displaces the
//! one that has waited longest for its client.
//!
//! Invariants: a bounded number of connections has a slot, and [`CONTROL_QUEUE_TIMES`] as many wait for one. A
//! connection with a command in progress is not displaced.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::limits::{CONTROL_PLACE_WAIT_MS, CONTROL_QUEUE_TIMES, CONTROL_RETRY_MS};

type End = Arc<Notify>;

/// The connections that may be open at once.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    free: Arc<Semaphore>,
    /// Bound of waiting connections.
    queue: Semaphore,
    /// Connections that wait for their clients, the longest first.
    idle: Mutex<VecDeque<End>>,
}

/// Slot of one connection; released on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    limit: Arc<ConnectionLimit>,
    end: End,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let queue = Semaphore::new(most * CONTROL_QUEUE_TIMES);
        Arc::new(Self { free: Arc::new(Semaphore::new(most)), queue, idle: Mutex::default() })
    }

    fn forget(&self, end: &End) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, end));
    }

    /// The next place that becomes free, which is made so by the first connection that is idle.
    async fn take_from_idle(&self) -> Option<OwnedSemaphorePermit> {
        let mut free = std::pin::pin!(Arc::clone(&self.free).acquire_owned());
        let mut has_displaced = false;
        loop {
            if !has_displaced {
                let longest = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                has_displaced = longest.inspect(|longest| longest.notify_one()).is_some();
            }
            let again = tokio::time::sleep(Duration::from_millis(CONTROL_RETRY_MS));
            tokio::select! {
                permit = &mut free => return permit.ok(),
                () = again => {}
            }
        }
    }

    /// Acquires a slot, if necessary that of an idle connection. `None`: all connections execute long commands, or too
    /// many callers wait already.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Permit> {
        let permit = if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            permit
        } else {
            let _queued = self.queue.try_acquire().ok()?;
            let wait = Duration::from_millis(CONTROL_PLACE_WAIT_MS);
            tokio::time::timeout(wait, self.take_from_idle()).await.ok()??
        };
        Some(Permit { limit: Arc::clone(self), end: Arc::default(), _permit: permit })
    }
}

impl Permit {
    /// Waits for a client's next action. `None`: another client received the slot.
    pub(crate) async fn idle<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        self.limit.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(&self.end));
        let came = tokio::select! {
            biased;
            () = self.end.notified() => None,
            came = next => Some(came),
        };
        self.limit.forget(&self.end);
        came
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.forget(&self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_gets_the_place_of_the_first_that_becomes_idle() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let limit = ConnectionLimit::new(1);
            let busy = limit.take().await.unwrap();
            let asker = Arc::clone(&limit);
            let newcomer = tokio::spawn(async move { asker.take().await.is_some() });
            // The first call finds no idle connection, the second one does.
            tokio::task::yield_now().await;
            let patience = Duration::from_secs(20);
            let ended = tokio::time::timeout(patience, busy.idle(std::future::pending::<()>())).await;
            assert_eq!(ended, Ok(None));
            drop(busy);
            assert!(newcomer.await.unwrap());
        });
    }
}
