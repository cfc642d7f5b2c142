//! Leaves of volume maps: the name and place of each of 512 blocks, encoded as runs (`FORMAT-2.md`, section 5.1).
//!
//! Invariants: cells that decode are within bounds, and a frame has one place and one length for all of its blocks in
//! a run. It does not resolve forwarded names or verify contents.

use super::{FRAME_BLOCKS_MAX, Name, UNITS_MAX, varint};

/// Blocks of a leaf: 2 MiB of a volume.
pub const BLOCKS: usize = 512;

/// Largest length code of one byte, as units less one.
const SHORT_MAX: u8 = 251;
/// First code whose length takes another byte.
const LONG_FIRST: u8 = SHORT_MAX + 1;
/// Code of a frame with another number of blocks than the frame before.
const OTHER_BLOCKS: u8 = 255;
/// Units of the shortest length of two bytes, and of the longest.
const LONG_UNITS_MIN: u16 = 253;
const LONG_UNITS_MAX: u16 = LONG_UNITS_MIN + 3 * 256 - 1;

/// Block within a frame of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Name of the block.
    pub name: Name,
    /// Offset of the frame in the segment, in units.
    pub offset_units: u32,
    /// Length of the frame with its header, in units.
    pub units: u16,
    /// Blocks of the frame.
    pub blocks: u8,
    /// Position of the block in the frame.
    pub index: u8,
}

/// Entry of a leaf for one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Contents in a frame.
    Stored(Stored),
    /// Contents that corruption made unreachable: reads fail until the block is written or discarded.
    Lost,
    /// Zeros that keep their space.
    Zero,
    /// Nothing. In a delta: what the base has was discarded.
    Hole,
}

/// Reasons why bytes are no leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeafError {
    /// The bytes end within a run.
    #[error("a map leaf ends within a run")]
    Truncated,
    /// A run exceeds the leaf, or is empty.
    #[error("a map leaf has a run of {0} blocks")]
    Run(u64),
    /// A segment, ordinal or place is out of bounds.
    #[error("a map leaf has a place out of bounds")]
    Place,
    /// The kind of a run is unknown.
    #[error("a map leaf has a run of kind {0}")]
    Kind(u8),
}

/// Decoded leaf. `None` is a block that was never written or, in a delta, one that did not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf(Box<[Option<Cell>]>);

impl Default for Leaf {
    fn default() -> Self {
        Self(vec![None; BLOCKS].into_boxed_slice())
    }
}

#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Stored, with the first frame described.
    Any = 0,
    /// Stored, from the start of a frame of one block.
    Single = 1,
    /// Stored, from the start of a frame of four blocks.
    Four = 2,
    Lost = 3,
    Zero = 4,
    Hole = 5,
}

impl Kind {
    fn of(cell: Cell) -> Self {
        match cell {
            Cell::Stored(Stored { index: 0, blocks: 1, .. }) => Self::Single,
            Cell::Stored(Stored { index: 0, blocks: 4, .. }) => Self::Four,
            Cell::Stored(_) => Self::Any,
            Cell::Lost => Self::Lost,
            Cell::Zero => Self::Zero,
            Cell::Hole => Self::Hole,
        }
    }

    fn from_code(code: u8) -> Result<Self, LeafError> {
        [Self::Any, Self::Single, Self::Four, Self::Lost, Self::Zero, Self::Hole]
            .into_iter()
            .find(|kind| *kind as u8 == code)
            .ok_or(LeafError::Kind(code))
    }
}

/// End of a stored run, to which the next one is relative.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    place: u64,
    ordinal: u64,
    offset_units: u64,
}

impl Stored {
    /// Returns `true` if `next` continues this block in name and place.
    fn continues_in(&self, next: &Self) -> bool {
        let is_next = self.name.later(1) == Some(next.name);
        let same_frame = (self.offset_units, self.units, self.blocks)
            == (next.offset_units, next.units, next.blocks)
            && self.index + 1 == next.index;
        let next_frame = self.index + 1 == self.blocks
            && next.index == 0
            && self.offset_units.checked_add(u32::from(self.units)) == Some(next.offset_units);
        is_next && (same_frame || next_frame)
    }

    fn is_valid(&self) -> bool {
        let end = self.offset_units.checked_add(u32::from(self.units));
        self.name.is_valid()
            && (1..=FRAME_BLOCKS_MAX).contains(&self.blocks)
            && self.index < self.blocks
            && u16::from(self.index) <= self.name.ordinal
            && self.name.later(u16::from(self.blocks - self.index) - 1).is_some()
            && (1..=LONG_UNITS_MAX).contains(&self.units)
            && end.is_some_and(|end| end <= UNITS_MAX)
    }

