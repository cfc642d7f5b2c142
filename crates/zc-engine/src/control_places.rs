//! Places for control connections.
//!
//! Job: bound the connections without letting idle ones keep others out: a newcomer that finds no place takes the one of
//! the connection that has waited longest for its client.
//!
//! Invariants: at most so many connections have a place, and as many again wait for one. A connection whose command is
//! being carried out is not displaced.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::limits::CONTROL_PLACE_WAIT_MS;

/// Asks a connection to end.
type End = Arc<Notify>;

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    /// Connections that wait for their clients, the longest first.
    idle: Mutex<VecDeque<End>>,
}

/// A place; given back on drop.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    end: End,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(most)), idle: Mutex::default() })
    }

    fn forget(&self, end: &End) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, end));
    }

    /// A place, if need be that of an idle connection. `None`: all have a command under way.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Place> {
        let free = Arc::clone(&self.free);
        let permit = if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
            permit
        } else {
            let longest = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            longest?.notify_one();
            let wait = Duration::from_millis(CONTROL_PLACE_WAIT_MS);
            tokio::time::timeout(wait, free.acquire_owned()).await.ok()?.ok()?
        };
        Some(Place { places: Arc::clone(self), end: Arc::default(), _permit: permit })
    }
}

impl Place {
    /// Waits for what a client does next. `None`: another client got the place meanwhile.
    pub(crate) async fn idle<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        self.places.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(&self.end));
        let came = tokio::select! {
            biased;
            () = self.end.notified() => None,
            came = next => Some(came),
        };
        self.places.forget(&self.end);
        came
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.forget(&self.end);
    }
}
