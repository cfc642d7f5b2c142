//! Reads, recipes and holes: from addresses to places, then to the device.
//!
//! Job: find the chunks of a request, have them fetched and checked, or say what they are. Invariants: a read that lacks
//! a page begins anew at the root when it has come, so it never mixes two states of a map; a segment that is being read
//! is pinned. What it does not do: check or decode contents (the driver does, against what the chunk table says).

use zc_core::{BufId, OpId, ReqId};

use crate::ids::{ChunkNo, Place, RootId};
use crate::limits;
use crate::media::batch::Stored;
use crate::seam::{Action, FetchPart, FetchTo, StoreError};
use crate::store::Open;

/// A read that looks for its chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    root: RootId,
    first: u64,
    count: u64,
    want: Want,
    /// When it was last tried, in uses of pages.
    pub(crate) tried_at: u64,
}

/// What is wanted of chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Want {
    Bytes(BufId),
    Prints,
    /// Which of them hold something.
    Runs,
}

/// A read whose chunks are being fetched.
#[derive(Debug)]
pub(crate) struct Fetching {
    req: ReqId,
    chunks: Vec<(ChunkNo, Place)>,
}

impl Open {
    pub(crate) fn submit_read(&mut self, req: ReqId, root: RootId, (first, count): (u64, u64), want: Want) {
        let read = Read { root, first, count, want, tried_at: 0 };
        let most = match want {
            Want::Bytes(_) => u64::from(limits::REQUEST_CHUNKS_MAX),
            Want::Prints => u64::from(limits::RECIPE_CHUNKS_MAX),
            Want::Runs => limits::VOLUME_CHUNKS_MAX,
        };
        if self.reads.len() >= limits::READS_MAX || count > most {
            self.reply(req, Err(StoreError::Limit));
            return;
        }
        self.reads.insert(req, read);
        self.try_read(req);
    }

    /// Looks for all chunks of a read; what is missing is asked for at once.
    pub(crate) fn try_read(&mut self, req: ReqId) {
        let now = self.trees.pager.now();
        let Some(read) = self.reads.get_mut(&req) else { return };
        read.tried_at = now;
        let read = *read;
        let Some(root) = self.trees.root(read.root) else {
            self.end_read(req, Err(StoreError::NoSuchRoot));
            return;
        };
        if read.first.checked_add(read.count).is_none_or(|end| end > root.size_chunks) {
            self.end_read(req, Err(StoreError::Invalid));
            return;
        }
        let chunk_bytes = 1_u32 << root.chunk_shift;
        let dest = match read.want {
            Want::Bytes(dest) => Some(dest),
            Want::Prints => None,
            Want::Runs => return self.try_runs(req, &read),
        };
        let (mut found, mut lacks) = (Vec::new(), None);
        for address in read.first..read.first + read.count {
            match self.find_chunk(read.root, address) {
                Ok(stored) => found.push(stored),
                Err(Lack::Page(missing)) => {
                    lacks = Some(missing.key);
                    if let Err(error) = self.want(missing) {
                        self.end_read(req, Err(error));
                        return;
                    }
                }
                Err(Lack::Chunk) => {
                    self.end_read(req, Err(StoreError::Damaged(Place::default())));
                    return;
                }
            }
        }
        match lacks {
            Some(key) => self.reads_waiting.entry(key).or_default().push(req),
            None => self.found(req, dest, &found, chunk_bytes),
        }
    }

    fn try_runs(&mut self, req: ReqId, read: &Read) {
        match self.trees.runs(read.root, read.first, read.first + read.count) {
            Ok(runs) => {
                self.reads.remove(&req);
                self.out.push(Action::Allocation { req, runs });
            }
            Err(missing) => match self.want(missing) {
                Ok(()) => self.reads_waiting.entry(missing.key).or_default().push(req),
                Err(error) => self.end_read(req, Err(error)),
            },
        }
    }

    fn find_chunk(&mut self, root: RootId, address: u64) -> Result<Option<(ChunkNo, Stored)>, Lack> {
        let number = self.trees.lookup(root, address).map_err(Lack::Page)?;
        if number.0 == 0 {
            return Ok(None);
        }
        // An address never holds a chunk that the table does not know.
        let stored = self.trees.stored(number).map_err(Lack::Page)?.ok_or(Lack::Chunk)?;
        Ok(Some((number, stored)))
    }

    fn found(
        &mut self,
        req: ReqId,
        dest: Option<BufId>,
        found: &[Option<(ChunkNo, Stored)>],
        chunk_bytes: u32,
    ) {
        self.reads.remove(&req);
        let Some(dest) = dest else {
            let prints = found.iter().map(|found| found.and_then(|(_, stored)| stored.print)).collect();
            self.out.push(Action::Recipe { req, prints });
            return;
        };
        let mut parts = Vec::new();
        for (dest_offset_bytes, found) in (0..).step_by(zc_core::usize_from_u32(chunk_bytes)).zip(found) {
            if let Some((number, stored)) = *found {
                let memory = self.log.memory(stored.place);
                parts.push((number, FetchPart { stored, memory, dest_offset_bytes }));
            }
        }
        parts.sort_by_key(|(_, part)| part.stored.place);
        let chunks: Vec<(ChunkNo, Place)> =
            parts.iter().map(|(number, part)| (*number, part.stored.place)).collect();
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        chunks.iter().for_each(|(_, place)| self.trees.segments.pin(place.segment));
        self.next_op += 1;
        let op = OpId(self.next_op);
        self.fetching.insert(op, Fetching { req, chunks });
        self.out.push(Action::Fetch { op, parts, to: FetchTo::Decoded(dest), urgent: true });
    }

    /// Contents came, or not.
    pub(crate) fn fetched(&mut self, op: OpId, results: &[Result<(), zc_core::ErrorKind>]) {
        let Some(Fetching { req, chunks }) = self.fetching.remove(&op) else { return };
        let mut result = Ok(());
        for ((number, place), outcome) in chunks.iter().zip(results) {
            self.trees.segments.unpin(place.segment);
            self.chunk_tried(*number, *place, *outcome);
            if let Err(kind) = outcome {
                self.stats.damaged += 1;
                result = Err(match kind {
                    zc_core::ErrorKind::Corrupt => StoreError::Damaged(*place),
                    other => StoreError::Device(*other),
                });
            }
        }
        self.reply(req, result);
    }

    pub(crate) fn end_read(&mut self, req: ReqId, result: Result<(), StoreError>) {
        if self.reads.remove(&req).is_some() {
            self.reply(req, result);
        }
    }
}

/// What a read lacks.
enum Lack {
    Page(crate::pager::Missing),
    /// An address names a chunk that no record tells of.
    Chunk,
}
