//! Changes: writes, zeros and discards of bytes become changes of whole chunks.
//!
//! Job: cut a change at the borders of chunks, learn what its chunks are, fill parts of chunks up with what is there, and
//! give it to the store. Invariant: a change begins when all earlier ones that touch one of its chunks have ended; so
//! they take effect in order, and nothing comes between the reading and the writing of a chunk. What it does not do:
//! make anything durable; order changes that do not overlap.

use std::collections::{BTreeMap, VecDeque};
use std::ops;

use bytes::Bytes;
use zc_core::{BufSlice, Codec, ReqId, usize_from_u32};
use zc_store::seam::{NewChunk, RequestKind as StoreKind, StoreError};

use crate::job::{Fact, Job, Kind};
use crate::limits::{REQUEST_BYTES_MAX, STORE_CHANGES_MAX};
use crate::pool::{InFlight, Inner, Pool, Range};
use crate::reads::{Piece, Whose};
use crate::seam::{Answer, KnownChunk, Work};
use crate::split::{Cut, Edge, runs};

/// What bytes a change brings.
#[derive(Debug, Clone)]
pub(crate) enum Brings {
    Bytes(Bytes, Vec<(u64, KnownChunk)>),
    Zeros,
    /// Parts of chunks stay as they are.
    Nothing,
}

/// A change.
#[derive(Debug)]
pub(crate) struct Change {
    req: ReqId,
    range: Range,
    shift: u8,
    brings: Brings,
    /// Earlier changes in its way, and later ones in whose way it is.
    waits_for: usize,
    followers: Vec<u64>,
    /// What the store has yet to answer.
    left: usize,
    error: Option<StoreError>,
}

/// Whole chunks on their way to the store.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) change: u64,
    pub(crate) first: u64,
    pub(crate) chunks: Vec<(Bytes, Option<(Codec, Bytes)>)>,
}

/// Changes by arrival, and what waits until the store takes more.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    all: BTreeMap<u64, Change>,
    arrivals: u64,
    in_store: usize,
    waiting: VecDeque<(u64, StoreKind)>,
}

impl Change {
    fn chunks(&self) -> ops::Range<u64> {
        Cut::new(self.range.offset_bytes, self.range.len_bytes, self.shift).chunks()
    }
}

impl Pool {
    pub(crate) fn submit_change(&mut self, req: ReqId, range: Range, brings: Brings) {
        let Some(shift) = self.shift_of(range.root) else {
            self.refuse(req, range, StoreError::NoSuchRoot);
            return;
        };
        let is_long = matches!(&brings, Brings::Bytes(..)) && range.len_bytes > u64::from(REQUEST_BYTES_MAX);
        if range.end().is_none() || is_long {
            self.refuse(req, range, StoreError::Invalid);
            return;
        }
        if range.len_bytes == 0 {
            self.answer(req, Ok(Answer::Done));
            return;
        }
        self.changes.arrivals += 1;
        let arrival = self.changes.arrivals;
        let mut change =
            Change { req, range, shift, brings, waits_for: 0, followers: Vec::new(), left: 0, error: None };
        let chunks = change.chunks();
        for other in self.changes.all.values_mut().filter(|other| other.range.root == range.root) {
            let others = other.chunks();
            if others.start < chunks.end && chunks.start < others.end {
                other.followers.push(arrival);
                change.waits_for += 1;
            }
        }
        let begins = change.waits_for == 0;
        self.changes.all.insert(arrival, change);
        if begins {
            self.begin_change(arrival);
        }
    }

    fn begin_change(&mut self, arrival: u64) {
        let Some(change) = self.changes.all.get_mut(&arrival) else { return };
        let (range, shift, brings) = (change.range, change.shift, change.brings.clone());
        let mut cut = Cut::new(range.offset_bytes, range.len_bytes, shift);
        if matches!(brings, Brings::Nothing) {
            (cut.head, cut.tail) = (None, None);
        }
        let edges: Vec<Edge> = [cut.head, cut.tail].into_iter().flatten().collect();
        let run_chunks = match &brings {
            Brings::Bytes(..) => self.piece_chunks(shift),
            Brings::Zeros | Brings::Nothing => u32::MAX,
        };
        let whole: Vec<(u64, u32)> = match &brings {
            Brings::Bytes(..) => runs(cut.whole.clone(), run_chunks).collect(),
            Brings::Zeros | Brings::Nothing => Vec::new(),
        };
        let clears = whole.is_empty() && !cut.whole.is_empty();
        let left = edges.len() + whole.len() + usize::from(clears);
        let Some(change) = self.changes.all.get_mut(&arrival) else { return };
        // One more until all is asked for: what ends meanwhile must not end the change.
        change.left = left + 1;
        for edge in edges {
            let whose = Whose::Edge(arrival);
            let piece =
                Piece { root: range.root, first: edge.chunk, count: 1, dest_bytes: 1 << shift, whose };
            self.read_piece(piece);
        }
        if clears {
            let (first, count) = (cut.whole.start, cut.whole.end - cut.whole.start);
            self.change_store(arrival, StoreKind::Discard { root: range.root, first, count });
        }
        if let Brings::Bytes(data, known) = brings {
            for (first, count) in whole {
                self.examine(arrival, (range.offset_bytes, shift), &data, (first, count), |chunk| {
                    let at = known.binary_search_by_key(&chunk, |(number, _)| *number).ok()?;
                    known.get(at).map(|(_, known)| known.clone())
                });
            }
        }
        self.part_ended(arrival, Ok(()));
    }

