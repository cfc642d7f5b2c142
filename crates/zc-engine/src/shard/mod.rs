//! A shard: one thread, one ring, one cache manager, one event loop.
//!
//! Job: a turn collects what ended, turns it into events, lets the manager handle them, carries out its actions,
//! gathers replies, and submits everything with one system call.
//!
//! Invariants: this thread alone touches the manager, connections and buffers' table. An event is handled to its end
//! before the next. Actions are carried out in order; what they make the ring do starts at the end of the turn, after
//! the intent log was written.
//!
//! What it does not do: wait for anything but the ring, or know configuration files. Hashing, compressing and decoding
//! are the workers', but for what `limits` allows here: small reads of compressed extents, a small job that is alone or
//! that a flush waits for, and what no queue has room for.

pub(crate) mod buffers;
pub(crate) mod clients;
pub(crate) mod close;
pub(crate) mod commands;
pub(crate) mod cpus;
pub(crate) mod device;
pub(crate) mod exec;
pub(crate) mod extents;
pub(crate) mod give_back;
pub(crate) mod late;
pub(crate) mod lengths;
pub(crate) mod metrics;
pub(crate) mod pause;
pub(crate) mod pending;
pub(crate) mod reduce;
pub(crate) mod reduce_pool;
pub(crate) mod settled;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod taps;
pub(crate) mod volumes;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zc_cache::CacheManager;
use zc_cache::seam::{Action, Event};
use zc_config::VolumeLimits;
use zc_core::{FingerprintKind, JournalSeq, Map, OpId, ReqId, VolumeId};
use zc_io::{BlockFile, BufPool, Completion, EventFd, Gather, Operation, Ring, RingOptions};
use zc_origin::Job;

use crate::clock::Clock;
use crate::error::EngineError;
use crate::front::access::Export;
use crate::front::listen::Listener;
use crate::front::locks::RangeLocks;
use crate::front::settings::FrontLimits;
use crate::front::throttle::Throttle;
use crate::limits::{
    GATHER_MAX, GATHER_OPS_MIN, GATHER_TIME_US, POOL_BYTES, RING_ENTRIES, TICK_BUSY_MS, TICK_IDLE_MS,
    TICK_JOBS_MS,
};
use crate::origin::Origin;
use crate::origin::map::{Answers, OriginMap, punches_holes};
use crate::origin::queue::OriginQueue;
use crate::origin::store_volume::StoreAnswers;
use crate::record::Tap;
use crate::registry::Registry;
use crate::shard::buffers::Buffers;
use crate::shard::clients::nbd::NbdFront;
use crate::shard::clients::request::ClientRequest;
use crate::shard::clients::throttled::Held;
use crate::shard::clients::ublk::UblkDevice;
use crate::shard::close::Closer;
use crate::shard::commands::Mailbox;
use crate::shard::extents::ExtentsRead;
use crate::shard::give_back::GiveBack;
use crate::shard::metrics::{Durations, Metrics, Path, Traffic};
use crate::shard::pause::Pause;
use crate::shard::pending::{Joins, Pending, Tokens};
use crate::shard::reduce::Scratch;
use crate::shard::reduce_pool::{Outcome, ReducePool};
use crate::shard::settled::Settled;
use crate::shard::stop::Stopping;
use crate::shard::volumes::Leaving;
use crate::state::intent::IntentLog;
use crate::state::risk::RiskFile;
use crate::state::state_dir::StateDir;
use crate::state::state_thread::StateThread;

/// A volume as the data plane sees it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) locks: RangeLocks,
    /// Zeros are written fast.
    pub(crate) zeroes_fast: bool,
    /// Times that its dirty data could not be read from the cache device, and that the origin refused it.
    pub(crate) unreadable: u64,
    pub(crate) refused: u64,
    /// Its origin was truncated and gets no request any more.
    pub(crate) is_withdrawn: bool,
    /// At the end of the last turn clients had yet to be told of a loss.
    pub(crate) owed_loss: bool,
    /// What clients asked of it.
    pub(crate) traffic: Traffic,
    /// How long that took. In a box: volumes are moved.
    pub(crate) durations: Box<Durations>,
    /// What clients may ask for, and what waits for it.
    pub(crate) throttle: Box<Throttle<Held>>,
    /// Where its requests are noted, if it is recorded.
    pub(crate) tap: Option<Box<Tap>>,
    /// What the manager was told last.
    pub(crate) config: zc_cache::config::VolumeConfig,
}

