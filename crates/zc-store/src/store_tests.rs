//! The store by itself, over a device in memory that never fails: what it refuses, and that it comes to an end.

use std::collections::VecDeque;

use zc_core::{BufId, BufSlice, Codec, Map, ReqId};

use crate::limits;
use crate::media::superblock::Superblock;
use crate::seam::{Action, Encoded, Event, FetchTo, NewChunk, PieceData, Request, RequestKind, StoreError};
use crate::{CatalogChange, CatalogOp, Config, RootId, Store, SurveyKind, payload_crc};

const SEGMENT: u32 = 64 << 10;
const CHUNK: u32 = 16 << 10;
const VOLUME: RootId = RootId(0);

/// A store, its device, and what was answered. An encoding is the chunk itself, longer by some bytes if told so.
struct Driver {
    store: Store,
    device: Vec<u8>,
    bufs: Map<BufId, Vec<u8>>,
    events: VecDeque<Event>,
    answers: Vec<(ReqId, Result<(), StoreError>)>,
    dest: Vec<u8>,
    /// Where the last chunk that was read lies on the device.
    read_at: u64,
    stopped: bool,
    surveyed: bool,
    longer_by: u32,
    next: u64,
    now_ms: u64,
}

impl Driver {
    fn config() -> Config {
        Config { cache_pages: 64, dirty_pages_max: 8, ..Config::default() }.bounded(SEGMENT)
    }

    fn new(spare_segments: u32) -> Self {
        Self::with(spare_segments, Self::config())
    }

    fn with(spare_segments: u32, config: Config) -> Self {
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

    fn on(device: Vec<u8>, config: Config) -> Self {
        let mut out = Vec::new();
        let store = Store::open(config, 9, &mut out);
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
            longer_by: 0,
            next: 0,
            now_ms: 0,
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
                Action::Opened { result } => result.unwrap(),
                Action::Stopped => self.stopped = true,
                Action::Surveyed { .. } => self.surveyed = true,
                Action::ReadBlock { op, offset_bytes } => {
                    let at = zc_core::usize_from_u64(offset_bytes);
                    let block = Box::new(*self.device[at..].first_chunk().unwrap());
                    self.events.push_back(Event::BlockRead { op, result: Ok(block) });
                }
                Action::FlushDevice { op } => self.events.push_back(Event::Done { op, result: Ok(()) }),
                Action::WriteSuperblock { op, copy, superblock } => {
                    self.put(Superblock::offset_bytes(copy), &superblock.encode(copy)[..]);
                    self.events.push_back(Event::Done { op, result: Ok(()) });
                }
                Action::WriteBatch { op, offset_bytes, len_bytes, header, pieces } => {
                    let end = offset_bytes + u64::from(len_bytes);
                    let (first, last) = (offset_bytes - (128 << 10), end - 1 - (128 << 10));
                    assert_eq!(first / u64::from(SEGMENT), last / u64::from(SEGMENT), "one segment");
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
                    for (number, part) in (0..).zip(&parts) {
                        let at = Superblock::device_offset(part.stored.place, SEGMENT);
                        self.read_at = at;
                        let at = zc_core::usize_from_u64(at);
                        let on_device =
                            &self.device[at..at + zc_core::usize_from_u32(part.stored.stored_bytes)];
                        let bytes = part.memory.map_or_else(|| on_device.to_vec(), |slice| self.slice(slice));
                        match to {
                            FetchTo::Decoded(_) => {
                                let at = zc_core::usize_from_u32(part.dest_offset_bytes);
                                self.dest.resize(self.dest.len().max(at + bytes.len()), 0);
                                self.dest[at..at + bytes.len()].copy_from_slice(&bytes);
                            }
                            FetchTo::Stored(first) => drop(self.bufs.insert(BufId(first.0 + number), bytes)),
                            FetchTo::Nowhere => {}
                        }
                    }
                    let results = vec![Ok(()); parts.len()];
                    self.events.push_back(Event::Fetched { op, results });
                }
                other => panic!("{other:?} was not asked for"),
            }
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = zc_core::usize_from_u64(at);
        self.device[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn slice(&self, slice: BufSlice) -> Vec<u8> {
        self.bufs[&slice.buf][..zc_core::usize_from_u32(slice.len_bytes)].to_vec()
    }

    fn encode(&mut self, raw: BufSlice) -> Encoded {
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

    /// All that is in progress ends, and what is due.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            match self.events.pop_front() {
                Some(event) => self.give(event),
                None if !self.store.is_busy() => return,
                None => {
                    self.now_ms += 1000;
                    self.give(Event::Tick { now_ms: self.now_ms });
                }
            }
        }
        panic!("the store does not come to rest");
    }

