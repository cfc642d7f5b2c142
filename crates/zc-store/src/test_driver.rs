//! A driver for tests of the store: its device is memory, which a test may damage.

use std::collections::VecDeque;

use zc_core::{BufId, BufSlice, Codec, ErrorKind, Fingerprint, Map, ReqId};

use crate::media::superblock::Superblock;
use crate::seam::{
    Action, Encoded, Event, FetchPart, FetchTo, NewChunk, PieceData, Request, RequestKind, StoreError,
};
use crate::{
    CatalogChange, CatalogOp, Config, RootId, ScrubReport, Store, SurveyKind, Surveyed, payload_crc,
};

pub(crate) const SEGMENT: u32 = 64 << 10;
pub(crate) const CHUNK: u32 = 16 << 10;
pub(crate) const VOLUME: RootId = RootId(0);

/// A store, its device, and what was answered. An encoding is the chunk itself, longer by some bytes on request.
pub(crate) struct Driver {
    pub(crate) store: Store,
    pub(crate) device: Vec<u8>,
    pub(crate) bufs: Map<BufId, Vec<u8>>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) answers: Vec<(ReqId, Result<(), StoreError>)>,
    pub(crate) dest: Vec<u8>,
    /// Place on the device of the last chunk that was read.
    pub(crate) read_at: u64,
    pub(crate) stopped: bool,
    pub(crate) surveyed: bool,
    /// Result of the opening.
    pub(crate) opened: Option<Result<(), StoreError>>,
    /// Report of the last scrub.
    pub(crate) report: ScrubReport,
    /// Chunks that are written have fingerprints.
    pub(crate) prints: bool,
    /// Batches and flushes that were given to the device.
    pub(crate) batches: usize,
    pub(crate) flushes: usize,
    /// Discards that were asked for; the device has none if they are refused.
    pub(crate) discards: usize,
    pub(crate) refuses_discards: bool,
    pub(crate) longer_by: u32,
    pub(crate) next: u64,
    pub(crate) now_ms: u64,
}

impl Driver {
    pub(crate) fn config() -> Config {
        Config { cache_pages: 64, dirty_pages_max: 8, ..Config::default() }.bounded(SEGMENT)
    }

    pub(crate) fn new(spare_segments: u32) -> Self {
        Self::with(spare_segments, Self::config())
    }

    pub(crate) fn with(spare_segments: u32, config: Config) -> Self {
        let kept = config.reserve_segments(crate::config::Shape { segment_bytes: SEGMENT, segments: 0 });
        let segments = kept + zc_core::usize_from_u32(spare_segments);
        let mut device = vec![0; (128 << 10) + segments * zc_core::usize_from_u32(SEGMENT)];
        let bytes = zc_core::u64_from_usize(device.len());
        let superblock = Superblock::format([7; 16], bytes, SEGMENT, 1).unwrap();
        for copy in 0..2 {
            let at = zc_core::usize_from_u64(Superblock::offset_bytes(copy));
            device[at..at + 4096].copy_from_slice(&superblock.encode(copy)[..]);
        }
        Self::on(device, config)
    }

    pub(crate) fn on(device: Vec<u8>, config: Config) -> Self {
        let driver = Self::try_on(device, config);
        assert_eq!(driver.opened, Some(Ok(())));
        driver
    }

    /// Opens a store; `opened` says how that ended.
    pub(crate) fn try_on(device: Vec<u8>, config: Config) -> Self {
        let mut out = Vec::new();
        // Each session has a nonce of its own.
        let nonce = crate::media::u64_at(&device, 64).wrapping_add(9);
        let store = Store::open(config, nonce, &mut out);
        let mut driver = Self {
            store,
            device,
            bufs: Map::default(),
            events: VecDeque::new(),
            answers: Vec::new(),
            dest: Vec::new(),
            read_at: 0,
            stopped: false,
            surveyed: false,
            opened: None,
            report: ScrubReport::default(),
            prints: false,
            batches: 0,
            flushes: 0,
            discards: 0,
            refuses_discards: false,
            longer_by: 0,
            next: 0,
            now_ms: 0,
        };
        driver.perform(out);
        driver.settle();
        driver
    }

