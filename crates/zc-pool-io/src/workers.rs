//! Threads for a pool's processor work.
//!
//! Job: run jobs, urgent ones first, and wake the pool's thread for each result. Invariants: each job yields one
//! outcome; the number of jobs is bounded by the store's work in flight. Results are not ordered.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use zc_core::OpId;
use zc_io::{JobQueue, Waker};
use zc_pool::{Job, Outcome};
use zc_reduce::Reducer;

use crate::client::lock;
use crate::error::OpenError;
use crate::limits::{INLINE_BYTES_MAX, WORKERS_MAX};

struct Shared {
    jobs: JobQueue<(OpId, Job)>,
    done: Mutex<Vec<(OpId, Outcome)>>,
    waker: Waker,
}

/// Worker threads; dropping it ends them after their current jobs.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    reducer: Reducer,
}

impl Workers {
    pub(crate) fn start(threads: u32, waker: &Waker) -> Result<Self, OpenError> {
        let shared =
            Arc::new(Shared { jobs: JobQueue::default(), done: Mutex::default(), waker: waker.clone() });
        let mut workers = Self { shared, threads: Vec::new(), reducer: Reducer::new() };
        for number in 0..threads.min(WORKERS_MAX) {
            let shared = Arc::clone(&workers.shared);
            let thread = std::thread::Builder::new().name(format!("store-{number}"));
            let thread = thread.spawn(move || work(&shared)).map_err(OpenError::Thread)?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Queues a job; returns its outcome if the calling thread ran it at once.
    pub(crate) fn take(&mut self, op: OpId, job: Job, urgent: bool) -> Option<Outcome> {
        if self.threads.is_empty() || (urgent && job.bytes() <= INLINE_BYTES_MAX) {
            return Some(job.run(&mut self.reducer));
        }
        self.shared.jobs.put((op, job), urgent);
        None
    }

    pub(crate) fn done(&self) -> Vec<(OpId, Outcome)> {
        std::mem::take(&mut lock(&self.shared.done))
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.jobs.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker of a store had panicked");
            }
        }
    }
}

fn work(shared: &Shared) {
    let mut reducer = Reducer::new();
    while let Some((op, job)) = shared.jobs.next() {
        let outcome = job.run(&mut reducer);
        lock(&shared.done).push((op, outcome));
        shared.waker.wake();
    }
}
