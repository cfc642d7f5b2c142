//! The cache manager: one owner of every index, events in, actions out.
//!
//! # How it works
//! [`CacheManager::handle`] takes one [`Event`], changes state, runs *maintenance* (what became possible or due: journal
//! blocks, region marks, retirements, checkpoints, evictions, loading of headers) and hands out actions. The ways of a
//! request are in `read`, `write` and `insert`; of an origin's flushes in `origin`; of a WEU in `weu` and `evict`; of a
//! restart in `load`; of durable metadata in `persist`, of a device that fails in `failure`, of a volume that goes in
//! `removal`, of a stop in `stop`. Operations in flight, holds on buffers and actions are in `port`; `op_kind` leads the
//! end of an operation to its component.
//!
//! # Races, and what decides them
//! - *A miss fill overtaken by a write* is dropped: its guard (see `tracks`) does not hold any more.
//! - *Two writes of the same sectors in flight* leave unknown bytes: neither is cached.
//! - *An eviction never takes a WEU that is being read*: readers pin the slot; victims are unpinned.
//! - *A duplicate whose slot leaves between lookup and placement* is dropped: liveness is checked when it is placed.
//! - *A slot reused under a stale duplicate entry* is told by the generation; an index sweep removes such entries
//!   before short generations can meet again (see `slots`).
//! - *Extents of the open WEU or one being written* are hits and dedup targets: they are read from memory, by the
//!   same path and with the same verification as from the device.
//! - *A header that loads after a write of its extent* is void for that extent: writes are remembered meanwhile.
//! - *Two misses of one extent* share one origin read; of two insertions the second finds the first and ends.
//!
//! # What it does not do
//! It has no clock, thread, file or lock and never sees payload bytes. Front ends map its errors.

use std::collections::BTreeMap;

use zc_core::{BufSlice, ErrorKind, ExtentKey, ExtentNo, KeyedMap, Map, Mode, OpId, VolumeId, WeuSlot};
use zc_format::Record;

use crate::config::{ManagerConfig, VolumeConfig};
use crate::deadlines::Deadlines;
use crate::expect_held::ExpectHeld;
use crate::health::{Distrusts, ErrorRuns, Health};
use crate::index::file_index::{FileIndex, IndexShape};
use crate::index::fingerprint_index::FingerprintIndex;
use crate::insert::Inserts;
use crate::insert::compressibility::CompressionFilter;
use crate::load::probe::Probes;
use crate::load::{Load, Restart};
use crate::op_kind::OpKind;
use crate::origin::order::OriginOrder;
use crate::origin::tracker::OriginTracker;
use crate::persist::MetaLog;
use crate::port::{Ended, Port};
use crate::read::ReadOp;
use crate::read::fill::Fill;
use crate::read::hit::Hit;
use crate::read::read_ahead::ReadAhead;
use crate::read::read_buffer::ReadBuffer;
use crate::read::recipes::Recipes;
use crate::read::seen::{SeenFilter, Touched};
use crate::read::streams::{StreamConfig, StreamTable};
use crate::removal::Removals;
use crate::seam::{Action, Event, Purpose, Request, RequestKind};
use crate::startup::StartState;
use crate::stats::Stats;
use crate::stop::Stop;
use crate::tracks::Tracks;
use crate::weu::evict::Sweeps;
use crate::weu::header_reads::HeaderReads;
use crate::weu::headers::HeaderCache;
use crate::weu::policy::{ReplacementPolicy, policy};
use crate::weu::slots::SlotTable;
use crate::weu::{OpenWeu, WritingWeu};
use crate::write::staging::Staging;
use crate::write::{WaitingWrites, WriteOp};
use crate::write_back::WriteBack;
use crate::write_back::destage::Gather;

/// Streams followed at once, reads and writes each.
const STREAMS_MAX: usize = 64;
/// Extents read ahead of which a use is remembered.
const SEEN_MAX: usize = 1 << 16;

