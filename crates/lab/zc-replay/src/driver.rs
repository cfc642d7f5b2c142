//! Driver without bytes: executes the actions of the cache manager, with content numbers in the place of bytes.
//!
//! Each operation completes at once, in the order of submission; the next request is submitted when no action is left.
//! So no insertion is skipped for lack of time or memory, and the same trace gives the same figures.
//!
//! Invariants: copied, compressed, stored and read contents are followed block by block, so that a read returns the
//! contents of a real one; with [`Driver::check`] each read is compared with the last write.

use zc_cache::CacheManager;
use zc_cache::seam::{Action, Digest, Event, ExtentRead, Note, PartResults, Request, RequestKind, Source};
use zc_core::{
    BufId, BufSlice, Codec, DedupDomain, ErrorKind, ExtentNo, Fingerprint, Generation, Map, ReqId, VolumeId,
    WeuSeq, WeuSlot, u64_from_usize, usize_from_u32,
};
use zc_drive::{Backend, Ended, OriginOp, Piece, Turns, UnitWrite};
use zc_format::{ExtentError, ExtentHeader, Geometry, WeuHeader};
use zc_trace::Op;

use crate::content::{BLOCK_BYTES, ContentId};
use crate::error::ReplayError;
use crate::load::{Step, Trace, block_key};
use crate::ssd::Watcher;
use crate::work::{Asked, WorkLog};

/// Interval of ticks while requests are served.
const TICK_MS: u64 = 10;
/// Requests per millisecond, in traces without times.
const REQUESTS_PER_MS: u64 = 10;
/// Longer than a run of a stream waits for its next request, shorter than a unit for its next extent.
const FINISH_MS: u64 = 100;
/// Ticks that a request may wait: more than any delay of the manager is long.
const PATIENCE_TICKS: u32 = 1_000_000;

/// Operations of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
    }

    const fn since(self, earlier: Self) -> Self {
        Self { operations: self.operations - earlier.operations, bytes: self.bytes - earlier.bytes }
    }
}

/// Traffic of the origins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OriginTraffic {
    /// Reads.
    pub reads: Traffic,
    /// Writes.
    pub writes: Traffic,
    /// Flushes.
    pub flushes: u64,
}

impl OriginTraffic {
    /// Returns the difference to an earlier moment.
    pub(crate) const fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.since(earlier.reads),
            writes: self.writes.since(earlier.writes),
            flushes: self.flushes - earlier.flushes,
        }
    }
}

/// Contents of a slot.
#[derive(Debug, Default)]
struct Slot {
    unit: (Generation, WeuSeq),
    /// Offset of an extent, where its blocks begin in `ids` and how many there are; ascending.
    extents: Vec<(u32, u32, u32)>,
    ids: Vec<ContentId>,
    header: Option<Box<WeuHeader>>,
}

/// A buffer. One that compression filled stands for the blocks that went in.
#[derive(Debug, Default)]
struct Buffer {
    ids: Vec<ContentId>,
    compressed: bool,
}

/// Drives a manager through a trace.
#[derive(Debug)]
pub(crate) struct Driver<'a> {
    trace: &'a Trace,
    pub(crate) manager: CacheManager,
    /// Blocks of origins that changed, or that the trace does not name.
    changed: Map<u64, ContentId>,
    next_unique: u32,
    bufs: Map<BufId, Buffer>,
    spare: Vec<Buffer>,
    slots: Vec<Slot>,
    extent_blocks: u32,
    turns: Turns,
    pub(crate) origin: OriginTraffic,
    requests: u64,
    now_ms: u64,
    reply: Option<Result<(), ErrorKind>>,
    /// The client's buffer and, after its release, its last contents.
    client: (BufId, Vec<ContentId>),
    trouble: Option<String>,
    /// The SSD, if there is to be one.
    pub(crate) ssd: Option<Watcher>,
    /// Submitted work, if time is simulated.
    work: Option<WorkLog>,
    /// Last writes of clients, if reads are checked.
    view: Option<Map<u64, ContentId>>,
}

fn blocks(bytes: u32) -> usize {
    debug_assert!(bytes.is_multiple_of(BLOCK_BYTES), "{bytes} bytes are no whole blocks");
    usize_from_u32(bytes / BLOCK_BYTES)
}

