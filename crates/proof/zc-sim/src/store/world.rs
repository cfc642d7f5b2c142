//! Driver of the store in the simulator: its device, buffers, operations in flight, and the model.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{BufId, BufSlice, Codec, Fingerprint, Map, ReqId};
use zc_store::config::Shape;
use zc_store::seam::{FetchTo, NewChunk, Request, RequestKind, Run, StoreError};
use zc_store::{
    Action, CatalogChange, CatalogOp, Config, Event, Place, RootId, Store, Stored, Superblock, Surveyed,
};

use super::model::{History, ModelChange, State};
use crate::disk::Disk;

/// Operations after which an unfinished wait counts as hung.
pub(crate) const STEPS_MAX: u32 = 200_000;
pub(crate) const CHUNK: u32 = 4096;
/// Bytes of a segment of the simulated device; small, so that limits are reached soon.
pub(crate) const SEGMENT: u32 = 64 << 10;
/// Returns the shape of a device with this number of segments.
pub(crate) fn shape(segments: u32) -> Shape {
    Shape { segment_bytes: SEGMENT, segments }
}

/// Start addresses in a volume: around the boundaries of map pages of each level.
pub(crate) const ADDRESSES: [u64; 7] = [0, 6, 500, 504, 1005, 254_014, 254_020];
/// Chunks used from each start address.
pub(crate) const RUN: u64 = 6;
/// Size of a volume in chunks: three levels.
pub(crate) const SIZE: u64 = 254_016 + 600;

/// Deliberate bugs of this build, with the guarantee that each breaks.
pub const STORE_CANARIES: &[(&str, StoreCanary)] = &[
    ("s2-trust-contents", StoreCanary::TrustContents),
    #[cfg(zc_canary)]
    ("s1-early-flush", StoreCanary::Store(zc_store::config::Canary::EarlyFlush)),
    #[cfg(zc_canary)]
    ("s2-trust-pages", StoreCanary::Store(zc_store::config::Canary::TrustPages)),
    #[cfg(zc_canary)]
    ("s3-no-barrier", StoreCanary::Store(zc_store::config::Canary::NoBarrier)),
];

/// A deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCanary {
    /// S2: the driver does not check contents.
    TrustContents,
    /// Bug of the store.
    #[cfg(zc_canary)]
    Store(zc_store::config::Canary),
}

#[derive(Debug, Clone)]
pub(crate) enum Buf {
    /// Chunk of a client; its number stands for the bytes.
    Raw(u64),
    /// Stored bytes.
    Stored(Vec<u8>),
    /// Destination of a read.
    Dest(Vec<u64>),
}

/// Request that a client waits for.
#[derive(Debug, Clone)]
pub(crate) enum Waits {
    Change(ModelChange),
    /// Flush, with the state at its issue.
    Flush(usize),
    Read {
        root: RootId,
        first: u64,
        count: u32,
        dest: BufId,
        since: usize,
    },
    Recipe {
        root: RootId,
        first: u64,
        since: usize,
    },
    /// Query for allocated chunks.
    Allocation {
        root: RootId,
        first: u64,
        end: u64,
        since: usize,
    },
    Survey,
}

/// Fault rates.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) write_errors: f64,
    pub(crate) lost: f64,
    pub(crate) misdirected: f64,
    pub(crate) rot: f64,
    pub(crate) crashes: f64,
}

impl Faults {
    /// Returns `true` if the device acknowledges data that it does not keep.
    pub(crate) fn lies(&self) -> bool {
        self.lost > 0.0 || self.misdirected > 0.0 || self.rot > 0.0
    }
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) action: Action,
    /// Time of issue of a flush.
    pub(crate) issued: u64,
    /// Memory contents at the issue of a fetch.
    pub(crate) memory: Vec<Option<Vec<u8>>>,
}