    /// Name of the frame's first block.
    fn first_ordinal(&self) -> u64 {
        u64::from(self.name.ordinal.saturating_sub(u16::from(self.index)))
    }
}

impl Leaf {
    /// Returns the entry of a block; `None` where there is none, and beyond the leaf.
    #[must_use]
    pub fn get(&self, block: usize) -> Option<Cell> {
        self.0.get(block).copied().flatten()
    }

    /// Replaces the entry of a block.
    ///
    /// # Panics
    /// When the block is beyond the leaf, or the cell is out of the format's bounds.
    pub fn set(&mut self, block: usize, cell: Option<Cell>) {
        if let Some(Cell::Stored(stored)) = cell {
            assert!(stored.is_valid(), "no such place: {stored:?}");
        }
        self.0[block] = cell;
    }

    /// Applies a delta: its entries replace those of the base, and what it discards becomes `None`.
    pub fn apply(&mut self, delta: &Self) {
        for (base, change) in self.0.iter_mut().zip(&delta.0) {
            match change {
                None => {}
                Some(Cell::Hole) => *base = None,
                Some(_) => *base = *change,
            }
        }
    }

    /// Merges a newer delta into an older one: what either discards stays discarded.
    pub fn merge(&mut self, newer: &Self) {
        for (older, newer) in self.0.iter_mut().zip(&newer.0) {
            if newer.is_some() {
                *older = *newer;
            }
        }
    }

    /// Encodes the leaf. An empty one has no bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut end, mut block, mut skip) = (Vec::new(), End::default(), 0, 0);
        while block < BLOCKS {
            let Some(first) = self.get(block) else {
                (block, skip) = (block + 1, skip + 1);
                continue;
            };
            let run = self.run(block, first);
            let kind = Kind::of(first);
            let head = zc_core::u64_from_usize(run) << 4 | u64::from(kind as u8) << 1 | u64::from(skip > 0);
            varint::put(&mut out, head);
            if skip > 0 {
                varint::put(&mut out, skip);
                skip = 0;
            }
            if let Cell::Stored(stored) = first {
                end = self.put_stored(&mut out, end, block..block + run, &stored);
            }
            block += run;
        }
        out
    }

    /// Returns the number of blocks that one run describes from here on.
    fn run(&self, block: usize, first: Cell) -> usize {
        let (mut last, mut run) = (first, 1);
        while let Some(next) = self.get(block + run) {
            let continues = match (&last, &next) {
                (Cell::Stored(last), Cell::Stored(next)) => last.continues_in(next),
                (last, next) => last == next,
            };
            if !continues {
                break;
            }
            (last, run) = (next, run + 1);
        }
        run
    }

    fn put_stored(
        &self,
        out: &mut Vec<u8>,
        before: End,
        range: core::ops::Range<usize>,
        first: &Stored,
    ) -> End {
        let place = first.name.place();
        varint::put_difference(out, before.place, place);
        if place == before.place {
            varint::put_difference(out, before.ordinal, first.first_ordinal());
            varint::put_difference(out, before.offset_units, u64::from(first.offset_units));
        } else {
            varint::put(out, first.first_ordinal());
            varint::put(out, u64::from(first.offset_units));
        }
        if Kind::of(Cell::Stored(*first)) == Kind::Any {
            varint::put(out, u64::from(first.index) << 4 | u64::from(first.blocks - 1));
        }
        let (mut blocks, mut end) = (first.blocks, before);
        for block in range.clone() {
            let Some(Cell::Stored(stored)) = self.get(block) else { continue };
            if block == range.start || stored.index == 0 {
                put_length(out, &stored, blocks);
                blocks = stored.blocks;
            }
            end = End {
                place,
                ordinal: u64::from(stored.name.ordinal) + 1,
                offset_units: u64::from(stored.offset_units) + u64::from(stored.units),
            };
        }
        end
    }

    /// Decodes a leaf.
    ///
    /// # Errors
    /// When the bytes are none, or something in them is out of bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, LeafError> {
        let (mut leaf, mut end, mut block, mut left) = (Self::default(), End::default(), 0, bytes);
        while !left.is_empty() {
            let head = varint::take(&mut left).ok_or(LeafError::Truncated)?;
            let kind = Kind::from_code(head.to_le_bytes()[0] >> 1 & 7)?;
            if head & 1 != 0 {
                let skip = varint::take(&mut left).ok_or(LeafError::Truncated)?;
                block = advance(block, skip)?;
            }
            let after = advance(block, head >> 4)?;
            match kind {
                Kind::Lost => leaf.0[block..after].fill(Some(Cell::Lost)),
                Kind::Zero => leaf.0[block..after].fill(Some(Cell::Zero)),
                Kind::Hole => leaf.0[block..after].fill(Some(Cell::Hole)),
                Kind::Any | Kind::Single | Kind::Four => {
                    end = take_stored(&mut left, kind, end, &mut leaf.0[block..after])?;
                }
            }
            block = after;
        }
        Ok(leaf)
    }
}

