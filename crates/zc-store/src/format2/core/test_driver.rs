//! A driver for tests: its device is memory with a volatile write cache, which a crash tears.

use std::collections::VecDeque;

use crate::format2::catalog::{CatalogChange, CatalogOp, FLAG_DEDUP};
use crate::format2::frame::FrameHeader;
use crate::format2::seam::{
    Action, Event, FetchPart, NewBlock, Payload, PieceData, Request, RequestKind, Source, StoreError,
};
use crate::format2::superblock::Superblock;
use crate::format2::{BLOCK_BYTES, Config, Store};
use zc_core::{BufId, BufSlice, Codec, ErrorKind, Fingerprint, Map, ReqId, usize_from_u32, usize_from_u64};

pub(super) const UUID: [u8; 16] = [7; 16];
pub(super) const SLOT: u32 = 256 << 10;
const BLOCK: usize = usize_from_u32(BLOCK_BYTES);

/// Deterministic numbers.
#[derive(Debug, Clone)]
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Contents of a block are a number; its encoding has a length that depends on it. 0 is a block of zeros.
fn encoded(contents: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in contents {
        let pad = usize_from_u64(value.wrapping_mul(0x9e37_79b9) % 3500);
        bytes.extend(value.to_le_bytes());
        bytes.extend(u32::try_from(pad).unwrap().to_le_bytes());
        bytes.resize(bytes.len() + pad, value.to_le_bytes()[0]);
    }
    bytes
}

