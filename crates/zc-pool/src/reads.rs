//! Reads and recipes: from bytes to pieces, side by side, and back to one answer.
//!
//! Invariants: a read is answered when its last piece came, with the first error if there was one. What it does not
//! do: keep order with changes that are in progress; what is answered before a read comes is seen by it.

use std::collections::VecDeque;

use bytes::Bytes;
use zc_core::{BufId, Map, ReqId, u64_from_usize, usize_from_u64};
use zc_store::limits::RECIPE_CHUNKS_MAX;
use zc_store::seam::{RequestKind as StoreKind, StoreError};
use zc_store::{Event, RootId};

use crate::limits::{REQUEST_BYTES_MAX, STORE_READS_MAX};
use crate::pool::{Inner, Pool, Range};
use crate::seam::{Answer, PoolError, Work};
use crate::split::{Cut, runs};

/// A read in progress.
#[derive(Debug)]
pub(crate) struct Read {
    range: Range,
    /// Bytes before the first in its chunk.
    skip_bytes: u64,
    pieces: Vec<Bytes>,
    left: usize,
    error: Option<StoreError>,
}

/// A piece that the store has or gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) root: RootId,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) dest_bytes: u32,
    pub(crate) whose: Whose,
}

/// Whose a piece is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose {
    /// Of a client's read: which of its pieces.
    Read(ReqId, usize),
    /// A chunk of which a change keeps a part.
    Edge(u64),
}

/// Reads by the driver's request, pieces by their destination, and those that wait until the store takes more.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) reads: Map<ReqId, Read>,
    dests: Map<BufId, (u32, Bytes)>,
    in_store: usize,
    waiting: VecDeque<Piece>,
}

impl Pool {
    pub(crate) fn submit_read(&mut self, req: ReqId, range: Range) {
        let Some(shift) = self.shift_of(range.root) else {
            self.refuse(req, range, StoreError::NoSuchRoot);
            return;
        };
        if range.len_bytes == 0 || range.len_bytes > u64::from(REQUEST_BYTES_MAX) || range.end().is_none() {
            self.refuse(req, range, StoreError::Invalid);
            return;
        }
        let chunks = Cut::new(range.offset_bytes, range.len_bytes, shift).chunks();
        let runs: Vec<(u64, u32)> = runs(chunks, self.piece_chunks(shift)).collect();
        let read = Read {
            range,
            skip_bytes: range.offset_bytes % (1 << shift),
            pieces: vec![Bytes::new(); runs.len()],
            left: runs.len(),
            error: None,
        };
        self.reads.reads.insert(req, read);
        for (index, (first, count)) in runs.into_iter().enumerate() {
            let whose = Whose::Read(req, index);
            self.read_piece(Piece { root: range.root, first, count, dest_bytes: count << shift, whose });
        }
    }

    pub(crate) fn read_piece(&mut self, piece: Piece) {
        if self.reads.in_store >= STORE_READS_MAX {
            self.reads.waiting.push_back(piece);
            return;
        }
        self.reads.in_store += 1;
        let Piece { root, first, count, dest_bytes, .. } = piece;
        let dest = self.new_buf();
        self.reads.dests.insert(dest, (dest_bytes, Bytes::new()));
        self.ask_store(Inner::Piece(piece, dest), StoreKind::Read { root, first, count, dest });
    }

    pub(crate) fn dest_bytes(&self, dest: BufId) -> u32 {
        self.reads.dests.get(&dest).map_or(0, |(bytes, _)| *bytes)
    }

    pub(crate) fn dest_filled(&mut self, dest: BufId, bytes: Bytes) {
        if let Some((_, filled)) = self.reads.dests.get_mut(&dest) {
            *filled = bytes;
        }
    }

    pub(crate) fn piece_ended(&mut self, piece: &Piece, dest: BufId, result: Result<(), StoreError>) {
        self.reads.in_store -= 1;
        let bytes = self.reads.dests.remove(&dest).map(|(_, bytes)| bytes).unwrap_or_default();
        let result = result.map(|()| bytes);
        match piece.whose {
            Whose::Edge(change) => self.edge_read(change, piece.first, result),
            Whose::Read(req, index) => self.read_got(req, index, result),
        }
        if let Some(next) = self.reads.waiting.pop_front() {
            self.read_piece(next);
        }
    }

    fn read_got(&mut self, req: ReqId, index: usize, result: Result<Bytes, StoreError>) {
        let Some(read) = self.reads.reads.get_mut(&req) else { return };
        read.left -= 1;
        match result {
            Ok(bytes) => read.pieces[index] = bytes,
            Err(error) => read.error = read.error.or(Some(error)),
        }
        if read.left > 0 {
            return;
        }
        let Some(read) = self.reads.reads.remove(&req) else { return };
        let Read { range, skip_bytes, pieces, error, .. } = read;
        match error {
            Some(error) => self.refuse(req, range, error),
            None => self.answer(req, Ok(Answer::Bytes(trimmed(pieces, skip_bytes, range.len_bytes)))),
        }
    }

    pub(crate) fn submit_recipe(&mut self, req: ReqId, root: RootId, first: u64, count: u32) {
        if count > RECIPE_CHUNKS_MAX || self.reads.in_store >= STORE_READS_MAX {
            // A recipe is a hint: one that comes too late does not help.
            self.answer(req, Ok(Answer::Recipe(Vec::new())));
            return;
        }
        self.reads.in_store += 1;
        self.ask_store(Inner::Recipe(req), StoreKind::Recipe { root, first, count });
    }

    pub(crate) fn recipe_ended(&mut self) {
        self.reads.in_store -= 1;
        if let Some(next) = self.reads.waiting.pop_front() {
            self.read_piece(next);
        }
    }

    pub(crate) fn answer(&mut self, req: ReqId, result: Result<Answer, PoolError>) {
        self.requests -= 1;
        self.out.push(Work::Answer { req, result });
    }

    pub(crate) fn refuse(&mut self, req: ReqId, range: Range, error: StoreError) {
        let Range { root, offset_bytes, .. } = range;
        self.answer(req, Err(PoolError { error, root, offset_bytes }));
    }

    /// Hands the store a request.
    pub(crate) fn ask_store(&mut self, inner: Inner, kind: StoreKind) {
        self.next += 1;
        let req = ReqId(self.next);
        self.inner.insert(req, inner);
        self.events.push_back(Event::Submit(zc_store::seam::Request { req, kind }));
    }
}

/// The pieces without `skip_bytes` before the first byte, and without what is behind the last.
fn trimmed(pieces: Vec<Bytes>, skip_bytes: u64, len_bytes: u64) -> Vec<Bytes> {
    let (mut skip, mut left) = (usize_from_u64(skip_bytes), usize_from_u64(len_bytes));
    let mut kept = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let start = skip.min(piece.len());
        let end = (start + left).min(piece.len());
        skip -= start;
        left -= end - start;
        kept.push(piece.slice(start..end));
    }
    debug_assert_eq!(
        left,
        0,
        "the pieces of a read are as long as asked for ({} too few)",
        u64_from_usize(left)
    );
    kept
}
