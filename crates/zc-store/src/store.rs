//! The store: one owner of all parts, events in, actions out.
//!
//! Job: take an event to the part that it concerns, then let every part go on that can. Invariants: one event is handled
//! to its end before the next; a failed write or flush of the device stops all changes for good (what is durable is not
//! known any more), while reads go on. What it does not do: anything of its own.

use std::collections::{BTreeMap, BTreeSet};

use zc_core::{BufSlice, Map, OpId, ReqId};

use crate::catalog::Root;
use crate::changes::Change;
use crate::checkpoint::{Checkpoint, Fruitless};
use crate::cleaner::Cleaner;
use crate::config::{Config, Shape};
use crate::discards::Discards;
use crate::fingerprints::Fingerprints;
use crate::flushes::Flushes;
use crate::gather::Windows;
use crate::ids::{BatchSeq, ChunkNo, RootId};
use crate::limits;
use crate::loader::Loader;
use crate::log::{Log, LogFull};
use crate::media::page::{PageKey, TableId};
use crate::media::superblock::Superblock;
use crate::pager::Missing;
use crate::proofs::Resting;
use crate::reads::{Fetching, Read, Want};
use crate::recovery::Recovery;
use crate::releases::Releases;
use crate::seam::{Action, Event, Request, RequestKind, StoreError};
use crate::stats::{Space, Stats};
use crate::survey::Survey;
use crate::trees::Trees;

/// A store: opening, open, or neither.
#[derive(Debug)]
pub struct Store {
    state: State,
}

#[derive(Debug)]
enum State {
    Opening(Box<Recovery>),
    Open(Box<Open>),
    /// The store could not be opened.
    Closed(StoreError),
}

/// A store that was recovered.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) config: Config,
    /// As it was last written, or is being.
    pub(crate) superblock: Superblock,
    pub(crate) trees: Trees,
    pub(crate) log: Log,
    pub(crate) flushes: Flushes,
    pub(crate) loader: Loader,
    pub(crate) prints: Fingerprints,
    /// Chunks that could not be read.
    pub(crate) damaged: BTreeSet<ChunkNo>,
    pub(crate) changes: std::collections::VecDeque<Change>,
    pub(crate) reads: BTreeMap<ReqId, Read>,
    pub(crate) reads_waiting: BTreeMap<PageKey, Vec<ReqId>>,
    pub(crate) fetching: Map<OpId, Fetching>,
    /// Encodings in progress: the change, and which chunks of it.
    pub(crate) encoding: Map<OpId, (ReqId, Vec<(usize, BufSlice)>)>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) releases: Releases,
    pub(crate) discards: Discards,
    pub(crate) fruitless: Fruitless,
    pub(crate) cleaner: Cleaner,
    pub(crate) windows: Windows,
    pub(crate) survey: Option<Survey>,
    /// Since when nothing has followed the last commit.
    pub(crate) resting: Option<Resting>,
    /// A report of dropped commits that the superblock does not have yet.
    pub(crate) is_report_new: bool,
    pub(crate) failed: Option<StoreError>,
    /// The first checkpoint has ended.
    pub(crate) opened: bool,
    pub(crate) stopping: bool,
    pub(crate) stopped: bool,
    pub(crate) next_op: u64,
    pub(crate) next_buf: u64,
    pub(crate) stats: Stats,
    pub(crate) out: Vec<Action>,
}

impl Store {
    /// Begins to open the store of a device; [`Action::Opened`] tells how it ended. `nonce` is a random number, another
    /// one at each opening.
    #[must_use]
    pub fn open(config: Config, nonce: u64, out: &mut Vec<Action>) -> Self {
        Self { state: State::Opening(Box::new(Recovery::begin(config, nonce, out))) }
    }

    /// Handles an event.
    pub fn handle(&mut self, event: Event, out: &mut Vec<Action>) {
        match &mut self.state {
            State::Opening(recovery) => {
                let ended = recovery.handle(event, out);
                match ended {
                    None => {}
                    Some(Ok(open)) => {
                        self.state = State::Open(open);
                        self.go_on(out);
                    }
                    Some(Err(error)) => {
                        self.state = State::Closed(error);
                        out.push(Action::Opened { result: Err(error) });
                    }
                }
            }
            State::Open(open) => {
                open.handle(event);
                out.append(&mut open.out);
            }
            State::Closed(error) => {
                if let Event::Submit(Request { req, .. }) = event {
                    out.push(Action::Reply { req, result: Err(*error) });
                }
            }
        }
    }

