//! The reduce workers: decoding, hashing, compression and comparison off the data-plane thread.
//!
//! Job: a fixed number of threads take jobs from two queues, decoding (a client waits for it) before everything else
//! (FlaZ 2.2.5), and queue results for the data plane.
//!
//! Waking a thread costs more than hashing an extent, so work for insertions is batched in both directions: jobs are
//! handed over when there are several or a millisecond or two have passed, and results wake the data plane when there
//! are many or none followed for a moment, unless a turn for another reason took them before. Urgent work goes at
//! once: decoding always, the rest while a client waits for a flush ([`ReducePool::hurry`]); and small amounts of it
//! run on the submitting thread, because waking a worker and being woken by it takes longer. The same applies to a
//! single small job. With several I/O threads, the thread runs it after its turn ([`AfterTurn`]).
//!
//! Invariants: both queues are bounded together; a job that does not fit runs on the submitting thread, so that none
//! is lost and memory stays bounded. Each job yields one result, of which the data plane is notified. Jobs own leases
//! of their memory.
//!
//! It does not order results (the manager packs in the order of requests for any order of results).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use zc_core::limits::REDUCE_THREADS_MAX;
use zc_core::{Codec, DedupDomain, FingerprintKind, OpId, usize_from_u32};
use zc_io::{JobQueue, Lease, NextJob, ReadLease, Waker};

use crate::error::EngineError;
use crate::limits::{
    ALONE_INLINE_BYTES, HURRY_INLINE_BYTES, REDUCE_JOBS_MAX, REDUCE_JOBS_TOGETHER, REDUCE_LINGER,
    REDUCE_RESULTS_MAX,
};
use crate::shard::cpus::bind_this_thread;
use crate::shard::extents::{Learned, PartDecode};
use crate::shard::reduce::{self, Facts};

/// Work for a thread.
pub(crate) enum Job {
    /// Verify and decode some extents of one device read.
    Decode(Vec<PartDecode>),
    Hash {
        op: OpId,
        src: ReadLease,
        kind: FingerprintKind,
        domain: DedupDomain,
    },
    Compress {
        op: OpId,
        src: ReadLease,
        codec: Codec,
        max_bytes: u32,
        out: Lease,
    },
    Compare {
        op: OpId,
        left: ReadLease,
        right: ReadLease,
    },
}

/// Result of a job.
pub(crate) enum Outcome {
    /// Read, part, and its digest, or its fault.
    Decoded(Vec<(u64, usize, Result<Option<Learned>, zc_format::ExtentError>)>),
    /// Facts about bytes, for the manager.
    Facts { op: OpId, facts: Facts },
}

impl Job {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Decode(_))
    }

    /// Returns `true` if its result can wait a moment for others: it belongs to an insertion.
    fn has_time(&self) -> bool {
        matches!(self, Self::Hash { .. } | Self::Compress { .. } | Self::Compare { .. })
    }

    /// Returns the bytes to process; slow operations count as more than a thread runs in passing.
    fn quick_bytes(&self) -> usize {
        match self {
            Self::Hash { src, .. } | Self::Compress { src, codec: Codec::Lz4, .. } => src.len(),
            Self::Compare { left, .. } => left.len(),
            Self::Decode(_) | Self::Compress { .. } => HURRY_INLINE_BYTES + 1,
        }
    }

    fn run(self, scratch: &mut reduce::Scratch) -> Outcome {
        match self {
            Self::Decode(parts) => {
                let decoded = |part: PartDecode| (part.read, part.part, part.run(scratch));
                Outcome::Decoded(parts.into_iter().map(decoded).collect())
            }
            Self::Hash { op, src, kind, domain } => {
                Outcome::Facts { op, facts: reduce::hash(&src, kind, &domain) }
            }
            Self::Compress { op, src, codec, max_bytes, mut out } => {
                let limit = usize_from_u32(max_bytes).min(out.len());
                let facts = scratch.compress(&src, codec, &mut out[..limit]);
                Outcome::Facts { op, facts }
            }
            Self::Compare { op, left, right } => {
                Outcome::Facts { op, facts: Facts::Compared(left[..] == right[..]) }
            }
        }
    }
}