impl Volume {
    /// A volume that nobody has asked anything of yet. Finds out whether its origin makes zeros without writing them:
    /// blocks.
    pub(crate) fn new(
        name: String,
        origin: Origin,
        config: zc_cache::config::VolumeConfig,
        limits: VolumeLimits,
    ) -> Self {
        let is_writable = origin.is_writable();
        let zeroes_fast = origin.fd().is_none_or(|fd| punches_holes(&**fd, is_writable));
        Self {
            name,
            origin,
            locks: RangeLocks::default(),
            zeroes_fast,
            unreadable: 0,
            refused: 0,
            is_withdrawn: false,
            owed_loss: false,
            traffic: Traffic::default(),
            durations: Box::default(),
            throttle: Box::new(Throttle::new(limits, 0)),
            tap: None,
            config,
        }
    }
}

/// The cache device as the data plane sees it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) file: Arc<BlockFile>,
    /// Where the journal is, if not in `file`.
    pub(crate) journal: Option<Arc<BlockFile>>,
    pub(crate) geometry: zc_format::Geometry,
    pub(crate) fingerprint: FingerprintKind,
}

impl Device {
    /// What is at an address of the geometry, and where there.
    pub(crate) fn at(&self, offset_bytes: u64) -> (&BlockFile, u64) {
        match (&self.journal, offset_bytes.checked_sub(zc_format::JOURNAL_DEVICE)) {
            (Some(journal), Some(offset_bytes)) => (journal, offset_bytes),
            _ => (&self.file, offset_bytes),
        }
    }
}

/// Everything a shard starts with; made by `session/open` on another thread.
pub(crate) struct ShardParts {
    pub(crate) manager: CacheManager,
    pub(crate) device: Device,
    pub(crate) volumes: Vec<(VolumeId, Volume)>,
    pub(crate) exports: Vec<Export>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) intent: IntentLog,
    pub(crate) risk: RiskFile,
    pub(crate) state: Arc<StateDir>,
    pub(crate) reduce_threads: u32,
    pub(crate) reduce_cpus: Vec<usize>,
    pub(crate) shard_cpus: Vec<usize>,
    /// Longest look for completions before sleeping; 0 = none.
    pub(crate) poll_max_us: u32,
    pub(crate) ring_ops: usize,
    pub(crate) limits: FrontLimits,
    pub(crate) registry: Arc<Registry>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) event: EventFd,
    pub(crate) clock: Clock,
    pub(crate) restart_bytes_read: u64,
    /// Why something stands in for the cache device.
    pub(crate) cache_missing: Option<String>,
}