fn range(slice: BufSlice) -> core::ops::Range<usize> {
    let start = blocks(slice.start_bytes);
    start..start + blocks(slice.len_bytes)
}

impl<'a> Driver<'a> {
    /// A driver for a manager whose cache was never written.
    pub(crate) fn new(
        trace: &'a Trace,
        manager: CacheManager,
        geometry: &Geometry,
        ssd: Option<Watcher>,
    ) -> Self {
        let mut driver = Self {
            trace,
            manager,
            changed: Map::default(),
            next_unique: trace.next_unique,
            bufs: Map::default(),
            spare: Vec::new(),
            slots: (0..geometry.slots).map(|_| Slot::default()).collect(),
            extent_blocks: geometry.extent_bytes / BLOCK_BYTES,
            turns: Turns::default(),
            origin: OriginTraffic::default(),
            requests: 0,
            now_ms: 0,
            reply: None,
            client: (BufId(0), Vec::new()),
            trouble: None,
            ssd,
            work: None,
            view: None,
        };
        let mut turns = Turns::default();
        turns.begin(&mut driver, 0);
        turns.settle(&mut driver);
        driver
    }

    /// Starts to compare each read with the last write.
    pub(crate) fn check(&mut self) {
        self.view = Some(Map::default());
    }

    /// Sends the next request and waits until nothing is left to do.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), ReplayError> {
        self.pass_time(step.time_ms().max(self.requests / REQUESTS_PER_MS));
        self.requests += 1;
        let buf = BufId(self.requests);
        self.client = (buf, Vec::new());
        let kind = match step.op {
            Op::Read | Op::Access => {
                let held = self.buffer();
                self.bufs.insert(buf, held);
                RequestKind::Read { buf }
            }
            Op::Write => {
                let mut held = self.buffer();
                held.ids.extend_from_slice(written(self.trace, step));
                self.bufs.insert(buf, held);
                RequestKind::Write { buf, fua: false }
            }
            Op::Flush => RequestKind::Flush,
            Op::Discard => RequestKind::Trim { fua: false },
        };
        if step.op == Op::Read {
            self.resize(buf, usize_from_u32(step.blocks));
        }
        let unit = u64::from(BLOCK_BYTES);
        self.reply = None;
        self.event(Event::Submit(Request {
            req: ReqId(self.requests),
            volume: VolumeId(step.volume),
            offset_bytes: step.first_block * unit,
            len_bytes: u64::from(step.blocks) * unit,
            kind,
        }));
        self.wait()?;
        self.check_step(step, buf)
    }

    /// Passes time without requests, so that staged parts of extents are inserted.
    pub(crate) fn finish(&mut self) -> Result<(), ReplayError> {
        self.pass_time(self.now_ms + FINISH_MS);
        self.reply = Some(Ok(()));
        self.wait()
    }

    /// Passes ticks until the request is answered, since it may wait for a delay of the manager.
    fn wait(&mut self) -> Result<(), ReplayError> {
        let mut ticks = 0;
        while self.reply.is_none() && self.trouble.is_none() {
            ticks += 1;
            if ticks > PATIENCE_TICKS {
                self.trouble = Some("it does not answer a request".to_owned());
                break;
            }
            let now_ms = self.now_ms + TICK_MS;
            self.tick(now_ms);
        }
        if let Some(Err(error)) = self.reply {
            self.trouble.get_or_insert_with(|| format!("it answers a request with {error}"));
        }
        match self.trouble.take() {
            Some(what) => Err(ReplayError::Manager { requests: self.requests, what }),
            None => Ok(()),
        }
    }

    fn pass_time(&mut self, time_ms: u64) {
        if time_ms < self.now_ms + TICK_MS {
            return;
        }
        // Delays that follow one another each need a tick.
        let half = self.now_ms.midpoint(time_ms).max(self.now_ms + TICK_MS);
        for now_ms in [self.now_ms + TICK_MS, half, time_ms] {
            self.tick(now_ms);
        }
    }

    fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.event(Event::Tick { now_ms });
    }

    fn event(&mut self, event: Event) {
        let mut turns = core::mem::take(&mut self.turns);
        turns.handle(self, event);
        self.turns = turns;
    }

    /// From here on everything that takes time is kept.
    pub(crate) fn log_work(&mut self, log: WorkLog) {
        self.work = Some(log);
    }

    /// Returns the work submitted since the last call.
    pub(crate) fn take_work(&mut self) -> Vec<Asked> {
        self.work.as_mut().map(WorkLog::take).unwrap_or_default()
    }

    fn log(&mut self, action: &Action) {
        let Some(log) = &mut self.work else { return };
        let waited_for = self.reply.is_none();
        match action {
            Action::ReadExtents { source: Source::Device, slot, start_bytes, len_bytes, parts, .. } => {
                let ends = &self.slots[usize_from_u32(slot.0)].extents;
                let end_of = |offset_bytes: u32| {
                    let next = ends.partition_point(|(start, ..)| *start <= offset_bytes);
                    ends.get(next).map_or(start_bytes + len_bytes, |(start, ..)| *start)
                };
                log.hit(*slot, *start_bytes, *len_bytes, parts, end_of, waited_for);
            }
            other => log.action(other, waited_for),
        }
    }

    fn lost(&mut self, slot: WeuSlot) -> Result<(), ExtentError> {
        self.trouble.get_or_insert_with(|| format!("it reads from {slot} what was not stored there"));
        Ok(())
    }

    fn change(&mut self, volume: VolumeId, first: u64, ids: impl Iterator<Item = ContentId>) {
        let keys = (first..).map(|block| block_key(volume.0, block));
        self.changed.extend(keys.zip(ids));
    }

    fn on_origin(&mut self, key: u64) -> ContentId {
        if let Some(id) = self.changed.get(&key).or_else(|| self.trace.initial.get(&key)) {
            return *id;
        }
        let id = ContentId::unique(self.next_unique);
        self.next_unique = self.next_unique.wrapping_add(1);
        self.changed.insert(key, id);
        id
    }

    fn buffer(&mut self) -> Buffer {
        self.spare.pop().unwrap_or_default()
    }

    fn resize(&mut self, buf: BufId, len: usize) {
        if let Some(held) = self.bufs.get_mut(&buf) {
            held.ids.resize(len, ContentId::ZERO);
        }
    }

    fn ids(&self, slice: BufSlice) -> &[ContentId] {
        self.bufs.get(&slice.buf).and_then(|held| held.ids.get(range(slice))).unwrap_or_default()
    }

    fn take(&self, slice: BufSlice) -> smallvec::SmallVec<[ContentId; 8]> {
        self.ids(slice).into()
    }

    fn put(&mut self, dest: BufSlice, ids: &[ContentId]) {
        let Some(held) = self.bufs.get_mut(&dest.buf) else {
            self.trouble.get_or_insert_with(|| format!("it writes to {:?}, which is not there", dest.buf));
            return;
        };
        let range = range(dest);
        if held.ids.len() < range.end {
            held.ids.resize(range.end, ContentId::ZERO);
        }
        held.ids[range].copy_from_slice(ids);
    }

    fn check_step(&mut self, step: &Step, buf: BufId) -> Result<(), ReplayError> {
        let Some(mut view) = self.view.take() else { return Ok(()) };
        let keys =
            || (step.first_block..).take(usize_from_u32(step.blocks)).map(|b| block_key(step.volume, b));
        match step.op {
            Op::Write => view.extend(keys().zip(written(self.trace, step).iter().copied())),
            Op::Discard => view.extend(keys().map(|key| (key, ContentId::ZERO))),
            _ => {}
        }
        let held = self.bufs.get(&buf).map_or(&self.client.1, |held| &held.ids).clone();
        let mut wrong = None;
        if step.op == Op::Read {
            for (key, got) in keys().zip(held) {
                let wanted = view.get(&key).copied().unwrap_or_else(|| self.on_origin(key));
                if got != wanted {
                    wrong = Some(format!("a read returns {got:?} for {wanted:?}"));
                }
            }
        }
        self.view = Some(view);
        wrong.map_or(Ok(()), |what| Err(ReplayError::Manager { requests: self.requests, what }))
    }

    /// Bytes of RAM that stand for devices and buffers.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let changed = self.changed.capacity() * (size_of::<(u64, ContentId)>() + 1);
        let stored =
            |slot: &Slot| slot.extents.capacity() * 12 + slot.ids.capacity() * size_of::<ContentId>();
        let entries = |slot: &Slot| slot.header.as_ref().map_or(0, |header| header.entries.capacity());
        let slots: usize = self.slots.iter().map(stored).sum();
        let headers: usize = self.slots.iter().map(entries).sum();
        u64_from_usize(changed + slots + headers * size_of::<zc_format::WeuEntry>())
    }
}