    /// Has a worker look at whole chunks.
    fn examine(
        &mut self,
        change: u64,
        (offset_bytes, shift): (u64, u8),
        data: &Bytes,
        (first, count): (u64, u32),
        known: impl Fn(u64) -> Option<KnownChunk>,
    ) {
        let numbers = first..first + u64::from(count);
        let chunks = numbers.map(|chunk| {
            let start = zc_core::usize_from_u64((chunk << shift) - offset_bytes);
            (data.slice(start..start + (1 << shift)), known(chunk).unwrap_or_default())
        });
        self.examine_chunks(change, first, chunks.collect());
    }

    fn examine_chunks(&mut self, change: u64, first: u64, chunks: Vec<(Bytes, KnownChunk)>) {
        let root = self.changes.all.get(&change).map(|change| change.range.root);
        let hash = root.and_then(|root| self.store().root(root)).is_some_and(zc_store::Root::is_deduplicated);
        // What is not to be shared has no fingerprint, also if it is known.
        let print = |known: &KnownChunk| known.print.filter(|_| hash);
        let to_examine = chunks.iter().map(|(bytes, known)| (bytes.clone(), print(known))).collect();
        let chunks = chunks.into_iter().map(|(bytes, known)| (bytes, known.encoding)).collect();
        let op = self.begin(InFlight::Examine(Run { change, first, chunks }));
        let job = Job(Kind::Examine { chunks: to_examine, hash });
        self.out.push(Work::Job { op, job, urgent: false });
    }

    /// What the chunks are is known: they go to the store.
    pub(crate) fn examined(&mut self, run: Run, facts: &[Fact], computed: u64) {
        let Run { change, first, chunks } = run;
        let prints = facts.iter().filter(|fact| matches!(fact, Fact::Print(Some(_)))).count();
        self.counters.prints_computed += computed;
        self.counters.prints_known += zc_core::u64_from_usize(prints) - computed;
        let Some(root) = self.changes.all.get(&change).map(|change| change.range.root) else { return };
        let mut new = Vec::with_capacity(chunks.len());
        for ((bytes, encoding), fact) in chunks.into_iter().zip(facts) {
            new.push(match fact {
                Fact::Zero => NewChunk::Zero,
                Fact::Print(print) => {
                    let len_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    let buf = self.new_buf();
                    self.bufs.insert(buf, bytes);
                    self.encodings.extend(encoding.map(|encoding| (buf, encoding)));
                    NewChunk::Data { print: *print, raw: BufSlice { buf, start_bytes: 0, len_bytes } }
                }
            });
        }
        self.change_store(change, StoreKind::Write { root, first, chunks: new });
    }

    fn change_store(&mut self, change: u64, kind: StoreKind) {
        if self.changes.in_store >= STORE_CHANGES_MAX {
            self.changes.waiting.push_back((change, kind));
            return;
        }
        self.changes.in_store += 1;
        self.ask_store(Inner::Change(change), kind);
    }

    /// The store carried out, or refused, a part of a change.
    pub(crate) fn store_changed(&mut self, change: u64, result: Result<(), StoreError>) {
        self.changes.in_store -= 1;
        if let Some((next, kind)) = self.changes.waiting.pop_front() {
            self.change_store(next, kind);
        }
        self.part_ended(change, result);
    }

    /// A chunk of which a part stays was read: the rest of it is put in.
    pub(crate) fn edge_read(&mut self, arrival: u64, chunk: u64, result: Result<Bytes, StoreError>) {
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => return self.part_ended(arrival, Err(error)),
        };
        let Some(change) = self.changes.all.get(&arrival) else { return };
        let (range, shift) = (change.range, change.shift);
        let cut = Cut::new(range.offset_bytes, range.len_bytes, shift);
        let edge = [cut.head, cut.tail].into_iter().flatten().find(|edge| edge.chunk == chunk);
        let Some(edge) = edge else { return };
        let mut whole = bytes.to_vec();
        let start = usize_from_u32(edge.start_bytes);
        let part = &mut whole[start..start + usize_from_u32(edge.len_bytes)];
        match &change.brings {
            Brings::Bytes(data, _) => {
                let at = (chunk << shift) + u64::from(edge.start_bytes) - range.offset_bytes;
                let at = zc_core::usize_from_u64(at);
                part.copy_from_slice(&data[at..at + part.len()]);
            }
            Brings::Zeros | Brings::Nothing => part.fill(0),
        }
        self.examine_chunks(arrival, chunk, vec![(whole.into(), KnownChunk::default())]);
    }

    fn part_ended(&mut self, arrival: u64, result: Result<(), StoreError>) {
        let Some(change) = self.changes.all.get_mut(&arrival) else { return };
        change.left -= 1;
        if let Err(error) = result {
            change.error.get_or_insert(error);
        }
        if change.left > 0 {
            return;
        }
        let Some(change) = self.changes.all.remove(&arrival) else { return };
        match change.error {
            Some(error) => self.refuse(change.req, change.range, error),
            None => self.hold(change.req, change.range),
        }
        for follower in change.followers {
            let Some(next) = self.changes.all.get_mut(&follower) else { continue };
            next.waits_for -= 1;
            if next.waits_for == 0 {
                self.begin_change(follower);
            }
        }
    }
}