/// A running shard.
pub(crate) struct Shard {
    pub(crate) ring: Ring,
    /// Places that it has.
    pub(crate) ring_ops: usize,
    pub(crate) tokens: Tokens,
    /// Operations that the ring had no room for.
    pub(crate) backlog: VecDeque<(Operation, u64)>,
    /// Operations of origins.
    pub(crate) origin_queue: OriginQueue<(Operation, Pending)>,
    pub(crate) state_thread: StateThread,
    pub(crate) settled: Settled,
    pub(crate) manager: CacheManager,
    pub(crate) events: VecDeque<Event>,
    pub(crate) buffers: Buffers,
    pub(crate) device: Device,
    pub(crate) volumes: Map<VolumeId, Volume>,
    pub(crate) nbd: NbdFront,
    pub(crate) clients: Map<u64, ClientRequest>,
    /// How many of them wait until data is reduced and durable.
    pub(crate) hurried: usize,
    /// Volumes of which requests wait for their limits.
    pub(crate) throttled: BTreeSet<VolumeId>,
    /// ublk devices by number.
    pub(crate) ublk: Map<u32, UblkDevice>,
    /// Threads that know the holes of origins, and what they found.
    pub(crate) origin_maps: Map<VolumeId, OriginMap>,
    pub(crate) mapped: Answers,
    /// What stores answered.
    pub(crate) store_answers: StoreAnswers,
    pub(crate) parts: Map<ReqId, u64>,
    pub(crate) next_number: u64,
    pub(crate) limits: FrontLimits,
    pub(crate) budget_bytes: u64,
    pub(crate) give_back: GiveBack,
    pub(crate) reads: Map<u64, ExtentsRead>,
    pub(crate) joins: Joins,
    pub(crate) pool: ReducePool,
    pub(crate) scratch: Scratch,
    pub(crate) inline_left_bytes: u32,
    pub(crate) intent: IntentLog,
    pub(crate) risk: RiskFile,
    /// Newest journal block whose write has ended.
    pub(crate) journal_written: JournalSeq,
    pub(crate) state: Arc<StateDir>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) event: EventFd,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    /// How the reads were served that are being answered.
    pub(crate) read_path: Path,
    pub(crate) stopping: Stopping,
    pub(crate) cache_fault: Option<String>,
    /// Volumes that are recorded.
    pub(crate) taps: usize,
    /// Commands that wait until dirty data is given up.
    pub(crate) drops: Vec<(VolumeId, oneshot::Sender<bool>)>,
    /// Volumes that are going.
    pub(crate) leaving: Map<VolumeId, Leaving>,
    /// Commands that wait until what cannot be read is given up.
    pub(crate) given_up: Vec<(VolumeId, oneshot::Sender<bool>)>,
    /// Requests are held back.
    pub(crate) pause: Option<Pause>,
    pub(crate) restart_bytes_read: u64,
    /// Something stands in for the cache device.
    pub(crate) cache_missing: bool,
    pub(crate) loaded_ms: Option<u64>,
    last_tick_ms: u64,
    last_event_ms: u64,
}

impl Shard {
    /// Makes the shard on the thread that will run it.
    pub(crate) fn new(parts: ShardParts) -> Result<Self, EngineError> {
        let (ops_max, poll_max_us) = (parts.ring_ops, parts.poll_max_us);
        let ring = Ring::new(RingOptions { entries: RING_ENTRIES, ops_max, poll_max_us })?;
        let pool = ReducePool::start(parts.reduce_threads, &parts.reduce_cpus, parts.event.waker())?;
        cpus::bind_this_thread(&parts.shard_cpus, "the thread that serves requests");
        Ok(Self {
            ring,
            ring_ops: parts.ring_ops,
            tokens: Tokens::default(),
            backlog: VecDeque::new(),
            origin_queue: OriginQueue::default(),
            state_thread: StateThread::start(parts.event.waker())?,
            settled: Settled::default(),
            manager: parts.manager,
            events: VecDeque::new(),
            buffers: Buffers::new(BufPool::new(POOL_BYTES)),
            device: parts.device,
            volumes: parts.volumes.into_iter().collect(),
            nbd: NbdFront::new(parts.exports, parts.listeners, parts.event.waker()),
            clients: Map::default(),
            hurried: 0,
            throttled: BTreeSet::new(),
            ublk: Map::default(),
            origin_maps: Map::default(),
            mapped: Answers::default(),
            store_answers: StoreAnswers::new(parts.event.waker()),
            parts: Map::default(),
            next_number: 0,
            limits: parts.limits,
            budget_bytes: 0,
            give_back: GiveBack::default(),
            reads: Map::default(),
            joins: Joins::default(),
            pool,
            scratch: Scratch::default(),
            inline_left_bytes: 0,
            intent: parts.intent,
            risk: parts.risk,
            state: parts.state,
            journal_written: JournalSeq(0),
            registry: parts.registry,
            mailbox: parts.mailbox,
            event: parts.event,
            clock: parts.clock,
            metrics: Metrics::default(),
            read_path: Path::Miss,
            stopping: Stopping::Running,
            cache_missing: parts.cache_missing.is_some(),
            cache_fault: parts.cache_missing,
            taps: 0,
            pause: None,
            drops: Vec::new(),
            leaving: Map::default(),
            given_up: Vec::new(),
            restart_bytes_read: parts.restart_bytes_read,
            loaded_ms: None,
            last_tick_ms: 0,
            last_event_ms: 0,
        })
    }

    pub(crate) fn volume_mut(&mut self, id: VolumeId) -> &mut Volume {
        let Some(volume) = self.volumes.get_mut(&id) else { panic!("{id:?} is used but unknown") };
        volume
    }

