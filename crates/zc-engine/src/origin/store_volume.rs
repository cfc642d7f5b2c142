//! A volume or snapshot of a store as an origin.
//!
//! Job: turn requests to an origin into requests to its store, and bring the answers back to the shard
//! ([`super::answers`]).
//!
//! # Identity
//! Volume table and state directory keep the same fields as for a file. In place of the inode stands a number that
//! follows from the store's identity, its accepted losses and the volume's number in it. In place of the time of the
//! last change stands the count of its changes. After a store was closed in order, an equal count proves that the volume
//! was not changed since. A snapshot leaves the count of its volume as it is; a rollback raises it.
//!
//! Invariants: an answer comes once, after the memory of its request was given back. A request with FUA is answered when
//! it is durable. Out of scope: ordering requests (the cache manager does), and retries.

use std::sync::Arc;

use zc_config::StoreOrigin;
use zc_core::{Codec, Mode};
use zc_io::{FileKind, Identity, Target};
use zc_origin::OriginRequest;
use zc_pool::{Answer, KnownChunk, PoolError, RequestKind, VolumeName};
use zc_pool_io::{OpenPool, PoolClient};
use zc_store::seam::{Run, StoreError};
use zc_store::{CatalogChange, CatalogOp, FLAG_DEDUP, Root, RootId, RootKind, limits};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::origin::answers::{Asker, OriginFailure, OriginOutcome};
use crate::origin::map::{MapAsker, OriginRun};
use crate::origin::requests::{gathered, objection, zero_beyond};

/// Binary logarithm of the chunk of volumes that are made here: the extent of the cache.
const CHUNK_SHIFT: u8 = 13;
/// Marks a number in place of an inode as no inode's.
const NO_INODE: u64 = 1 << 63;
/// Odd: the numbers of a store that went back a few times share no bits with each other.
const LOSS_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// An open volume or snapshot.
#[derive(Debug)]
pub struct StoreVolume {
    /// Keeps the store open.
    pool: Arc<OpenPool>,
    root: RootId,
    name: String,
    /// Follows from the store's identity, and from how often it went back because its device had lost something.
    store: u64,
    chunk_shift: u8,
    len_bytes: u64,
    is_writable: bool,
}

impl StoreVolume {
    /// Returns the volume or snapshot of this name, if present. Blocks.
    pub(crate) fn find(
        pool: Arc<OpenPool>,
        origin: &StoreOrigin,
        mode: Mode,
    ) -> Result<Option<Self>, EngineError> {
        let Some((id, root)) = pool.client().find(&origin.volume) else { return Ok(None) };
        if root.kind == RootKind::Snapshot && mode != Mode::ReadOnly {
            let StoreOrigin { store, volume } = origin.clone();
            return Err(EngineError::refused(Refusal::Snapshot { store, volume }));
        }
        Self::new(pool, origin, id, &root, mode).map(Some)
    }

    /// Creates a volume of at least this size. Blocks.
    pub(crate) fn create(
        pool: Arc<OpenPool>,
        origin: &StoreOrigin,
        len_bytes: u64,
    ) -> Result<Self, EngineError> {
        let refuse = |why: String| {
            let StoreOrigin { store, volume } = origin.clone();
            EngineError::refused(Refusal::StoreVolume { store, volume, why })
        };
        let name = VolumeName::parse(&origin.volume).map_err(|error| refuse(error.to_string()))?;
        if name.snapshot().is_some() {
            return Err(refuse("it has the name of a snapshot".to_owned()));
        }
        let roots = pool.client().roots();
        let is_free = |id: &RootId| roots.iter().all(|(taken, _)| taken != id);
        let id = (0..limits::ROOTS_MAX).map(RootId).find(is_free);
        let id = id.ok_or_else(|| refuse("the store has as many volumes as it can".to_owned()))?;
        let change = CatalogChange {
            op: CatalogOp::Create,
            id,
            source: id,
            codec: Codec::Lz4,
            chunk_shift: CHUNK_SHIFT,
            size_chunks: len_bytes.div_ceil(1 << CHUNK_SHIFT),
            flags: FLAG_DEDUP,
            name: origin.volume.clone(),
        };
        let made = pool.client().ask(RequestKind::Catalog(change));
        made.and_then(|_| pool.client().ask(RequestKind::Sync)).map_err(|error| refuse(error.to_string()))?;
        let root = pool.client().root(id).ok_or_else(|| refuse("it is gone again".to_owned()))?;
        Self::new(pool, origin, id, &root, Mode::WriteThrough)
    }

