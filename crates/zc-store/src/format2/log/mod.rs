//! Log: changes and contents go into batches, batches into segments.
//!
//! Job: give contents their names at once, collect what belongs together in the open batch, and give it places when it
//! is closed. Invariants: batches are numbered without gaps; the segment in the next slot has the next number; the
//! records of one change are in one batch; contents can be read from memory until they are written. It does not flush.

mod slots;

use std::collections::{BTreeMap, BTreeSet};

use super::batch::{BatchHeader, DIRECTORY_BYTES_MAX, NodePlace, Record, StoredFrame};
use super::frame::{FrameHeader, HEADER_BYTES};
use super::index::{NewNode, Part};
use super::leaf::{BLOCKS, Cell, Leaf, Stored};
use super::node::Spot;
use super::seam::{Action, Payload, Piece, PieceData};
use super::superblock::{LogPlace, Superblock};
use super::{BLOCK_BYTES, Name, UNIT_BYTES};
pub(super) use slots::Slots;
use zc_core::{BufId, Fingerprint, OpId, u64_from_usize, usize_from_u64};

const BLOCK_UNITS: u32 = BLOCK_BYTES / UNIT_BYTES;
/// Blocks of a segment.
const ORDINALS: u32 = 1 << 16;
/// Upper bounds of the bytes that a changed entry, a frame without its fingerprints, and a node take in a directory.
const CELL_BYTES: u32 = 44;
const FRAME_BYTES: u32 = 12;
const NODE_BYTES: u32 = 24;
/// Directories are closed before they reach the bound of the format.
const DIRECTORY_BYTES: u32 = DIRECTORY_BYTES_MAX / 4;

/// No slot is left for the log, or none could hold so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogFull;

/// Frame of the open batch.
#[derive(Debug)]
struct OpenFrame {
    stored: StoredFrame,
    ordinal: u16,
    payload: Payload,
}

/// Batch that is being written.
#[derive(Debug)]
struct InFlight {
    op: OpId,
    frames: Vec<Name>,
}

/// Contents and entries that a closed batch has at their places.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Entries of maps: root, leaf, delta.
    pub(super) maps: Vec<(u32, u64, Leaf)>,
    /// Blocks with their fingerprints.
    pub(super) blocks: Vec<(Fingerprint, Stored)>,
}

/// Log of one session.
#[derive(Debug)]
pub(super) struct Log {
    uuid: [u8; 16],
    slot_bytes: u32,
    batch_bytes_max: u32,
    /// Place and number of the open batch.
    at: LogPlace,
    /// Records that come before the entries of maps.
    head: Vec<Record>,
    marks: Vec<Record>,
    frames: Vec<OpenFrame>,
    cells: BTreeMap<(u32, u64), Cell>,
    /// Upper bound of the bytes of the directory, and the units of the payload.
    directory_bytes: u32,
    payload_units: u32,
    next_ordinal: u32,
    memory: BTreeMap<Name, Payload>,
    in_flight: BTreeMap<u64, InFlight>,
    since_checkpoint_bytes: u64,
    /// The last batch with a change, and the last one that a header states to be durable.
    last_change: u64,
    stated: u64,
}

