//! What all parts of a pool use: the store, buffers, operations in flight, and answers.
//!
//! Job: hand the store its inputs, give operations and buffers their numbers, keep buffers while the store names them,
//! and answer requests. A change that took effect is answered when the device has its records.
//!
//! Invariants: a buffer lives from its arrival until the store lets go of it; each request is answered once. What it
//! does not do: decide what an input or an action is for (`pool` does).

use std::collections::VecDeque;

use bytes::Bytes;
use zc_core::{BufId, BufSlice, Codec, Map, OpId, ReqId, usize_from_u32};
use zc_store::seam::{RequestKind as StoreKind, StoreError};
use zc_store::{Action, BatchSeq, Event, RootId, Store};

use crate::job::Job;
use crate::limits::PIECE_BYTES_MAX;
use crate::ops::{InFlight, Inner, Range};
use crate::seam::{Answer, DeviceOperation, PoolError, Work};

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

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Base {
    store: Store,
    /// Inputs of the store that wait for their turn.
    events: VecDeque<Event>,
    bufs: Map<BufId, Bytes>,
    /// Of buffers with chunks whose encoding came with them.
    encodings: Map<BufId, (Codec, Bytes)>,
    in_flight: Map<OpId, InFlight>,
    inner: Map<ReqId, Inner>,
    /// Changes that took effect, by the batch that has their records.
    unwritten: VecDeque<(BatchSeq, ReqId, Range)>,
    /// Requests that are not answered yet.
    requests: usize,
    numbers: u64,
    out: Vec<Work>,
    pub(crate) counters: Counters,
}

impl Base {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            events: VecDeque::new(),
            bufs: Map::default(),
            encodings: Map::default(),
            in_flight: Map::default(),
            inner: Map::default(),
            unwritten: VecDeque::new(),
            requests: 0,
            numbers: 0,
            out: Vec::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
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

/// The store's turns.
impl Base {
    /// An input of the store comes up.
    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Hands the store a request.
    pub(crate) fn ask_store(&mut self, inner: Inner, kind: StoreKind) {
        let req = ReqId(self.number());
        self.inner.insert(req, inner);
        self.push(Event::Submit(zc_store::seam::Request { req, kind }));
    }

    /// A request of the store has ended: what it was for.
    pub(crate) fn take_inner(&mut self, req: ReqId) -> Option<Inner> {
        self.inner.remove(&req)
    }

    /// Lets the store handle its next input; none when it waits for the driver.
    pub(crate) fn turn(&mut self) -> Option<Vec<Action>> {
        let event = match self.events.pop_front() {
            Some(event) => event,
            None if self.answer_written() => Event::WriteOut,
            None => return None,
        };
        let mut actions = Vec::new();
        self.store.handle(event, &mut actions);
        Some(actions)
    }
}

/// Requests of the driver.
impl Base {
    /// Requests that are not answered yet.
    pub(crate) const fn requests(&self) -> usize {
        self.requests
    }

    /// A request came.
    pub(crate) const fn request_came(&mut self) {
        self.requests += 1;
    }

    /// A change took effect in the store's memory. It is answered when the device has its records.
    pub(crate) fn answer_when_written(&mut self, req: ReqId, range: Range) {
        self.unwritten.push_back((self.store.newest_batch(), req, range));
    }

    /// Answers the changes whose records the device has, or all when it has failed. True if others wait for a batch
    /// that is still open while no batch is being written: what came meanwhile goes with it.
    fn answer_written(&mut self) -> bool {
        let (written, failure) = (self.store.written_batch(), self.store.failure());
        while let Some((batch, req, range)) = self.unwritten.front().copied()
            && (batch <= written || failure.is_some())
        {
            self.unwritten.pop_front();
            match failure.filter(|_| batch > written) {
                None => self.answer(req, Ok(Answer::Done)),
                Some(error) => self.refuse(req, range, error),
            }
        }
        !self.unwritten.is_empty() && !self.store.is_writing()
    }

    pub(crate) fn answer(&mut self, req: ReqId, result: Result<Answer, PoolError>) {
        self.requests -= 1;
        self.put_out(Work::Answer { req, result });
    }

    pub(crate) fn refuse(&mut self, req: ReqId, range: Range, error: StoreError) {
        let Range { root, offset_bytes, .. } = range;
        self.answer(req, Err(PoolError { error, root, offset_bytes }));
    }
}

/// Work of the driver.
impl Base {
    pub(crate) fn put_out(&mut self, work: Work) {
        self.out.push(work);
    }

    /// Moves the work that came up behind `out`.
    pub(crate) fn take_out(&mut self, out: &mut Vec<Work>) {
        out.append(&mut self.out);
    }

    pub(crate) fn begin_device(&mut self, in_flight: InFlight, operation: DeviceOperation) {
        let op = self.begin(in_flight);
        self.put_out(Work::Device { op, operation });
    }

    /// `urgent`: a client waits.
    pub(crate) fn begin_job(&mut self, in_flight: InFlight, job: Job, urgent: bool) {
        let op = self.begin(in_flight);
        self.put_out(Work::Job { op, job, urgent });
    }

    /// An operation of the driver has ended: which.
    pub(crate) fn take_in_flight(&mut self, op: OpId) -> Option<InFlight> {
        self.in_flight.remove(&op)
    }

    fn begin(&mut self, in_flight: InFlight) -> OpId {
        let op = OpId(self.number());
        self.in_flight.insert(op, in_flight);
        op
    }

    const fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// Buffers.
impl Base {
    /// A name for a buffer. The store's own names have a bit that these never reach.
    pub(crate) const fn new_buf(&mut self) -> BufId {
        BufId(self.number())
    }

    /// Keeps bytes under a name that the store gave.
    pub(crate) fn keep_as(&mut self, buf: BufId, bytes: Bytes) {
        self.bufs.insert(buf, bytes);
    }

    /// Keeps bytes until the store lets go of them.
    pub(crate) fn keep(&mut self, bytes: Bytes) -> BufSlice {
        let buf = self.new_buf();
        let len_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.keep_as(buf, bytes);
        BufSlice { buf, start_bytes: 0, len_bytes }
    }

    /// The encoding of a chunk that is kept.
    pub(crate) fn keep_encoding(&mut self, buf: BufId, encoding: (Codec, Bytes)) {
        self.encodings.insert(buf, encoding);
    }

    /// The encoding that came with a chunk, if it is of this codec.
    pub(crate) fn encoding_of(&self, buf: BufId, codec: Codec) -> Option<Bytes> {
        let (of, bytes) = self.encodings.get(&buf)?;
        (of.media_code() == codec.media_code()).then(|| bytes.clone())
    }

    /// The store lets go of a buffer.
    ///
    /// # Panics
    /// When there is none of that name.
    pub(crate) fn free(&mut self, buf: BufId) {
        let freed = self.bufs.remove(&buf);
        assert!(freed.is_some(), "{buf:?} is freed and unknown");
        self.encodings.remove(&buf);
    }

    /// The bytes of a slice.
    ///
    /// # Panics
    /// When its buffer is not kept.
    pub(crate) fn slice(&self, slice: BufSlice) -> Bytes {
        let Some(bytes) = self.bufs.get(&slice.buf) else { panic!("{:?} is used and unknown", slice.buf) };
        let start = usize_from_u32(slice.start_bytes);
        bytes.slice(start..start + usize_from_u32(slice.len_bytes))
    }
}