impl Backend for Driver<'_> {
    fn manager(&mut self) -> &mut CacheManager {
        &mut self.manager
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        if let Some(ssd) = &mut self.ssd {
            ssd.see(&action);
        }
        self.log(&action);
        zc_drive::carry_out(self, action)
    }

    fn reply(&mut self, _req: ReqId, result: Ended) {
        self.reply = Some(result);
    }

    fn hash(&mut self, src: BufSlice, domain: &DedupDomain) -> Digest {
        in_domain(self.trace.contents.digest(self.ids(src)), domain)
    }

    fn compress(&mut self, src: BufSlice, codec: Codec, max_bytes: u32, out: BufId) -> Option<u32> {
        let ids = self.take(src);
        let size = self.trace.contents.compressed_bytes(&ids, codec);
        if let Some(out) = self.bufs.get_mut(&out) {
            out.ids.clear();
            out.ids.extend_from_slice(&ids);
            out.compressed = true;
        }
        (size <= max_bytes).then_some(size)
    }

    fn compare(&mut self, left: BufSlice, right: BufSlice) -> bool {
        self.ids(left) == self.ids(right)
    }

    fn alloc(&mut self, buf: BufId, _len_bytes: u32) {
        let held = self.buffer();
        self.bufs.insert(buf, held);
    }

    fn free(&mut self, buf: BufId) {
        let Some(mut held) = self.bufs.remove(&buf) else {
            self.trouble.get_or_insert_with(|| format!("it frees {buf:?} twice"));
            return;
        };
        if buf == self.client.0 && self.view.is_some() {
            self.client.1.clone_from(&held.ids);
        }
        held.ids.clear();
        held.compressed = false;
        self.spare.push(held);
    }

    fn copy(&mut self, from: BufSlice, to: BufSlice) {
        let ids = self.take(from);
        self.put(to, &ids);
    }

    fn zero(&mut self, dest: BufSlice) {
        // Padding inside a unit's buffer; contents of units are followed by extent.
        let unit = [dest.start_bytes, dest.len_bytes].map(|bytes| bytes.is_multiple_of(BLOCK_BYTES));
        if unit == [true; 2] {
            self.put(dest, &vec![ContentId::ZERO; blocks(dest.len_bytes)]);
        }
    }

    fn place(&mut self, _weu: BufId, offset_bytes: u32, header: &ExtentHeader, payload: BufSlice) {
        let Some(held) = self.bufs.get(&payload.buf) else { return };
        let ids = if held.compressed { &held.ids[..] } else { &held.ids[range(payload)] };
        let slot = &mut self.slots[usize_from_u32(header.slot.0)];
        let unit = (header.generation, header.weu_seq);
        if slot.unit != unit {
            slot.unit = unit;
            slot.extents.clear();
            slot.ids.clear();
            slot.header = None;
        }
        let lengths = (u32::try_from(slot.ids.len()), u32::try_from(ids.len()));
        let (Ok(at), Ok(len)) = lengths else { unreachable!("a unit has at most a thousand blocks") };
        let place = slot.extents.partition_point(|(offset, ..)| *offset < offset_bytes);
        slot.extents.insert(place, (offset_bytes, at, len));
        slot.ids.extend_from_slice(ids);
    }

    fn origin(&mut self, volume: VolumeId, op: OriginOp) -> Ended {
        let unit = u64::from(BLOCK_BYTES);
        match op {
            OriginOp::Read { offset_bytes, dest } => {
                self.origin.reads.add(u64::from(dest.len_bytes));
                let first = offset_bytes / unit;
                let keys = (first..).take(blocks(dest.len_bytes)).map(|block| block_key(volume.0, block));
                let ids: Vec<ContentId> = keys.map(|key| self.on_origin(key)).collect();
                self.put(dest, &ids);
            }
            OriginOp::Write { offset_bytes, src } => {
                self.origin.writes.add(u64::from(src.len_bytes));
                let ids = self.take(src);
                self.change(volume, offset_bytes / unit, ids.iter().copied());
            }
            OriginOp::Trim { offset_bytes, len_bytes } | OriginOp::Zero { offset_bytes, len_bytes, .. } => {
                let count = zc_core::usize_from_u64(len_bytes / unit);
                self.change(volume, offset_bytes / unit, core::iter::repeat_n(ContentId::ZERO, count));
            }
            OriginOp::Flush => self.origin.flushes += 1,
        }
        Ok(())
    }

    /// Fingerprints of extents as the origin holds them, where it holds anything that is known.
    fn recipe(
        &mut self,
        volume: VolumeId,
        first: ExtentNo,
        count: u32,
        domain: &DedupDomain,
    ) -> Vec<Option<Fingerprint>> {
        let per_extent = u64::from(self.extent_blocks);
        let held = |key: u64| self.changed.get(&key).or_else(|| self.trace.initial.get(&key)).copied();
        let print = |extent: u64| {
            let blocks = extent * per_extent..(extent + 1) * per_extent;
            let ids: Option<Vec<ContentId>> = blocks.map(|block| held(block_key(volume.0, block))).collect();
            match in_domain(self.trace.contents.digest(&ids?), domain) {
                Digest::Print(print) => Some(print),
                Digest::Zero => None,
            }
        };
        (first.0..first.0 + u64::from(count)).map(print).collect()
    }

    fn read_extents(&mut self, piece: &Piece) -> Result<PartResults, ErrorKind> {
        let read = |part: &ExtentRead| {
            let found = self.slots.get(usize_from_u32(part.expected.slot.0));
            let ids = found.and_then(|slot| slot.extent(part.expected.offset_bytes));
            let ids = ids.map(smallvec::SmallVec::<[ContentId; 8]>::from);
            let Some(ids) = ids else { return self.lost(part.expected.slot) };
            let skip = blocks(part.skip_bytes);
            self.put(part.dest, &ids[skip..skip + blocks(part.dest.len_bytes)]);
            Ok(())
        };
        Ok(piece.parts.iter().map(read).collect())
    }

    fn read_header(&mut self, slot: WeuSlot) -> Result<Option<Box<WeuHeader>>, ErrorKind> {
        Ok(self.slots[usize_from_u32(slot.0)].header.clone())
    }

    fn write_unit(&mut self, slot: WeuSlot, _weu: BufId, write: UnitWrite) -> Ended {
        // Of writes to the device, only headers of units are kept.
        if let UnitWrite::Whole { header, .. } = write {
            self.slots[usize_from_u32(slot.0)].header = Some(header);
        }
        Ok(())
    }

    fn note(&mut self, note: Note) {
        if matches!(note, Note::CacheFailed { .. } | Note::ExtentDropped { .. } | Note::Fenced { .. }) {
            self.trouble.get_or_insert_with(|| format!("it reports {note:?}"));
        }
    }
}

impl Slot {
    fn extent(&self, offset_bytes: u32) -> Option<&[ContentId]> {
        let at = self.extents.binary_search_by_key(&offset_bytes, |(offset, ..)| *offset).ok()?;
        let (_, start, len) = self.extents[at];
        let start = usize_from_u32(start);
        self.ids.get(start..start + usize_from_u32(len))
    }
}

/// Makes equal contents of two domains differ, as in the daemon.
fn in_domain(digest: Digest, domain: &DedupDomain) -> Digest {
    let (Digest::Print(mut print), Some(key)) = (digest, domain.key()) else { return digest };
    print.0.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
    Digest::Print(print)
}

/// Contents of a write.
fn written<'a>(trace: &'a Trace, step: &Step) -> &'a [ContentId] {
    let at = usize_from_u32(step.contents_at);
    &trace.written[at..at + usize_from_u32(step.blocks)]
}
