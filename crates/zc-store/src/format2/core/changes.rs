//! Changes: the path of a write, a clear, an order mark and a change of the catalog.
//!
//! Job: encode contents while a change waits, apply changes in the order of their arrival, and answer each when its
//! batch is written. Invariants: the effect in memory, the records and the place among the answers are one step; all
//! records of a change are in one batch.

use super::Open;
use crate::format2::batch::{Record, StoredFrame};
use crate::format2::catalog::{CatalogChange, OrderMark, RootKind};
use crate::format2::index::Blocked;
use crate::format2::leaf::{Cell, Stored};
use crate::format2::log::LogFull;
use crate::format2::seam::{Action, NewBlock, Payload, REQUEST_BLOCKS_MAX, RequestKind, StoreError};
use zc_core::{OpId, ReqId, u64_from_usize};

/// Slots that only checkpoints use, beside those that they are computed to need.
const RESERVED_SLOTS: u64 = 4;

/// Change that waits.
#[derive(Debug)]
pub(super) struct Change {
    req: ReqId,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Write(Write),
    Clear { root: u32, first: u64, count: u64 },
    Mark { root: u32, mark: OrderMark },
    Catalog(CatalogChange),
    Flush,
}

/// Write whose new contents are compressed while it waits.
#[derive(Debug)]
struct Write {
    root: u32,
    first: u64,
    blocks: Vec<NewBlock>,
    /// Blocks of each frame, as positions in `blocks`.
    groups: Vec<Vec<usize>>,
    /// Payloads of the frames, once they are compressed.
    payloads: Option<Vec<Payload>>,
}

/// Reasons why the first change has to wait or fails.
pub(super) enum Stop {
    Wait,
    Fail(StoreError),
    Blocked(Blocked),
}

impl From<Blocked> for Stop {
    fn from(blocked: Blocked) -> Self {
        Self::Blocked(blocked)
    }
}

impl From<LogFull> for Stop {
    fn from(full: LogFull) -> Self {
        Self::Fail(StoreError::from(full))
    }
}

impl Change {
    /// A flush that came behind changes.
    pub(super) const fn flush(req: ReqId) -> Self {
        Self { req, work: Work::Flush }
    }
}

impl Open {
    pub(super) fn submit_change(&mut self, req: ReqId, kind: RequestKind) {
        let work = match kind {
            RequestKind::Write { root, first, blocks } => {
                Work::Write(Write { root, first, blocks, groups: Vec::new(), payloads: None })
            }
            RequestKind::Clear { root, first, count } => Work::Clear { root, first, count },
            RequestKind::Mark { root, mark } => Work::Mark { root, mark },
            RequestKind::Catalog(change) => Work::Catalog(change),
            RequestKind::Flush | RequestKind::Read { .. } => return,
        };
        let mut change = Change { req, work };
        if let Some(error) = self.failed {
            return self.end_change(&change, Err(error));
        }
        if let Work::Write(write) = &mut change.work
            && let Err(error) = self.begin_write(req, write)
        {
            return self.end_change(&change, Err(error));
        }
        self.changes.push_back(change);
    }

    fn volume_size(&self, root: u32) -> Result<u64, StoreError> {
        let root = self.index.root(root).ok_or(StoreError::NoSuchRoot)?;
        if root.kind == RootKind::Volume { Ok(root.size_blocks) } else { Err(StoreError::Invalid) }
    }

    fn check_range(&self, root: u32, first: u64, count: u64) -> Result<(), StoreError> {
        let size = self.volume_size(root)?;
        let is_inside = first.checked_add(count).is_some_and(|end| end <= size);
        if count > 0 && is_inside { Ok(()) } else { Err(StoreError::Invalid) }
    }

    /// Checks a write, and has the blocks compressed that are not stored yet. A volume that is created before it in the
    /// queue is checked when the write is applied.
    fn begin_write(&mut self, req: ReqId, write: &mut Write) -> Result<(), StoreError> {
        let count = u64_from_usize(write.blocks.len());
        if count == 0 || count > u64::from(REQUEST_BLOCKS_MAX) {
            return Err(StoreError::Invalid);
        }
        if self.changes.is_empty() {
            self.check_range(write.root, write.first, count)?;
        }
        self.encode_new(req, write);
        Ok(())
    }

