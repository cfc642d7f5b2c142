//! The pool: inputs of the driver and actions of the store go to the part that they concern.
//!
//! Invariant: an input is handled to its end before the next. What it does not do: anything of its own.

use bytes::Bytes;
use zc_core::{BufSlice, Codec, ErrorKind, OpId, ReqId, usize_from_u32};
use zc_store::seam::{Encoded, FetchTo, PieceData, RequestKind as StoreKind, StoreError};
use zc_store::{Action, Config, Event, Store, Superblock};

use crate::base::{Base, Counters};
use crate::changes::{Brings, Changes};
use crate::fetches::Fetches;
use crate::job::{Found, Job, Kind};
use crate::ops::{InFlight, Inner, NOWHERE, Range};
use crate::reads::Reads;
use crate::seam::{Answer, DeviceOperation, Ended, Request, RequestKind, Work};

/// A pool: opening, open, or neither.
#[derive(Debug)]
pub struct Pool {
    base: Base,
    fetches: Fetches,
    reads: Reads,
    changes: Changes,
    stopping: bool,
    /// The store knows of the stop.
    is_stop_asked: bool,
}

impl Pool {
    /// Begins to open the pool of a device; [`Work::Opened`] tells how it ended. `nonce` is a random number, another one
    /// at each opening.
    #[must_use]
    pub fn open(config: Config, nonce: u64, out: &mut Vec<Work>) -> Self {
        let mut actions = Vec::new();
        let store = Store::open(config, nonce, &mut actions);
        let mut pool = Self {
            base: Base::new(store),
            fetches: Fetches::default(),
            reads: Reads::default(),
            changes: Changes::default(),
            stopping: false,
            is_stop_asked: false,
        };
        pool.take(actions);
        pool.go_on(out);
        pool
    }

    /// The store: its volumes, counters and space.
    #[must_use]
    pub const fn store(&self) -> &Store {
        self.base.store()
    }

