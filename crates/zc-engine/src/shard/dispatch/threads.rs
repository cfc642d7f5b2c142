//! The I/O threads: each has a ring of its own, and locks the shard for a turn.
//!
//! Job: a thread waits on its ring, locks the shard, processes completions, unlocks, and submits the resulting I/O; it
//! then runs work that the turn left to it: small reads of compressed extents are decoded there. System calls, which
//! are most of the work, run while other threads have the shard.
//!
//! Invariants: a ring belongs to the thread that created it. The shard is locked for whole turns, so everything within
//! behaves as with one thread. No thread waits for a completion with the lock held. A thread is woken after each turn
//! of another that left operations for its ring. When one thread ends for any reason, all do.
//!
//! It does not balance load. A connection's or queue's work, and all that results from it, stays on its ring.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, ScopedJoinHandle};

use zc_io::{Ring, RingOptions, Waker};

use crate::clock::Clock;
use crate::error::EngineError;
use crate::limits::RING_ENTRIES;
use crate::shard::cpus;
use crate::shard::dispatch::Shard;
use crate::shard::dispatch::turn::{TurnBegun, TurnBuffers};
use crate::shard::pending::RingId;
use crate::shard::reduce::Scratch;
use crate::shard::reduce_pool::AfterTurn;

/// State shared by the threads.
struct Served {
    shard: Mutex<Shard>,
    wakers: Vec<Waker>,
    is_over: AtomicBool,
    after_turn: AfterTurn,
    options: RingOptions,
    clock: Clock,
    cpus: Vec<usize>,
}

/// Ends all threads on drop, however its own thread ends.
struct EndsAll<'a>(&'a Served);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.wakers.iter().for_each(Waker::wake);
    }
}

impl Shard {
    /// Runs until stopped, on this thread and the configured number of others. Returns `true` if the cache was left
    /// clean.
    ///
    /// # Errors
    /// When a ring fails, or the end cannot be recorded.
    pub fn run(mut self) -> Result<bool, EngineError> {
        self.begin();
        let mut rings = self.base.io.rings();
        let own = rings.next().unwrap_or(RingId::FIRST);
        let served = Served {
            wakers: self.events.iter().map(zc_io::EventFd::waker).collect(),
            is_over: AtomicBool::new(false),
            after_turn: self.workers.after_turn(),
            options: RingOptions {
                entries: RING_ENTRIES,
                ops_max: self.base.io.places(),
                poll_max_us: self.poll_max_us,
            },
            clock: self.base.clock,
            cpus: self.shard_cpus.clone(),
            shard: Mutex::new(self),
        };
        std::thread::scope(|scope| {
            let _ends = EndsAll(&served);
            let mut others = Vec::new();
            for ring in rings {
                let served = &served;
                let name = format!("shard-{}", ring.index());
                let thread = Builder::new().name(name).spawn_scoped(scope, move || served.serve(ring));
                others.push(thread.map_err(|source| EngineError::thread("the data plane", source))?);
            }
            let result = served.serve(own);
            others.into_iter().map(joined).fold(result, Result::and)
        })?;
        let Served { shard, .. } = served;
        match shard.into_inner() {
            Ok(shard) => shard.close(),
            Err(_poisoned) => unreachable!("the thread that panicked was joined"),
        }
    }
}

/// Joins another thread; its panic continues in this one.
fn joined(thread: ScopedJoinHandle<'_, Result<(), EngineError>>) -> Result<(), EngineError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Served {
    /// Serves with a ring of this thread, until one of the threads ends.
    fn serve(&self, id: RingId) -> Result<(), EngineError> {
        let _ends = EndsAll(self);
        cpus::bind_this_thread(&self.cpus, "a thread that serves requests");
        let mut ring = Ring::new(self.options)?;
        let (mut turn_buffers, mut scratch) = (TurnBuffers::default(), Scratch::default());
        // Sends submitted since the last wait: they complete at once.
        let mut sends = 0;
        while !self.is_over.load(Ordering::Acquire) {
            let turn = {
                // A panic in a turn leaves an inconsistent shard: its thread ends all threads, and the join reports
                // it.
                let begun = TurnBegun { ring: id, polls: ring.poll_stats(), asked_ns: self.clock.now_ns() };
                let Ok(mut shard) = self.shard.lock() else { return Ok(()) };
                shard.turn(begun, &mut turn_buffers)?
            };
            turn.wake.iter().for_each(Waker::wake);
            let Some(wait) = turn.wait else { return Ok(()) };
            for (operation, token) in turn_buffers.operations.drain(..) {
                if ring.submit(operation, token).is_err() {
                    unreachable!("no more operations are handed over than the ring has places");
                }
            }
            sends += wait.sends;
            if turn.jobs.is_empty() {
                let min = 1 + std::mem::take(&mut sends);
                ring.submit_and_gather(min, wait.gather, Some(wait.timeout), &mut turn_buffers.completions)?;
            } else {
                self.after_turn.carry_out(turn.jobs, &mut scratch);
            }
        }
        Ok(())
    }
}