/// A volume as the manager sees it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) cfg: VolumeConfig,
    /// Extents that lie wholly inside the volume: only those are cached.
    pub(crate) whole_extents: u64,
    pub(crate) origin: OriginTracker,
}

/// What is written by this session, and what tells it from earlier ones.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) number: u64,
    /// The cache's identity, if units may hold summaries.
    pub(crate) uuid: Option<[u8; 16]>,
    /// Headers of sessions before it were written by an earlier cache on the device.
    pub(crate) first: u64,
    pub(crate) weu_seq_next: u64,
    /// Units of this session have this sequence or a later one.
    pub(crate) weu_seq_first: u64,
}

/// The cache manager. See the module documentation.
#[derive(Debug)]
pub struct CacheManager {
    pub(crate) cfg: ManagerConfig,
    /// A deliberate bug, to prove that the tests can fail.
    #[cfg(zc_canary)]
    pub(crate) canary: Option<crate::config::Canary>,
    pub(crate) extent_bytes: u32,
    /// Reads of stored extents by clients since one had to prove its content.
    pub(crate) unproved_hits: u32,
    pub(crate) now_ms: u64,
    pub(crate) session: Session,
    pub(crate) volumes: Map<VolumeId, Volume>,
    /// Volumes of whose contents is told what becomes known.
    pub(crate) told: Vec<VolumeId>,

    pub(crate) files: FileIndex,
    pub(crate) prints: FingerprintIndex,
    pub(crate) policy: Box<dyn ReplacementPolicy + Send>,
    pub(crate) slots: SlotTable,
    pub(crate) headers: HeaderCache,
    pub(crate) sweeps: Sweeps,

    pub(crate) tracks: Tracks,
    pub(crate) staging: Staging,
    pub(crate) read_buffer: ReadBuffer,
    pub(crate) ahead: ReadAhead,
    pub(crate) read_streams: StreamTable,
    pub(crate) write_streams: StreamTable,
    pub(crate) filter: CompressionFilter,
    pub(crate) seen: SeenFilter,
    pub(crate) touched: Touched,
    pub(crate) recipes: Recipes,

    pub(crate) reads: Map<u64, ReadOp>,
    pub(crate) hits: Map<u64, Hit>,
    pub(crate) fetching: KeyedMap<ExtentKey, u64>,
    pub(crate) fills: Map<u64, Fill>,
    pub(crate) fill_of: KeyedMap<ExtentKey, u64>,
    pub(crate) writes: Map<u64, WriteOp>,
    pub(crate) waiting: WaitingWrites,
    pub(crate) inserts: Inserts,
    pub(crate) header_reads: HeaderReads,
    pub(crate) wb: WriteBack,
    pub(crate) gathers: Map<u64, Gather>,
    pub(crate) origin_order: OriginOrder,

    pub(crate) open: Option<OpenWeu>,
    pub(crate) writing: Map<WeuSlot, WritingWeu>,

    pub(crate) meta: MetaLog,
    pub(crate) health: Health,
    pub(crate) errors: ErrorRuns,
    pub(crate) distrusts: Distrusts,
    pub(crate) deadlines: Deadlines,
    pub(crate) load: Option<Load>,
    pub(crate) probes: Probes,
    pub(crate) restart: Restart,
    pub(crate) stop: Stop,
    pub(crate) removals: Removals,
    pub(crate) last_write_ms: u64,

    pub(crate) port: Port<OpKind>,
    pub(crate) stats: Stats,
}