impl Log {
    pub(super) fn new(superblock: &Superblock, at: LogPlace, batch_bytes_max: u32) -> Self {
        Self {
            uuid: superblock.uuid,
            slot_bytes: superblock.slot_bytes,
            batch_bytes_max: batch_bytes_max.clamp(2 * BLOCK_BYTES, superblock.slot_bytes),
            at,
            head: Vec::new(),
            marks: Vec::new(),
            frames: Vec::new(),
            cells: BTreeMap::new(),
            directory_bytes: 0,
            payload_units: 0,
            next_ordinal: at.ordinal,
            memory: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            since_checkpoint_bytes: 0,
            last_change: 0,
            stated: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.marks.is_empty() && self.frames.is_empty() && self.cells.is_empty()
    }

    /// Place of the next batch. The open one is empty.
    pub(super) const fn place(&self) -> LogPlace {
        self.at
    }

    /// Number of the last batch that was closed.
    pub(super) const fn last_closed(&self) -> u64 {
        self.at.seq - 1
    }

    /// All batches up to this one were written.
    pub(super) fn written(&self) -> u64 {
        self.in_flight.keys().next().map_or_else(|| self.last_closed(), |first| first - 1)
    }

    pub(super) const fn since_checkpoint_bytes(&self) -> u64 {
        self.since_checkpoint_bytes
    }

    /// A checkpoint begins: its log begins here.
    pub(super) fn begin_checkpoint(&mut self) {
        self.since_checkpoint_bytes = 0;
    }

    /// Returns the segments to which entries of the open batch lead.
    pub(super) fn open_segments(&self) -> BTreeSet<u64> {
        let named = self.cells.values().filter_map(|cell| match cell {
            Cell::Stored(stored) => Some(stored.name.segment),
            Cell::Lost | Cell::Zero | Cell::Hole => None,
        });
        named.collect()
    }

    /// Returns `true` if a change is durable and no header states it.
    pub(super) fn is_unproven(&self, durable: u64) -> bool {
        self.stated < durable.min(self.last_change)
    }

    /// Both superblocks name a state with all changes before this batch.
    pub(super) fn checkpointed(&mut self, seq: u64) {
        self.stated = self.stated.max(seq - 1);
    }

    /// Returns the payload of a frame that is not on the device yet.
    pub(super) fn memory(&self, first: Name) -> Option<Payload> {
        self.memory.get(&first).copied()
    }

    /// Entry of a block in the open batch.
    pub(super) fn cell(&self, root: u32, block: u64) -> Option<Cell> {
        self.cells.get(&(root, block)).copied()
    }

    fn fits(&self, directory: u32, payload_units: u32, ordinals: u32) -> bool {
        let directory = self.directory_bytes + directory;
        // One block more than the bound: for a directory that is padded.
        let blocks = BatchHeader::directory_blocks(directory) + 1;
        let units = blocks * BLOCK_UNITS + (self.payload_units + payload_units).next_multiple_of(BLOCK_UNITS);
        directory <= DIRECTORY_BYTES
            && (units * UNIT_BYTES <= self.batch_bytes_max || self.is_empty())
            && self.at.offset_units + units <= self.slot_bytes / UNIT_BYTES
            && self.next_ordinal + ordinals <= ORDINALS
    }

    /// Returns `true` if a change of these frames and entries fits the open batch.
    pub(super) fn has_room(&self, frames: &[StoredFrame], cells: u32) -> bool {
        let prints: u32 = frames.iter().map(frame_directory_bytes).sum();
        let units = frames.iter().map(StoredFrame::units).sum();
        let ordinals = frames.iter().map(blocks_of).sum();
        self.fits(prints + cells * CELL_BYTES, units, ordinals)
    }

    /// Continues in the next segment. The open batch is empty.
    pub(super) fn next_segment(&mut self, slots: &mut Slots) -> Result<(), LogFull> {
        let next_slot = slots.take().ok_or(LogFull)?;
        slots.seal(self.at.segment, self.at.ordinal, self.at.offset_units);
        self.at = LogPlace {
            segment: self.at.segment + 1,
            slot: self.at.next_slot,
            offset_units: 0,
            ordinal: 0,
            next_slot,
            ..self.at
        };
        self.next_ordinal = 0;
        slots.open(self.at.segment, self.at.slot, self.at.seq);
        Ok(())
    }

    /// Puts a frame and returns its blocks; their place is not certain before the batch is closed.
    pub(super) fn put_frame(&mut self, stored: StoredFrame, payload: Payload) -> Vec<Stored> {
        let ordinal = u16::try_from(self.next_ordinal).unwrap_or(u16::MAX);
        let blocks = u8::try_from(stored.prints.len()).unwrap_or(u8::MAX);
        let first = Name { pool: 0, segment: self.at.segment, ordinal };
        let units = u16::try_from(stored.units()).unwrap_or(u16::MAX);
        self.directory_bytes += frame_directory_bytes(&stored);
        self.payload_units += stored.units();
        self.next_ordinal += u32::from(blocks);
        self.memory.insert(first, payload);
        self.frames.push(OpenFrame { stored, ordinal, payload });
        let block = |index: u8| {
            let name = Name { ordinal: ordinal + u16::from(index), ..first };
            Stored { name, offset_units: 0, units, blocks, index }
        };
        (0..blocks).map(block).collect()
    }

    pub(super) fn put_cell(&mut self, root: u32, block: u64, cell: Cell) {
        if self.cells.insert((root, block), cell).is_none() {
            self.directory_bytes += CELL_BYTES;
        }
    }

    /// Returns `true` if a record that comes before entries of maps may be put into the open batch.
    pub(super) fn takes_head(&self, bytes: u32) -> bool {
        self.cells.is_empty()
            && self.frames.is_empty()
            && self.marks.is_empty()
            && self.fits(bytes + 40, 0, 0)
    }

    /// Puts a change that was applied to the index already.
    pub(super) fn put_head(&mut self, record: Record, bytes: u32) {
        self.directory_bytes += bytes + 40;
        self.head.push(record);
    }

    /// Puts an order mark.
    pub(super) fn put_mark(&mut self, record: Record) {
        self.directory_bytes += 40;
        self.marks.push(record);
    }

    /// Writes the open batch, if anything is in it, and returns its contents at their places.
    pub(super) fn close(&mut self, durable: u64, op: &mut u64, out: &mut Vec<Action>) -> Closed {
        if self.is_empty() {
            return Closed::default();
        }
        let frames = core::mem::take(&mut self.frames);
        let cells = core::mem::take(&mut self.cells);
        let mut records = core::mem::take(&mut self.head);
        records.extend(frames.iter().map(|frame| Record::Frame(frame.stored.clone())));
        records.append(&mut self.marks);
        let header = self.header(durable, self.payload_units);
        (self.last_change, self.stated) = (self.at.seq, durable);
        let (mut blocks, mut closed, mut head);
        blocks = 1;
        loop {
            closed = self.at_places(&frames, &cells, blocks);
            let maps = closed.maps.iter().map(|(root, leaf, delta)| Record::Map(*root, *leaf, delta.clone()));
            let all: Vec<Record> = records.iter().cloned().chain(maps).collect();
            head = header.encode_padded(&self.uuid, &all, blocks);
            let taken = u32::try_from(head.len()).unwrap_or(u32::MAX) / BLOCK_BYTES;
            if taken <= blocks {
                break;
            }
            blocks = taken;
        }
        let mut pieces = Vec::new();
        let mut offset_bytes = blocks * BLOCK_BYTES;
        let mut names = Vec::new();
        for frame in &frames {
            let name = Name { pool: 0, segment: self.at.segment, ordinal: frame.ordinal };
            let header = FrameHeader {
                name,
                blocks: u8::try_from(frame.stored.prints.len()).unwrap_or(u8::MAX),
                codec: frame.stored.codec,
                stored_bytes: frame.stored.stored_bytes,
            };
            pieces.push(Piece { offset_bytes, data: PieceData::Frame(header, frame.payload.bytes) });
            offset_bytes += frame.stored.units() * UNIT_BYTES;
            names.push(name);
        }
        self.append(head, pieces, names, op, out);
        closed
    }

    fn header(&self, durable: u64, payload_units: u32) -> BatchHeader {
        BatchHeader {
            seq: self.at.seq,
            nonce: self.at.nonce,
            durable,
            segment: self.at.segment,
            offset_units: self.at.offset_units,
            next_slot: self.at.next_slot,
            first_ordinal: u16::try_from(self.at.ordinal.min(ORDINALS - 1)).unwrap_or(u16::MAX),
            payload_bytes: payload_units.next_multiple_of(BLOCK_UNITS) * UNIT_BYTES,
        }
    }

    /// Contents of the open batch, if its directory takes so many blocks.
    fn at_places(&self, frames: &[OpenFrame], cells: &BTreeMap<(u32, u64), Cell>, blocks: u32) -> Closed {
        let mut closed = Closed::default();
        let mut offsets = BTreeMap::new();
        let mut offset_units = self.at.offset_units + blocks * BLOCK_UNITS;
        for frame in frames {
            offsets.insert(frame.ordinal, offset_units);
            closed.blocks.extend(blocks_at(&frame.stored, self.at.segment, frame.ordinal, offset_units));
            offset_units += frame.stored.units();
        }
        let mut leaf: Option<(u32, u64, Leaf)> = None;
        for ((root, block), cell) in cells {
            let mut cell = *cell;
            if let Cell::Stored(stored) = &mut cell
                && stored.name.segment == self.at.segment
                && let Some(own) = offsets.get(&stored.name.ordinal.saturating_sub(u16::from(stored.index)))
            {
                stored.offset_units = *own;
            }
            let (number, within) =
                (block / u64_from_usize(BLOCKS), usize_from_u64(block % u64_from_usize(BLOCKS)));
            if leaf.as_ref().is_none_or(|(own, at, _)| (*own, *at) != (*root, number)) {
                closed.maps.extend(leaf.replace((*root, number, Leaf::default())));
            }
            if let Some((_, _, leaf)) = &mut leaf {
                leaf.set(within, Some(cell));
            }
        }
        closed.maps.extend(leaf);
        closed
    }

    fn append(
        &mut self,
        head: Vec<u8>,
        pieces: Vec<Piece>,
        frames: Vec<Name>,
        op: &mut u64,
        out: &mut Vec<Action>,
    ) {
        *op += 1;
        let payload = self.payload_units.next_multiple_of(BLOCK_UNITS);
        let units = u32::try_from(head.len()).unwrap_or(u32::MAX) / UNIT_BYTES + payload;
        let slot =
            super::superblock::SLOTS_START_BYTES + u64::from(self.at.slot) * u64::from(self.slot_bytes);
        let offset_bytes = slot + u64::from(self.at.offset_units) * u64::from(UNIT_BYTES);
        let len_bytes = units * UNIT_BYTES;
        out.push(Action::Append { op: OpId(*op), offset_bytes, len_bytes, head, pieces });
        self.in_flight.insert(self.at.seq, InFlight { op: OpId(*op), frames });
        self.since_checkpoint_bytes += u64::from(len_bytes);
        self.at.seq += 1;
        self.at.offset_units += units;
        self.at.ordinal = self.next_ordinal;
        (self.directory_bytes, self.payload_units) = (0, 0);
    }

    /// Writes a batch without records, whose header states what is durable. The open batch is empty, and fits.
    pub(super) fn prove(&mut self, durable: u64, op: &mut u64, out: &mut Vec<Action>) {
        self.stated = durable;
        let head = self.header(durable, 0).encode(&self.uuid, &[]);
        self.append(head, Vec::new(), Vec::new(), op, out);
    }

    /// Writes nodes, in as many batches as they need, and returns their places and the batch of each. The open batch
    /// is empty.
    pub(super) fn write_nodes(
        &mut self,
        nodes: &[NewNode],
        slots: &mut Slots,
        durable: u64,
        op: &mut u64,
        out: &mut Vec<Action>,
    ) -> Result<Vec<(Spot, u64)>, LogFull> {
        let (mut places, mut rest) = (Vec::new(), nodes);
        while !rest.is_empty() {
            let mut taken = 0;
            while let Some(node) = rest.get(taken) {
                let units = node_units(node);
                if !(self.fits(NODE_BYTES, units, 0)
                    && (taken == 0 || self.payload_bytes() < self.batch_bytes_max))
                {
                    break;
                }
                self.directory_bytes += NODE_BYTES;
                self.payload_units += units;
                taken += 1;
            }
            if taken == 0 {
                if self.at.offset_units == 0 {
                    return Err(LogFull);
                }
                self.next_segment(slots)?;
                continue;
            }
            let (batch, behind) = rest.split_at(taken);
            self.write_node_batch(batch, &mut places, durable, op, out);
            rest = behind;
        }
        Ok(places)
    }

    const fn payload_bytes(&self) -> u32 {
        self.payload_units * UNIT_BYTES
    }

    fn write_node_batch(
        &mut self,
        nodes: &[NewNode],
        places: &mut Vec<(Spot, u64)>,
        durable: u64,
        op: &mut u64,
        out: &mut Vec<Action>,
    ) {
        let record = |node: &NewNode| {
            let bytes = u32::try_from(node.bytes.len()).unwrap_or(u32::MAX);
            let tree = match node.part {
                Part::Base => 0,
                Part::Delta => 1,
                Part::Page => 2,
            };
            Record::Node(NodePlace { tree, level: node.level, index: node.number, bytes })
        };
        let records: Vec<Record> = nodes.iter().map(record).collect();
        let head = self.header(durable, self.payload_units).encode(&self.uuid, &records);
        let mut offset_bytes = u32::try_from(head.len()).unwrap_or(u32::MAX);
        let mut pieces = Vec::new();
        for node in nodes {
            let offset_units = self.at.offset_units + offset_bytes / UNIT_BYTES;
            places.push((
                Spot::of(&self.uuid, (self.at.segment, self.at.slot), offset_units, &node.bytes),
                self.at.seq,
            ));
            pieces.push(Piece { offset_bytes, data: PieceData::Node(node.bytes.clone()) });
            offset_bytes += node_units(node) * UNIT_BYTES;
        }
        self.append(head, pieces, Vec::new(), op, out);
    }

    /// A write was completed: returns the buffers of its contents, or `None` if it is not a batch of this log.
    pub(super) fn write_ended(&mut self, op: OpId) -> Option<Vec<BufId>> {
        let seq = *self.in_flight.iter().find(|(_, batch)| batch.op == op)?.0;
        let batch = self.in_flight.remove(&seq)?;
        let freed = batch.frames.iter().filter_map(|name| self.memory.remove(name));
        Some(freed.map(|payload| payload.bytes.buf).collect())
    }
}

/// Returns the blocks of a frame that lies at an offset of a segment.
pub(super) fn blocks_at(
    frame: &StoredFrame,
    segment: u64,
    ordinal: u16,
    offset_units: u32,
) -> impl Iterator<Item = (Fingerprint, Stored)> {
    let blocks = u8::try_from(frame.prints.len()).unwrap_or(u8::MAX);
    let units = u16::try_from(frame.units()).unwrap_or(u16::MAX);
    (0..blocks).zip(&frame.prints).map(move |(index, print)| {
        let name = Name { pool: 0, segment, ordinal: ordinal + u16::from(index) };
        (*print, Stored { name, offset_units, units, blocks, index })
    })
}

fn blocks_of(frame: &StoredFrame) -> u32 {
    u32::try_from(frame.prints.len()).unwrap_or(u32::MAX)
}

fn frame_directory_bytes(frame: &StoredFrame) -> u32 {
    let moved = if frame.moved_from.is_some() { 14 } else { 0 };
    FRAME_BYTES + (32 + moved) * blocks_of(frame)
}

fn node_units(node: &NewNode) -> u32 {
    u32::try_from(node.bytes.len()).unwrap_or(u32::MAX).div_ceil(UNIT_BYTES)
}

/// Bytes of a frame on the device, in whole units.
pub(super) const fn frame_bytes(units: u16) -> u32 {
    units as u32 * UNIT_BYTES
}

const _: () = assert!(HEADER_BYTES < UNIT_BYTES, "a frame has at least its header in one unit");