    fn submit(&mut self, kind: RequestKind) {
        self.next += 1;
        self.give(Event::Submit(Request { req: ReqId(self.next), kind }));
    }

    fn ask(&mut self, kind: RequestKind) -> Result<(), StoreError> {
        self.submit(kind);
        self.settle();
        self.answers.pop().unwrap().1
    }

    fn create(&mut self, chunk_shift: u8) -> Result<(), StoreError> {
        self.ask(RequestKind::Catalog(CatalogChange {
            op: CatalogOp::Create,
            id: VOLUME,
            source: VOLUME,
            codec: Codec::Lz4,
            chunk_shift,
            size_chunks: 1 << 20,
            flags: 0,
            name: "disk".to_owned(),
        }))
    }

    fn write(&mut self, first: u64, chunks: u32, chunk_bytes: u32) -> RequestKind {
        let mut new = Vec::new();
        for chunk in 0..chunks {
            let byte = u8::try_from((first + u64::from(chunk)) % 200).unwrap() + 1;
            let buf = self.buf(vec![byte; zc_core::usize_from_u32(chunk_bytes)]);
            let raw = BufSlice { buf, start_bytes: 0, len_bytes: chunk_bytes };
            new.push(NewChunk::Data { print: None, raw });
        }
        RequestKind::Write { root: VOLUME, first, chunks: new }
    }

    fn place_of(&mut self, chunk: u64) -> u64 {
        self.is_there(chunk);
        self.read_at
    }

    fn is_there(&mut self, chunk: u64) {
        self.dest.clear();
        let dest = BufId(u64::MAX >> 8);
        assert_eq!(self.ask(RequestKind::Read { root: VOLUME, first: chunk, count: 1, dest }), Ok(()));
        let byte = u8::try_from(chunk % 200).unwrap() + 1;
        assert!(!self.dest.is_empty() && self.dest.iter().all(|found| *found == byte), "chunk {chunk}");
    }
}

#[test]
fn contents_that_fit_no_segment_are_refused_and_the_rest_is_stored() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(16), Err(StoreError::Invalid), "a chunk is as long as a segment");
    assert_eq!(driver.create(14), Ok(()));
    // Three chunks of 16 KiB fit beside a header, four do not; nor does a header hold so many records.
    let write = driver.write(0, 4, CHUNK);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    let write = driver.write(0, limits::REQUEST_CHUNKS_MAX + 1, 512);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    for first in (0..12).step_by(3) {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    (0..12).for_each(|chunk| driver.is_there(chunk));
    assert!(driver.ask(RequestKind::Flush).is_ok() && driver.bufs.is_empty(), "{:?}", driver.bufs.keys());
}

#[test]
fn chunks_and_encodings_of_another_length_than_the_volumes_are_refused() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    let write = driver.write(0, 1, CHUNK - 512);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    driver.longer_by = 1;
    let write = driver.write(0, 3, CHUNK);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    assert!(driver.bufs.is_empty(), "{:?}", driver.bufs.keys());
}

#[test]
fn a_full_store_takes_discards_and_then_contents_again() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    let mut stored = 0;
    let refused = loop {
        let write = driver.write(stored, 3, CHUNK);
        match driver.ask(write) {
            Ok(()) => stored += 3,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, StoreError::NoSpace);
    assert!(stored >= 12, "{stored}");
    (0..stored).for_each(|chunk| driver.is_there(chunk));
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    let half = stored / 2;
    assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 0, count: half }), Ok(()));
    let write = driver.write(0, 3, CHUNK);
    assert_eq!(driver.ask(write), Ok(()), "what was discarded is free when it is needed");
    (half..stored).for_each(|chunk| driver.is_there(chunk));
}

#[test]
fn a_survey_that_lacks_nothing_waits_for_no_time_to_pass() {
    let mut driver = Driver::new(64);
    assert_eq!(driver.create(14), Ok(()));
    for first in (0..60).step_by(3) {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    for number in 2..60 {
        let snapshot = CatalogChange {
            op: CatalogOp::Snapshot,
            id: RootId(number),
            source: VOLUME,
            codec: Codec::Lz4,
            chunk_shift: 14,
            size_chunks: 0,
            flags: 0,
            name: format!("disk@{number}"),
        };
        assert_eq!(driver.ask(RequestKind::Catalog(snapshot)), Ok(()));
    }
    driver.submit(RequestKind::Survey(SurveyKind::Account));
    let mut steps = 0;
    while !driver.surveyed {
        match driver.events.pop_front() {
            Some(event) => driver.give(event),
            None => {
                assert!(driver.store.goes_on(), "the next step would wait for a tick");
                driver.give(Event::Tick { now_ms: driver.now_ms });
            }
        }
        steps += 1;
    }
    assert!(steps > 1 && !driver.store.goes_on(), "{steps}");
}

#[test]
fn a_stop_ends_although_a_change_waits_for_space() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    for chunk in 0..400 {
        // The same address: all but the last is garbage.
        let write = driver.write(chunk % 3, 1, CHUNK);
        driver.submit(write);
    }
    let asked = driver.answers.len();
    assert!(asked < 400, "some wait");
    driver.give(Event::Stop);
    driver.settle();
    assert!(driver.stopped, "{:?}", driver.store.space());
}

