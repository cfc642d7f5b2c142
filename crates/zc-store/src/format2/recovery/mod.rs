//! Recovery: from the superblocks to the state of the last checkpoint, and the batches behind it.
//!
//! Job: find the newest superblock, claim the store, read the tables, follow the log to its end. Invariants: nothing is
//! written before the claim is durable; what is returned is a prefix of the log with every batch that a header proves,
//! or an error. It does not apply the batches: the core does, as changes.

mod follow;

use super::bytes::NodeError;
use super::catalog::{CatalogLeaf, ROOTS};
use super::index::{Blocked, Index};
use super::log::{Log, Slots};
use super::node::{FANOUT, Spot};
use super::seam::{Action, Event, StoreError};
use super::segments::SegmentLeaf;
use super::superblock::{COUNT_MAX, LogPlace, Superblock};
use super::{BLOCK_BYTES, Config, SEGMENTS_MAX, UNIT_BYTES};
pub(super) use follow::FoundBatch;
use follow::{Follow, Followed};
use zc_core::{ErrorKind, Map, OpId};

/// Numbers of segments that a checkpoint reserves for the session. See `FORMAT-2.md`, section 5.5.
pub(super) const RESERVED_SEGMENTS: u64 = 16 << 10;
/// Numbers of batches that no session uses behind the end of another one.
const SEQ_GAP: u64 = 1 << 20;

/// State of the last checkpoint, with a log of the new session.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) superblock: Superblock,
    pub(super) index: Index,
    pub(super) slots: Slots,
    pub(super) log: Log,
    /// Batches to be applied, in order.
    pub(super) batches: Vec<FoundBatch>,
    pub(super) next_op: u64,
}

#[derive(Debug)]
enum Stage {
    /// Both copies are being read.
    Superblocks(Box<[Option<Result<Superblock, NodeError>>; 2]>),
    /// Writes of both copies, each with a flush.
    Claim(u8),
    Segments,
    Catalog,
    Follow(Box<Follow>),
}

/// Store that is being opened.
#[derive(Debug)]
pub(super) struct Recovery {
    config: Config,
    nonce: u64,
    stage: Stage,
    next_op: u64,
    found: Option<(Superblock, Index, Slots)>,
    /// Segments that the session begins with.
    first_segment: u64,
    /// Nodes that are being read.
    reading: Map<OpId, Spot>,
    /// Operation that a stage waits for.
    op: OpId,
}

