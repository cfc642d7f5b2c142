//! The reduce workers: decoding, hashing, compression and comparison off the data-plane thread.
//!
//! Job: a fixed number of threads take jobs from two queues, decoding (a client waits for it) before everything else
//! (FlaZ 2.2.5), and put results where the data plane finds them when it is woken.
//!
//! Invariants: both queues are bounded together; a job that does not fit is carried out by the thread that brings it,
//! so that none is lost and memory stays bounded. Each job yields one result. Jobs own leases of their memory.
//!
//! What it does not do: order results (the manager packs in the order of requests whatever order they come in).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use zc_core::{Codec, ErrorKind, FingerprintKind, OpId, usize_from_u32};
use zc_io::{Lease, ReadLease, Waker};

use crate::error::EngineError;
use crate::extents::PartDecode;
use crate::limits::{REDUCE_JOBS_MAX, REDUCE_THREADS_MAX};
use crate::reduce::{self, Facts};

/// Work for a thread.
pub(crate) enum Job {
    /// Verify and decode one extent of a device read.
    Decode(PartDecode),
    /// Fingerprint.
    Hash { op: OpId, src: ReadLease, kind: FingerprintKind },
    /// Compress.
    Compress { op: OpId, src: ReadLease, codec: Codec, max_bytes: u32, out: Lease },
    /// Compare bytes.
    Compare { op: OpId, left: ReadLease, right: ReadLease },
    /// Anything else that may block.
    Blocking { op: OpId, work: Box<dyn FnOnce() -> Result<(), ErrorKind> + Send> },
}

/// What came out of a job.
pub(crate) enum Outcome {
    /// The part of this read; its fault, if any.
    Decoded { read: u64, part: usize, result: Result<(), zc_format::ExtentError> },
    /// Facts about bytes, for the manager.
    Facts { op: OpId, facts: Facts },
    /// The end of a [`Job::Blocking`].
    Blocking { op: OpId, result: Result<(), ErrorKind> },
}

impl Job {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Decode(_))
    }

    fn run(self, scratch: &mut reduce::Scratch) -> Outcome {
        match self {
            Self::Decode(part) => {
                let (read, number) = (part.read, part.part);
                Outcome::Decoded { read, part: number, result: part.run(scratch) }
            }
            Self::Hash { op, src, kind } => Outcome::Facts { op, facts: scratch.hash(&src, kind) },
            Self::Compress { op, src, codec, max_bytes, mut out } => {
                let limit = usize_from_u32(max_bytes).min(out.len());
                let facts = scratch.compress(&src, codec, &mut out[..limit]);
                Outcome::Facts { op, facts }
            }
            Self::Compare { op, left, right } => {
                Outcome::Facts { op, facts: Facts::Compared(left[..] == right[..]) }
            }
            Self::Blocking { op, work } => Outcome::Blocking { op, result: work() },
        }
    }
}

#[derive(Default)]
struct Queues {
    urgent: VecDeque<Job>,
    other: VecDeque<Job>,
    stop: bool,
}

struct Shared {
    queues: Mutex<Queues>,
    ready: Condvar,
    done: Mutex<Vec<Outcome>>,
    waker: Waker,
    inline: AtomicU64,
}

/// A poisoned lock means a worker panicked between two consistent states: the data goes on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool; dropping it ends the threads after the jobs they are at.
pub(crate) struct ReducePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    scratch: reduce::Scratch,
}

impl ReducePool {
    /// Starts `threads` threads on the given CPUs (all, if empty); results wake `waker`.
    pub(crate) fn start(threads: u32, cpus: &[usize], waker: Waker) -> Result<Self, EngineError> {
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            ready: Condvar::new(),
            done: Mutex::default(),
            waker,
            inline: AtomicU64::new(0),
        });
        let mut pool = Self { shared, threads: Vec::new(), scratch: reduce::Scratch::default() };
        for number in 0..threads.clamp(1, REDUCE_THREADS_MAX) {
            let shared = Arc::clone(&pool.shared);
            let cpus = cpus.to_vec();
            let thread = std::thread::Builder::new()
                .name(format!("reduce-{number}"))
                .spawn(move || {
                    pin(&cpus);
                    work(&shared);
                })
                .map_err(|source| EngineError::thread("a reduce worker", source))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Hands a job over.
    pub(crate) fn submit(&mut self, job: Job) {
        let mut queues = lock(&self.shared.queues);
        if queues.urgent.len() + queues.other.len() >= REDUCE_JOBS_MAX {
            drop(queues);
            self.shared.inline.fetch_add(1, Ordering::Relaxed);
            let outcome = job.run(&mut self.scratch);
            lock(&self.shared.done).push(outcome);
            self.shared.waker.wake();
            return;
        }
        if job.is_urgent() {
            queues.urgent.push_back(job);
        } else {
            queues.other.push_back(job);
        }
        drop(queues);
        self.shared.ready.notify_one();
    }

    /// Takes the results that are there.
    pub(crate) fn take_done(&self, into: &mut Vec<Outcome>) {
        into.append(&mut lock(&self.shared.done));
    }

    /// Jobs waiting now.
    pub(crate) fn waiting(&self) -> usize {
        let queues = lock(&self.shared.queues);
        queues.urgent.len() + queues.other.len()
    }

    /// Jobs that were carried out by the thread that brought them, because the queues were full.
    pub(crate) fn inline_jobs(&self) -> u64 {
        self.shared.inline.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for ReducePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReducePool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Drop for ReducePool {
    fn drop(&mut self) {
        lock(&self.shared.queues).stop = true;
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reduce worker had panicked");
            }
        }
    }
}