fn advance(block: usize, by: u64) -> Result<usize, LeafError> {
    let sum = usize::try_from(by).ok().and_then(|by| block.checked_add(by));
    sum.filter(|sum| by > 0 && *sum <= BLOCKS).ok_or(LeafError::Run(by))
}

fn put_length(out: &mut Vec<u8>, stored: &Stored, blocks_before: u8) {
    if stored.blocks != blocks_before {
        out.extend([OTHER_BLOCKS, stored.blocks]);
    }
    match u8::try_from(stored.units - 1) {
        Ok(code) if code <= SHORT_MAX => out.push(code),
        _ => {
            let [low, high] = (stored.units - LONG_UNITS_MIN).to_le_bytes();
            out.extend([LONG_FIRST + high, low]);
        }
    }
}

/// Takes the length of a frame, and its number of blocks, which was `blocks` in the frame before.
fn take_length(left: &mut &[u8], blocks: u8) -> Result<(u16, u8), LeafError> {
    let mut byte = || {
        let (first, rest) = left.split_first().ok_or(LeafError::Truncated)?;
        *left = rest;
        Ok(*first)
    };
    let (mut code, mut blocks) = (byte()?, blocks);
    if code == OTHER_BLOCKS {
        (blocks, code) = (byte()?, byte()?);
    }
    match code {
        OTHER_BLOCKS => Err(LeafError::Place),
        0..=SHORT_MAX => Ok((u16::from(code) + 1, blocks)),
        _ => Ok((LONG_UNITS_MIN + u16::from_le_bytes([byte()?, code - LONG_FIRST]), blocks)),
    }
}

/// Decodes the cells of a stored run.
fn take_stored(
    left: &mut &[u8],
    kind: Kind,
    before: End,
    cells: &mut [Option<Cell>],
) -> Result<End, LeafError> {
    let place = varint::take_difference(left, before.place).ok_or(LeafError::Truncated)?;
    let (ordinal, offset) = if place == before.place {
        (varint::take_difference(left, before.ordinal), varint::take_difference(left, before.offset_units))
    } else {
        (varint::take(left), varint::take(left))
    };
    let (ordinal, offset) = (ordinal.ok_or(LeafError::Truncated)?, offset.ok_or(LeafError::Truncated)?);
    let (mut index, mut blocks) = match kind {
        Kind::Single => (0, 1),
        Kind::Four => (0, 4),
        _ => {
            let first = varint::take(left).ok_or(LeafError::Truncated)?;
            let first = u8::try_from(first).map_err(|_| LeafError::Place)?;
            (first >> 4, (first & 15) + 1)
        }
    };
    let mut ordinal = ordinal.checked_add(u64::from(index)).ok_or(LeafError::Place)?;
    let mut offset = u32::try_from(offset).map_err(|_| LeafError::Place)?;
    let (mut units, mut is_new) = (0, true);
    for cell in cells.iter_mut() {
        if core::mem::take(&mut is_new) {
            (units, blocks) = take_length(left, blocks)?;
        }
        let name = Name::from_place(place, ordinal).ok_or(LeafError::Place)?;
        let stored = Stored { name, offset_units: offset, units, blocks, index };
        if !stored.is_valid() {
            return Err(LeafError::Place);
        }
        *cell = Some(Cell::Stored(stored));
        (ordinal, index) = (ordinal + 1, index + 1);
        if index == blocks {
            (index, offset, is_new) = (0, offset + u32::from(units), true);
        }
    }
    let within = if is_new { 0 } else { u64::from(units) };
    Ok(End { place, ordinal, offset_units: u64::from(offset) + within })
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