    fn go_on(&mut self, out: &mut Vec<Action>) {
        if let State::Open(open) = &mut self.state {
            open.begin_checkpoint();
            open.pump();
            out.append(&mut open.out);
        }
    }

    fn opened(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Opening(_) | State::Closed(_) => None,
        }
    }

    /// Volumes and snapshots.
    pub fn roots(&self) -> impl Iterator<Item = (RootId, &Root)> {
        self.opened().into_iter().flat_map(|open| open.trees.roots.iter().map(|(id, root)| (*id, root)))
    }

    /// A volume or snapshot.
    #[must_use]
    pub fn root(&self, root: RootId) -> Option<&Root> {
        self.opened().and_then(|open| open.trees.roots.get(&root))
    }

    /// Its identity, once it is open.
    #[must_use]
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.opened().map(|open| open.superblock.uuid)
    }

    /// How often an operator accepted that the device had lost a part of the log, once the store is open.
    #[must_use]
    pub fn losses(&self) -> Option<u32> {
        self.opened().map(|open| open.superblock.losses)
    }

    /// Size of its segments, once the superblock was read.
    #[must_use]
    pub fn segment_bytes(&self) -> Option<u32> {
        match &self.state {
            State::Opening(recovery) => recovery.superblock().map(|superblock| superblock.segment_bytes),
            State::Open(open) => Some(open.superblock.segment_bytes),
            State::Closed(_) => None,
        }
    }

    /// What was counted since the store was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.opened().map(|open| open.stats).unwrap_or_default()
    }

    /// What is where, in bytes.
    #[must_use]
    pub fn space(&self) -> Space {
        self.opened().map(Open::space).unwrap_or_default()
    }

    /// The batch that has the records of the last change that was answered, or a later one.
    #[must_use]
    pub fn newest_batch(&self) -> BatchSeq {
        self.opened().map_or(BatchSeq(0), |open| open.log.newest())
    }

    /// All batches up to this one have been given to the device, which has confirmed them. Without a flush they outlive
    /// the process and not the machine.
    #[must_use]
    pub fn written_batch(&self) -> BatchSeq {
        self.opened().map_or(BatchSeq(0), |open| open.log.written())
    }

    /// Whether some of its batches are on their way to the device.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.opened().is_some_and(|open| open.log.written() < open.log.last_closed())
    }

    /// Why it takes no changes any more, if it does not: the device failed. What is durable is there when it is opened
    /// again.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        match &self.state {
            State::Opening(_) => None,
            State::Open(open) => open.failed,
            State::Closed(error) => Some(*error),
        }
    }

    /// Whether a tick goes on with work of its own at once. A driver gives one as soon as it has looked for other inputs:
    /// clients may wait for that work.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.opened()
            .is_some_and(|open| open.cleaner.goes_on() || open.survey.as_ref().is_some_and(Survey::goes_on))
    }

    /// Returns `true` if a commit is to be proven. A driver gives ticks at least every [`limits::PROOF_MS`] or a little
    /// more.
    #[must_use]
    pub fn is_proof_due(&self) -> bool {
        self.opened().is_some_and(Open::is_proof_due)
    }

    /// Number of recoveries that dropped commits that nothing proved, since that was last reported to a client or
    /// operator. Flushes of them may have been answered with success.
    #[must_use]
    pub fn dropped_commits(&self) -> u32 {
        self.opened().map_or(0, |open| open.superblock.dropped)
    }

    /// Returns `true` if work of the store itself is in progress or due: a checkpoint, cleaning, queued changes.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.opened().is_none_or(|open| {
            !open.changes.is_empty()
                || open.checkpoint.is_some()
                || !open.cleaner.is_idle()
                || open.discards.is_busy()
                || open.survey.is_some()
                || open.has_windows()
        })
    }
}

