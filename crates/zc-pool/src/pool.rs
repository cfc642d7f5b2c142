//! The pool: one owner of the store, of buffers and of what is in flight.
//!
//! Job: take inputs to the part that they concern, and the store's actions to the driver. Invariants: an input is
//! handled to its end before the next; a buffer lives from its arrival until the store lets go of it. What it does not
//! do: anything of its own.

use std::collections::VecDeque;

use bytes::Bytes;
use zc_core::{BufId, BufSlice, Codec, ErrorKind, Map, OpId, ReqId, usize_from_u32};
use zc_store::seam::{Encoded, PieceData, RequestKind as StoreKind, StoreError};
use zc_store::{Action, BatchSeq, Config, Event, RootId, Store, Superblock};

use crate::changes::{Brings, Changes, Run};
use crate::fetches::{Fetches, Span};
use crate::job::{Found, Job, Kind};
use crate::limits::PIECE_BYTES_MAX;
use crate::reads::{Piece, Reads};
use crate::seam::{Answer, DeviceOperation, Ended, Request, RequestKind, Work};

/// A pool: opening, open, or neither.
#[derive(Debug)]
pub struct Pool {
    store: Store,
    /// Inputs of the store that wait for their turn.
    pub(crate) events: VecDeque<Event>,
    pub(crate) bufs: Map<BufId, Bytes>,
    /// Of buffers with chunks whose encoding came with them.
    pub(crate) encodings: Map<BufId, (Codec, Bytes)>,
    in_flight: Map<OpId, InFlight>,
    pub(crate) inner: Map<ReqId, Inner>,
    pub(crate) fetches: Fetches,
    pub(crate) reads: Reads,
    pub(crate) changes: Changes,
    /// Changes that took effect, by the batch that has their records. They are answered when that is written.
    held: VecDeque<(BatchSeq, ReqId, Range)>,
    /// Requests that are not answered yet.
    pub(crate) requests: usize,
    stopping: bool,
    stop_told: bool,
    pub(crate) next: u64,
    pub(crate) counters: Counters,
    pub(crate) out: Vec<Work>,
}

/// What a pool counts beside its store, since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Fingerprints of contents that came with their write.
    pub prints_known: u64,
    /// Fingerprints of contents that were computed.
    pub prints_computed: u64,
    /// Chunks whose encoding came with their write, and was stored as it is.
    pub encodings_known: u64,
    /// Chunks that were compressed, or did not get shorter.
    pub encodings_computed: u64,
}

/// An operation that the driver has.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// The store's block.
    Block(OpId),
    /// The store's write or flush.
    Device(OpId),
    Encode {
        op: OpId,
        codec: Codec,
        chunks: Vec<BufSlice>,
    },
    Fetch {
        fetch: OpId,
        span: Span,
    },
    Decode {
        fetch: OpId,
    },
    Examine(Run),
}

/// A request that the store has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inner {
    Piece(Piece, BufId),
    Recipe(ReqId),
    /// A part of a change.
    Change(u64),
    /// The driver's change of the catalog, and the root concerned.
    Catalog(ReqId, RootId),
    /// The driver's, as it came.
    Plain(ReqId),
}

/// Bytes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) root: RootId,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

/// Of requests that concern no volume.
const NOWHERE: Range = Range { root: RootId(0), offset_bytes: 0, len_bytes: 0 };

impl Range {
    pub(crate) const fn end(&self) -> Option<u64> {
        self.offset_bytes.checked_add(self.len_bytes)
    }
}

impl Pool {
    /// Begins to open the pool of a device; [`Work::Opened`] tells how it ended. `nonce` is a random number, another one
    /// at each opening.
    #[must_use]
    pub fn open(config: Config, nonce: u64, out: &mut Vec<Work>) -> Self {
        let mut actions = Vec::new();
        let store = Store::open(config, nonce, &mut actions);
        let mut pool = Self {
            store,
            events: VecDeque::new(),
            bufs: Map::default(),
            encodings: Map::default(),
            in_flight: Map::default(),
            inner: Map::default(),
            fetches: Fetches::default(),
            reads: Reads::default(),
            changes: Changes::default(),
            held: VecDeque::new(),
            requests: 0,
            stopping: false,
            stop_told: false,
            next: 0,
            counters: Counters::default(),
            out: Vec::new(),
        };
        pool.take(actions);
        pool.go_on(out);
        pool
    }

