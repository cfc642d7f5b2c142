//! The pool's thread: one loop that owns the pool.
//!
//! Job: pass requests and completions to the pool, and execute its actions. Invariants: one input is processed
//! completely before the next; the thread waits on the ring alone, which other threads wake. It ends when the pool has
//! stopped, or when the ring fails.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use zc_core::{HashKey, Map, OpId, ReqId};
use zc_pool::{Ended, Pool, Request, Work};
use zc_store::Config;

use crate::client::{Callback, Inbox, Input, Look, ended, lock};
use crate::device::Device;
use crate::error::OpenError;
use crate::limits::{TICK_BUSY, TICK_IDLE};
use crate::workers::Workers;

/// Closes the inbox when the thread ends for any reason: pending requests are completed.
pub(crate) struct Closing(pub(crate) Inbox);

impl Drop for Closing {
    fn drop(&mut self) {
        for input in lock(&self.0).take().unwrap_or_default() {
            if let Input::Request(_, done) = input {
                done(Err(ended()));
            }
        }
    }
}

/// The loop's state.
pub(crate) struct Server {
    pool: Pool,
    device: Device,
    workers: Workers,
    inbox: Inbox,
    work: VecDeque<Work>,
    asked: Map<ReqId, Callback>,
    last_req: u64,
    /// Callers waiting for the pool to become idle.
    cleaned: Vec<Look>,
    /// Caller waiting for the opening.
    opener: Option<SyncSender<Result<(), OpenError>>>,
    path: std::path::PathBuf,
    has_stopped: bool,
    /// Damaged map pages that were reported.
    lost_pages: u64,
    began: Instant,
    last_tick: Instant,
}

impl Server {
    pub(crate) fn new(
        device: Device,
        mut config: Config,
        workers: Workers,
        inbox: Inbox,
        opener: SyncSender<Result<(), OpenError>>,
    ) -> Result<Self, OpenError> {
        let path = device.path().to_owned();
        let mut work = Vec::new();
        let (nonce, seed) = uuid::Uuid::new_v4().as_u64_pair();
        config.hash_key = HashKey::random(seed);
        let pool = Pool::open(config, nonce, &mut work);
        let began = now();
        Ok(Self {
            pool,
            device,
            workers,
            inbox,
            work: work.into(),
            asked: Map::default(),
            last_req: 0,
            cleaned: Vec::new(),
            opener: Some(opener),
            path,
            has_stopped: false,
            lost_pages: 0,
            began,
            last_tick: began,
        })
    }

    /// Runs until the pool has stopped, or cannot be opened.
    pub(crate) fn run(mut self) {
        let mut ended = Vec::new();
        loop {
            self.perform();
            if self.has_stopped {
                return;
            }
            let is_busy = self.pool.store().is_busy();
            if !is_busy {
                self.cleaned.drain(..).for_each(|done| done(&self.pool));
            }
            let is_busy = is_busy || self.device.is_busy() || self.pool.store().is_proof_due();
            let timeout = match (self.pool.store().goes_on(), is_busy) {
                (true, _) => std::time::Duration::ZERO,
                (false, true) => TICK_BUSY,
                (false, false) => TICK_IDLE,
            };
            if let Err(error) = self.device.wait(timeout, &mut ended) {
                tracing::error!("store {}: {error}; it is not served any more", self.path.display());
                return;
            }
            for (op, ended) in ended.drain(..) {
                self.with_pool(|pool, work| pool.ended(op, ended, work));
            }
            for (op, outcome) in self.workers.done() {
                self.with_pool(|pool, work| pool.ended(op, Ended::Job(outcome), work));
            }
            self.take_inputs();
            self.tick(timeout);
        }
    }

    fn with_pool(&mut self, input: impl FnOnce(&mut Pool, &mut Vec<Work>)) {
        let mut work = Vec::new();
        input(&mut self.pool, &mut work);
        self.work.extend(work);
    }

    fn take_inputs(&mut self) {
        let inputs = lock(&self.inbox).as_mut().map(std::mem::take).unwrap_or_default();
        for input in inputs {
            match input {
                Input::Request(kind, done) => {
                    self.last_req += 1;
                    let req = ReqId(self.last_req);
                    self.asked.insert(req, done);
                    self.with_pool(|pool, work| pool.submit(Request { req, kind }, work));
                }
                Input::Look(look) => look(&self.pool),
                Input::Clean(done) => {
                    self.with_pool(Pool::clean);
                    self.cleaned.push(done);
                }
                Input::Stop => self.with_pool(Pool::stop),
            }
        }
    }

    fn tick(&mut self, every: std::time::Duration) {
        let now = now();
        if now.saturating_duration_since(self.last_tick) < every {
            return;
        }
        self.last_tick = now;
        let since_ms = u64::try_from(now.saturating_duration_since(self.began).as_millis());
        let now_ms = since_ms.unwrap_or(u64::MAX);
        self.with_pool(|pool, work| pool.tick(now_ms, work));
        self.tell_lost();
    }

    fn tell_lost(&mut self) {
        let lost = self.pool.store().stats().pages_lost;
        if lost > self.lost_pages {
            tracing::warn!(
                "store {}: {lost} pages of volume maps cannot be read. What they refer to stays, and takes space that the \
                 cleaner cannot free. `zcctl store scrub` tells which addresses they have: write these over, discard them, \
                 or delete the volume",
                self.path.display()
            );
        }
        self.lost_pages = lost;
    }

    /// Executes the pool's actions and their immediate consequences.
    fn perform(&mut self) {
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Device { op, operation } => self.device.begin(op, operation),
                Work::Job { op, job, urgent } => self.run_job(op, job, urgent),
                Work::Answer { req, result } => {
                    if let Some(done) = self.asked.remove(&req) {
                        done(result);
                    }
                }
                Work::Opened { result } => {
                    self.has_stopped |= result.is_err();
                    self.tell_torn();
                    let path = &self.path;
                    let result = result.map_err(|error| OpenError::Refused { path: path.clone(), error });
                    if let Some(opener) = self.opener.take() {
                        let _opener_left = opener.send(result);
                    }
                }
                Work::Stopped => self.has_stopped = true,
            }
        }
    }

    fn tell_torn(&self) {
        if self.pool.store().stats().torn {
            tracing::warn!(
                "store {}: the last write of its log was torn and does not count. What was flushed in the last moments before \
                 the stop may be gone with it, so the next flush fails. If the power did not fail, the device lost a write: \
                 run `zcctl store scrub` and check the device",
                self.path.display()
            );
        }
    }

    fn run_job(&mut self, op: OpId, job: zc_pool::Job, urgent: bool) {
        if let Some(outcome) = self.workers.take(op, job, urgent) {
            self.with_pool(|pool, work| pool.ended(op, Ended::Job(outcome), work));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for (_, done) in self.asked.drain() {
            done(Err(ended()));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one clock of a pool; the store is told the time")]
fn now() -> Instant {
    Instant::now()
}
