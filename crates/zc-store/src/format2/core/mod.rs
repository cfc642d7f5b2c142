//! The store: one owner of all components, events in, actions out.
//!
//! Job: route an event to the component that it concerns, then let every component continue that can. Invariants: one
//! event is handled to its end before the next; after a failed write or flush no change is taken, because what is
//! durable is not known, and reads continue. It holds no contents.

mod changes;
mod checkpoint;
mod cleaning;
#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod crash_tests;
mod flushes;
mod prints;
mod proofs;
mod reads;
mod replay;
#[cfg(test)]
mod test_driver;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::catalog::Root;
use super::cleaning::Cleaning;
use super::index::{Blocked, Index, named_segments};
use super::log::{Closed, Log, LogFull, Slots};
use super::node::Spot;
use super::recovery::{Recovered, Recovery, damaged, node_read};
use super::seam::{Action, Event, Request, RequestKind, StoreError};
use super::superblock::Superblock;
use super::{Config, seam};
use changes::Change;
use checkpoint::Checkpoint;
use flushes::Flushes;
use prints::Prints;
use proofs::Rest;
use reads::Reads;
use replay::Replay;
use zc_core::{Map, OpId, ReqId, u64_from_usize};

/// A store: opening, open, or neither.
#[derive(Debug)]
pub struct Store {
    state: State,
}

#[derive(Debug)]
enum State {
    Opening(Box<Recovery>),
    Open(Box<Open>),
    Closed(StoreError),
}

/// Nodes that are being read, each once.
#[derive(Debug, Default)]
struct Loader {
    reading: Map<OpId, Spot>,
    places: BTreeSet<(u64, u32)>,
}

/// Store after its recovery.
#[derive(Debug)]
struct Open {
    config: Config,
    /// As it was last written, or is being written.
    superblock: Superblock,
    index: Index,
    slots: Slots,
    log: Log,
    prints: Prints,
    flushes: Flushes,
    changes: VecDeque<Change>,
    /// Encodings in progress: the request of a change.
    encoding: Map<OpId, ReqId>,
    /// Changes that are answered when their batch is written.
    answers: BTreeMap<u64, Vec<ReqId>>,
    reads: Reads,
    loader: Loader,
    replay: Replay,
    checkpoint: Option<Checkpoint>,
    rest: Rest,
    cleaning: Option<Cleaning>,
    /// Segments and slots that the next checkpoint has no more, and those that no checkpoint has.
    dropped: Vec<(u64, u32)>,
    releasable: Vec<(u64, u32)>,
    /// Changes that were applied, and those before the last cleaning.
    applied_changes: u64,
    cleaned_changes: u64,
    failed: Option<StoreError>,
    is_opened: bool,
    is_stopping: bool,
    is_stopped: bool,
    next_op: u64,
    out: Vec<Action>,
}

impl Store {
    /// Begins to open the store of a device; [`Action::Opened`] has the outcome. `nonce` is a random number, another one
    /// at each opening.
    #[must_use]
    pub fn open(config: Config, nonce: u64, out: &mut Vec<Action>) -> Self {
        Self { state: State::Opening(Box::new(Recovery::begin(config, nonce, out))) }
    }

    /// Handles an event.
    pub fn handle(&mut self, event: Event, out: &mut Vec<Action>) {
        match &mut self.state {
            State::Opening(recovery) => match recovery.handle(event, out) {
                None => {}
                Some(Ok(recovered)) => {
                    let config = recovery.config().clone();
                    let mut open = Box::new(Open::new(config, *recovered));
                    open.pump();
                    out.append(&mut open.out);
                    self.state = State::Open(open);
                }
                Some(Err(error)) => {
                    self.state = State::Closed(error);
                    out.push(Action::Opened { result: Err(error) });
                }
            },
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

    const fn opened(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Opening(_) | State::Closed(_) => None,
        }
    }

    /// Returns volumes and snapshots.
    pub fn roots(&self) -> impl Iterator<Item = (u32, &Root)> {
        self.opened().into_iter().flat_map(|open| open.index.roots())
    }

    /// Returns the bytes of free slots.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.opened()
            .map_or(0, |open| u64_from_usize(open.slots.free_slots()) * u64::from(open.superblock.slot_bytes))
    }