    /// What it counted beside its store.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.base.counters
    }

    /// Requests that are not answered yet.
    #[must_use]
    pub const fn requests(&self) -> usize {
        self.base.requests()
    }

    /// Takes a request.
    pub fn submit(&mut self, request: Request, out: &mut Vec<Work>) {
        let Request { req, kind } = request;
        self.base.request_came();
        let range = |root, offset_bytes, len_bytes| Range { root, offset_bytes, len_bytes };
        match kind {
            _ if self.stopping => {
                self.base.refuse(req, NOWHERE, StoreError::Device(ErrorKind::Shutdown));
            }
            RequestKind::Read { root, offset_bytes, len_bytes } => {
                self.reads.submit(req, range(root, offset_bytes, u64::from(len_bytes)), &mut self.base);
            }
            RequestKind::Write { root, offset_bytes, data, known } => {
                let range = range(root, offset_bytes, zc_core::u64_from_usize(data.len()));
                self.change(req, range, Brings::Bytes(data, known));
            }
            RequestKind::Zero { root, offset_bytes, len_bytes } => {
                self.change(req, range(root, offset_bytes, len_bytes), Brings::Zeros);
            }
            RequestKind::Discard { root, offset_bytes, len_bytes } => {
                self.change(req, range(root, offset_bytes, len_bytes), Brings::Nothing);
            }
            RequestKind::Flush => self.base.ask_store(Inner::Plain(req), StoreKind::Flush),
            RequestKind::Sync => self.base.ask_store(Inner::Plain(req), StoreKind::Sync),
            RequestKind::Catalog(change) => {
                self.base.ask_store(Inner::Catalog(req, change.id), StoreKind::Catalog(change));
            }
            RequestKind::Survey(kind) => {
                self.base.ask_store(Inner::Plain(req), StoreKind::Survey(kind));
            }
            RequestKind::Recipe { root, first, count } => {
                self.reads.submit_recipe(req, (root, first, count), &mut self.base);
            }
            RequestKind::Allocation { root, first, count } => {
                self.base.ask_store(Inner::Plain(req), StoreKind::Allocation { root, first, count });
            }
        }
        self.go_on(out);
    }

    fn change(&mut self, req: ReqId, range: Range, brings: Brings) {
        self.changes.submit(req, range, brings, (&mut self.reads, &mut self.base));
    }

    /// Takes the end of an operation.
    ///
    /// # Panics
    /// When the driver reports an operation that it does not have, or an end of another kind.
    pub fn ended(&mut self, op: OpId, ended: Ended, out: &mut Vec<Work>) {
        let in_flight = self.base.take_in_flight(op);
        match (in_flight, ended) {
            (Some(InFlight::Block(op)), Ended::Read(result)) => {
                let block = result
                    .and_then(|bytes| bytes.first_chunk().map(|block| Box::new(*block)).ok_or(ErrorKind::Io));
                self.base.push(Event::BlockRead { op, result: block });
            }
            (Some(InFlight::Device(op)), Ended::Device(result)) => {
                self.base.push(Event::Done { op, result });
            }
            (Some(InFlight::Fetch { fetch, span }), Ended::Read(result)) => {
                self.fetches.span_read(fetch, span, &result, &mut self.base);
            }
            (Some(InFlight::Encode { op, codec, chunks }), Ended::Job(outcome)) => {
                let Found::Encoded(encoded, computed) = outcome.0 else { panic!("{op:?} was to encode") };
                self.base.counters.encodings_computed += computed;
                self.base.counters.encodings_known += zc_core::u64_from_usize(encoded.len()) - computed;
                self.encoded(op, codec, &chunks, encoded);
            }
            (Some(InFlight::Decode { fetch }), Ended::Job(outcome)) => {
                let Found::Decoded { parts, dest } = outcome.0 else { panic!("{op:?} was to decode") };
                if let Some((dest, bytes)) = self.fetches.decoded(fetch, parts, dest, &mut self.base) {
                    self.reads.dest_filled(dest, bytes);
                }
            }
            (Some(InFlight::Examine(chunks)), Ended::Job(outcome)) => {
                let Found::Examined(facts, computed) = outcome.0 else { panic!("{op:?} was to examine") };
                self.changes.examined(chunks, &facts, computed, &mut self.base);
            }
            (in_flight, ended) => panic!("{op:?} is {in_flight:?} and ended as {ended:?}"),
        }
        self.go_on(out);
    }

    /// Time passed: milliseconds since any fixed point, which never go back.
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<Work>) {
        self.base.push(Event::Tick { now_ms });
        self.go_on(out);
    }

    /// Cleans now, whatever the thresholds say.
    pub fn clean(&mut self, out: &mut Vec<Work>) {
        self.base.push(Event::Clean);
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
            if self.stopping && !self.is_stop_asked && self.base.requests() == 0 {
                self.is_stop_asked = true;
                self.base.push(Event::Stop);
            }
            let Some(actions) = self.base.turn() else { break };
            self.take(actions);
        }
        self.base.take_out(out);
    }

    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply { req, result } => self.replied(req, result),
                Action::Recipe { req, prints } => {
                    if let Some(Inner::Recipe(req)) = self.base.take_inner(req) {
                        self.reads.go_on(&mut self.base);
                        self.base.answer(req, Ok(Answer::Recipe(prints)));
                    }
                }
                Action::Allocation { req, runs } => {
                    if let Some(Inner::Plain(req)) = self.base.take_inner(req) {
                        self.base.answer(req, Ok(Answer::Allocation(runs)));
                    }
                }
                Action::Surveyed { req, surveyed } => {
                    if let Some(Inner::Plain(req)) = self.base.take_inner(req) {
                        self.base.answer(req, Ok(Answer::Surveyed(surveyed)));
                    }
                }
                Action::Free { buf } => {
                    self.base.free(buf);
                }
                Action::ReadBlock { op, offset_bytes } => {
                    let operation =
                        DeviceOperation::Read { offset_bytes, len_bytes: zc_store::limits::BLOCK_BYTES };
                    self.base.begin_device(InFlight::Block(op), operation);
                }
                Action::Fetch { op, parts, to, urgent } => {
                    let dest_bytes = match to {
                        FetchTo::Decoded(dest) => Some(self.reads.dest_bytes(dest)),
                        FetchTo::Stored(_) | FetchTo::Nowhere => None,
                    };
                    self.fetches.begin(op, &parts, (to, dest_bytes), urgent, &mut self.base);
                }
                Action::Encode { op, codec, chunks } => self.encode(op, codec, chunks),
                Action::WriteBatch { op, offset_bytes, len_bytes, header, pieces } => {
                    let bytes = self.batch(len_bytes, &header[..], pieces);
                    self.base
                        .begin_device(InFlight::Device(op), DeviceOperation::Write { offset_bytes, bytes });
                }
                Action::WriteSuperblock { op, copy, superblock } => {
                    let bytes = Bytes::copy_from_slice(&superblock.encode(copy)[..]);
                    let offset_bytes = Superblock::offset_bytes(copy);
                    self.base
                        .begin_device(InFlight::Device(op), DeviceOperation::Write { offset_bytes, bytes });
                }
                Action::Discard { op, offset_bytes, len_bytes } => {
                    let operation = DeviceOperation::Discard { offset_bytes, len_bytes };
                    self.base.begin_device(InFlight::Device(op), operation);
                }
                Action::FlushDevice { op } => {
                    self.base.begin_device(InFlight::Device(op), DeviceOperation::Flush);
                }
                Action::Opened { result } => self.base.put_out(Work::Opened { result }),
                Action::Stopped => self.base.put_out(Work::Stopped),
            }
        }
    }

    fn encode(&mut self, op: OpId, codec: Codec, chunks: Vec<BufSlice>) {
        let with_known =
            |slice: &BufSlice| (self.base.slice(*slice), self.base.encoding_of(slice.buf, codec));
        let job = Job(Kind::Encode { codec, chunks: chunks.iter().map(with_known).collect() });
        self.base.begin_job(InFlight::Encode { op, codec, chunks }, job, false);
    }

    /// The bytes of a batch: its header, its pieces, zeros between.
    fn batch(&self, len_bytes: u32, header: &[u8], pieces: Vec<zc_store::seam::Piece>) -> Bytes {
        let mut bytes = vec![0; usize_from_u32(len_bytes)];
        put(&mut bytes, 0, header);
        for piece in pieces {
            let at = usize_from_u32(piece.offset_bytes);
            match piece.data {
                PieceData::Payload(slice) => put(&mut bytes, at, &self.base.slice(slice)),
                PieceData::Page(page) => put(&mut bytes, at, &page[..]),
            }
        }
        bytes.into()
    }

    fn replied(&mut self, req: ReqId, result: Result<(), StoreError>) {
        match self.base.take_inner(req) {
            Some(Inner::Piece(piece, dest)) => {
                if let Some(edge) = self.reads.piece_ended(&piece, dest, result, &mut self.base) {
                    self.changes.edge_read(edge, (&mut self.reads, &mut self.base));
                }
                self.reads.go_on(&mut self.base);
            }
            Some(Inner::Change(change)) => {
                self.changes.store_changed(change, result, (&mut self.reads, &mut self.base));
            }
            Some(Inner::Recipe(req)) => {
                self.reads.go_on(&mut self.base);
                // A hint that is not to be had.
                self.base.answer(req, Ok(Answer::Recipe(Vec::new())));
            }
            Some(Inner::Catalog(req, root)) => {
                let range = Range { root, offset_bytes: 0, len_bytes: 0 };
                match result {
                    Ok(()) => self.base.answer_when_written(req, range),
                    Err(error) => self.base.refuse(req, range, error),
                }
            }
            Some(Inner::Plain(req)) => match result {
                Ok(()) => self.base.answer(req, Ok(Answer::Done)),
                Err(error) => self.base.refuse(req, NOWHERE, error),
            },
            None => panic!("{req:?} was answered and is unknown"),
        }
    }

    fn encoded(&mut self, op: OpId, codec: Codec, raw: &[BufSlice], encoded: Vec<(Option<Bytes>, u32)>) {
        let mut chunks = Vec::with_capacity(encoded.len());
        for (raw, (shorter, crc)) in raw.iter().zip(encoded) {
            chunks.push(match shorter {
                None => Encoded { bytes: *raw, codec: Codec::Raw, crc },
                Some(bytes) => Encoded { bytes: self.base.keep(bytes), codec, crc },
            });
        }
        self.base.push(Event::Encoded { op, chunks });
    }
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}