    /// The store: its volumes, counters and space.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// What it counted beside its store.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests that are not answered yet.
    #[must_use]
    pub const fn requests(&self) -> usize {
        self.requests
    }

    /// Takes a request.
    pub fn submit(&mut self, request: Request, out: &mut Vec<Work>) {
        let Request { req, kind } = request;
        self.requests += 1;
        let range = |root, offset_bytes, len_bytes| Range { root, offset_bytes, len_bytes };
        match kind {
            _ if self.stopping => {
                self.refuse(req, NOWHERE, StoreError::Device(ErrorKind::Shutdown));
            }
            RequestKind::Read { root, offset_bytes, len_bytes } => {
                self.submit_read(req, range(root, offset_bytes, u64::from(len_bytes)));
            }
            RequestKind::Write { root, offset_bytes, data, known } => {
                let range = range(root, offset_bytes, zc_core::u64_from_usize(data.len()));
                self.submit_change(req, range, Brings::Bytes(data, known));
            }
            RequestKind::Zero { root, offset_bytes, len_bytes } => {
                self.submit_change(req, range(root, offset_bytes, len_bytes), Brings::Zeros);
            }
            RequestKind::Discard { root, offset_bytes, len_bytes } => {
                self.submit_change(req, range(root, offset_bytes, len_bytes), Brings::Nothing);
            }
            RequestKind::Flush => self.ask_store(Inner::Plain(req), StoreKind::Flush),
            RequestKind::Catalog(change) => {
                self.ask_store(Inner::Catalog(req, change.id), StoreKind::Catalog(change));
            }
            RequestKind::Survey(kind) => {
                self.ask_store(Inner::Plain(req), StoreKind::Survey(kind));
            }
            RequestKind::Recipe { root, first, count } => self.submit_recipe(req, root, first, count),
            RequestKind::Allocation { root, first, count } => {
                self.ask_store(Inner::Plain(req), StoreKind::Allocation { root, first, count });
            }
        }
        self.go_on(out);
    }

    /// Takes the end of an operation.
    ///
    /// # Panics
    /// When the driver reports an operation that it does not have, or an end of another kind.
    pub fn ended(&mut self, op: OpId, ended: Ended, out: &mut Vec<Work>) {
        let in_flight = self.in_flight.remove(&op);
        match (in_flight, ended) {
            (Some(InFlight::Block(op)), Ended::Read(result)) => {
                let block = result
                    .and_then(|bytes| bytes.first_chunk().map(|block| Box::new(*block)).ok_or(ErrorKind::Io));
                self.events.push_back(Event::BlockRead { op, result: block });
            }
            (Some(InFlight::Device(op)), Ended::Device(result)) => {
                self.events.push_back(Event::Done { op, result });
            }
            (Some(InFlight::Fetch { fetch, span }), Ended::Read(result)) => {
                self.span_read(fetch, span, &result);
            }
            (Some(InFlight::Encode { op, codec, chunks }), Ended::Job(outcome)) => {
                let Found::Encoded(encoded, computed) = outcome.0 else { panic!("{op:?} was to encode") };
                self.counters.encodings_computed += computed;
                self.counters.encodings_known += zc_core::u64_from_usize(encoded.len()) - computed;
                self.encoded(op, codec, &chunks, encoded);
            }
            (Some(InFlight::Decode { fetch }), Ended::Job(outcome)) => {
                let Found::Decoded { parts, dest } = outcome.0 else { panic!("{op:?} was to decode") };
                self.decoded(fetch, parts, dest);
            }
            (Some(InFlight::Examine(run)), Ended::Job(outcome)) => {
                let Found::Examined(facts, computed) = outcome.0 else { panic!("{op:?} was to examine") };
                self.examined(run, &facts, computed);
            }
            (in_flight, ended) => panic!("{op:?} is {in_flight:?} and ended as {ended:?}"),
        }
        self.go_on(out);
    }