/// Where copies of a volume's first leaf are: what it was written as, again and again.
fn copies_of_the_first_leaf(device: &[u8]) -> Vec<usize> {
    let is_leaf = |at: &usize| device[at + 4..at + 10] == *b"zcSp\0\0";
    let number = |at: &usize| u64::from_le_bytes(*device[at + 16..].first_chunk().unwrap());
    let leaves: Vec<usize> = (128 << 10..device.len()).step_by(4096).filter(is_leaf).collect();
    let first = leaves.iter().map(number).min().unwrap();
    leaves.into_iter().filter(|at| number(at) == first).collect()
}

#[test]
fn a_damaged_map_page_keeps_what_it_refers_to_and_nothing_else() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    for first in [0, 504] {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    driver.give(Event::Stop);
    driver.settle();
    let mut device = driver.device;
    let copies = copies_of_the_first_leaf(&device);
    let sound: Vec<u8> = copies.iter().map(|at| core::mem::replace(&mut device[at + 100], 0xee)).collect();
    let mut driver = Driver::on(device, Driver::config());
    for _ in 0..100 {
        let write = driver.write(504, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()), "what was written over is freed: {:?}", driver.store.stats());
    }
    let dest = BufId(u64::MAX >> 8);
    let read = RequestKind::Read { root: VOLUME, first: 0, count: 1, dest };
    assert!(matches!(driver.ask(read), Err(StoreError::Damaged(_))));
    assert_eq!(driver.store.stats().pages_lost, 1);
    for (at, byte) in copies.iter().zip(sound) {
        driver.device[at + 100] = byte;
    }
    (0..3).for_each(|chunk| driver.is_there(chunk));
    (504..507).for_each(|chunk| driver.is_there(chunk));
    driver.give(Event::Clean);
    driver.settle();
    assert_eq!(driver.store.stats().pages_lost, 0);
}

#[test]
fn what_lies_scattered_is_brought_together_while_no_client_writes() {
    let scattered = |gather| {
        let config = Config { gather, checkpoint_log_bytes: 1 << 20, ..Driver::config() };
        let mut driver = Driver::with(120, config);
        assert_eq!(driver.create(12), Ok(()));
        // Backwards, so that each chunk lies before the one that follows it in the volume.
        for first in (0..60).rev() {
            let write = driver.write(first, 1, 4 << 10);
            assert_eq!(driver.ask(write), Ok(()));
        }
        for _ in 0..4 {
            driver.now_ms += 1000;
            driver.give(Event::Tick { now_ms: driver.now_ms });
            driver.settle();
        }
        let places: Vec<u64> = (0..60).map(|chunk| driver.place_of(chunk)).collect();
        (0..60).for_each(|chunk| driver.is_there(chunk));
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        let (device, roots) = (driver.device, driver.store.roots().count());
        let mut driver = Driver::on(device, Driver::config());
        assert_eq!(driver.store.roots().count(), roots);
        (0..60).for_each(|chunk| driver.is_there(chunk));
        places.windows(2).filter(|pair| pair[0] > pair[1]).count()
    };
    assert_eq!(scattered(false), 59);
    assert!(scattered(true) <= 4);
}

#[test]
fn the_log_frees_segments_and_a_crash_brings_back_nothing_that_was_swept() {
    const CHUNKS: u64 = 300;
    let config = || Config {
        cache_pages: 1000,
        dirty_pages_max: 200,
        checkpoint_log_bytes: 1 << 30,
        ..Driver::config()
    };
    let mut driver = Driver::with(40, config());
    assert_eq!(driver.create(12), Ok(()));
    for write in 0..3000 {
        let write = driver.write(write * 7 % CHUNKS, 1, 4 << 10);
        assert_eq!(driver.ask(write), Ok(()));
    }
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    let before = driver.store.stats();
    assert!(before.segments_freed > 20 * before.checkpoints && before.marks > 3, "{before:?}");
    let mut driver = Driver::on(driver.device, config());
    driver.give(Event::Clean);
    driver.settle();
    let freed = before.chunks_freed + driver.store.stats().chunks_freed;
    assert_eq!(freed, before.chunks_stored - CHUNKS, "each chunk that was written over is freed once");
    (0..CHUNKS).for_each(|chunk| driver.is_there(chunk));
}
