//! Requests to a pool, from any thread.
//!
//! Job: deliver requests to the pool's thread and wake it. Invariant: each request completes once: by the pool or,
//! after its end, at once with [`ErrorKind::Shutdown`]. Requests of different threads are not ordered.

use std::fmt;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zc_core::ErrorKind;
use zc_io::Waker;
use zc_pool::{Answer, Pool, PoolError, RequestKind};
use zc_store::seam::StoreError;
use zc_store::{Root, RootId, Space, Stats, Store};

/// Completion callback. It runs on the pool's thread and must not block.
pub type Callback = Box<dyn FnOnce(Result<Answer, PoolError>) + Send>;

/// Query of the pool's current state.
pub(crate) type Look = Box<dyn FnOnce(&Pool) + Send>;

/// Input of the pool's thread.
pub(crate) enum Input {
    Request(RequestKind, Callback),
    Look(Look),
    Clean(Look),
    Stop,
}

/// Queued inputs; `None` once the thread has ended.
pub(crate) type Inbox = Arc<Mutex<Option<Vec<Input>>>>;

/// A poisoned lock means that a thread panicked between two consistent states.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handle of an open pool; clones refer to the same one.
#[derive(Clone)]
pub struct PoolClient {
    pub(crate) inbox: Inbox,
    pub(crate) waker: Waker,
}

impl PoolClient {
    /// Submits a request; `done` receives the result.
    pub fn submit(&self, kind: RequestKind, done: impl FnOnce(Result<Answer, PoolError>) + Send + 'static) {
        if let Some(Input::Request(_, done)) = self.send(Input::Request(kind, Box::new(done))) {
            done(Err(ended()));
        }
    }

    /// Submits a request and waits for the result.
    ///
    /// # Errors
    /// The pool's error, or [`ErrorKind::Shutdown`] when it has ended.
    pub fn ask(&self, kind: RequestKind) -> Result<Answer, PoolError> {
        let (sender, receiver) = sync_channel(1);
        self.submit(kind, move |answer| {
            let _asker_left = sender.send(answer);
        });
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Runs a query of the store between two events, and waits for the result. `None`: its thread has ended.
    pub fn look<T: Send + 'static>(&self, look: impl FnOnce(&Store) -> T + Send + 'static) -> Option<T> {
        self.ask_look(|pool| look(pool.store()), Input::Look)
    }

    /// As [`Self::look`], on the pool.
    pub fn look_at_pool<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Pool) -> T + Send + 'static,
    ) -> Option<T> {
        self.ask_look(look, Input::Look)
    }

    fn ask_look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Pool) -> T + Send + 'static,
        input: impl FnOnce(Look) -> Input,
    ) -> Option<T> {
        let (sender, receiver) = sync_channel(1);
        let look = move |pool: &Pool| {
            let _asker_left = sender.send(look(pool));
        };
        match self.send(input(Box::new(look))) {
            None => receiver.recv().ok(),
            Some(_) => None,
        }
    }

    /// The identity of the store. `None`: it has ended.
    #[must_use]
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.look(Store::uuid).flatten()
    }

    /// Returns how often an operator accepted that the store's device had lost a part of its log. `None`: the pool has
    /// ended.
    #[must_use]
    pub fn losses(&self) -> Option<u32> {
        self.look(Store::losses).flatten()
    }

    /// Number of openings that lost changes which may have been flushed, since the last report.
    #[must_use]
    pub fn dropped_commits(&self) -> u32 {
        self.look(Store::dropped_commits).unwrap_or(0)
    }

    /// Returns the current state of a volume or snapshot.
    #[must_use]
    pub fn root(&self, root: RootId) -> Option<Root> {
        self.look(move |store| store.root(root).cloned()).flatten()
    }

    /// Returns the volume or snapshot of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(RootId, Root)> {
        let name = name.to_owned();
        let find = move |store: &Store| {
            store.roots().find(|(_, root)| root.name == name).map(|(id, root)| (id, root.clone()))
        };
        self.look(find).flatten()
    }

    /// Returns all volumes and snapshots.
    #[must_use]
    pub fn roots(&self) -> Vec<(RootId, Root)> {
        let all = |store: &Store| store.roots().map(|(id, root)| (id, root.clone())).collect();
        self.look(all).unwrap_or_default()
    }

    /// Returns space usage and counters.
    #[must_use]
    pub fn space(&self) -> (Space, Stats) {
        self.look(|store| (store.space(), store.stats())).unwrap_or_default()
    }

    /// Starts the cleaner regardless of its thresholds, and waits until the pool is idle. Returns the bytes freed, and
    /// those free now.
    #[must_use]
    pub fn clean(&self) -> (u64, u64) {
        let before = self.space().0.free_bytes;
        let free = |pool: &Pool| pool.store().space().free_bytes;
        let free = self.ask_look(free, Input::Clean).unwrap_or(before);
        (free.saturating_sub(before), free)
    }

    /// Sends an input; returns it if the thread has ended.
    pub(crate) fn send(&self, input: Input) -> Option<Input> {
        match &mut *lock(&self.inbox) {
            Some(inputs) => inputs.push(input),
            None => return Some(input),
        }
        self.waker.wake();
        None
    }
}

impl fmt::Debug for PoolClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolClient")
    }
}

pub(crate) const fn ended() -> PoolError {
    PoolError { error: StoreError::Device(ErrorKind::Shutdown), root: RootId(0), offset_bytes: 0 }
}