/// The simulated machine.
pub(crate) struct World {
    pub(crate) rng: Pcg64Mcg,
    pub(crate) disk: Disk,
    pub(crate) store: Store,
    pub(crate) config: Config,
    /// Segments of the device.
    pub(crate) segments: u32,
    pub(crate) pending: Vec<Pending>,
    pub(crate) bufs: Map<BufId, Buf>,
    pub(crate) waiting: BTreeMap<ReqId, Waits>,
    pub(crate) history: History,
    /// Addresses that could not be read at the last restart: their contents are unknown.
    pub(crate) unknown: BTreeSet<u64>,
    pub(crate) faults: Faults,
    pub(crate) now_ms: u64,
    pub(crate) next: u64,
    /// Result of recovery.
    pub(crate) opened: Option<Result<(), StoreError>>,
    pub(crate) stopped: bool,
    /// The device failed an operation: the store accepts no changes any more.
    pub(crate) fenced: bool,
    /// The device failed a flush: data that was not durable is lost. After a failed write it is still in memory.
    pub(crate) lost_unflushed: bool,
    pub(crate) violation: Option<String>,
    pub(crate) coverage: BTreeMap<&'static str, u64>,
    pub(crate) canary: Option<StoreCanary>,
    pub(crate) trace: Option<fn(&str)>,
    /// Number of chunk values to draw from; 0: each is new.
    pub(crate) values: u64,
    pub(crate) probe: Option<Probe>,
    /// The last opening dropped commits, and no flush has failed for that.
    pub(crate) has_dropped: bool,
    /// Number of damages since the store was opened.
    pub(crate) rots: u32,
    /// Number of damages in the session before.
    pub(crate) rots_before: u32,
    /// A header, a page or a superblock was damaged: data that it refers to may be damaged.
    pub(crate) is_metadata_rotten: bool,
    /// Answer to the last survey.
    pub(crate) surveyed: Option<Result<Surveyed, StoreError>>,
}

/// Read outside the history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) req: ReqId,
    pub(crate) dest: BufId,
    /// Value that was read.
    pub(crate) brought: Option<Result<u64, StoreError>>,
    /// Stored form at the address.
    pub(crate) stored: Option<Stored>,
}