impl Recovery {
    pub(super) fn begin(config: Config, nonce: u64, out: &mut Vec<Action>) -> Self {
        for copy in 0..2_u8 {
            let op = OpId(u64::from(copy) + 1);
            let offset_bytes = Superblock::offset_bytes(copy);
            out.push(Action::Read { op, offset_bytes, len_bytes: BLOCK_BYTES });
        }
        Self {
            config,
            nonce,
            stage: Stage::Superblocks(Box::new([None, None])),
            next_op: 2,
            found: None,
            first_segment: 0,
            reading: Map::default(),
            op: OpId(0),
        }
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// Handles an event. Returns the recovered state, or the reason why there is none.
    pub(super) fn handle(
        &mut self,
        event: Event,
        out: &mut Vec<Action>,
    ) -> Option<Result<Box<Recovered>, StoreError>> {
        let step = match event {
            Event::Read { op, result } => self.read(op, result, out),
            Event::Done { op, result } if op == self.op => match result {
                Ok(()) => self.claimed(out),
                Err(kind) => Err(StoreError::Device(kind)),
            },
            Event::Submit(request) => {
                let result = Err(StoreError::Device(ErrorKind::Unsupported));
                out.push(Action::Reply { req: request.req, result });
                Ok(None)
            }
            _ => Ok(None),
        };
        step.transpose()
    }

    fn read(
        &mut self,
        op: OpId,
        result: Result<Vec<u8>, ErrorKind>,
        out: &mut Vec<Action>,
    ) -> Result<Option<Box<Recovered>>, StoreError> {
        if let Stage::Superblocks(copies) = &mut self.stage {
            let copy = u8::from(op == OpId(2));
            let decoded = result.map_or(Err(NodeError::Truncated), |bytes| Superblock::decode(&bytes, copy));
            copies[usize::from(copy)] = Some(decoded);
            return self.choose(out).map(|()| None);
        }
        let bytes = result.map_err(StoreError::Device)?;
        if let Some(spot) = self.reading.remove(&op) {
            let Some((_, index, _)) = &mut self.found else { return Ok(None) };
            index.loaded(spot, &bytes);
            if self.reading.is_empty() {
                self.load(out)?;
            }
            return Ok(None);
        }
        let (Stage::Follow(follow), Some((_, _, slots))) = (&mut self.stage, &mut self.found) else {
            return Ok(None);
        };
        match follow.read(&bytes, slots) {
            Followed::More => {
                self.read_log(out);
                Ok(None)
            }
            Followed::Ended { lost: true, .. } if !self.config.accept_loss => Err(StoreError::LogLost),
            Followed::Ended { batches, end, lost, torn } => self.finish(batches, &end, lost, torn).map(Some),
        }
    }

    /// Chooses the newest superblock, and begins the claim.
    fn choose(&mut self, out: &mut Vec<Action>) -> Result<(), StoreError> {
        let Stage::Superblocks(copies) = &self.stage else { return Ok(()) };
        let [Some(a), Some(b)] = &**copies else { return Ok(()) };
        let newest = match (a, b) {
            (Ok(a), Ok(b)) if b.sequence > a.sequence => b,
            (Ok(a), _) => a,
            (_, Ok(b)) => b,
            _ => return Err(StoreError::NoSuperblock),
        };
        let mut superblock = newest.clone();
        superblock.sequence += 1;
        superblock.session += 1;
        superblock.nonce = self.nonce;
        self.first_segment = superblock.segments_end;
        superblock.segments_end += RESERVED_SEGMENTS;
        let is_bounded = superblock.segments_end < SEGMENTS_MAX
            && superblock.session < 1 << 28
            && superblock.sequence < COUNT_MAX;
        if !is_bounded {
            return Err(StoreError::Limit);
        }
        let index = Index::new(&superblock, self.config.cache_bytes);
        let slots = Slots::new(superblock.slots);
        self.found = Some((superblock, index, slots));
        self.stage = Stage::Claim(0);
        self.claim(out);
        Ok(())
    }

    fn claim(&mut self, out: &mut Vec<Action>) {
        let (Stage::Claim(step), Some((superblock, ..))) = (&self.stage, &self.found) else { return };
        self.next_op += 1;
        self.op = OpId(self.next_op);
        if step % 2 == 1 {
            out.push(Action::Flush { op: self.op });
        } else {
            let (copy, offset_bytes) = (step / 2, Superblock::offset_bytes(step / 2));
            let block = superblock.encode(copy);
            out.push(Action::WriteSuperblock { op: self.op, offset_bytes, block });
        }
    }

    fn claimed(&mut self, out: &mut Vec<Action>) -> Result<Option<Box<Recovered>>, StoreError> {
        let Stage::Claim(step) = &mut self.stage else { return Ok(None) };
        *step += 1;
        if *step < 4 {
            self.claim(out);
        } else {
            self.stage = Stage::Segments;
            self.load(out)?;
        }
        Ok(None)
    }

    /// Loads the tables as far as their nodes are in memory.
    fn load(&mut self, out: &mut Vec<Action>) -> Result<(), StoreError> {
        let Some((superblock, index, slots)) = &mut self.found else { return Ok(()) };
        let is_catalog = match self.stage {
            Stage::Segments => false,
            Stage::Catalog => true,
            _ => return Ok(()),
        };
        let leaves = match index.table(is_catalog) {
            Ok(leaves) => leaves,
            Err(Blocked::Damaged(spot)) => return Err(damaged(&spot)),
            Err(Blocked::Missing(spots)) => return self.read_nodes(&spots, out),
        };
        let corrupt = StoreError::Damaged { segment: 0, offset_bytes: 0 };
        for (number, bytes) in leaves {
            if is_catalog {
                let leaf = CatalogLeaf::decode(&bytes).map_err(|_| corrupt)?;
                for (position, root) in leaf.roots() {
                    let first = number.checked_mul(u64::from(ROOTS)).and_then(|id| u32::try_from(id).ok());
                    index.load_root(first.ok_or(corrupt)? + u32::from(position), root.clone());
                }
            } else {
                let leaf = SegmentLeaf::decode(&bytes).map_err(|_| corrupt)?;
                for (position, record) in leaf.segments() {
                    let segment = number.saturating_mul(FANOUT) + u64::from(position);
                    if segment >= self.first_segment || !slots.load(segment, record) {
                        return Err(corrupt);
                    }
                }
            }
        }
        if !is_catalog {
            self.stage = Stage::Catalog;
            return self.load(out);
        }
        let log = superblock.log;
        if slots.slot_of(log.segment).is_none() {
            slots.open(log.segment, log.slot, log.seq);
        }
        self.stage = Stage::Follow(Box::new(Follow::new(superblock)));
        self.read_log(out);
        Ok(())
    }

    fn read_nodes(&mut self, spots: &[Spot], out: &mut Vec<Action>) -> Result<(), StoreError> {
        let Some((superblock, ..)) = &self.found else { return Ok(()) };
        for spot in spots {
            self.next_op += 1;
            out.push(node_read(OpId(self.next_op), superblock, spot).ok_or_else(|| damaged(spot))?);
            self.reading.insert(OpId(self.next_op), *spot);
        }
        Ok(())
    }

    fn read_log(&mut self, out: &mut Vec<Action>) {
        let (Stage::Follow(follow), Some((superblock, ..))) = (&self.stage, &self.found) else { return };
        self.next_op += 1;
        let (slot, offset_units) = follow.wants();
        let offset = offset_units * UNIT_BYTES;
        out.push(Action::Read {
            op: OpId(self.next_op),
            offset_bytes: superblock.slot_offset_bytes(slot) + u64::from(offset),
            len_bytes: superblock.slot_bytes - offset,
        });
    }

    /// The session continues in a segment of its own, with numbers that no batch had.
    fn finish(
        &mut self,
        batches: Vec<FoundBatch>,
        end: &LogPlace,
        lost: bool,
        torn: bool,
    ) -> Result<Box<Recovered>, StoreError> {
        let (mut superblock, index, mut slots) = self.found.take().ok_or(StoreError::NoSuperblock)?;
        superblock.losses = superblock.losses.saturating_add(u32::from(lost));
        superblock.dropped = superblock.dropped.saturating_add(u32::from(torn));
        slots.reserve(end.next_slot);
        let (Some(slot), Some(next_slot)) = (slots.take(), slots.take()) else {
            return Err(StoreError::NoSpace);
        };
        slots.free_again(end.next_slot);
        let seq = (superblock.session << 32).max(end.seq + SEQ_GAP) + 1;
        if seq >= COUNT_MAX {
            return Err(StoreError::Limit);
        }
        let segment = self.first_segment;
        slots.open(segment, slot, seq);
        let at = LogPlace { seq, nonce: self.nonce, segment, slot, offset_units: 0, ordinal: 0, next_slot };
        let log = Log::new(&superblock, at, self.config.batch_bytes_max);
        Ok(Box::new(Recovered { superblock, index, slots, log, batches, next_op: self.next_op }))
    }
}

/// Returns the read of a node, or `None` if its place is not on the device.
pub(super) fn node_read(op: OpId, superblock: &Superblock, spot: &Spot) -> Option<Action> {
    if spot.slot >= superblock.slots || spot.end_units() > superblock.slot_bytes / UNIT_BYTES {
        return None;
    }
    let offset_bytes =
        superblock.slot_offset_bytes(spot.slot) + u64::from(spot.offset_units) * u64::from(UNIT_BYTES);
    Some(Action::Read { op, offset_bytes, len_bytes: spot.bytes })
}

pub(super) fn damaged(spot: &Spot) -> StoreError {
    let offset_bytes = u64::from(spot.offset_units) * u64::from(UNIT_BYTES);
    StoreError::Damaged { segment: spot.segment, offset_bytes }
}