impl CacheManager {
    /// A manager for an opened cache. Then come [`CacheManager::replay`] for each record of checkpoint and journal,
    /// [`CacheManager::replay_intent`] for those of the intent log of an intact start, and [`CacheManager::begin`].
    ///
    /// # Panics
    /// When the geometry names more slots than an index location can.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one field after the other")]
    pub fn new(config: ManagerConfig, volumes: Vec<VolumeConfig>, start: StartState) -> Self {
        let geometry = &config.geometry;
        let shape = IndexShape {
            slots: geometry.slots,
            weu_bytes: geometry.weu_bytes,
            extent_bytes: geometry.extent_bytes,
            generation_bits: config.generation_bits,
        };
        let streams = || {
            StreamTable::new(StreamConfig {
                streams_max: STREAMS_MAX,
                threshold_bytes: u64::from(config.prefetch_threshold_bytes),
                prefetch_max_bytes: u64::from(config.prefetch_max_bytes),
            })
        };
        let (extent_bytes, key) = (geometry.extent_bytes, &config.hash_key);
        let mut manager = Self {
            extent_bytes,
            now_ms: 0,
            session: Session {
                number: start.session,
                uuid: start.summary_uuid,
                first: start.first_session,
                weu_seq_next: start.weu_seq_next.0,
                weu_seq_first: start.weu_seq_next.0,
            },
            volumes: Map::default(),
            told: Vec::new(),
            files: FileIndex::new(shape, config.file_index_entries),
            prints: FingerprintIndex::new(shape, config.fingerprint_index_entries),
            policy: policy(config.replacement, geometry.slots),
            slots: SlotTable::new(geometry.slots, config.generation_bits),
            headers: HeaderCache::new(zc_core::usize_from_u32(config.header_prints_max), key),
            sweeps: Sweeps::default(),
            tracks: Tracks::new(key),
            staging: Staging::new(config.staging_bytes, extent_bytes, key),
            read_buffer: ReadBuffer::new(u64::from(config.read_buffer_bytes), extent_bytes, key),
            ahead: ReadAhead::new(key),
            read_streams: streams(),
            write_streams: streams(),
            filter: CompressionFilter::default(),
            seen: SeenFilter::new(SEEN_MAX),
            touched: Touched::new(config.file_index_entries),
            recipes: Recipes::new(config.learned_recipes_bytes, key),
            reads: Map::default(),
            hits: Map::default(),
            fetching: key.map(),
            fills: Map::default(),
            fill_of: key.map(),
            writes: Map::default(),
            waiting: WaitingWrites::default(),
            inserts: Inserts::new(key),
            header_reads: HeaderReads::default(),
            wb: WriteBack::new(start.journal_proved),
            gathers: Map::default(),
            origin_order: OriginOrder::default(),
            open: None,
            writing: Map::default(),
            meta: MetaLog::new(&config, &start),
            health: Health::Good,
            errors: ErrorRuns::default(),
            distrusts: Distrusts::default(),
            deadlines: Deadlines::default(),
            load: Some(Load::new(key)),
            probes: Probes::default(),
            restart: Restart {
                unjournaled: start.unjournaled,
                mapping_trusted: start.mapping_trusted,
                intact: start.intact,
                fresh: start.fresh,
                dirty_replays: BTreeMap::new(),
                dropped_commits: start.dropped_commits,
                dirty_complete: start.dirty_complete,
                fenced_before: start.fenced,
            },
            stop: Stop::default(),
            removals: Removals::default(),
            last_write_ms: 0,
            port: Port::default(),
            stats: Stats::default(),
            unproved_hits: 0,
            cfg: config,
            #[cfg(zc_canary)]
            canary: None,
        };
        for volume in volumes {
            manager.add_volume(volume);
        }
        #[cfg(zc_canary)]
        core::hint::black_box(crate::config::CANARY_MARK);
        if let Some(slot) = start.summaries_in {
            manager.keep_summaries(start.journal_next, slot);
        }
        manager
    }

    /// Switches a deliberate bug on.
    #[cfg(zc_canary)]
    pub fn set_canary(&mut self, canary: Option<crate::config::Canary>) {
        self.canary = canary;
        self.origin_order.lets_meet = canary == Some(crate::config::Canary::OriginMeetings);
        self.slots.careless = canary == Some(crate::config::Canary::NoSweepGate);
    }