    /// Has the blocks compressed that no stored block equals. Returns `true` if there are any.
    fn encode_new(&mut self, req: ReqId, write: &mut Write) -> bool {
        let root = self.index.root(write.root);
        let (is_shared, frame_blocks) =
            root.map_or((false, 1), |root| (root.is_deduplicated(), root.frame_blocks));
        let codec = root.map_or(zc_core::Codec::Raw, |root| root.codec);
        let is_new = |block: &NewBlock| match block {
            NewBlock::Zero => false,
            NewBlock::Data { .. } => !is_shared || self.known(block).is_none(),
        };
        let new: Vec<usize> =
            write.blocks.iter().enumerate().filter(|(_, block)| is_new(block)).map(|(at, _)| at).collect();
        write.groups = new.chunks(usize::from(frame_blocks)).map(<[usize]>::to_vec).collect();
        if write.groups.is_empty() {
            write.payloads = Some(Vec::new());
            return false;
        }
        write.payloads = None;
        let raw = |at: &usize| match write.blocks[*at] {
            NewBlock::Data { raw, .. } => Some(raw),
            NewBlock::Zero => None,
        };
        let frames = write.groups.iter().map(|group| group.iter().filter_map(raw).collect()).collect();
        self.next_op += 1;
        let op = OpId(self.next_op);
        self.out.push(Action::Encode { op, codec, frames });
        self.encoding.insert(op, req);
        true
    }

    pub(super) fn encoded(&mut self, op: OpId, frames: Vec<Payload>) {
        let Some(req) = self.encoding.remove(&op) else { return };
        let change = self.changes.iter_mut().find(|change| change.req == req);
        if let Some(Change { work: Work::Write(write), .. }) = change {
            write.payloads = Some(frames);
        } else {
            // The change failed in the meantime.
            self.out.extend(frames.iter().map(|payload| Action::Free { buf: payload.bytes.buf }));
        }
    }

    /// Applies the changes that are ready, in order.
    pub(super) fn pump_changes(&mut self) {
        while self.is_opened && self.failed.is_none() && !self.is_preparing() {
            let Some(mut change) = self.changes.pop_front() else { return };
            match self.apply_change(change.req, &mut change.work) {
                Ok(()) => {
                    self.applied_changes += 1;
                    if matches!(change.work, Work::Flush) {
                        self.close_batch();
                        self.flushes.want(self.log.last_closed(), Some(change.req));
                        continue;
                    }
                    let open = self.log.last_closed() + u64::from(!self.log.is_empty());
                    self.free_raw(&change);
                    if open > self.log.written() {
                        self.answers.entry(open).or_default().push(change.req);
                    } else {
                        self.reply(change.req, Ok(()));
                    }
                }
                Err(Stop::Wait) => return self.changes.push_front(change),
                Err(Stop::Blocked(blocked)) => {
                    self.changes.push_front(change);
                    return self.blocked(blocked);
                }
                Err(Stop::Fail(StoreError::NoSpace)) if self.clean_for_space() => {
                    self.changes.push_front(change);
                    return;
                }
                Err(Stop::Fail(error)) => self.end_change(&change, Err(error)),
            }
            self.pump_checkpoint();
        }
    }

    /// Answers a change that has no effect, and releases its buffers.
    pub(super) fn end_change(&mut self, change: &Change, result: Result<(), StoreError>) {
        self.free_raw(change);
        if let Work::Write(Write { payloads: Some(payloads), .. }) = &change.work {
            self.out.extend(payloads.iter().map(|payload| Action::Free { buf: payload.bytes.buf }));
        }
        self.reply(change.req, result);
    }

    fn free_raw(&mut self, change: &Change) {
        let Work::Write(write) = &change.work else { return };
        let bufs = write.blocks.iter().filter_map(|block| match block {
            NewBlock::Data { raw, .. } => Some(raw.buf),
            NewBlock::Zero => None,
        });
        let bufs: std::collections::BTreeSet<_> = bufs.collect();
        self.out.extend(bufs.into_iter().map(|buf| Action::Free { buf }));
    }

    fn apply_change(&mut self, req: ReqId, work: &mut Work) -> Result<(), Stop> {
        match work {
            Work::Flush => Ok(()),
            Work::Write(write) => self.apply_write(req, write),
            Work::Clear { root, first, count } => {
                self.check_range(*root, *first, *count).map_err(Stop::Fail)?;
                self.open_head(40)?;
                self.index.clear(*root, *first, *count)?;
                self.log.put_head(Record::Clear(*root, *first, *count), 40);
                Ok(())
            }
            Work::Mark { root, mark } => {
                self.volume_size(*root).map_err(Stop::Fail)?;
                self.has_space()?;
                if !self.log.has_room(&[], 1) {
                    self.make_room()?;
                }
                self.index.apply_mark(*root, *mark);
                self.log.put_mark(Record::Mark(mark.cache, *root, mark.run));
                Ok(())
            }
            Work::Catalog(change) => {
                self.index.check_catalog(change).map_err(|refused| Stop::Fail(refused.into()))?;
                let bytes = change.encode();
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.open_head(len)?;
                self.apply_catalog(change)?;
                self.restart_mark();
                self.log.put_head(Record::Catalog(bytes), len);
                Ok(())
            }
        }
    }