impl World {
    pub(crate) fn new(seed: u64, segments: u32, config: Config) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let bytes = (128 << 10) + segments as usize * SEGMENT as usize;
        let mut disk = Disk::new(bytes);
        let mut superblock = Superblock::format([7; 16], bytes as u64, SEGMENT, rng.random())
            .expect("the device is large enough");
        near_the_end_of_a_counter(&mut superblock, seed);
        for copy in 0..2 {
            disk.write_now(Superblock::offset_bytes(copy) as usize, &superblock.encode(copy)[..]);
        }
        disk.settle();
        let mut out = Vec::new();
        let store = Store::open(config.clone(), rng.random(), &mut out);
        let mut world = Self {
            rng,
            disk,
            store,
            config,
            segments,
            pending: Vec::new(),
            bufs: Map::default(),
            waiting: BTreeMap::new(),
            history: History::new(State::default()),
            unknown: BTreeSet::new(),
            faults: Faults::default(),
            now_ms: 0,
            next: 0,
            opened: None,
            stopped: false,
            fenced: false,
            lost_unflushed: false,
            violation: None,
            coverage: BTreeMap::new(),
            canary: None,
            trace: None,
            values: 20,
            probe: None,
            has_dropped: false,
            rots: 0,
            rots_before: 0,
            is_metadata_rotten: false,
            surveyed: None,
        };
        world.take(out);
        world
    }

    pub(crate) fn note(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace(&text());
        }
    }

    pub(crate) fn violate(&mut self, text: String) {
        self.say(|| format!("VIOLATION {text}"));
        self.violation.get_or_insert(text);
    }

    pub(crate) fn happens(&mut self, rate: f64) -> bool {
        rate > 0.0 && self.rng.random_bool(rate)
    }

    /// Passes an event to the store and executes its actions.
    pub(crate) fn give(&mut self, event: Event) {
        self.say(|| format!("event {}", brief(&event)));
        let mut out = Vec::new();
        self.store.handle(event, &mut out);
        self.take(out);
        if self.pending.is_empty() && !self.store.is_proof_due() {
            self.history.proven();
        }
    }

    /// Executes the first actions of a new store, which request its first block.
    pub(crate) fn restart(&mut self, actions: Vec<Action>) {
        self.take(actions);
    }

    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.say(|| format!("  action {}", brief_action(&action)));
            match action {
                Action::Reply { req, result } => self.replied(req, result),
                Action::Recipe { req, prints } => self.recipe(req, &prints),
                Action::Allocation { req, runs } => self.allocation(req, &runs),
                Action::Surveyed { req, surveyed } => {
                    self.waiting.remove(&req);
                    self.surveyed = Some(Ok(*surveyed));
                }
                Action::Free { buf } => {
                    if self.bufs.remove(&buf).is_none() {
                        self.violate(format!("{buf:?} was freed twice"));
                    }
                }
                Action::Opened { result } => self.opened = Some(result),
                Action::Stopped => self.stopped = true,
                action => self.begin(action),
            }
        }
    }

    fn begin(&mut self, action: Action) {
        let issued = if matches!(action, Action::FlushDevice { .. }) { self.disk.flush_issued() } else { 0 };
        let mut memory = Vec::new();
        if let Action::Fetch { parts, to, .. } = &action {
            if let Some(probe) = &mut self.probe
                && *to == FetchTo::Decoded(probe.dest)
            {
                probe.stored = parts.first().map(|part| part.stored);
            }
            memory = parts.iter().map(|part| part.memory.map(|slice| self.bytes_of(slice))).collect();
        }
        self.pending.push(Pending { action, issued, memory });
    }

    /// Returns the bytes of a buffer slice.
    pub(crate) fn bytes_of(&self, slice: BufSlice) -> Vec<u8> {
        match &self.bufs[&slice.buf] {
            Buf::Raw(value) => stored_bytes(*value, slice.len_bytes),
            Buf::Stored(bytes) => bytes[..slice.len_bytes as usize].to_vec(),
            Buf::Dest(_) => unreachable!("a destination is not a source"),
        }
    }

    pub(crate) fn submit(&mut self, kind: RequestKind, waits: Waits) {
        self.next += 1;
        let req = ReqId(self.next);
        self.waiting.insert(req, waits);
        self.give(Event::Submit(Request { req, kind }));
    }

    pub(crate) fn buf(&mut self, buf: Buf) -> BufId {
        self.next += 1;
        self.bufs.insert(BufId(self.next), buf);
        BufId(self.next)
    }

    pub(crate) fn write(&mut self, root: RootId, first: u64, values: Vec<u64>) {
        let mut chunks = Vec::new();
        for value in &values {
            if *value == 0 {
                chunks.push(NewChunk::Zero);
            } else {
                let raw = BufSlice { buf: self.buf(Buf::Raw(*value)), start_bytes: 0, len_bytes: CHUNK };
                let print = (value % 16 != 5).then(|| print_of(*value));
                chunks.push(NewChunk::Data { print, raw });
            }
        }
        let kind = RequestKind::Write { root, first, chunks };
        self.submit(kind, Waits::Change(ModelChange::Write(root, first, values)));
    }

    pub(crate) fn clear(&mut self, root: RootId, first: u64, count: u64) {
        let kind = RequestKind::Discard { root, first, count };
        self.submit(kind, Waits::Change(ModelChange::Clear(root, first, count)));
    }

    pub(crate) fn catalog(&mut self, op: CatalogOp, id: RootId, source: RootId) {
        self.next += 1;
        let change = CatalogChange {
            op,
            id,
            source,
            codec: Codec::Lz4,
            chunk_shift: 12,
            size_chunks: if op == CatalogOp::Grow { 254_016 * 504 } else { SIZE },
            flags: u64::from(self.rng.random_bool(0.8)),
            name: format!("root {} of {}", id.0, self.next),
        };
        let waits = Waits::Change(ModelChange::Catalog(change.clone()));
        self.submit(RequestKind::Catalog(change), waits);
    }

    pub(crate) fn read(&mut self, root: RootId, first: u64, count: u32) {
        let dest = self.buf(Buf::Dest(vec![0; count as usize]));
        let since = self.history.index();
        let kind = RequestKind::Read { root, first, count, dest };
        self.submit(kind, Waits::Read { root, first, count, dest, since });
    }

    pub(crate) fn flush(&mut self) {
        let index = self.history.index();
        self.submit(RequestKind::Flush, Waits::Flush(index));
    }

    /// Records the result of a request.
    fn replied(&mut self, req: ReqId, result: Result<(), StoreError>) {
        if let Some(probe) = &mut self.probe
            && probe.req == req
        {
            let Some(Buf::Dest(values)) = self.bufs.remove(&probe.dest) else { return };
            probe.brought = Some(result.map(|()| values[0]));
            return;
        }
        let Some(waits) = self.waiting.remove(&req) else {
            self.violate(format!("{req:?} was answered twice"));
            return;
        };
        match waits {
            Waits::Change(change) => match result {
                Ok(()) => self.history.push(&change),
                Err(StoreError::NoSpace) => self.judge_no_space(&change),
                Err(error) => self.refused(error),
            },
            Waits::Flush(index) => match result {
                Ok(()) => self.history.flushed(index),
                Err(error) => self.refused(error),
            },
            Waits::Read { root, first, count, dest, since } => {
                let Some(Buf::Dest(values)) = self.bufs.remove(&dest) else { return };
                match result {
                    Ok(()) => self.judge_read(root, first, &values, since),
                    Err(error) => self.judge_read_error(root, first + u64::from(count), since, error),
                }
            }
            Waits::Survey => self.surveyed = result.err().map(Err),
            Waits::Allocation { root, end, since, .. } => {
                if let Err(error) = result {
                    self.judge_read_error(root, end, since, error);
                }
            }
            Waits::Recipe { root, since, .. } => {
                if let Err(error) = result {
                    self.judge_read_error(root, 0, since, error);
                }
            }
        }
    }

    fn judge_read(&mut self, root: RootId, first: u64, values: &[u64], since: usize) {
        for (address, value) in (first..).zip(values) {
            if !self.history.held_since(since, root, address, *value) {
                let state = self.history.describe();
                self.violate(format!("{root:?} address {address} read as {value}; {state}"));
                return;
            }
        }
        self.note("reads");
    }

    fn judge_read_error(&mut self, root: RootId, end: u64, since: usize, error: StoreError) {
        let excused = match error {
            // A failed flush may have lost data that was not durable.
            StoreError::Damaged(place) => self.is_damage_excused(place),
            StoreError::NoSuchRoot | StoreError::Invalid => self.history.lacked_since(since, root, end),
            _ => false,
        };
        self.note("reads that failed");
        if !excused {
            self.violate(format!("a read of {root:?} failed: {error}"));
        }
    }

    /// Returns `true` if damage at this place explains an error. It excuses only data at the place, and data reached
    /// through it.
    pub(crate) fn is_damage_excused(&self, place: Place) -> bool {
        let at = Superblock::device_offset(place, SEGMENT) as usize;
        let is_rotten = self.faults.rot > 0.0 && self.disk.is_tainted(at, CHUNK as usize);
        is_rotten || self.may_lack_pages()
    }

    /// Returns `true` if map pages may be lost. Their contents are unknown, and reported as data.
    fn may_lack_pages(&self) -> bool {
        self.lost_unflushed
            || self.faults.lost > 0.0
            || self.faults.misdirected > 0.0
            || (self.faults.rot > 0.0 && self.is_metadata_rotten)
    }

    fn refused(&mut self, error: StoreError) {
        let excused = match error {
            StoreError::Device(_) => self.fenced,
            StoreError::NoSuchRoot | StoreError::Invalid => true,
            StoreError::Dropped => {
                self.note("dropped commits told");
                core::mem::take(&mut self.has_dropped)
            }
            _ => self.faults.lies(),
        };
        if !excused {
            self.violate(format!("a change failed: {error}"));
        }
    }

    /// Checks an allocation answer. A hole was empty at some moment since the request, and data was present at some
    /// moment, unless the responsible page is lost.
    fn allocation(&mut self, req: ReqId, runs: &[Run]) {
        let Some(Waits::Allocation { root, first, since, .. }) = self.waiting.remove(&req) else { return };
        self.note("allocations");
        let mut at = first;
        for run in runs {
            let end = at + run.chunks;
            for address in ADDRESSES.iter().flat_map(|first| *first..*first + 2 * RUN) {
                let held = |value: Option<u64>| value.is_some_and(|value| (value == 0) == run.is_hole);
                let agrees = |state: &State| held(state.value(root, address));
                let is_judged = (at..end).contains(&address) && !self.unknown.contains(&address);
                let may_be_lost = !run.is_hole && self.may_lack_pages();
                if is_judged && !may_be_lost && !self.history.any_since(since, agrees) {
                    self.violate(format!("{root:?} address {address} is told as {run:?}"));
                }
            }
            at = end;
        }
        if runs.is_empty() {
            self.violate(format!("nothing is told of {root:?} from {first} on"));
        }
    }

    fn recipe(&mut self, req: ReqId, prints: &[Option<Fingerprint>]) {
        let Some(Waits::Recipe { root, first, since }) = self.waiting.remove(&req) else { return };
        self.note("recipes");
        for (address, print) in (first..).zip(prints) {
            let Some(print) = print else { continue };
            let value = u64::from_le_bytes(*print.0.first_chunk().expect("32 bytes"));
            if !self.unknown.contains(&address) && !self.history.held_since(since, root, address, value) {
                self.violate(format!("the recipe of {root:?} names value {value} at {address}"));
            }
        }
    }
}