    /// Handles one event; appends what is to be done to `actions`.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.port.swap_out(actions);
        self.dispatch(event);
        self.maintain();
        self.port.swap_out(actions);
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Submit(request) => {
                if !self.hold(&request) {
                    self.submit(&request);
                }
            }
            Event::DeviceLost => self.fail_cache(Purpose::Presence, ErrorKind::Io),
            Event::OriginDone { op, result } => self.end_op(op, Ended::Origin(result)),
            Event::DeviceDone { op, result } => self.end_op(op, Ended::Device(result)),
            Event::ExtentsRead { op, result } => self.end_op(op, Ended::Extents(result)),
            Event::HeaderRead { op, result } => self.end_op(op, Ended::Header(result)),
            Event::Hashed { op, digest } => self.end_op(op, Ended::Hashed(digest)),
            Event::Compressed { op, stored_bytes } => self.end_op(op, Ended::Compressed(stored_bytes)),
            Event::Compared { op, equal } => self.end_op(op, Ended::Compared(equal)),
            Event::RecipeArrived { op, prints } => self.end_op(op, Ended::Recipe(prints)),
            Event::Tick { now_ms } => self.tick(now_ms),
            Event::Configure(volume) => self.configure(*volume),
            Event::Destage { volume } => self.drain(volume),
            Event::DropDirty { volume, remembered } => self.drop_dirty(volume, remembered),
            Event::GiveUpUnreadable { volume } => self.give_up_unreadable(volume),
            Event::AcceptLoss { volume } => self.accept_loss(volume),
            Event::Remove { volume } => self.remove_volume(volume),
            Event::Stop => self.stop.wanted = true,
        }
    }

    pub(crate) fn submit(&mut self, request: &Request) {
        match request.kind {
            RequestKind::Read { buf } => self.submit_read(request, buf),
            RequestKind::Flush => self.submit_flush(request),
            RequestKind::Prefetch => self.submit_prefetch(request),
            RequestKind::Write { .. } | RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. } => {
                self.submit_write(request);
            }
        }
    }

    fn end_op(&mut self, op: OpId, ended: Ended) {
        let kind = self.port.take_op(op);
        self.op_ended(kind, ended);
    }

    fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.age_staging();
        self.inserts.runs.age(self.now_ms, self.stop.wanted);
        self.age_open_weu();
        self.age_device_ops();
    }

    /// What became possible or due.
    fn maintain(&mut self) {
        self.pump_origin_order();
        self.pump_held();
        self.wake_volumes();
        self.pump_admission();
        self.pump_dirty_placement();
        self.pump_placement();
        self.keep_free_slots();
        self.wake_volumes();
        self.pump_commits();
        self.pump_destage();
        self.rest_volumes();
        self.pump_scrub();
        self.pump_sweep();
        self.pump_load();
        self.pump_probes();
        self.pump_removals();
        self.pump_persist();
        self.pump_distrusts();
        self.pump_stop();
        self.stats.gauges(
            &self.files,
            &self.prints,
            self.meta.journal.used_blocks(),
            self.meta.regions.len(),
        );
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Bytes of RAM that the structures growing with the cache hold, by name.
    #[must_use]
    pub fn ram_by_structure(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("file_index", self.files.ram_bytes()),
            ("fingerprint_index", self.prints.ram_bytes()),
            ("slots", self.slots.ram_bytes()),
            ("policy", self.policy.ram_bytes()),
            ("headers", self.headers.ram_bytes()),
            ("learned_recipes", self.recipes.learned_ram_bytes()),
            ("first_misses", self.touched.ram_bytes()),
        ]
    }

    /// Slots that hold something, and all.
    #[must_use]
    pub fn slots_used(&self) -> (usize, usize) {
        let all = zc_core::usize_from_u32(self.slots.len());
        (all - self.slots.free_len() - self.slots.leaving(), all)
    }

    /// Regions marked now, and how many may be.
    #[must_use]
    pub fn active_regions(&self) -> (usize, usize) {
        (self.meta.regions.len() + self.meta.regions.inherited_len(), self.meta.regions.max())
    }

    /// Whether the cache device works.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.health == Health::Good
    }

    /// Whether nothing is under way: no request is unanswered, no action unended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.port.is_idle() && self.reads.is_empty() && self.writes.is_empty() && self.fills.is_empty()
    }

    /// Whether all WEU headers have been read since the start.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.load.is_none()
    }

    /// Appends to journal and intent log.
    pub(crate) fn record(&mut self, record: Record) {
        match self.health {
            Health::Good => self.meta.journal.append(record, self.now_ms),
            // The journal is gone; a restart after a kill still believes the intent log.
            Health::Failing => {}
            Health::Failed => return,
        }
        self.port.emit(Action::Intent { record });
    }

    /// The fingerprint of an extent of this volume is wanted.
    pub(crate) fn hash(&mut self, kind: impl Into<OpKind>, volume: VolumeId, src: BufSlice) {
        let domain = self.volumes.get(&volume).expect_held().cfg.domain;
        #[cfg(zc_canary)]
        let domain = match self.canary {
            Some(crate::config::Canary::ForgetDomain) => zc_core::DedupDomain::COMMON,
            _ => domain,
        };
        let op = self.port.op(kind);
        self.port.emit(Action::Hash { op, src, domain });
    }

    fn add_volume(&mut self, cfg: VolumeConfig) {
        assert!(cfg.region_bytes > 0, "a region has a size");
        let whole_extents = cfg.size_bytes / u64::from(self.extent_bytes);
        // What is not believed is not loaded, so that there is nothing to compare.
        let closed = self.load.is_some() && cfg.trusted && self.restart.mapping_trusted;
        self.probes.add(cfg.id, closed);
        let origin = OriginTracker::new(cfg.lost_writes);
        self.volumes.insert(cfg.id, Volume { cfg, whole_extents, origin });
    }

    fn configure(&mut self, cfg: VolumeConfig) {
        self.grow(cfg.id, cfg.size_bytes);
        if !self.volumes.contains_key(&cfg.id) && self.is_doubtful(&cfg) {
            self.fence_incomplete(cfg.id);
        }
        if !self.volumes.contains_key(&cfg.id) && !cfg.may_be_dirty && self.has_dirty(cfg.id) {
            // Known to be clean elsewhere: what the start found is an older state of the medium.
            self.drop_dirty(cfg.id, true);
        }
        if !self.volumes.contains_key(&cfg.id) && self.has_dirty(cfg.id) {
            // Its dirty data was kept for it: it has to be served before it can leave write-back.
            self.apply_config(VolumeConfig { mode: Mode::WriteBack, ..cfg.clone() });
        }
        if !self.leave_write_back(&cfg) {
            self.apply_config(cfg);
        }
    }

    /// A volume that exists becomes larger, if this is larger. The extent that its end used to cut may be cached from
    /// now on, but nothing that is under way for it: its rest was not there when that began. Nothing behind it was ever
    /// read, written or mapped, by this session or one whose mappings are believed: a start believes none behind the
    /// end, and none at all of a volume that has another length than when it stopped.
    fn grow(&mut self, id: VolumeId, size_bytes: u64) {
        let extent = u64::from(self.extent_bytes);
        let Some(volume) = self.volumes.get_mut(&id).filter(|volume| volume.cfg.size_bytes < size_bytes)
        else {
            return;
        };
        let cut = ExtentKey { volume: id, extent: ExtentNo(volume.cfg.size_bytes / extent) };
        volume.cfg.size_bytes = size_bytes;
        volume.whole_extents = size_bytes / extent;
        self.tracks.changes(cut);
    }

    pub(crate) fn apply_config(&mut self, cfg: VolumeConfig) {
        match self.volumes.get_mut(&cfg.id) {
            Some(volume) => {
                let VolumeConfig { size_bytes, region_bytes, trusted, domain, .. } = volume.cfg;
                volume.cfg = VolumeConfig { size_bytes, region_bytes, trusted, domain, ..cfg };
            }
            None => self.add_volume(cfg),
        }
    }
}