    /// Returns the number of recoveries that dropped commits, since that was last reported.
    #[must_use]
    pub fn dropped_commits(&self) -> u32 {
        self.opened().map_or(0, |open| open.superblock.dropped)
    }

    /// Checks the invariants of all components.
    ///
    /// # Errors
    /// A description of the first one that is violated.
    pub fn check(&self) -> Result<(), String> {
        let Some(open) = self.opened() else { return Ok(()) };
        open.index.check()?;
        open.slots.check()
    }
}

impl Open {
    fn new(config: Config, recovered: Recovered) -> Self {
        let Recovered { superblock, index, slots, log, batches, next_op } = recovered;
        Self {
            prints: Prints::new(config.prints_max, &config.hash_key),
            flushes: Flushes::new(log.last_closed()),
            replay: Replay::new(superblock.uuid, batches),
            config,
            superblock,
            index,
            slots,
            log,
            changes: VecDeque::new(),
            encoding: Map::default(),
            answers: BTreeMap::new(),
            reads: Reads::default(),
            loader: Loader::default(),
            checkpoint: None,
            rest: Rest::default(),
            cleaning: None,
            dropped: Vec::new(),
            releasable: Vec::new(),
            applied_changes: 0,
            cleaned_changes: 0,
            failed: None,
            is_opened: false,
            is_stopping: false,
            is_stopped: false,
            next_op,
            out: Vec::new(),
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Submit(request) => self.submit(request),
            Event::Read { op, result } => self.node_read(op, result),
            Event::Fetched { op, results } => self.fetched(op, &results),
            Event::Encoded { op, frames } => self.encoded(op, frames),
            Event::Done { op, result } => match result {
                Ok(()) => self.done(op),
                Err(kind) => self.fail(StoreError::Device(kind)),
            },
            Event::Tick { now_ms } => self.tick(now_ms),
            Event::Clean => self.begin_cleaning(),
            Event::Stop => {
                self.is_stopping = true;
                self.cleaning = None;
            }
        }
        self.pump();
        if self.loader.reading.is_empty() {
            self.index.shrink();
        }
    }

    fn submit(&mut self, Request { req, kind }: Request) {
        match kind {
            RequestKind::Read { root, first, count, dest } => {
                self.submit_read(req, root, first, count, dest);
            }
            RequestKind::Flush => self.submit_flush(req),
            change => self.submit_change(req, change),
        }
    }

    fn submit_flush(&mut self, req: ReqId) {
        let result = match self.failed {
            Some(error) => Err(error),
            // Once: the client whose flushed data is gone gets an error.
            None if core::mem::take(&mut self.superblock.dropped) > 0 => Err(StoreError::Dropped),
            None if self.changes.is_empty() => {
                self.close_batch();
                self.flushes.want(self.log.last_closed(), Some(req));
                return;
            }
            None => {
                self.changes.push_back(Change::flush(req));
                return;
            }
        };
        self.reply(req, result);
    }

    fn reply(&mut self, req: ReqId, result: Result<(), StoreError>) {
        self.out.push(Action::Reply { req, result });
    }

    fn done(&mut self, op: OpId) {
        if let Some(bufs) = self.log.write_ended(op) {
            self.out.extend(bufs.into_iter().map(|buf| Action::Free { buf }));
            let written = self.log.written();
            self.index.written(written);
            while let Some(entry) = self.answers.first_entry().filter(|entry| *entry.key() <= written) {
                let replies = entry.remove().into_iter().map(|req| Action::Reply { req, result: Ok(()) });
                self.out.extend(replies);
            }
        } else if !self.flushes.ended(op, &mut self.out) {
            self.superblock_written(op);
        }
    }