fn pin(cpus: &[usize]) {
    if cpus.is_empty() {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    if let Err(errno) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(?cpus, "cannot pin a reduce worker to its CPU set: {errno}");
    }
}

fn work(shared: &Shared) {
    let mut scratch = reduce::Scratch::default();
    loop {
        let mut queues = lock(&shared.queues);
        let job = loop {
            if let Some(job) = queues.urgent.pop_front() {
                break job;
            }
            if let Some(job) = queues.other.pop_front() {
                break job;
            }
            if queues.stop {
                return;
            }
            queues = shared.ready.wait(queues).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queues);
        let outcome = job.run(&mut scratch);
        lock(&shared.done).push(outcome);
        shared.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_io::{AlignedBuf, Arena, Completion, EventFd, Operation, Ring, RingOptions};

    fn wait(ring: &mut Ring, event: &EventFd, pool: &ReducePool, count: usize) -> Vec<Outcome> {
        let mut done = Vec::new();
        let mut completions: Vec<Completion> = Vec::new();
        while done.len() < count {
            pool.take_done(&mut done);
            if done.len() < count {
                ring.submit(Operation::Wait { event: event.clone() }, 0).unwrap();
                ring.submit_and_wait(1, None, &mut completions).unwrap();
            }
        }
        done
    }

    #[test]
    fn every_job_yields_its_result_once() {
        let mut ring = Ring::new(RingOptions::default()).unwrap();
        let event = EventFd::new().unwrap();
        let mut pool = ReducePool::start(2, &[], event.waker()).unwrap();
        let zeros = Arena::new(AlignedBuf::new(8192));
        let mut other = AlignedBuf::new(8192);
        other[8191] = 1;
        let other = Arena::new(other);
        for op in 0..100 {
            let (left, right) = if op % 2 == 0 { (&zeros, &zeros) } else { (&zeros, &other) };
            let (left, right) = (left.read_lease(0..8192), right.read_lease(0..8192));
            pool.submit(Job::Compare { op: OpId(op), left, right });
        }
        let mut equal: Vec<_> = wait(&mut ring, &event, &pool, 100)
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Facts { op, facts: Facts::Compared(equal) } => (op.0, equal),
                _ => panic!("a comparison gives a comparison"),
            })
            .collect();
        equal.sort_unstable();
        assert_eq!(equal, (0..100).map(|op| (op, op % 2 == 0)).collect::<Vec<_>>());
        assert_eq!((pool.waiting(), pool.inline_jobs()), (0, 0));
    }

    #[test]
    fn bytes_come_back_as_facts() {
        let mut ring = Ring::new(RingOptions::default()).unwrap();
        let event = EventFd::new().unwrap();
        let mut pool = ReducePool::start(1, &[0], event.waker()).unwrap();
        let text = AlignedBuf::from(&b"the same again and again; ".repeat(400)[..8192]);
        let (text, out) = (Arena::new(text), Arena::new(AlignedBuf::new(7000)));
        let kind = FingerprintKind::Blake3;
        pool.submit(Job::Hash { op: OpId(1), src: text.read_lease(0..8192), kind });
        let zeros = Arena::new(AlignedBuf::new(8192));
        pool.submit(Job::Hash { op: OpId(2), src: zeros.read_lease(0..8192), kind });
        let (src, out) = (text.read_lease(0..8192), out.lease(0..7000));
        pool.submit(Job::Compress { op: OpId(3), src, codec: Codec::Lz4, max_bytes: 7000, out });
        for outcome in wait(&mut ring, &event, &pool, 3) {
            match outcome {
                Outcome::Facts { op: OpId(1), facts: Facts::Hashed(digest) } => {
                    assert!(matches!(digest, zc_cache::seam::Digest::Print(_)));
                }
                Outcome::Facts { op: OpId(2), facts: Facts::Hashed(digest) } => {
                    assert_eq!(digest, zc_cache::seam::Digest::Zero);
                }
                Outcome::Facts { op: OpId(3), facts: Facts::Compressed(Some(bytes)) } => {
                    assert!(bytes < 1000);
                }
                _ => panic!("an unexpected result"),
            }
        }
    }
}