    /// Time passed: milliseconds since any fixed point, which never go back.
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<Work>) {
        self.events.push_back(Event::Tick { now_ms });
        self.go_on(out);
    }

    /// Cleans now, whatever the thresholds say.
    pub fn clean(&mut self, out: &mut Vec<Work>) {
        self.events.push_back(Event::Clean);
        self.go_on(out);
    }

    /// Finishes what was asked, makes a checkpoint, then [`Work::Stopped`]. Requests from now on are refused.
    pub fn stop(&mut self, out: &mut Vec<Work>) {
        self.stopping = true;
        self.go_on(out);
    }

    /// Lets the store go on until it waits for the driver.
    fn go_on(&mut self, out: &mut Vec<Work>) {
        loop {
            if self.stopping && !self.stop_told && self.requests == 0 {
                self.stop_told = true;
                self.events.push_back(Event::Stop);
            }
            let event = match self.events.pop_front() {
                Some(event) => event,
                None if self.release_held() => Event::WriteOut,
                None => break,
            };
            let mut actions = Vec::new();
            self.store.handle(event, &mut actions);
            self.take(actions);
        }
        out.append(&mut self.out);
    }

    /// A change took effect in the store's memory. It is answered when the device has its records.
    pub(crate) fn hold(&mut self, req: ReqId, range: Range) {
        self.held.push_back((self.store.newest_batch(), req, range));
    }

    /// Answers the changes whose records the device has, or all when it has failed. True if others wait for a batch
    /// that is still open while no batch is being written: what came meanwhile goes with it.
    fn release_held(&mut self) -> bool {
        let (written, failure) = (self.store.written_batch(), self.store.failure());
        while let Some((batch, req, range)) = self.held.front().copied()
            && (batch <= written || failure.is_some())
        {
            self.held.pop_front();
            match failure.filter(|_| batch > written) {
                None => self.answer(req, Ok(Answer::Done)),
                Some(error) => self.refuse(req, range, error),
            }
        }
        !self.held.is_empty() && !self.store.is_writing()
    }

    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply { req, result } => self.replied(req, result),
                Action::Recipe { req, prints } => {
                    if let Some(Inner::Recipe(req)) = self.inner.remove(&req) {
                        self.recipe_ended();
                        self.answer(req, Ok(Answer::Recipe(prints)));
                    }
                }
                Action::Allocation { req, runs } => {
                    if let Some(Inner::Plain(req)) = self.inner.remove(&req) {
                        self.answer(req, Ok(Answer::Allocation(runs)));
                    }
                }
                Action::Surveyed { req, surveyed } => {
                    if let Some(Inner::Plain(req)) = self.inner.remove(&req) {
                        self.answer(req, Ok(Answer::Surveyed(surveyed)));
                    }
                }
                Action::Free { buf } => {
                    let freed = self.bufs.remove(&buf);
                    assert!(freed.is_some(), "{buf:?} is freed and unknown");
                    self.encodings.remove(&buf);
                }
                Action::ReadBlock { op, offset_bytes } => {
                    let operation =
                        DeviceOperation::Read { offset_bytes, len_bytes: zc_store::limits::BLOCK_BYTES };
                    self.device(InFlight::Block(op), operation);
                }
                Action::Fetch { op, parts, to, urgent } => self.fetch(op, &parts, to, urgent),
                Action::Encode { op, codec, chunks } => {
                    let known = |slice: &BufSlice| {
                        let (of, bytes) = self.encodings.get(&slice.buf)?;
                        (of.media_code() == codec.media_code()).then(|| bytes.clone())
                    };
                    let to_encode = chunks.iter().map(|slice| (self.slice(*slice), known(slice))).collect();
                    let job = Job(Kind::Encode { codec, chunks: to_encode });
                    let op = self.begin(InFlight::Encode { op, codec, chunks });
                    self.out.push(Work::Job { op, job, urgent: false });
                }
                Action::WriteBatch { op, offset_bytes, len_bytes, header, pieces } => {
                    let bytes = self.batch(len_bytes, &header[..], pieces);
                    self.device(InFlight::Device(op), DeviceOperation::Write { offset_bytes, bytes });
                }
                Action::WriteSuperblock { op, copy, superblock } => {
                    let bytes = Bytes::copy_from_slice(&superblock.encode(copy)[..]);
                    let offset_bytes = Superblock::offset_bytes(copy);
                    self.device(InFlight::Device(op), DeviceOperation::Write { offset_bytes, bytes });
                }
                Action::FlushDevice { op } => self.device(InFlight::Device(op), DeviceOperation::Flush),
                Action::Opened { result } => self.out.push(Work::Opened { result }),
                Action::Stopped => self.out.push(Work::Stopped),
            }
        }
    }

    /// The bytes of a batch: its header, its pieces, zeros between.
    fn batch(&self, len_bytes: u32, header: &[u8], pieces: Vec<zc_store::seam::Piece>) -> Bytes {
        let mut bytes = vec![0; usize_from_u32(len_bytes)];
        put(&mut bytes, 0, header);
        for piece in pieces {
            let at = usize_from_u32(piece.offset_bytes);
            match piece.data {
                PieceData::Payload(slice) => put(&mut bytes, at, &self.slice(slice)),
                PieceData::Page(page) => put(&mut bytes, at, &page[..]),
            }
        }
        bytes.into()
    }

    fn replied(&mut self, req: ReqId, result: Result<(), StoreError>) {
        match self.inner.remove(&req) {
            Some(Inner::Piece(piece, dest)) => self.piece_ended(&piece, dest, result),
            Some(Inner::Change(change)) => self.store_changed(change, result),
            Some(Inner::Recipe(req)) => {
                self.recipe_ended();
                // A hint that is not to be had.
                self.answer(req, Ok(Answer::Recipe(Vec::new())));
            }
            Some(Inner::Catalog(req, root)) => {
                let range = Range { root, offset_bytes: 0, len_bytes: 0 };
                match result {
                    Ok(()) => self.hold(req, range),
                    Err(error) => self.refuse(req, range, error),
                }
            }
            Some(Inner::Plain(req)) => match result {
                Ok(()) => self.answer(req, Ok(Answer::Done)),
                Err(error) => self.refuse(req, NOWHERE, error),
            },
            None => panic!("{req:?} was answered and is unknown"),
        }
    }

    fn encoded(&mut self, op: OpId, codec: Codec, raw: &[BufSlice], encoded: Vec<(Option<Bytes>, u32)>) {
        let mut chunks = Vec::with_capacity(encoded.len());
        for (raw, (shorter, crc)) in raw.iter().zip(encoded) {
            chunks.push(match shorter {
                None => Encoded { bytes: *raw, codec: Codec::Raw, crc },
                Some(bytes) => {
                    let len_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    let buf = self.new_buf();
                    self.bufs.insert(buf, bytes);
                    Encoded { bytes: BufSlice { buf, start_bytes: 0, len_bytes }, codec, crc }
                }
            });
        }
        self.events.push_back(Event::Encoded { op, chunks });
    }

    fn device(&mut self, in_flight: InFlight, operation: DeviceOperation) {
        let op = self.begin(in_flight);
        self.out.push(Work::Device { op, operation });
    }

    /// A number for an operation of the driver.
    pub(crate) fn begin(&mut self, in_flight: InFlight) -> OpId {
        self.next += 1;
        let op = OpId(self.next);
        self.in_flight.insert(op, in_flight);
        op
    }

    /// A name for a buffer. The store's own names have a bit that these never reach.
    pub(crate) fn new_buf(&mut self) -> BufId {
        self.next += 1;
        BufId(self.next)
    }

    /// The bytes of a slice.
    pub(crate) fn slice(&self, slice: BufSlice) -> Bytes {
        let Some(bytes) = self.bufs.get(&slice.buf) else { panic!("{:?} is used and unknown", slice.buf) };
        let start = usize_from_u32(slice.start_bytes);
        bytes.slice(start..start + usize_from_u32(slice.len_bytes))
    }

    pub(crate) fn segment_bytes(&self) -> u32 {
        self.store.segment_bytes().unwrap_or(zc_store::limits::SEGMENT_BYTES_DEFAULT)
    }

    pub(crate) fn shift_of(&self, root: RootId) -> Option<u8> {
        self.store.root(root).map(|root| root.chunk_shift)
    }

    /// Most chunks of one request to the store: a change and its header must fit a segment.
    pub(crate) fn piece_chunks(&self, shift: u8) -> u32 {
        let bytes = PIECE_BYTES_MAX.min(self.segment_bytes() - zc_store::limits::BLOCK_BYTES);
        (bytes >> shift).clamp(1, zc_store::limits::REQUEST_CHUNKS_MAX)
    }
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}