impl Open {
    fn handle(&mut self, event: Event) {
        let began = self.trees.pager.now();
        match event {
            Event::Submit(request) => self.submit(request),
            Event::BlockRead { op, result } => {
                if self.cleaner.waits_for_header(op) {
                    self.cleaner_header_read(result);
                } else {
                    let uuid = self.superblock.uuid;
                    if let Some(loaded) = self.loader.read(op, result, uuid, &mut self.trees) {
                        self.page_loaded(loaded.key, loaded.result);
                    }
                }
            }
            Event::Done { op, result } if self.discard_ended(op, result) => {}
            Event::Done { op, result } => match result {
                Ok(()) => self.device_done(op),
                Err(kind) => self.fail(StoreError::Device(kind)),
            },
            Event::Fetched { op, results } => {
                if self.cleaner.waits_for_contents(op) {
                    self.cleaner_fetched(results);
                } else if !self.survey_fetched(op, &results) {
                    self.fetched(op, &results);
                }
            }
            Event::Encoded { op, chunks } => self.encoded(op, &chunks),
            Event::Tick { now_ms } => {
                self.cleaner.tick(now_ms, self.config.clean_bytes_per_s);
                self.pump_proof(now_ms);
            }
            Event::Clean => {
                self.cleaner.ask();
                self.discard_all();
            }
            Event::WriteOut if self.failed.is_none() => self.close_batch(),
            Event::WriteOut => {}
            Event::Stop => {
                self.stopping = true;
                self.stop_survey();
                if self.failed.is_some() {
                    self.tell_stopped();
                }
            }
        }
        self.pump();
        self.pump_discards();
        self.pump_survey();
        self.shrink(began);
    }

    fn submit(&mut self, request: Request) {
        let Request { req, kind } = request;
        match kind {
            RequestKind::Read { root, first, count, dest } => {
                self.submit_read(req, root, (first, u64::from(count)), Want::Bytes(dest));
            }
            RequestKind::Survey(kind) => self.submit_survey(req, kind),
            RequestKind::Recipe { root, first, count } => {
                self.submit_read(req, root, (first, u64::from(count)), Want::Prints);
            }
            RequestKind::Allocation { root, first, count } => {
                self.submit_read(req, root, (first, count), Want::Runs);
            }
            RequestKind::Flush => match self.failed {
                Some(error) => self.reply(req, Err(error)),
                // Once: the client whose flushed data is gone gets an error.
                None if core::mem::take(&mut self.superblock.dropped) > 0 => {
                    self.is_report_new = true;
                    self.reply(req, Err(StoreError::Dropped));
                }
                None => self.flush(req),
            },
            RequestKind::Sync => match self.failed {
                Some(error) => self.reply(req, Err(error)),
                None => self.flush(req),
            },
            RequestKind::Write { root, first, chunks } => self.submit_write(req, root, first, chunks),
            RequestKind::Discard { root, first, count } => self.submit_discard(req, root, first, count),
            RequestKind::Catalog(change) => self.submit_catalog(req, change),
        }
    }

    fn flush(&mut self, req: ReqId) {
        self.close_batch();
        self.flushes.want(self.log.last_closed(), Some(req));
    }

    /// Lets every part go on.
    pub(crate) fn pump(&mut self) {
        if self.failed.is_none() {
            self.pump_releases();
            self.pump_changes();
            self.pump_cleaner();
            self.pump_changes();
            self.pump_releases();
            self.pump_checkpoint();
            let written = self.log.written();
            self.flushes.pump(written, &mut self.next_op, &mut self.out);
            self.pump_checkpoint();
            self.pump_stop();
        }
    }

    fn pump_stop(&mut self) {
        let quiet = self.changes.is_empty()
            && self.reads.is_empty()
            && self.checkpoint.is_none()
            && self.discards.held_segments() == 0;
        if !self.stopping || self.stopped || !quiet {
            return;
        }
        let is_changed = self.trees.pager.dirty_pages() > 0
            || !self.log.is_empty()
            || self.log.since_checkpoint_bytes > 0
            || core::mem::take(&mut self.is_report_new);
        if is_changed {
            self.begin_checkpoint();
            self.pump_checkpoint();
            let written = self.log.written();
            self.flushes.pump(written, &mut self.next_op, &mut self.out);
            return;
        }
        self.tell_stopped();
    }

    fn tell_stopped(&mut self) {
        self.stopped = true;
        self.out.push(Action::Stopped);
    }