struct Shared {
    jobs: JobQueue<Job>,
    done: Mutex<Vec<Outcome>>,
    /// Results in `done`.
    results: AtomicUsize,
    waker: Waker,
    inline: AtomicU64,
    /// Nothing has time at the moment.
    hurry: AtomicBool,
}

impl Shared {
    /// Adds a result; how many there are now.
    fn put(&self, outcome: Outcome) -> usize {
        let mut done = lock(&self.done);
        done.push(outcome);
        self.results.store(done.len(), Ordering::Release);
        done.len()
    }
}

/// A poisoned lock means that a worker panicked between two consistent states: the data remains valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs jobs after a turn, on the thread that had it.
pub(crate) struct AfterTurn(Arc<Shared>);

impl AfterTurn {
    /// Carries jobs out. The next turn, whoever has it, finds the results.
    pub(crate) fn carry_out(&self, jobs: Vec<Job>, scratch: &mut reduce::Scratch) {
        for job in jobs {
            self.0.put(job.run(scratch));
        }
    }
}

/// The pool; dropping it ends the threads after the jobs they are at.
pub(crate) struct ReducePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    scratch: reduce::Scratch,
    /// Jobs that no worker was given yet, and since when.
    fresh: Vec<Job>,
    fresh_since_ms: Option<u64>,
    /// Jobs for the thread that has the turn; it does them afterwards.
    after_turn: Vec<Job>,
    /// `true` if other threads may have the next turn at the same time.
    has_company: bool,
}

impl ReducePool {
    /// Starts `threads` threads on the given CPUs (all, if empty); results wake `waker`. `has_company`: jobs come from
    /// several I/O threads.
    pub(crate) fn start(
        threads: u32,
        cpus: &[usize],
        waker: Waker,
        has_company: bool,
    ) -> Result<Self, EngineError> {
        let shared = Arc::new(Shared {
            jobs: JobQueue::default(),
            done: Mutex::default(),
            results: AtomicUsize::new(0),
            waker,
            inline: AtomicU64::new(0),
            hurry: AtomicBool::new(false),
        });
        let scratch = reduce::Scratch::default();
        let mut pool = Self {
            shared,
            threads: Vec::new(),
            scratch,
            fresh: Vec::new(),
            fresh_since_ms: None,
            after_turn: Vec::new(),
            has_company,
        };
        for number in 0..threads.clamp(1, REDUCE_THREADS_MAX) {
            let shared = Arc::clone(&pool.shared);
            let cpus = cpus.to_vec();
            let thread = std::thread::Builder::new()
                .name(format!("reduce-{number}"))
                .spawn(move || {
                    bind_this_thread(&cpus, "a reduce worker");
                    work(&shared);
                })
                .map_err(|source| EngineError::thread("a reduce worker", source))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// From now on every job and every result goes at once, or no longer.
    pub(crate) fn hurry(&self, hurry: bool) {
        self.shared.hurry.store(hurry, Ordering::Relaxed);
    }

    /// Takes a job; a worker gets it with the next [`Self::hand_over`].
    pub(crate) fn submit(&mut self, job: Job) {
        self.fresh.push(job);
    }

    /// Has the thread of this turn carry a job out after it.
    pub(crate) fn do_after_turn(&mut self, job: Job) {
        self.after_turn.push(job);
    }

    /// Returns `true` if several I/O threads have turns.
    pub(crate) const fn has_company(&self) -> bool {
        self.has_company
    }

    /// Returns the jobs that the thread of this turn runs after it.
    pub(crate) fn take_after_turn(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.after_turn)
    }

    pub(crate) fn after_turn(&self) -> AfterTurn {
        AfterTurn(Arc::clone(&self.shared))
    }

    /// Returns `true` if jobs wait to be handed over.
    pub(crate) const fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Hands jobs over, unless they have time and are few. To be called at the end of each turn, and every millisecond
    /// or so while [`Self::has_fresh`].
    pub(crate) fn hand_over(&mut self, now_ms: u64) {
        if self.fresh.is_empty() {
            return;
        }
        let since_ms = *self.fresh_since_ms.get_or_insert(now_ms);
        let hurry = self.shared.hurry.load(Ordering::Relaxed);
        let quick_bytes = self.fresh.iter().map(Job::quick_bytes).sum::<usize>();
        let alone = self.fresh.len() == 1 && quick_bytes <= ALONE_INLINE_BYTES && self.waiting() == 1;
        if alone || (hurry && quick_bytes <= HURRY_INLINE_BYTES) {
            self.fresh_since_ms = None;
            if self.has_company {
                self.after_turn.append(&mut self.fresh);
                return;
            }
            for job in std::mem::take(&mut self.fresh) {
                let outcome = job.run(&mut self.scratch);
                self.shared.put(outcome);
            }
            return;
        }
        let have_time = !hurry && self.fresh.len() < REDUCE_JOBS_TOGETHER && now_ms <= since_ms + 1;
        if have_time && self.fresh.iter().all(Job::has_time) {
            return;
        }
        self.fresh_since_ms = None;
        let room = REDUCE_JOBS_MAX.saturating_sub(self.shared.jobs.len());
        let too_many = self.fresh.split_off(self.fresh.len().min(room));
        let urgent = self.fresh.iter().filter(|job| job.is_urgent()).count();
        let wakes = urgent + (self.fresh.len() - urgent).div_ceil(REDUCE_JOBS_TOGETHER);
        let jobs = self.fresh.drain(..).map(|job| {
            let is_urgent = job.is_urgent();
            (job, is_urgent)
        });
        self.shared.jobs.put_all(jobs, wakes.min(self.threads.len()));
        for job in too_many {
            self.shared.inline.fetch_add(1, Ordering::Relaxed);
            let outcome = job.run(&mut self.scratch);
            self.shared.put(outcome);
            self.shared.waker.wake();
        }
    }

    /// Returns `true` if there are results.
    pub(crate) fn has_results(&self) -> bool {
        self.shared.results.load(Ordering::Acquire) > 0
    }

    pub(crate) fn take_done(&self, into: &mut Vec<Outcome>) {
        let mut done = lock(&self.shared.done);
        into.append(&mut done);
        self.shared.results.store(0, Ordering::Release);
    }

    /// Jobs waiting now.
    pub(crate) fn waiting(&self) -> usize {
        self.fresh.len() + self.shared.jobs.len()
    }

    /// Returns the jobs that ran on the submitting thread, because the queues were full.
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
        self.shared.jobs.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reduce worker had panicked");
            }
        }
    }
}