    /// Lets every component continue.
    fn pump(&mut self) {
        if self.failed.is_some() {
            self.pump_stop();
            return;
        }
        self.pump_replay();
        self.pump_checkpoint();
        self.pump_cleaning();
        self.pump_changes();
        if self.cleaning.is_some() {
            // It may have begun for a change that waits for it.
            self.pump_cleaning();
            self.pump_changes();
        }
        self.pump_checkpoint();
        // Changes that arrive while a batch is being written share the next one.
        if self.log.written() == self.log.last_closed() {
            self.close_batch();
        }
        self.flushes.pump(self.log.written(), &mut self.next_op, &mut self.out);
        self.pump_stop();
    }

    fn pump_stop(&mut self) {
        let is_idle = self.changes.is_empty() && self.reads.is_empty() && self.checkpoint.is_none();
        if !self.is_stopping || self.is_stopped || !(is_idle || self.failed.is_some()) {
            return;
        }
        let is_changed = self.index.is_changed() || !self.log.is_empty();
        if self.failed.is_none() && is_changed {
            self.begin_checkpoint();
            self.pump_checkpoint();
        } else if self.failed.is_some() || (self.flushes.is_idle() && self.answers.is_empty()) {
            self.is_stopped = true;
            self.out.push(Action::Stopped);
        }
    }

    /// Writes the open batch and applies its contents to the index.
    fn close_batch(&mut self) {
        let closed = self.log.close(self.flushes.durable(), &mut self.next_op, &mut self.out);
        self.apply(&closed);
    }

    fn apply(&mut self, closed: &Closed) {
        for (root, leaf, delta) in &closed.maps {
            if let Some(cleaning) = &mut self.cleaning {
                cleaning.mark(named_segments(delta));
            }
            self.index.apply_map(*root, *leaf, delta);
        }
        for (print, stored) in &closed.blocks {
            self.prints.insert(*print, *stored);
        }
    }

    /// Requests the nodes that a lookup lacks. Fails the store if one can be on no slot.
    fn load(&mut self, spots: &[Spot]) {
        for spot in spots {
            if !self.loader.places.insert((spot.segment, spot.offset_units)) {
                continue;
            }
            self.next_op += 1;
            let op = OpId(self.next_op);
            match node_read(op, &self.superblock, spot) {
                Some(action) => {
                    self.loader.reading.insert(op, *spot);
                    self.out.push(action);
                }
                None => {
                    self.index.loaded(*spot, &[]);
                    self.loader.places.remove(&(spot.segment, spot.offset_units));
                }
            }
        }
    }

    fn node_read(&mut self, op: OpId, result: Result<Vec<u8>, zc_core::ErrorKind>) {
        let Some(spot) = self.loader.reading.remove(&op) else { return };
        self.loader.places.remove(&(spot.segment, spot.offset_units));
        // An error of the device counts as corruption of the node until the store is opened again.
        self.index.loaded(spot, &result.unwrap_or_default());
        self.retry_reads();
    }

    /// Notes what a step of a change or checkpoint lacks; a damaged node fails the store.
    fn blocked(&mut self, blocked: Blocked) {
        match blocked {
            Blocked::Missing(spots) => self.load(&spots),
            Blocked::Damaged(spot) => self.fail(damaged(&spot)),
        }
    }

    /// The device failed, or the log has no room: what is durable stays so, and nothing changes any more.
    fn fail(&mut self, error: StoreError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        for req in self.flushes.fail() {
            self.reply(req, Err(error));
        }
        for req in core::mem::take(&mut self.answers).into_values().flatten() {
            self.reply(req, Err(error));
        }
        while let Some(change) = self.changes.pop_front() {
            self.end_change(&change, Err(error));
        }
        if !self.is_opened {
            self.out.push(Action::Opened { result: Err(error) });
        }
    }
}

impl From<LogFull> for StoreError {
    fn from(_: LogFull) -> Self {
        Self::NoSpace
    }
}

const _: () = assert!(seam::REQUEST_BLOCKS_MAX <= 1 << 9, "a change of more leaves than two");