fn decoded(mut bytes: &[u8]) -> Vec<u64> {
    let mut contents = Vec::new();
    while !bytes.is_empty() {
        contents.push(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
        let pad = usize_from_u32(u32::from_le_bytes(bytes[8..12].try_into().unwrap()));
        bytes = &bytes[12 + pad..];
    }
    contents
}

/// A store with its device and answers.
pub(super) struct Driver {
    pub(super) store: Store,
    pub(super) device: Vec<u8>,
    /// Writes that no flush covered, oldest first.
    volatile: Vec<(usize, Vec<u8>)>,
    bufs: Map<BufId, Vec<u8>>,
    events: VecDeque<Event>,
    pub(super) answers: Vec<(ReqId, Result<(), StoreError>)>,
    pub(super) opened: Option<Result<Vec<(u32, crate::format2::catalog::OrderMark)>, StoreError>>,
    pub(super) is_stopped: bool,
    dest: Vec<u64>,
    /// Reads of the device, for contents and for metadata, and bytes that were appended.
    pub(super) fetches: usize,
    /// Place on the device of the last frame that was fetched.
    pub(super) fetched_at: usize,
    pub(super) node_reads: usize,
    pub(super) appended_bytes: u64,
    /// Completions are reported in an order drawn from it.
    draw: Draw,
    next: u64,
    now_ms: u64,
    /// Place of the last batch that was written.
    pub(super) batch_at: usize,
}

impl Driver {
    pub(super) fn config() -> Config {
        Config { cache_bytes: 64 << 10, changes_max: 200, checkpoint_log_bytes: 1 << 20, ..Config::default() }
    }

    pub(super) fn format(slots: u32) -> Vec<u8> {
        let mut device = vec![0; (128 << 10) + usize_from_u32(slots * SLOT)];
        let bytes = zc_core::u64_from_usize(device.len());
        let superblock = Superblock::format(UUID, bytes, SLOT, 1).unwrap();
        for copy in 0..2 {
            let at = usize_from_u64(Superblock::offset_bytes(copy));
            device[at..at + BLOCK].copy_from_slice(&superblock.encode(copy));
        }
        device
    }

    pub(super) fn new(slots: u32) -> Self {
        Self::on(Self::format(slots), Self::config(), 1)
    }

    pub(super) fn on(device: Vec<u8>, config: Config, seed: u64) -> Self {
        let driver = Self::try_on(device, config, seed);
        assert!(matches!(driver.opened, Some(Ok(_))), "{:?}", driver.opened);
        driver
    }

    pub(super) fn try_on(device: Vec<u8>, config: Config, seed: u64) -> Self {
        let mut out = Vec::new();
        let session = u64::from_le_bytes(device[40..48].try_into().unwrap());
        let store = Store::open(config, session.wrapping_mul(77).wrapping_add(5), &mut out);
        let mut driver = Self {
            store,
            device,
            volatile: Vec::new(),
            bufs: Map::default(),
            events: VecDeque::new(),
            answers: Vec::new(),
            opened: None,
            is_stopped: false,
            dest: Vec::new(),
            fetches: 0,
            fetched_at: 0,
            node_reads: 0,
            appended_bytes: 0,
            draw: Draw(seed),
            next: 0,
            now_ms: 0,
            batch_at: 0,
        };
        driver.perform(out);
        driver.settle();
        driver
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply { req, result } => self.answers.push((req, result)),
                Action::Free { buf } => assert!(self.bufs.remove(&buf).is_some(), "{buf:?} is freed once"),
                Action::Opened { result } => self.opened = Some(result),
                Action::Stopped => self.is_stopped = true,
                Action::Read { op, offset_bytes, len_bytes } => {
                    self.node_reads += 1;
                    let at = usize_from_u64(offset_bytes);
                    let bytes = self.device.get(at..at + usize_from_u32(len_bytes));
                    let result = bytes.map(<[u8]>::to_vec).ok_or(ErrorKind::Io);
                    self.events.push_back(Event::Read { op, result });
                }
                Action::Fetch { op, parts, .. } => {
                    let results = parts.iter().map(|part| self.fetch(part)).collect();
                    self.events.push_back(Event::Fetched { op, results });
                }
                Action::Encode { op, frames, .. } => {
                    let frames = frames.iter().map(|frame| self.encode(frame)).collect();
                    self.events.push_back(Event::Encoded { op, frames });
                }
                Action::Append { op, offset_bytes, len_bytes, head, pieces } => {
                    let mut batch = head;
                    batch.resize(usize_from_u32(len_bytes), 0);
                    for piece in pieces {
                        let at = usize_from_u32(piece.offset_bytes);
                        let bytes = match piece.data {
                            PieceData::Frame(header, payload) => self.seal(&header, payload),
                            PieceData::Node(bytes) => bytes.to_vec(),
                        };
                        batch[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                    let first = offset_bytes - (128 << 10);
                    let last = first + u64::from(len_bytes) - 1;
                    assert_eq!(first / u64::from(SLOT), last / u64::from(SLOT), "one slot");
                    self.batch_at = usize_from_u64(offset_bytes);
                    self.appended_bytes += u64::from(len_bytes);
                    self.write(offset_bytes, &batch);
                    self.events.push_back(Event::Done { op, result: Ok(()) });
                }
                Action::WriteSuperblock { op, offset_bytes, block } => {
                    self.write(offset_bytes, &block);
                    self.events.push_back(Event::Done { op, result: Ok(()) });
                }
                Action::Flush { op } => {
                    self.volatile.clear();
                    self.events.push_back(Event::Done { op, result: Ok(()) });
                }
            }
        }
    }

    /// Writes at once, and keeps what was there: a crash may undo it.
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        let at = usize_from_u64(offset_bytes);
        let before = self.device[at..at + bytes.len()].to_vec();
        self.volatile.push((at, before));
        self.device[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The power fails: blocks of writes that no flush covered are undone, as drawn.
    pub(super) fn crash(mut self, draw: &mut Draw) -> Vec<u8> {
        let kind = draw.below(4);
        for (at, before) in self.volatile.into_iter().rev() {
            for (block, bytes) in before.chunks(BLOCK).enumerate() {
                let is_undone = match kind {
                    0 => false,
                    1 => true,
                    _ => draw.below(3) == 0,
                };
                if is_undone {
                    let at = at + block * BLOCK;
                    self.device[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        self.device
    }

    fn seal(&self, header: &FrameHeader, payload: BufSlice) -> Vec<u8> {
        let mut frame = vec![0; 16];
        frame.extend(self.slice(payload));
        header.seal(&UUID, &mut frame);
        frame
    }

    fn slice(&self, slice: BufSlice) -> Vec<u8> {
        let start = usize_from_u32(slice.start_bytes);
        self.bufs[&slice.buf][start..start + usize_from_u32(slice.len_bytes)].to_vec()
    }

    fn encode(&mut self, frame: &[BufSlice]) -> Payload {
        let contents: Vec<u64> =
            frame.iter().map(|raw| u64::from_le_bytes(self.slice(*raw)[..8].try_into().unwrap())).collect();
        let bytes = encoded(&contents);
        let len_bytes = u32::try_from(bytes.len()).unwrap();
        let buf = self.buf(bytes);
        Payload { bytes: BufSlice { buf, start_bytes: 0, len_bytes }, codec: 1 }
    }

    fn fetch(&mut self, part: &FetchPart) -> Result<(), ErrorKind> {
        let payload = match part.source {
            Source::Memory(payload) => self.slice(payload.bytes),
            Source::Device { offset_bytes, len_bytes } => {
                self.fetches += 1;
                let at = usize_from_u64(offset_bytes);
                self.fetched_at = at;
                let frame = self.device.get(at..at + usize_from_u32(len_bytes)).ok_or(ErrorKind::Io)?;
                let (header, payload) =
                    FrameHeader::open(&UUID, part.name, frame).map_err(|_| ErrorKind::Corrupt)?;
                if (header.blocks, header.codec) != (part.blocks, 1) {
                    return Err(ErrorKind::Corrupt);
                }
                frame[payload].to_vec()
            }
        };
        let contents = decoded(&payload);
        for (index, block) in &part.wanted {
            self.dest[usize_from_u32(*block)] = contents[usize::from(*index)];
        }
        Ok(())
    }

    fn buf(&mut self, bytes: Vec<u8>) -> BufId {
        self.next += 1;
        self.bufs.insert(BufId(self.next), bytes);
        BufId(self.next)
    }

    fn give(&mut self, event: Event) {
        let mut out = Vec::new();
        self.store.handle(event, &mut out);
        self.perform(out);
    }

    pub(super) fn clean(&mut self) {
        self.give(Event::Clean);
        self.settle();
    }

    /// Begins a cleaning, which continues beside the requests that follow.
    pub(super) fn begin_clean(&mut self) {
        self.give(Event::Clean);
    }

    /// Time passes without a request.
    pub(super) fn idle(&mut self) {
        for _ in 0..4 {
            self.now_ms += 10;
            self.give(Event::Tick { now_ms: self.now_ms });
            self.settle();
        }
    }

    /// Completes one operation, any of those in progress. Returns `false` if there is none.
    pub(super) fn step(&mut self) -> bool {
        if self.events.is_empty() {
            return false;
        }
        let at = self.draw.below(zc_core::u64_from_usize(self.events.len()));
        let event = self.events.remove(usize_from_u64(at)).unwrap();
        self.give(event);
        true
    }

    /// Completes everything that is in progress.
    pub(super) fn settle(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 100_000, "the store does not come to rest");
        }
        assert_eq!(self.store.check(), Ok(()));
    }

    pub(super) fn submit(&mut self, kind: RequestKind) -> ReqId {
        self.next += 1;
        let req = ReqId(self.next);
        self.give(Event::Submit(Request { req, kind }));
        req
    }

    pub(super) fn request(&mut self, kind: RequestKind) -> Result<(), StoreError> {
        let req = self.submit(kind);
        self.settle();
        let at = self.answers.iter().position(|(own, _)| *own == req);
        self.answers.remove(at.unwrap()).1
    }

    pub(super) fn write_of(&mut self, root: u32, first: u64, contents: &[u64]) -> RequestKind {
        let block = |value: &u64| {
            if *value == 0 {
                return NewBlock::Zero;
            }
            let buf = self.buf([&value.to_le_bytes()[..], &[0; BLOCK - 8]].concat());
            let mut print = [9; 32];
            print[..8].copy_from_slice(&value.to_le_bytes());
            let raw = BufSlice { buf, start_bytes: 0, len_bytes: BLOCK_BYTES };
            NewBlock::Data { print: Fingerprint(print), raw }
        };
        RequestKind::Write { root, first, blocks: contents.iter().map(block).collect() }
    }

    pub(super) fn write_blocks(&mut self, root: u32, first: u64, contents: &[u64]) -> Result<(), StoreError> {
        let write = self.write_of(root, first, contents);
        self.request(write)
    }

    pub(super) fn read(&mut self, root: u32, first: u64, count: u32) -> Result<Vec<u64>, StoreError> {
        self.dest = vec![0; usize_from_u32(count)];
        self.request(RequestKind::Read { root, first, count, dest: BufId(u64::MAX) })?;
        Ok(self.dest.clone())
    }

    pub(super) fn catalog(op: CatalogOp, id: u32, source: u32) -> CatalogChange {
        CatalogChange {
            op,
            id,
            source,
            codec: Codec::Lz4,
            frame_blocks: 4,
            size_blocks: 1 << 20,
            flags: FLAG_DEDUP,
            name: format!("root{id}"),
        }
    }

    pub(super) fn change(&mut self, op: CatalogOp, id: u32, source: u32) -> Result<(), StoreError> {
        self.request(RequestKind::Catalog(Self::catalog(op, id, source)))
    }

    pub(super) fn close(mut self) -> Vec<u8> {
        self.give(Event::Stop);
        self.settle();
        assert!(self.is_stopped, "the store stops");
        assert!(self.bufs.is_empty(), "{} buffers are left", self.bufs.len());
        self.device
    }
}