fn work(shared: &Shared) {
    let mut scratch = reduce::Scratch::default();
    // This thread added results without waking the data plane.
    let mut unsent = false;
    while let Some(job) = next_job(shared, &mut unsent) {
        let has_time = job.has_time();
        let outcome = job.run(&mut scratch);
        let results = shared.put(outcome);
        unsent = has_time && results < REDUCE_RESULTS_MAX && !shared.hurry.load(Ordering::Relaxed);
        if !unsent {
            shared.waker.wake();
        }
    }
}

/// Returns the next job; `None` at the end. Unreported results are reported when no job arrives for a moment.
fn next_job(shared: &Shared, unsent: &mut bool) -> Option<Job> {
    if *unsent {
        match shared.jobs.next_within(REDUCE_LINGER) {
            NextJob::Job(job) => return Some(job),
            NextJob::Stopped => return None,
            NextJob::TimedOut => {}
        }
        *unsent = false;
        if shared.results.load(Ordering::Acquire) > 0 {
            shared.waker.wake();
        }
    }
    shared.jobs.next()
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
        let mut pool = ReducePool::start(2, &[], event.waker(), false).unwrap();
        let zeros = Arena::new(AlignedBuf::new(8192));
        let mut other = AlignedBuf::new(8192);
        other[8191] = 1;
        let other = Arena::new(other);
        for op in 0..100 {
            let (left, right) = if op % 2 == 0 { (&zeros, &zeros) } else { (&zeros, &other) };
            let (left, right) = (left.read_lease(0..8192), right.read_lease(0..8192));
            pool.submit(Job::Compare { op: OpId(op), left, right });
        }
        assert_eq!(pool.waiting(), 100, "they wait for the end of the turn");
        pool.hand_over(0);
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
        let mut pool = ReducePool::start(1, &[0], event.waker(), false).unwrap();
        let text = AlignedBuf::from(&b"the same again and again; ".repeat(400)[..8192]);
        let (text, out) = (Arena::new(text), Arena::new(AlignedBuf::new(7000)));
        let kind = FingerprintKind::Blake3;
        pool.submit(Job::Hash {
            op: OpId(1),
            src: text.read_lease(0..8192),
            kind,
            domain: DedupDomain::COMMON,
        });
        let zeros = Arena::new(AlignedBuf::new(8192));
        pool.submit(Job::Hash {
            op: OpId(2),
            src: zeros.read_lease(0..8192),
            kind,
            domain: DedupDomain::COMMON,
        });
        let (src, out) = (text.read_lease(0..8192), out.lease(0..7000));
        pool.submit(Job::Compress { op: OpId(3), src, codec: Codec::Lz4, max_bytes: 7000, out });
        pool.hand_over(7);
        assert!(pool.has_fresh(), "three have time");
        pool.hand_over(9);
        assert!(!pool.has_fresh());
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

    #[test]
    fn a_single_result_is_told_although_nothing_follows() {
        let mut ring = Ring::new(RingOptions::default()).unwrap();
        let event = EventFd::new().unwrap();
        let mut pool = ReducePool::start(1, &[], event.waker(), false).unwrap();
        let zeros = Arena::new(AlignedBuf::new(512));
        for op in 0..3 {
            let src = zeros.read_lease(0..512);
            pool.submit(Job::Hash {
                op: OpId(op),
                src,
                kind: FingerprintKind::Blake3,
                domain: DedupDomain::COMMON,
            });
            pool.hand_over(10 * op);
            pool.hand_over(10 * op + 2);
            assert_eq!(wait(&mut ring, &event, &pool, 1).len(), 1);
            assert!(!pool.has_results());
        }
    }

    #[test]
    fn a_job_that_a_client_waits_for_does_not_wait_for_others() {
        let mut ring = Ring::new(RingOptions::default()).unwrap();
        let event = EventFd::new().unwrap();
        let mut pool = ReducePool::start(1, &[], event.waker(), false).unwrap();
        let zeros = Arena::new(AlignedBuf::new(512));
        let submit = |pool: &mut ReducePool, op| {
            let src = zeros.read_lease(0..512);
            pool.submit(Job::Hash {
                op: OpId(op),
                src,
                kind: FingerprintKind::Blake3,
                domain: DedupDomain::COMMON,
            });
        };
        submit(&mut pool, 1);
        pool.hand_over(7);
        assert!(!pool.has_fresh() && pool.has_results(), "it is alone, and done");
        assert_eq!(wait(&mut ring, &event, &pool, 1).len(), 1);
        submit(&mut pool, 3);
        submit(&mut pool, 4);
        pool.hand_over(7);
        assert!(pool.has_fresh(), "there may be more");
        pool.hurry(true);
        pool.hand_over(7);
        assert!(!pool.has_fresh() && pool.has_results(), "it is little, and done");
        assert_eq!(wait(&mut ring, &event, &pool, 2).len(), 2);
        let much = Arena::new(AlignedBuf::new(HURRY_INLINE_BYTES + 512));
        let src = much.read_lease(0..HURRY_INLINE_BYTES + 512);
        pool.submit(Job::Hash {
            op: OpId(2),
            src,
            kind: FingerprintKind::Blake3,
            domain: DedupDomain::COMMON,
        });
        pool.hand_over(7);
        assert!(!pool.has_fresh());
        assert_eq!(wait(&mut ring, &event, &pool, 1).len(), 1);
    }

    #[test]
    fn results_that_a_turn_takes_before_they_are_told_are_not_lost() {
        let event = EventFd::new().unwrap();
        let mut pool = ReducePool::start(2, &[], event.waker(), false).unwrap();
        let zeros = Arena::new(AlignedBuf::new(512));
        let mut done = Vec::new();
        for op in 0..50 {
            let src = zeros.read_lease(0..512);
            pool.submit(Job::Hash {
                op: OpId(op),
                src,
                kind: FingerprintKind::Blake3,
                domain: DedupDomain::COMMON,
            });
            pool.hand_over(op);
        }
        pool.hand_over(99);
        while done.len() < 50 {
            if pool.has_results() {
                pool.take_done(&mut done);
            }
            std::thread::yield_now();
        }
        assert_eq!(done.len(), 50);
    }
}