    fn new(
        pool: Arc<OpenPool>,
        origin: &StoreOrigin,
        id: RootId,
        root: &Root,
        mode: Mode,
    ) -> Result<Self, EngineError> {
        let name = format!("store:{}/{}", origin.store, origin.volume);
        let (Some(uuid), Some(losses)) = (pool.client().uuid(), pool.client().losses()) else {
            return Err(EngineError::refused(Refusal::StoreEnded { volume: name }));
        };
        let [a, b, c, d, e, f, g, h, ..] = uuid;
        let since = u64::from(losses).wrapping_mul(LOSS_STEP);
        let store = u64::from_le_bytes([a, b, c, d, e, f, g, h]).wrapping_add(since);
        Ok(Self {
            pool,
            root: id,
            name,
            store,
            chunk_shift: root.chunk_shift,
            len_bytes: root.size_chunks << root.chunk_shift,
            is_writable: mode != Mode::ReadOnly,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns `true` if clients may write to the volume.
    pub(crate) const fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Extends the range of valid requests to this length.
    pub(crate) fn take_up_length(&mut self, len_bytes: u64) {
        self.len_bytes = self.len_bytes.max(len_bytes);
    }

    fn client(&self) -> &PoolClient {
        self.pool.client()
    }

    fn now(&self) -> Result<Root, EngineError> {
        let root = self.client().root(self.root);
        root.ok_or_else(|| EngineError::refused(Refusal::StoreEnded { volume: self.name.clone() }))
    }

    /// See [`Origin::dropped_commits`](super::Origin::dropped_commits).
    pub(crate) fn dropped_commits(&self) -> u32 {
        self.client().dropped_commits()
    }

    /// Returns the identity described in the module documentation. Blocks.
    pub(crate) fn identity(&self) -> Result<Identity, EngineError> {
        let root = self.now()?;
        Ok(Identity {
            kind: FileKind::Regular,
            dev: 0,
            inode: NO_INODE | (self.store << 16) >> 1 | u64::from(self.root.0),
            len_bytes: root.size_chunks << root.chunk_shift,
            mtime_ns: i128::from(root.changes),
        })
    }

    /// Length now; first makes the volume at least as long as asked for. Blocks.
    pub(crate) fn measure(&self, at_least_bytes: Option<u64>) -> Result<u64, EngineError> {
        let root = self.now()?;
        let len_bytes = root.size_chunks << root.chunk_shift;
        let Some(wanted) = at_least_bytes.filter(|wanted| *wanted > len_bytes) else { return Ok(len_bytes) };
        if !wanted.is_multiple_of(1 << root.chunk_shift) {
            let (volume, chunk_bytes) = (self.name.clone(), 1_u64 << root.chunk_shift);
            return Err(EngineError::refused(Refusal::NoWholeChunks { volume, bytes: wanted, chunk_bytes }));
        }
        let change = CatalogChange {
            op: CatalogOp::Grow,
            id: self.root,
            source: self.root,
            codec: root.codec,
            chunk_shift: root.chunk_shift,
            size_chunks: wanted >> root.chunk_shift,
            flags: root.flags,
            name: String::new(),
        };
        let grown = self.client().ask(RequestKind::Catalog(change));
        grown
            .map_err(|error| EngineError::refused(Refusal::NotGrown { volume: self.name.clone(), error }))?;
        self.sync_blocking()?;
        Ok(wanted)
    }

    /// Makes writes durable. Blocks.
    pub(crate) fn sync_blocking(&self) -> Result<(), EngineError> {
        let flushed = self.client().ask(RequestKind::Sync);
        flushed
            .map(|_| ())
            .map_err(|error| EngineError::refused(Refusal::NotFlushed { volume: self.name.clone(), error }))
    }

    /// Converts known fingerprints and compressed contents of extents to those of chunks. Returns none if extents are not
    /// chunks of the store.
    fn known_chunks(
        &self,
        offset_bytes: u64,
        known: Vec<(u32, KnownChunk)>,
        extent_bytes: u32,
    ) -> Vec<(u64, KnownChunk)> {
        if u64::from(extent_bytes) != 1 << self.chunk_shift {
            return Vec::new();
        }
        let chunk = |at: u32| (offset_bytes + u64::from(at)) >> self.chunk_shift;
        known.into_iter().map(|(at, known)| (chunk(at), known)).collect()
    }

    /// Begins a request. `known`: fingerprints and compressed contents of whole extents that it writes, by their offset
    /// in bytes from its first byte.
    pub(crate) fn begin(
        &self,
        request: OriginRequest,
        known: Vec<(u32, KnownChunk)>,
        extent_bytes: u32,
        asker: Asker,
    ) {
        let (offset, len) = request.extent();
        if let Some(kind) = objection(&request, self.len_bytes, self.is_writable) {
            // The memory of a read is released before its reply.
            drop(request);
            let error = PoolError { error: StoreError::Device(kind), root: self.root, offset_bytes: offset };
            return asker.done(Err(OriginFailure::Store(error)));
        }
        let root = self.root;
        match request {
            OriginRequest::Read { target, .. } => self.read(offset, target, asker),
            OriginRequest::Write { segments, fua, .. } => {
                let known = self.known_chunks(offset, known, extent_bytes);
                let kind =
                    RequestKind::Write { root, offset_bytes: offset, data: gathered(&segments), known };
                drop(segments);
                self.change(kind, fua, asker);
            }
            OriginRequest::Flush => {
                self.client().submit(RequestKind::Flush, |answer| {
                    asker.done(answer.map(|_| ()).map_err(OriginFailure::Store));
                });
            }
            OriginRequest::Trim { fua, .. } => {
                self.change(RequestKind::Discard { root, offset_bytes: offset, len_bytes: len }, fua, asker);
            }
            OriginRequest::WriteZeroes { fua, .. } => {
                self.change(RequestKind::Zero { root, offset_bytes: offset, len_bytes: len }, fua, asker);
            }
        }
    }

    /// Requests the fingerprints of extents, which have to be chunks of the store.
    pub(crate) fn recipe(&self, first: u64, count: u32, extent_bytes: u32, asker: Asker) {
        let is_chunk = u64::from(extent_bytes) == 1 << self.chunk_shift;
        let last = (self.len_bytes >> self.chunk_shift).saturating_sub(first);
        let inside = u32::try_from(last).unwrap_or(u32::MAX);
        let count = count.min(limits::RECIPE_CHUNKS_MAX).min(inside);
        if !is_chunk || count == 0 {
            return asker.answer(OriginOutcome::Recipe(Vec::new()));
        }
        self.client().submit(RequestKind::Recipe { root: self.root, first, count }, |answer| {
            let prints = if let Ok(Answer::Recipe(prints)) = answer { prints } else { Vec::new() };
            asker.answer(OriginOutcome::Recipe(prints));
        });
    }

    /// Requests the holes of a range. Without an answer of the store, the whole range counts as data.
    pub(crate) fn map(&self, start: u64, end: u64, asker: MapAsker) {
        let shift = self.chunk_shift;
        let first = start >> shift;
        let count = end.min(self.len_bytes).div_ceil(1 << shift).saturating_sub(first);
        let kind = RequestKind::Allocation { root: self.root, first, count };
        self.client().submit(kind, move |answer| {
            let runs = match answer {
                Ok(Answer::Allocation(runs)) => runs_of(&runs, shift, start, end),
                _ => vec![OriginRun::of(end - start, false)],
            };
            asker.answer(runs, Vec::new());
        });
    }

    /// Reads bytes; those beyond the volume's end are zero.
    fn read(&self, offset: u64, mut target: Target, asker: Asker) {
        let inside = zero_beyond(&mut target, offset, self.len_bytes);
        let len_bytes = u32::try_from(inside).unwrap_or(u32::MAX);
        if len_bytes == 0 {
            drop(target);
            return asker.done(Ok(()));
        }
        let kind = RequestKind::Read { root: self.root, offset_bytes: offset, len_bytes };
        self.client().submit(kind, move |answer| {
            let result = answer.map(|answer| {
                let Answer::Bytes(pieces) = answer else { unreachable!("a read is answered with bytes") };
                let mut rest = target.bytes_mut();
                for piece in pieces {
                    let (part, behind) = rest.split_at_mut(piece.len());
                    part.copy_from_slice(&piece);
                    rest = behind;
                }
            });
            drop(target);
            asker.done(result.map_err(OriginFailure::Store));
        });
    }

    /// A change; with `durable` a flush follows it.
    fn change(&self, kind: RequestKind, durable: bool, asker: Asker) {
        let client = self.client().clone();
        self.client().submit(kind, move |answer| match answer {
            Ok(_) if durable => {
                client.submit(RequestKind::Flush, |answer| {
                    asker.done(answer.map(|_| ()).map_err(OriginFailure::Store));
                });
            }
            answer => asker.done(answer.map(|_| ()).map_err(OriginFailure::Store)),
        });
    }
}

/// Runs of chunks, of which the first may begin before `start`, as runs of the bytes from there to `end`.
fn runs_of(runs: &[Run], shift: u8, start: u64, end: u64) -> Vec<OriginRun> {
    let mut at = start >> shift << shift;
    let mut bytes = Vec::with_capacity(runs.len());
    for run in runs {
        let (from, to) = (at.max(start), (at + (run.chunks << shift)).min(end));
        if from < to {
            bytes.push(OriginRun::of(to - from, run.is_hole));
        }
        at += run.chunks << shift;
    }
    if bytes.is_empty() {
        bytes.push(OriginRun::of(end - start, false));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::map::Allocation;

    #[test]
    fn runs_of_chunks_are_cut_at_the_bytes_that_were_asked_for() {
        let run = |chunks, is_hole| Run { chunks, is_hole };
        let cut = |runs: &[Run], start, end| -> Vec<(u64, bool)> {
            runs_of(runs, 13, start, end)
                .iter()
                .map(|run| (run.len_bytes, run.allocation == Allocation::Hole))
                .collect()
        };
        let runs = [run(2, true), run(1, false), run(9, true)];
        assert_eq!(cut(&runs, 8192, 40_960), [(16_384, true), (8192, false), (8192, true)]);
        assert_eq!(cut(&runs, 8704, 16_384), [(7680, true)]);
        assert_eq!(cut(&runs[..1], 8704, 1 << 20), [(15_872, true)], "an answer may end early");
        assert_eq!(cut(&[], 512, 1024), [(512, false)], "what is not known is data");
    }
}