/// Lets some seeds begin near the end of a counter's range.
fn near_the_end_of_a_counter(superblock: &mut Superblock, seed: u64) {
    let pool_bytes = u64::from(superblock.segments) * u64::from(superblock.segment_bytes);
    let [chunks_max, pages_max] = zc_store::limits::numbers_max(pool_bytes);
    match seed % 11 {
        3 => {
            // The first session gets the last numbers below those that the next session's number allows.
            let gap = zc_store::limits::SESSION_GAP;
            superblock.session = 40;
            superblock.log.seq.0 = (45 << 32) - gap - seed % 64;
        }
        5 => superblock.chunks_end = chunks_max - seed % 200,
        7 => superblock.pages_end = pages_max - 200 - seed % 400,
        9 => superblock.epoch = u64::from(u32::MAX) - seed % 16,
        _ => {}
    }
}

/// Returns the length of the stored bytes of a value: some stay raw, the others are shortened.
pub(crate) fn stored_len(value: u64) -> u32 {
    if value.is_multiple_of(4) { CHUNK } else { 200 + (value % 1800 * 37 % 1800) as u32 }
}

/// Returns the stored bytes of a value, which the first eight encode.
pub(crate) fn stored_bytes(value: u64, len_bytes: u32) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    let mut word = value;
    while bytes.len() < len_bytes as usize {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(len_bytes as usize);
    bytes
}

pub(crate) fn print_of(value: u64) -> Fingerprint {
    let mut print = Fingerprint([0xa5; 32]);
    print.0[..8].copy_from_slice(&value.to_le_bytes());
    print
}

fn brief(event: &Event) -> String {
    let text = match event {
        Event::BlockRead { op, result } => format!("BlockRead {op:?} {:?}", result.as_ref().map(|_| ())),
        other => format!("{other:?}"),
    };
    text.chars().take(400).collect()
}

fn brief_action(action: &Action) -> String {
    let text = match action {
        Action::WriteBatch { op, offset_bytes, len_bytes, .. } => {
            format!("WriteBatch {op:?} at {offset_bytes}, {len_bytes}")
        }
        other => format!("{other:?}"),
    };
    text.chars().take(400).collect()
}