    /// Closes the open batch and continues in the next segment, if the present one has no room for a batch.
    pub(super) fn make_room(&mut self) -> Result<(), LogFull> {
        self.close_batch();
        if self.log.has_room(&[], 1) { Ok(()) } else { self.log.next_segment(&mut self.slots) }
    }

    /// Has a batch open that takes a record which comes before entries of maps.
    fn open_head(&mut self, bytes: u32) -> Result<(), Stop> {
        self.has_space()?;
        if self.log.takes_head(bytes) {
            return Ok(());
        }
        self.close_batch();
        if !self.log.takes_head(bytes) {
            self.log.next_segment(&mut self.slots)?;
        }
        Ok(())
    }

    /// Refuses a change that would take slots which a checkpoint needs.
    pub(super) fn has_space(&self) -> Result<(), Stop> {
        let slot = u64::from(self.superblock.slot_bytes);
        let reserved = (2 * self.index.checkpoint_bytes()).div_ceil(slot) + RESERVED_SLOTS;
        if u64_from_usize(self.slots.free_slots()) > reserved {
            Ok(())
        } else {
            Err(Stop::Fail(StoreError::NoSpace))
        }
    }

    fn apply_write(&mut self, req: ReqId, write: &mut Write) -> Result<(), Stop> {
        self.check_range(write.root, write.first, u64_from_usize(write.blocks.len())).map_err(Stop::Fail)?;
        self.has_space()?;
        let Some(payloads) = &write.payloads else { return Err(Stop::Wait) };
        let mut cells: Vec<Option<Cell>> = write.blocks.iter().map(|block| self.known(block)).collect();
        let mut frames = Vec::new();
        for (group, payload) in write.groups.iter().zip(payloads) {
            group.iter().for_each(|at| cells[*at] = None);
            frames.push((stored_frame(&write.blocks, group, payload), *payload, group));
        }
        let is_new = |at: usize| write.groups.iter().flatten().any(|new| *new == at);
        if (0..cells.len()).any(|at| cells[at].is_none() && !is_new(at)) {
            // A block that was to be shared is known no more: all are compressed again.
            self.out.extend(payloads.iter().map(|payload| Action::Free { buf: payload.bytes.buf }));
            self.encode_new(req, write);
            return if write.payloads.is_some() { self.apply_write(req, write) } else { Err(Stop::Wait) };
        }
        let stored: Vec<StoredFrame> = frames.iter().map(|(stored, ..)| stored.clone()).collect();
        let count = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        if !self.log.has_room(&stored, count) {
            self.close_batch();
            if !self.log.has_room(&stored, count) {
                self.log.next_segment(&mut self.slots)?;
            }
            if !self.log.has_room(&stored, count) {
                return Err(Stop::Fail(StoreError::Invalid));
            }
        }
        for (stored, payload, group) in frames {
            let blocks = self.log.put_frame(stored, payload);
            for (at, block) in group.iter().zip(blocks) {
                cells[*at] = Some(Cell::Stored(block));
            }
        }
        for (block, cell) in (write.first..).zip(cells) {
            self.log.put_cell(write.root, block, cell.unwrap_or(Cell::Hole));
        }
        write.payloads = None;
        Ok(())
    }

    /// Entry of a block whose contents are stored already, or need no store.
    fn known(&self, block: &NewBlock) -> Option<Cell> {
        match block {
            NewBlock::Zero => Some(Cell::Hole),
            NewBlock::Data { print, .. } => {
                let is_there = |stored: &Stored| self.slots.slot_of(stored.name.segment).is_some();
                self.prints.get(print).filter(is_there).map(Cell::Stored)
            }
        }
    }
}

fn stored_frame(blocks: &[NewBlock], group: &[usize], payload: &Payload) -> StoredFrame {
    let print = |at: &usize| match blocks[*at] {
        NewBlock::Data { print, .. } => Some(print),
        NewBlock::Zero => None,
    };
    StoredFrame {
        codec: payload.codec,
        stored_bytes: payload.bytes.len_bytes,
        prints: group.iter().filter_map(print).collect(),
        moved_from: None,
    }
}
