//! Reads and recipes: from bytes to pieces, side by side, and back to one answer.
//!
//! Invariants: a read is answered when its last piece came, with the first error if there was one. What it does not
//! do: keep order with changes that are in progress; what is answered before a read comes is seen by it.

use std::collections::VecDeque;

use bytes::Bytes;
use zc_core::{BufId, Map, ReqId, u64_from_usize, usize_from_u64};
use zc_store::RootId;
use zc_store::limits::RECIPE_CHUNKS_MAX;
use zc_store::seam::{RequestKind as StoreKind, StoreError};

use crate::base::Base;
use crate::limits::{REQUEST_BYTES_MAX, STORE_READS_MAX};
use crate::ops::{Inner, Piece, Range, Whose};
use crate::seam::Answer;
use crate::split::{Cut, runs};

/// A read in progress.
#[derive(Debug)]
struct Read {
    range: Range,
    /// Bytes before the first in its chunk.
    skip_bytes: u64,
    pieces: Vec<Bytes>,
    left: usize,
    error: Option<StoreError>,
}

/// Reads by the driver's request, pieces by their destination, and those that wait until the store takes more.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    reads: Map<ReqId, Read>,
    dests: Map<BufId, (u32, Bytes)>,
    in_store: usize,
    waiting: VecDeque<Piece>,
}

/// The chunk was read of which a change keeps a part.
#[derive(Debug)]
pub(crate) struct EdgeRead {
    pub(crate) change: u64,
    pub(crate) chunk: u64,
    pub(crate) result: Result<Bytes, StoreError>,
}

impl Reads {
    pub(crate) fn submit(&mut self, req: ReqId, range: Range, base: &mut Base) {
        let Some(shift) = base.shift_of(range.root) else {
            base.refuse(req, range, StoreError::NoSuchRoot);
            return;
        };
        if range.len_bytes == 0 || range.len_bytes > u64::from(REQUEST_BYTES_MAX) || range.end().is_none() {
            base.refuse(req, range, StoreError::Invalid);
            return;
        }
        let chunks = Cut::new(range.offset_bytes, range.len_bytes, shift).chunks();
        let runs: Vec<(u64, u32)> = runs(chunks, base.piece_chunks(shift)).collect();
        let read = Read {
            range,
            skip_bytes: range.offset_bytes % (1 << shift),
            pieces: vec![Bytes::new(); runs.len()],
            left: runs.len(),
            error: None,
        };
        self.reads.insert(req, read);
        for (index, (first, count)) in runs.into_iter().enumerate() {
            let whose = Whose::Read(req, index);
            let piece = Piece { root: range.root, first, count, dest_bytes: count << shift, whose };
            self.read_piece(piece, base);
        }
    }

    /// Asks the store for a piece, at once or when it takes more.
    pub(crate) fn read_piece(&mut self, piece: Piece, base: &mut Base) {
        if self.in_store >= STORE_READS_MAX {
            self.waiting.push_back(piece);
            return;
        }
        self.in_store += 1;
        let Piece { root, first, count, dest_bytes, .. } = piece;
        let dest = base.new_buf();
        self.dests.insert(dest, (dest_bytes, Bytes::new()));
        base.ask_store(Inner::Piece(piece, dest), StoreKind::Read { root, first, count, dest });
    }

    /// How many bytes go into a destination.
    pub(crate) fn dest_bytes(&self, dest: BufId) -> u32 {
        self.dests.get(&dest).map_or(0, |(bytes, _)| *bytes)
    }

    /// The bytes of a destination came.
    pub(crate) fn dest_filled(&mut self, dest: BufId, bytes: Bytes) {
        if let Some((_, filled)) = self.dests.get_mut(&dest) {
            *filled = bytes;
        }
    }

    /// The store answered for a piece. That of a change goes to the change. [`Reads::go_on`] comes next.
    pub(crate) fn piece_ended(
        &mut self,
        piece: &Piece,
        dest: BufId,
        result: Result<(), StoreError>,
        base: &mut Base,
    ) -> Option<EdgeRead> {
        let bytes = self.dests.remove(&dest).map(|(_, bytes)| bytes).unwrap_or_default();
        let result = result.map(|()| bytes);
        match piece.whose {
            Whose::Edge(change) => Some(EdgeRead { change, chunk: piece.first, result }),
            Whose::Read(req, index) => {
                self.piece_came(req, index, result, base);
                None
            }
        }
    }

    /// The store has ended a read or recipe, and takes the next piece.
    pub(crate) fn go_on(&mut self, base: &mut Base) {
        self.in_store -= 1;
        if let Some(next) = self.waiting.pop_front() {
            self.read_piece(next, base);
        }
    }

    fn piece_came(&mut self, req: ReqId, index: usize, result: Result<Bytes, StoreError>, base: &mut Base) {
        let Some(read) = self.reads.get_mut(&req) else { return };
        read.left -= 1;
        match result {
            Ok(bytes) => read.pieces[index] = bytes,
            Err(error) => read.error = read.error.or(Some(error)),
        }
        if read.left > 0 {
            return;
        }
        let Some(read) = self.reads.remove(&req) else { return };
        let Read { range, skip_bytes, pieces, error, .. } = read;
        match error {
            Some(error) => base.refuse(req, range, error),
            None => base.answer(req, Ok(Answer::Bytes(trimmed(pieces, skip_bytes, range.len_bytes)))),
        }
    }

    pub(crate) fn submit_recipe(
        &mut self,
        req: ReqId,
        (root, first, count): (RootId, u64, u32),
        base: &mut Base,
    ) {
        if count > RECIPE_CHUNKS_MAX || self.in_store >= STORE_READS_MAX {
            // A recipe is a hint: one that comes too late does not help.
            base.answer(req, Ok(Answer::Recipe(Vec::new())));
            return;
        }
        self.in_store += 1;
        base.ask_store(Inner::Recipe(req), StoreKind::Recipe { root, first, count });
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
