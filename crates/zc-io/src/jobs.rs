//! Job queue of worker threads.
//!
//! Job: pass jobs from a producer to workers, urgent ones (with a waiting client) first.
//!
//! Invariants: each job is taken once. Jobs that are queued when the queue stops are taken before workers see the
//! stop.
//!
//! It does not bound the number of jobs, run them, or return results.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
struct Queues<J> {
    urgent: VecDeque<J>,
    other: VecDeque<J>,
    stop: bool,
}

/// Queue of jobs; see the module documentation.
#[derive(Debug)]
pub struct JobQueue<J> {
    queues: Mutex<Queues<J>>,
    ready: Condvar,
}

/// Result of a wait for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextJob<J> {
    /// A job.
    Job(J),
    /// The queue is empty and stopped.
    Stopped,
    /// Time-out.
    TimedOut,
}

impl<J> Default for JobQueue<J> {
    fn default() -> Self {
        let queues = Queues { urgent: VecDeque::new(), other: VecDeque::new(), stop: false };
        Self { queues: Mutex::new(queues), ready: Condvar::new() }
    }
}

impl<J> Queues<J> {
    fn next(&mut self) -> Option<NextJob<J>> {
        let job = self.urgent.pop_front().or_else(|| self.other.pop_front());
        job.map(NextJob::Job).or_else(|| self.stop.then_some(NextJob::Stopped))
    }
}

impl<J> JobQueue<J> {
    /// A poisoned lock means that a thread panicked between two consistent states.
    fn lock(&self) -> MutexGuard<'_, Queues<J>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, and wakes a worker for it.
    pub fn put(&self, job: J, is_urgent: bool) {
        self.put_all([(job, is_urgent)], 1);
    }

    /// Queues jobs, each with its urgency, and wakes this number of workers.
    pub fn put_all(&self, jobs: impl IntoIterator<Item = (J, bool)>, wakes: usize) {
        let mut queues = self.lock();
        for (job, is_urgent) in jobs {
            if is_urgent {
                queues.urgent.push_back(job);
            } else {
                queues.other.push_back(job);
            }
        }
        drop(queues);
        for _ in 0..wakes {
            self.ready.notify_one();
        }
    }

    /// Returns the number of queued jobs.
    pub fn len(&self) -> usize {
        let queues = self.lock();
        queues.urgent.len() + queues.other.len()
    }

    /// Returns `true` if no job is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the workers after the queued jobs.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.ready.notify_all();
    }

    /// Waits for a job; `None` after the stop.
    pub fn next(&self) -> Option<J> {
        let mut queues = self.lock();
        loop {
            match queues.next() {
                Some(NextJob::Job(job)) => return Some(job),
                Some(NextJob::Stopped | NextJob::TimedOut) => return None,
                None => queues = self.ready.wait(queues).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits for a job, at most for the given time.
    pub fn next_within(&self, longest: Duration) -> NextJob<J> {
        let mut queues = self.lock();
        loop {
            if let Some(next) = queues.next() {
                return next;
            }
            let waited = self.ready.wait_timeout(queues, longest).unwrap_or_else(PoisonError::into_inner);
            queues = waited.0;
            if waited.1.timed_out() {
                return queues.next().unwrap_or(NextJob::TimedOut);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_jobs_go_first_and_all_before_the_end() {
        let queue = JobQueue::default();
        queue.put_all([(1, false), (2, true), (3, false)], 0);
        queue.put(4, true);
        queue.stop();
        assert_eq!((queue.len(), queue.is_empty()), (4, false));
        let taken: Vec<u32> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(taken, [2, 4, 1, 3]);
        assert_eq!(queue.next_within(Duration::ZERO), NextJob::Stopped);
    }

    #[test]
    fn a_wait_ends_with_a_job_or_in_time() {
        let queue = std::sync::Arc::new(JobQueue::default());
        assert_eq!(queue.next_within(Duration::ZERO), NextJob::TimedOut);
        let taker = std::sync::Arc::clone(&queue);
        let thread = std::thread::spawn(move || (taker.next(), taker.next_within(Duration::from_secs(60))));
        queue.put(7, false);
        queue.stop();
        assert_eq!(thread.join().unwrap(), (Some(7), NextJob::Stopped));
    }
}
