//! Asking a pool, from any thread.
//!
//! Job: take requests to the pool's thread and wake it. Invariant: each request is answered once: by the pool, or, when
//! that has ended, at once with [`ErrorKind::Shutdown`]. What it does not do: keep order between threads.

use std::fmt;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zc_core::ErrorKind;
use zc_io::Waker;
use zc_pool::{Answer, Pool, PoolError, RequestKind};
use zc_store::seam::StoreError;
use zc_store::{Root, RootId, Space, Stats, Store};

/// What becomes of an answer. It runs on the pool's thread and must not block.
pub type Done = Box<dyn FnOnce(Result<Answer, PoolError>) + Send>;

/// A question about the pool as it is now.
pub(crate) type Look = Box<dyn FnOnce(&Pool) + Send>;

/// What the pool's thread is told.
pub(crate) enum Input {
    Request(RequestKind, Done),
    Look(Look),
    Clean(Look),
    Stop,
}

/// Inputs that wait; `None` once the thread has ended.
pub(crate) type Inbox = Arc<Mutex<Option<Vec<Input>>>>;

/// A poisoned lock means that a thread panicked between two consistent states.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle of an open pool; clones ask the same one.
#[derive(Clone)]
pub struct PoolClient {
    pub(crate) inbox: Inbox,
    pub(crate) waker: Waker,
}

impl PoolClient {
    /// Asks; `done` gets the answer.
    pub fn submit(&self, kind: RequestKind, done: impl FnOnce(Result<Answer, PoolError>) + Send + 'static) {
        if let Some(Input::Request(_, done)) = self.send(Input::Request(kind, Box::new(done))) {
            done(Err(ended()));
        }
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// What the pool says, or [`ErrorKind::Shutdown`] when it has ended.
    pub fn ask(&self, kind: RequestKind) -> Result<Answer, PoolError> {
        let (sender, receiver) = sync_channel(1);
        self.submit(kind, move |answer| {
            let _asker_left = sender.send(answer);
        });
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Looks at the store between two of its events, and waits for what is found. `None`: its thread has ended.
    pub fn look<T: Send + 'static>(&self, look: impl FnOnce(&Store) -> T + Send + 'static) -> Option<T> {
        self.ask_look(|pool| look(pool.store()), Input::Look)
    }

    /// As [`Self::look`], at the pool.
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

    /// How often an operator accepted that the store's device had lost a part of its log. `None`: it has ended.
    #[must_use]
    pub fn losses(&self) -> Option<u32> {
        self.look(Store::losses).flatten()
    }

    /// Number of openings without changes that may have been flushed, since that was last reported.
    #[must_use]
    pub fn dropped_commits(&self) -> u32 {
        self.look(Store::dropped_commits).unwrap_or(0)
    }

    /// A volume or snapshot, as it is now.
    #[must_use]
    pub fn root(&self, root: RootId) -> Option<Root> {
        self.look(move |store| store.root(root).cloned()).flatten()
    }

    /// The volume or snapshot of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(RootId, Root)> {
        let name = name.to_owned();
        let find = move |store: &Store| {
            store.roots().find(|(_, root)| root.name == name).map(|(id, root)| (id, root.clone()))
        };
        self.look(find).flatten()
    }

    /// All volumes and snapshots.
    #[must_use]
    pub fn roots(&self) -> Vec<(RootId, Root)> {
        let all = |store: &Store| store.roots().map(|(id, root)| (id, root.clone())).collect();
        self.look(all).unwrap_or_default()
    }

    /// Where its bytes are, and what it counted.
    #[must_use]
    pub fn space(&self) -> (Space, Stats) {
        self.look(|store| (store.space(), store.stats())).unwrap_or_default()
    }

    /// Lets the cleaner begin now, whatever its thresholds say, and waits until the pool has no work of its own. Bytes
    /// that became free, and that are.
    #[must_use]
    pub fn clean(&self) -> (u64, u64) {
        let before = self.space().0.free_bytes;
        let free = |pool: &Pool| pool.store().space().free_bytes;
        let free = self.ask_look(free, Input::Clean).unwrap_or(before);
        (free.saturating_sub(before), free)
    }

    /// Gives the input back if the thread has ended.
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

/// The answer of a pool that has ended.
pub(crate) const fn ended() -> PoolError {
    PoolError { error: StoreError::Device(ErrorKind::Shutdown), root: RootId(0), offset_bytes: 0 }
}
