//! A blocking driver of a pool: every piece of work is carried out at once, on this thread.
//!
//! Job: give [`zc_pool::Pool`] its device and its processor until a request is answered.
//! Invariants: the file or device is locked against a daemon and other commands for as long as the driver lives; what
//! was changed is durable when [`Driver::close`] succeeds. What it does not do: more than one request at a time.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use zc_core::{OpId, ReqId, usize_from_u32};
use zc_io::{BlockFile, OpenOptions};
use zc_pool::{Answer, DeviceOperation, Ended, Pool, PoolError, Request, RequestKind, Work};
use zc_reduce::Reducer;
use zc_store::seam::StoreError;
use zc_store::{Config, RootId, Store, SurveyKind, Surveyed};

/// Ticks without work after which a request that is not answered is held to be forgotten.
const IDLE_TICKS_MAX: u32 = 100_000;
/// What a tick tells the store to have passed: the cleaner has all the bandwidth that it is allowed.
const TICK_MS: u64 = 1000;

/// An open store.
pub(super) struct Driver {
    file: BlockFile,
    pool: Pool,
    queue: VecDeque<Work>,
    answer: Option<Result<Answer, PoolError>>,
    opened: Option<Result<(), StoreError>>,
    is_stopped: bool,
    last_req: u64,
    now_ms: u64,
    reducer: Reducer,
}

/// Opens a file or device for this command alone.
pub(super) fn lock(path: &Path, create_len: Option<u64>) -> anyhow::Result<BlockFile> {
    let options = OpenOptions { direct: false, write: true, create_len };
    Ok(BlockFile::open(path, options)?)
}

/// A number that no other opening has.
pub(super) fn nonce() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

impl Driver {
    /// Opens the store: recovery, and a first checkpoint.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = lock(path, None)?;
        let mut work = Vec::new();
        let pool = Pool::open(Config::default(), nonce(), &mut work);
        let mut driver = Self {
            file,
            pool,
            queue: work.into(),
            answer: None,
            opened: None,
            is_stopped: false,
            last_req: 0,
            now_ms: 0,
            reducer: Reducer::new(),
        };
        driver.work_until(|driver| driver.opened.is_some())?;
        if let Some(Err(error)) = driver.opened {
            bail!("{} cannot be opened as a store: {error}", path.display());
        }
        Ok(driver)
    }

    /// Volumes, counters and space.
    pub(super) const fn store(&self) -> &Store {
        self.pool.store()
    }

    /// Makes everything durable and lets go of the device.
    pub(super) fn close(mut self) -> anyhow::Result<()> {
        // A stop says that it ended, not how: whether all changes are durable is the answer to a flush.
        self.ask(RequestKind::Flush).context("the last changes may be lost")?;
        self.go_on(|pool, work| pool.stop(work));
        self.work_until(|driver| driver.is_stopped)
    }

    /// Carries out one request.
    pub(super) fn ask(&mut self, kind: RequestKind) -> anyhow::Result<Answer> {
        self.last_req += 1;
        let request = Request { req: ReqId(self.last_req), kind };
        self.answer = None;
        self.go_on(|pool, work| pool.submit(request, work));
        self.work_until(|driver| driver.answer.is_some())?;
        let answer = self.answer.take().context("a request that was waited for is answered")?;
        answer.map_err(|error| error.error.into())
    }

    /// Asks about the whole pool.
    pub(super) fn survey(&mut self, kind: SurveyKind) -> anyhow::Result<Surveyed> {
        match self.ask(RequestKind::Survey(kind))? {
            Answer::Surveyed(surveyed) => Ok(*surveyed),
            _ => bail!("the store answered another question"),
        }
    }

    /// Frees what can be freed.
    pub(super) fn clean(&mut self) -> anyhow::Result<()> {
        self.go_on(|pool, work| pool.clean(work));
        self.work_until(|driver| !driver.store().is_busy())
    }

    /// Reads bytes of a volume or snapshot, in pieces that follow each other.
    pub(super) fn read(
        &mut self,
        root: RootId,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> anyhow::Result<Vec<Bytes>> {
        match self.ask(RequestKind::Read { root, offset_bytes, len_bytes })? {
            Answer::Bytes(pieces) => Ok(pieces),
            _ => bail!("the store answered another question"),
        }
    }

    /// Stores bytes of a volume.
    pub(super) fn write(&mut self, root: RootId, offset_bytes: u64, data: Bytes) -> anyhow::Result<()> {
        self.ask(RequestKind::Write { root, offset_bytes, data, prints: Vec::new() })?;
        Ok(())
    }

    fn go_on(&mut self, input: impl FnOnce(&mut Pool, &mut Vec<Work>)) {
        let mut work = Vec::new();
        input(&mut self.pool, &mut work);
        self.queue.extend(work);
    }

    fn work_until(&mut self, is_done: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let mut idle = 0;
        while !is_done(self) {
            if let Some(work) = self.queue.pop_front() {
                idle = 0;
                self.perform(work);
                continue;
            }
            idle += 1;
            if idle > IDLE_TICKS_MAX {
                bail!("the store does not go on; please report this");
            }
            self.now_ms += TICK_MS;
            let now_ms = self.now_ms;
            self.go_on(|pool, work| pool.tick(now_ms, work));
        }
        Ok(())
    }

    fn perform(&mut self, work: Work) {
        match work {
            Work::Device { op, operation } => {
                let ended = self.operate(&operation);
                self.ended(op, ended);
            }
            Work::Job { op, job, .. } => {
                let outcome = job.run(&mut self.reducer);
                self.ended(op, Ended::Job(outcome));
            }
            Work::Answer { result, .. } => self.answer = Some(result),
            Work::Opened { result } => self.opened = Some(result),
            Work::Stopped => self.is_stopped = true,
        }
    }

    fn ended(&mut self, op: OpId, ended: Ended) {
        self.go_on(|pool, work| pool.ended(op, ended, work));
    }

    fn operate(&self, operation: &DeviceOperation) -> Ended {
        match operation {
            DeviceOperation::Read { offset_bytes, len_bytes } => {
                let read = self.file.read_blocking(*offset_bytes, usize_from_u32(*len_bytes));
                Ended::Read(read.map(|bytes| Bytes::copy_from_slice(&bytes)).map_err(|error| error.kind()))
            }
            DeviceOperation::Write { offset_bytes, bytes } => {
                Ended::Device(self.file.write_blocking(*offset_bytes, bytes).map_err(|error| error.kind()))
            }
            DeviceOperation::Flush => Ended::Device(self.file.sync_blocking().map_err(|error| error.kind())),
        }
    }
}
