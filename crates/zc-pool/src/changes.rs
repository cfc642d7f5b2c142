//! Changes: writes, zeros and discards of bytes become changes of whole chunks.
//!
//! Job: cut a change at the borders of chunks, learn what its chunks are, fill parts of chunks up with what is there, and
//! give it to the store. Invariant: a change begins when all earlier ones that touch one of its chunks have ended; so
//! they take effect in order, and nothing comes between the reading and the writing of a chunk. What it does not do:
//! make anything durable; order changes that do not overlap.

use std::collections::{BTreeMap, VecDeque};
use std::ops;

use bytes::Bytes;
use zc_core::{ReqId, usize_from_u32};
use zc_store::seam::{NewChunk, RequestKind as StoreKind, StoreError};

use crate::base::Base;
use crate::job::{Fact, Job, Kind};
use crate::limits::{REQUEST_BYTES_MAX, STORE_CHANGES_MAX};
use crate::ops::{Chunks, InFlight, Inner, Piece, Range, Whose};
use crate::reads::{EdgeRead, Reads};
use crate::seam::{Answer, KnownChunk};
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
struct Change {
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

impl Changes {
    pub(crate) fn submit(
        &mut self,
        req: ReqId,
        range: Range,
        brings: Brings,
        (reads, base): (&mut Reads, &mut Base),
    ) {
        let Some(shift) = base.shift_of(range.root) else {
            base.refuse(req, range, StoreError::NoSuchRoot);
            return;
        };
        let is_long = matches!(&brings, Brings::Bytes(..)) && range.len_bytes > u64::from(REQUEST_BYTES_MAX);
        if range.end().is_none() || is_long {
            base.refuse(req, range, StoreError::Invalid);
            return;
        }
        if range.len_bytes == 0 {
            base.answer(req, Ok(Answer::Done));
            return;
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        let mut change =
            Change { req, range, shift, brings, waits_for: 0, followers: Vec::new(), left: 0, error: None };
        let chunks = change.chunks();
        for other in self.all.values_mut().filter(|other| other.range.root == range.root) {
            let others = other.chunks();
            if others.start < chunks.end && chunks.start < others.end {
                other.followers.push(arrival);
                change.waits_for += 1;
            }
        }
        let begins = change.waits_for == 0;
        self.all.insert(arrival, change);
        if begins {
            self.begin(arrival, (reads, base));
        }
    }

    fn begin(&mut self, arrival: u64, (reads, base): (&mut Reads, &mut Base)) {
        let Some(change) = self.all.get_mut(&arrival) else { return };
        let (range, shift, brings) = (change.range, change.shift, change.brings.clone());
        let mut cut = Cut::new(range.offset_bytes, range.len_bytes, shift);
        if matches!(brings, Brings::Nothing) {
            (cut.head, cut.tail) = (None, None);
        }
        let edges: Vec<Edge> = [cut.head, cut.tail].into_iter().flatten().collect();
        let run_chunks = match &brings {
            Brings::Bytes(..) => base.piece_chunks(shift),
            Brings::Zeros | Brings::Nothing => u32::MAX,
        };
        let whole: Vec<(u64, u32)> = match &brings {
            Brings::Bytes(..) => runs(cut.whole.clone(), run_chunks).collect(),
            Brings::Zeros | Brings::Nothing => Vec::new(),
        };
        let clears = whole.is_empty() && !cut.whole.is_empty();
        let left = edges.len() + whole.len() + usize::from(clears);
        let Some(change) = self.all.get_mut(&arrival) else { return };
        // One more until all is asked for: what ends meanwhile must not end the change.
        change.left = left + 1;
        for edge in edges {
            let whose = Whose::Edge(arrival);
            let piece =
                Piece { root: range.root, first: edge.chunk, count: 1, dest_bytes: 1 << shift, whose };
            reads.read_piece(piece, base);
        }
        if clears {
            let (first, count) = (cut.whole.start, cut.whole.end - cut.whole.start);
            self.ask(arrival, StoreKind::Discard { root: range.root, first, count }, base);
        }
        if let Brings::Bytes(data, known) = brings {
            for (first, count) in whole {
                let known = |chunk| {
                    let at = known.binary_search_by_key(&chunk, |(number, _)| *number).ok()?;
                    known.get(at).map(|(_, known)| known.clone())
                };
                let numbers = first..first + u64::from(count);
                let chunks = numbers.map(|chunk| {
                    let start = zc_core::usize_from_u64((chunk << shift) - range.offset_bytes);
                    (data.slice(start..start + (1 << shift)), known(chunk).unwrap_or_default())
                });
                self.examine(arrival, first, chunks.collect(), base);
            }
        }
        self.part_ended(arrival, Ok(()), (reads, base));
    }

    /// Has a worker look at whole chunks.
    fn examine(&self, change: u64, first: u64, chunks: Vec<(Bytes, KnownChunk)>, base: &mut Base) {
        let root = self.all.get(&change).map(|change| change.range.root);
        let hash = root.and_then(|root| base.store().root(root)).is_some_and(zc_store::Root::is_deduplicated);
        // What is not to be shared has no fingerprint, also if it is known.
        let print = |known: &KnownChunk| known.print.filter(|_| hash);
        let to_examine = chunks.iter().map(|(bytes, known)| (bytes.clone(), print(known))).collect();
        let chunks = chunks.into_iter().map(|(bytes, known)| (bytes, known.encoding)).collect();
        let job = Job(Kind::Examine { chunks: to_examine, hash });
        base.begin_job(InFlight::Examine(Chunks { change, first, chunks }), job, false);
    }

    /// What the chunks are is known: they go to the store.
    pub(crate) fn examined(&mut self, examined: Chunks, facts: &[Fact], computed: u64, base: &mut Base) {
        let Chunks { change, first, chunks } = examined;
        let prints = facts.iter().filter(|fact| matches!(fact, Fact::Print(Some(_)))).count();
        base.counters.prints_computed += computed;
        base.counters.prints_known += zc_core::u64_from_usize(prints) - computed;
        let Some(root) = self.all.get(&change).map(|change| change.range.root) else { return };
        let mut new = Vec::with_capacity(chunks.len());
        for ((bytes, encoding), fact) in chunks.into_iter().zip(facts) {
            new.push(match fact {
                Fact::Zero => NewChunk::Zero,
                Fact::Print(print) => {
                    let raw = base.keep(bytes);
                    if let Some(encoding) = encoding {
                        base.keep_encoding(raw.buf, encoding);
                    }
                    NewChunk::Data { print: *print, raw }
                }
            });
        }
        self.ask(change, StoreKind::Write { root, first, chunks: new }, base);
    }

    /// Gives the store a part of a change, at once or when it takes more.
    fn ask(&mut self, change: u64, kind: StoreKind, base: &mut Base) {
        if self.in_store >= STORE_CHANGES_MAX {
            self.waiting.push_back((change, kind));
            return;
        }
        self.in_store += 1;
        base.ask_store(Inner::Change(change), kind);
    }

    /// The store carried out, or refused, a part of a change.
    pub(crate) fn store_changed(
        &mut self,
        change: u64,
        result: Result<(), StoreError>,
        (reads, base): (&mut Reads, &mut Base),
    ) {
        self.in_store -= 1;
        if let Some((next, kind)) = self.waiting.pop_front() {
            self.ask(next, kind, base);
        }
        self.part_ended(change, result, (reads, base));
    }

    /// A chunk of which a part stays was read: the rest of it is put in.
    pub(crate) fn edge_read(&mut self, edge: EdgeRead, (reads, base): (&mut Reads, &mut Base)) {
        let EdgeRead { change: arrival, chunk, result } = edge;
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => return self.part_ended(arrival, Err(error), (reads, base)),
        };
        let Some(change) = self.all.get(&arrival) else { return };
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
        self.examine(arrival, chunk, vec![(whole.into(), KnownChunk::default())], base);
    }

    fn part_ended(
        &mut self,
        arrival: u64,
        result: Result<(), StoreError>,
        (reads, base): (&mut Reads, &mut Base),
    ) {
        let Some(change) = self.all.get_mut(&arrival) else { return };
        change.left -= 1;
        if let Err(error) = result {
            change.error.get_or_insert(error);
        }
        if change.left > 0 {
            return;
        }
        let Some(change) = self.all.remove(&arrival) else { return };
        match change.error {
            Some(error) => base.refuse(change.req, change.range, error),
            None => base.answer_when_written(change.req, change.range),
        }
        for follower in change.followers {
            let Some(next) = self.all.get_mut(&follower) else { continue };
            next.waits_for -= 1;
            if next.waits_for == 0 {
                self.begin(follower, (reads, base));
            }
        }
    }
}