    /// Hands an operation to the ring, or keeps it until there is room.
    pub(crate) fn submit(&mut self, operation: Operation, pending: Pending) {
        let token = self.tokens.insert(pending);
        if !self.backlog.is_empty() {
            self.backlog.push_back((operation, token));
            return;
        }
        if let Err(full) = self.ring.submit(operation, token) {
            self.backlog.push_back((*full.operation, token));
        }
    }

    /// Hands a step of an origin's request to the ring, or keeps it until the origin has room.
    pub(crate) fn submit_to_origin(&mut self, operation: Operation, op: OpId, volume: VolumeId, job: Job) {
        let step = (operation, Pending::Origin { op, volume, job });
        if let Some((operation, pending)) = self.origin_queue.put(volume, step) {
            self.submit(operation, pending);
        }
    }

    /// A step of an origin's request has ended: others may have its place.
    pub(crate) fn origin_has_room(&mut self, volume: VolumeId) {
        self.origin_queue.ended(volume);
        while let Some((operation, pending)) = self.origin_queue.next() {
            self.submit(operation, pending);
        }
    }

    fn submit_backlog(&mut self) {
        while self.ring.room() > 0 {
            let Some((operation, token)) = self.backlog.pop_front() else { return };
            if let Err(full) = self.ring.submit(operation, token) {
                self.backlog.push_front((*full.operation, token));
                return;
            }
        }
    }

    /// Runs until stopped. Returns whether the cache was left clean.
    ///
    /// # Errors
    /// When the ring fails.
    pub(crate) fn run(mut self, closer: Closer) -> Result<bool, EngineError> {
        let mut actions = Vec::new();
        self.manager.begin(self.clock.now_ms(), &mut actions);
        self.carry_out(&mut actions);
        if self.cache_missing {
            self.events.push_back(Event::DeviceLost);
        }
        self.events.push_back(Event::Tick { now_ms: self.clock.now_ms() });
        self.submit(Operation::Wait { event: self.event.clone() }, Pending::Wake);
        for listener in 0..self.nbd.listeners.len() {
            self.accept(listener);
        }
        let mut completions: Vec<Completion> = Vec::new();
        loop {
            self.handle_events(&mut actions);
            self.end_turn(&mut actions);
            if self.intent.is_stuck() || self.risk.is_stuck() {
                closer.void_files(&mut self)?;
            }
            if let Stopping::Stopped { clean } = self.stopping {
                if clean {
                    closer.close(self)?;
                } else if self.cache_fault.is_some() {
                    closer.settle(&self)?;
                }
                return Ok(clean);
            }
            let (min, gather, timeout) = self.wait();
            self.ring.submit_and_gather(min, gather, Some(timeout), &mut completions)?;
            self.inline_left_bytes = crate::limits::INLINE_DECODE_BYTES_PER_TURN;
            self.nbd.shares.begin_turn();
            for completion in completions.drain(..) {
                self.completed(completion);
            }
            if self.pool.has_results() {
                self.take_results();
            }
            self.submit_backlog();
            self.tick();
            self.begin_throttled();
            self.drop_unbegun();
        }
    }

    /// How many completions to wait for, and how long. Small sends end while they are submitted: waking up for them
    /// alone would cost every request at queue depth 1 a system call. Where one does not end so, because its client
    /// does not read, the turn goes on with the second completion or after a tick.
    ///
    /// With many hits on their way the turn waits a little for several of them: their replies leave in one send and wake
    /// their client once, and what it asks next comes in one receive. Writes and reads of origins are not waited for:
    /// their CPU time per request is less without.
    fn wait(&mut self) -> (usize, Option<Gather>, Duration) {
        let sends = std::mem::take(&mut self.nbd.quick_sends);
        let ms = match (self.nbd.touched.is_empty(), sends) {
            (false, _) => 0,
            _ if self.nbd.shares.are_waiting() => 0,
            _ if self.pool.has_results() => 0,
            (true, _) if self.pool.has_fresh() => TICK_JOBS_MS,
            (true, 0) => self.tick_ms(),
            (true, _) => TICK_BUSY_MS,
        };
        let gather = if ms == 0 { None } else { gathered(self.tokens.extent_reads(), sends) };
        let time = Duration::from_millis(ms);
        (1 + sends, gather, self.throttled_for().map_or(time, |due| due.min(time)))
    }

