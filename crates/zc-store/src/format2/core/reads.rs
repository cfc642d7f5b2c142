//! Reads: from addresses to frames.
//!
//! Invariants: a lookup that lacked a node is repeated from its beginning, so it never mixes two states of a map; a
//! frame is verified by its name wherever it lies.

use std::collections::{BTreeMap, BTreeSet};

use super::Open;
use crate::format2::Name;
use crate::format2::UNIT_BYTES;
use crate::format2::index::Blocked;
use crate::format2::leaf::{Cell, Stored};
use crate::format2::log::frame_bytes;
use crate::format2::recovery::damaged;
use crate::format2::seam::{Action, FetchPart, REQUEST_BLOCKS_MAX, Source, StoreError};
use zc_core::{BufId, ErrorKind, Map, OpId, ReqId};

#[derive(Debug, Clone, Copy)]
struct Read {
    root: u32,
    first: u64,
    count: u32,
    dest: BufId,
}

/// Reads in progress.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Reads that wait for nodes.
    waiting: BTreeMap<ReqId, Read>,
    /// Contents that are being fetched: the request, and the place of each part.
    fetching: Map<OpId, (ReqId, Vec<Stored>)>,
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.fetching.is_empty()
    }

    /// Segments from which contents are being read.
    pub(super) fn segments(&self) -> BTreeSet<u64> {
        self.fetching
            .values()
            .flat_map(|(_, places)| places.iter().map(|stored| stored.name.segment))
            .collect()
    }
}

impl Open {
    pub(super) fn submit_read(&mut self, req: ReqId, root: u32, first: u64, count: u32, dest: BufId) {
        let Some(size) = self.index.root(root).map(|root| root.size_blocks) else {
            return self.reply(req, Err(StoreError::NoSuchRoot));
        };
        let is_inside = first.checked_add(u64::from(count)).is_some_and(|end| end <= size);
        if count == 0 || count > REQUEST_BLOCKS_MAX || !is_inside {
            return self.reply(req, Err(StoreError::Invalid));
        }
        self.try_read(req, Read { root, first, count, dest });
    }

    /// Nodes came: the reads that waited are tried again.
    pub(super) fn retry_reads(&mut self) {
        for (req, read) in core::mem::take(&mut self.reads.waiting) {
            self.try_read(req, read);
        }
    }

    fn try_read(&mut self, req: ReqId, read: Read) {
        let mut cells = match self.index.cells(read.root, read.first, read.count) {
            Ok(cells) => cells,
            Err(Blocked::Missing(spots)) => {
                self.load(&spots);
                self.reads.waiting.insert(req, read);
                return;
            }
            Err(Blocked::Damaged(spot)) => return self.reply(req, Err(damaged(&spot))),
        };
        for (block, cell) in (read.first..).zip(&mut cells) {
            if let Some(open) = self.log.cell(read.root, block) {
                *cell = Some(open);
            }
        }
        match self.parts(&cells) {
            Ok((parts, places)) => {
                self.next_op += 1;
                let op = OpId(self.next_op);
                self.out.push(Action::Fetch { op, parts, dest: Some(read.dest) });
                self.reads.fetching.insert(op, (req, places));
            }
            Err(error) => self.reply(req, Err(error)),
        }
    }

    /// Returns the frames that hold blocks, in the order of their names.
    fn parts(&self, cells: &[Option<Cell>]) -> Result<(Vec<FetchPart>, Vec<Stored>), StoreError> {
        let mut frames: BTreeMap<Name, (Stored, Vec<(u8, u32)>)> = BTreeMap::new();
        for (block, cell) in (0..).zip(cells) {
            match cell {
                Some(Cell::Stored(stored)) => {
                    let wanted = &mut frames.entry(first_name(stored)).or_insert((*stored, Vec::new())).1;
                    wanted.push((stored.index, block));
                }
                Some(Cell::Lost) => return Err(StoreError::Damaged { segment: 0, offset_bytes: 0 }),
                Some(Cell::Zero | Cell::Hole) | None => {}
            }
        }
        let (mut parts, mut places) = (Vec::new(), Vec::new());
        for (name, (stored, wanted)) in frames {
            let source = self.source(name, &stored).ok_or_else(|| damaged_frame(&stored))?;
            parts.push(FetchPart { source, name, blocks: stored.blocks, wanted });
            places.push(stored);
        }
        Ok((parts, places))
    }

    fn source(&self, name: Name, stored: &Stored) -> Option<Source> {
        if let Some(payload) = self.log.memory(name) {
            return Some(Source::Memory(payload));
        }
        let slot = self.slots.slot_of(name.segment).filter(|_| name.pool == 0)?;
        let offset_bytes =
            self.superblock.slot_offset_bytes(slot) + u64::from(stored.offset_units) * u64::from(UNIT_BYTES);
        let len_bytes = frame_bytes(stored.units);
        let end = u64::from(stored.offset_units) * u64::from(UNIT_BYTES) + u64::from(len_bytes);
        let is_inside = end <= u64::from(self.superblock.slot_bytes);
        is_inside.then_some(Source::Device { offset_bytes, len_bytes })
    }

    pub(super) fn fetched(&mut self, op: OpId, results: &[Result<(), ErrorKind>]) {
        let Some((req, places)) = self.reads.fetching.remove(&op) else { return };
        let mut outcome = Ok(());
        for (result, stored) in results.iter().zip(&places) {
            match result {
                Ok(()) => {}
                Err(ErrorKind::Corrupt) => {
                    self.prints.remove_frame(stored.name.segment, stored.offset_units);
                    outcome = Err(damaged_frame(stored));
                }
                Err(kind) => outcome = Err(StoreError::Device(*kind)),
            }
        }
        self.reply(req, outcome);
    }
}

/// Name of the first block of a block's frame.
fn first_name(stored: &Stored) -> Name {
    let ordinal = stored.name.ordinal.saturating_sub(u16::from(stored.index));
    Name { ordinal, ..stored.name }
}

fn damaged_frame(stored: &Stored) -> StoreError {
    let offset_bytes = u64::from(stored.offset_units) * u64::from(UNIT_BYTES);
    StoreError::Damaged { segment: stored.name.segment, offset_bytes }
}