    pub(crate) fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply { req, result } => self.answers.push((req, result)),
                Action::Free { buf } => assert!(self.bufs.remove(&buf).is_some(), "{buf:?} is freed once"),
                Action::Opened { result } => self.opened = Some(result),
                Action::Stopped => self.stopped = true,
                Action::Surveyed { surveyed, req } => {
                    self.surveyed = true;
                    self.answers.push((req, Ok(())));
                    if let Surveyed::Scrub(report) = *surveyed {
                        self.report = report;
                    }
                }
                Action::Allocation { req, .. } => self.answers.push((req, Ok(()))),
                Action::ReadBlock { op, offset_bytes } => {
                    let at = zc_core::usize_from_u64(offset_bytes);
                    let block = self.device.get(at..).and_then(|rest| rest.first_chunk());
                    let result = block.map(|block| Box::new(*block)).ok_or(ErrorKind::Io);
                    self.events.push_back(Event::BlockRead { op, result });
                }
                Action::FlushDevice { op } => {
                    self.flushes += 1;
                    self.events.push_back(Event::Done { op, result: Ok(()) });
                }
                Action::Discard { op, offset_bytes, len_bytes } => {
                    self.discards += 1;
                    // A crafted superblock may name segments behind the end.
                    let end = offset_bytes + u64::from(len_bytes);
                    let is_there = end <= zc_core::u64_from_usize(self.device.len());
                    let result = if self.refuses_discards || !is_there {
                        Err(ErrorKind::Io)
                    } else {
                        self.put(offset_bytes, &vec![0; zc_core::usize_from_u32(len_bytes)]);
                        Ok(())
                    };
                    self.events.push_back(Event::Done { op, result });
                }
                Action::WriteSuperblock { op, copy, superblock } => {
                    self.put(Superblock::offset_bytes(copy), &superblock.encode(copy)[..]);
                    self.events.push_back(Event::Done { op, result: Ok(()) });
                }
                Action::WriteBatch { op, offset_bytes, len_bytes, header, pieces } => {
                    let end = offset_bytes + u64::from(len_bytes);
                    let (first, last) = (offset_bytes - (128 << 10), end - 1 - (128 << 10));
                    assert_eq!(first / u64::from(SEGMENT), last / u64::from(SEGMENT), "one segment");
                    self.batches += 1;
                    self.put(offset_bytes, &header[..]);
                    for piece in pieces {
                        let bytes = match piece.data {
                            PieceData::Payload(slice) => self.slice(slice),
                            PieceData::Page(page) => page.to_vec(),
                        };
                        self.put(offset_bytes + u64::from(piece.offset_bytes), &bytes);
                    }
                    self.events.push_back(Event::Done { op, result: Ok(()) });
                }
                Action::Encode { op, chunks, .. } => {
                    let chunks = chunks.into_iter().map(|raw| self.encode(raw)).collect();
                    self.events.push_back(Event::Encoded { op, chunks });
                }
                Action::Fetch { op, parts, to, .. } => {
                    let results = (0..).zip(&parts).map(|(number, part)| self.fetch(number, part, to));
                    let results = results.collect();
                    self.events.push_back(Event::Fetched { op, results });
                }
                other => panic!("{other:?} was not asked for"),
            }
        }
    }

    fn fetch(&mut self, number: u64, part: &FetchPart, to: FetchTo) -> Result<(), ErrorKind> {
        let at = Superblock::device_offset(part.stored.place, SEGMENT);
        self.read_at = at;
        let at = zc_core::usize_from_u64(at);
        let len = zc_core::usize_from_u32(part.stored.stored_bytes);
        let on_device = || self.device.get(at..at + len).map(<[u8]>::to_vec).unwrap_or_default();
        let bytes = part.memory.map_or_else(on_device, |slice| self.slice(slice));
        let is_sound = payload_crc(&bytes) == part.stored.crc;
        match to {
            FetchTo::Decoded(_) if is_sound => {
                let at = zc_core::usize_from_u32(part.dest_offset_bytes);
                self.dest.resize(self.dest.len().max(at + bytes.len()), 0);
                self.dest[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            FetchTo::Stored(first) => drop(self.bufs.insert(BufId(first.0 + number), bytes)),
            FetchTo::Decoded(_) | FetchTo::Nowhere => {}
        }
        if is_sound { Ok(()) } else { Err(ErrorKind::Corrupt) }
    }

    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = zc_core::usize_from_u64(at);
        self.device[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn slice(&self, slice: BufSlice) -> Vec<u8> {
        self.bufs[&slice.buf][..zc_core::usize_from_u32(slice.len_bytes)].to_vec()
    }

    pub(crate) fn encode(&mut self, raw: BufSlice) -> Encoded {
        let mut bytes = self.slice(raw);
        let crc = payload_crc(&bytes);
        if self.longer_by == 0 {
            return Encoded { bytes: raw, codec: Codec::Raw, crc };
        }
        let len_bytes = raw.len_bytes + self.longer_by;
        bytes.resize(zc_core::usize_from_u32(len_bytes), 0);
        let buf = self.buf(bytes);
        Encoded { bytes: BufSlice { buf, start_bytes: 0, len_bytes }, codec: Codec::Lz4, crc }
    }

    pub(crate) fn buf(&mut self, bytes: Vec<u8>) -> BufId {
        self.next += 1;
        self.bufs.insert(BufId(self.next), bytes);
        BufId(self.next)
    }

    pub(crate) fn give(&mut self, event: Event) {
        let mut out = Vec::new();
        self.store.handle(event, &mut out);
        self.perform(out);
    }

    /// All that is in progress ends, and what is due.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            match self.events.pop_front() {
                Some(event) => self.give(event),
                None if !self.store.is_busy() || matches!(self.opened, Some(Err(_))) => return,
                None => {
                    self.now_ms += 1000;
                    self.give(Event::Tick { now_ms: self.now_ms });
                }
            }
        }
        panic!("the store does not come to rest");
    }

    pub(crate) fn submit(&mut self, kind: RequestKind) {
        self.next += 1;
        self.give(Event::Submit(Request { req: ReqId(self.next), kind }));
    }

    pub(crate) fn ask(&mut self, kind: RequestKind) -> Result<(), StoreError> {
        self.submit(kind);
        self.settle();
        self.answers.pop().unwrap().1
    }

    pub(crate) fn create(&mut self, chunk_shift: u8) -> Result<(), StoreError> {
        self.create_of(chunk_shift, 1 << 20)
    }

    pub(crate) fn create_of(&mut self, chunk_shift: u8, size_chunks: u64) -> Result<(), StoreError> {
        let flags = u64::from(self.prints);
        let change =
            CatalogChange { chunk_shift, size_chunks, flags, ..Self::catalog(CatalogOp::Create, VOLUME) };
        self.ask(RequestKind::Catalog(change))
    }

    /// A change of the catalog that concerns the volume.
    pub(crate) fn catalog(op: CatalogOp, id: RootId) -> CatalogChange {
        let name = if id == VOLUME { "disk".to_owned() } else { format!("disk@{}", id.0) };
        CatalogChange {
            op,
            id,
            source: VOLUME,
            codec: Codec::Lz4,
            chunk_shift: 14,
            size_chunks: 0,
            flags: 0,
            name,
        }
    }

    pub(crate) fn write(&mut self, first: u64, chunks: u32, chunk_bytes: u32) -> RequestKind {
        let bytes = (first..first + u64::from(chunks)).map(byte_of).collect();
        self.write_bytes(first, bytes, chunk_bytes)
    }

    /// A write of chunks, each full of one byte.
    pub(crate) fn write_bytes(&mut self, first: u64, bytes: Vec<u8>, chunk_bytes: u32) -> RequestKind {
        let mut new = Vec::new();
        for byte in bytes {
            let buf = self.buf(vec![byte; zc_core::usize_from_u32(chunk_bytes)]);
            let raw = BufSlice { buf, start_bytes: 0, len_bytes: chunk_bytes };
            let print = self.prints.then_some(Fingerprint([byte; 32]));
            new.push(NewChunk::Data { print, raw });
        }
        RequestKind::Write { root: VOLUME, first, chunks: new }
    }

    pub(crate) fn read(&mut self, root: RootId, chunk: u64) -> Result<Option<u8>, StoreError> {
        self.dest.clear();
        let dest = BufId(u64::MAX >> 8);
        self.ask(RequestKind::Read { root, first: chunk, count: 1, dest })?;
        Ok(self.dest.first().copied())
    }

    /// Places that a scrub finds damaged: the root, the first chunk and how many.
    pub(crate) fn scrub(&mut self) -> Vec<(RootId, u64, u64)> {
        let kind = SurveyKind::Scrub { from: None, addresses_max: u64::MAX };
        assert_eq!(self.ask(RequestKind::Survey(kind)), Ok(()));
        self.report.damage.iter().map(|found| (found.root, found.first, found.count)).collect()
    }

    pub(crate) fn clean(&mut self) {
        self.give(Event::Clean);
        self.settle();
    }

    /// Closes the store in order and gives its device.
    pub(crate) fn close(mut self) -> Vec<u8> {
        self.give(Event::Stop);
        self.settle();
        assert!(self.stopped);
        self.device
    }

    /// Flips a bit where a chunk is stored.
    pub(crate) fn damage_chunk(&mut self, chunk: u64) {
        self.read(VOLUME, chunk).unwrap();
        let at = zc_core::usize_from_u64(self.read_at);
        self.device[at + 5] ^= 1;
    }

    pub(crate) fn place_of(&mut self, chunk: u64) -> u64 {
        self.is_there(chunk);
        self.read_at
    }

    pub(crate) fn is_there(&mut self, chunk: u64) {
        self.dest.clear();
        let dest = BufId(u64::MAX >> 8);
        assert_eq!(self.ask(RequestKind::Read { root: VOLUME, first: chunk, count: 1, dest }), Ok(()));
        let byte = byte_of(chunk);
        assert!(!self.dest.is_empty() && self.dest.iter().all(|found| *found == byte), "chunk {chunk}");
    }
}

/// Byte that fills a chunk unless another is given.
pub(crate) fn byte_of(chunk: u64) -> u8 {
    u8::try_from(chunk % 200).unwrap_or(0) + 1
}