    fn device_done(&mut self, op: OpId) {
        if self.log.write_ended(op, &mut self.out) || self.flushes.ended(op) {
            return;
        }
        self.checkpoint_done(op);
    }

    /// The device failed, or the log has no room: what is durable stays so, nothing changes any more.
    pub(crate) fn fail(&mut self, error: StoreError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        self.flushes.fail(error, &mut self.out);
        while let Some(change) = self.changes.pop_front() {
            self.end_change(change, Err(error));
        }
        if !self.opened {
            self.out.push(Action::Opened { result: Err(error) });
        }
        if self.stopping {
            self.tell_stopped();
        }
    }

    fn page_loaded(&mut self, key: PageKey, result: Result<(), StoreError>) {
        for req in self.reads_waiting.remove(&key).unwrap_or_default() {
            match result {
                Ok(()) => self.try_read(req),
                Err(error) => self.end_read(req, Err(error)),
            }
        }
        if let Err(error) = result {
            self.change_lacks(key, error);
            self.cleaner_lacks(key);
            self.survey_lacks(key, error);
        }
    }

    pub(crate) fn reply(&mut self, req: ReqId, result: Result<(), StoreError>) {
        self.out.push(Action::Reply { req, result });
    }

    /// Reads a page that a request waits for.
    pub(crate) fn want(&mut self, missing: Missing) -> Result<(), StoreError> {
        self.stats.page_reads += 1;
        let shape = self.shape();
        self.loader.want(missing, shape, &mut self.next_op, &mut self.out)
    }

    pub(crate) fn close_batch(&mut self) {
        let (segment_bytes, durable) = (self.superblock.segment_bytes, self.flushes.durable());
        self.log.close(segment_bytes, durable, &mut self.next_op, &mut self.out);
    }

    pub(crate) fn make_room(&mut self, records_bytes: usize, payload_bytes: u32) -> Result<(), LogFull> {
        let durable = self.flushes.durable();
        let Self { log, trees, next_op, out, .. } = self;
        log.make_room(records_bytes, payload_bytes, &mut trees.segments, durable, next_op, out)
    }

    /// Keeps the page cache within its budget, but for pages that this event or a waiting request used.
    fn shrink(&mut self, began: u64) {
        let waiting = self.reads_waiting.values().flatten();
        let oldest = waiting.filter_map(|req| self.reads.get(req)).map(|read| read.tried_at).min();
        let front = self.changes.front().map(|change| change.tried_at).filter(|at| *at > 0);
        let cleaner = self.cleaner.tried_at().filter(|at| *at > 0);
        let survey = self.survey.as_ref().and_then(Survey::tried_at).filter(|at| *at > 0);
        let since = [oldest, front, cleaner, survey].into_iter().flatten().min().unwrap_or(began).min(began);
        let stays = |key: PageKey| matches!(key.table, TableId::Segments | TableId::Catalog);
        self.trees.pager.shrink(self.config.cache_pages, since, stays);
    }

    pub(crate) fn space(&self) -> Space {
        let segments = &self.trees.segments;
        let size = u64::from(self.superblock.segment_bytes);
        Space {
            total_bytes: u64::from(segments.count()) * size,
            free_bytes: zc_core::u64_from_usize(segments.free_segments() + self.discards.held_segments())
                * size,
            referred_bytes: segments.live_bytes(),
            reserve_bytes: zc_core::u64_from_usize(self.reserve()) * size,
            ram_bytes: zc_core::u64_from_usize(self.ram_bytes()),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.superblock.shape()
    }

    pub(crate) fn reserve(&self) -> usize {
        self.config.reserve_segments(self.shape()) + self.config.overwrite_segments(self.shape())
    }

    /// Memory that grows with the pool, and the budgets as far as they are used.
    fn ram_bytes(&self) -> usize {
        let numbers = self.trees.chunk_numbers.bytes() + self.trees.page_numbers.bytes();
        let segments = zc_core::usize_from_u32(self.trees.segments.count()) * limits::SEGMENT_RAM_BYTES;
        self.trees.pager.pages() * limits::PAGE_RAM_BYTES + self.prints.bytes() + numbers + segments
    }

    /// The number of the last batch that is durable.
    pub(crate) fn last_batch(&self) -> BatchSeq {
        self.log.last_closed()
    }
}