    /// Handles events until there are none, carrying out what they cause.
    pub(crate) fn handle_events(&mut self, actions: &mut Vec<Action>) {
        loop {
            while let Some(event) = self.events.pop_front() {
                let Some(event) = self.not_held(event) else { continue };
                if !matches!(event, Event::Tick { .. }) {
                    self.last_event_ms = self.last_tick_ms;
                }
                if self.taps > 0 {
                    self.note_request(&event);
                }
                let before = self.read_counts();
                self.manager.handle(event, actions);
                self.classify_reads(before);
                self.carry_out(actions);
            }
            if self.nbd.touched.is_empty() && !self.nbd.shares.can_go_on() {
                return;
            }
            self.pump_connections();
        }
    }

    /// Intents, replies, housekeeping: what is done once a turn.
    fn end_turn(&mut self, actions: &mut Vec<Action>) {
        self.pump_stop();
        self.pump_pause();
        self.pump_leaving();
        self.handle_events(actions);
        self.answer_drops();
        self.answer_given_up();
        self.intent.write_out();
        if !self.intent.is_stuck() {
            self.note_risks();
        }
        self.pool.hurry(self.hurried > 0);
        self.pool.hand_over(self.clock.now_ms());
        self.send_replies();
    }

    /// Before the answers leave: what a kill would take of what clients believe. That a loss was told is noted a turn
    /// later, when the answer has left.
    fn note_risks(&mut self) {
        for (id, volume) in &mut self.volumes {
            let owes = self.manager.owes_loss(*id);
            let at_risk =
                owes || std::mem::replace(&mut volume.owed_loss, owes) || self.manager.has_volatile(*id);
            self.risk.set(*id, at_risk);
        }
    }

    fn tick_ms(&self) -> u64 {
        let quiet = self.clients.is_empty()
            && self.tokens.device_ops() == 0
            && self.pool.waiting() == 0
            && !self.manager.is_removing();
        // For a while after the last event there is still work that only time triggers.
        let settled = self.last_tick_ms.saturating_sub(self.last_event_ms) > 2_000;
        if quiet && settled { TICK_IDLE_MS } else { TICK_BUSY_MS }
    }

    fn tick(&mut self) {
        let now_ms = self.clock.now_ms();
        if now_ms.saturating_sub(self.last_tick_ms) < TICK_BUSY_MS {
            return;
        }
        self.last_tick_ms = now_ms;
        self.events.push_back(Event::Tick { now_ms });
        self.take_state_changes();
        self.settle_volumes();
        if self.taps > 0 {
            self.hand_over_taps();
        }
        self.look_after_connections(now_ms);
        self.give_memory_back(now_ms);
    }

    /// What workers found out.
    fn take_results(&mut self) {
        let mut done = Vec::new();
        self.pool.take_done(&mut done);
        for outcome in done {
            match outcome {
                Outcome::Decoded(parts) => {
                    for (read, part, result) in parts {
                        self.part_decoded(read, part, result);
                    }
                }
                Outcome::Facts { op, facts } => self.facts_known(op, facts),
            }
        }
    }

    /// Another thread has something: results of workers or commands.
    pub(crate) fn woken(&mut self) {
        self.submit(Operation::Wait { event: self.event.clone() }, Pending::Wake);
        self.take_results();
        self.take_state_changes();
        self.take_handshakes();
        for mapped in self.mapped.take() {
            self.origin_mapped(mapped);
        }
        for answer in self.store_answers.take() {
            self.store_answered(answer);
        }
        self.take_commands();
    }
}

/// What to wait for while the cache device works on so many reads of extents: half of them, so that the device keeps the
/// other half to work on.
fn gathered(extent_reads: usize, sends: usize) -> Option<Gather> {
    (extent_reads >= GATHER_OPS_MIN)
        .then(|| Gather { count: sends + (extent_reads / 2).min(GATHER_MAX), time_us: GATHER_TIME_US })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_gathers_a_part_of_many_and_nothing_of_few() {
        assert_eq!(gathered(GATHER_OPS_MIN - 1, 1), None);
        assert_eq!(gathered(32, 1), Some(Gather { count: 17, time_us: GATHER_TIME_US }));
        assert_eq!(gathered(64, 0), Some(Gather { count: 16, time_us: GATHER_TIME_US }));
    }
}
