//! Inner nodes of trees and nodes of the page table (`FORMAT-2.md`, section 5).
//!
//! Invariants: positions rise and are below [`FANOUT`]; numbers and places are within the bounds of the format. It
//! does not read nodes, and does not follow numbers.

use std::collections::BTreeMap;

use super::bytes::{Cursor, NodeError};
use super::{SEGMENTS_MAX, UNIT_BYTES, UNITS_MAX, checksum, has_checksum, varint};
use zc_core::u64_from_usize;

/// Entries of a node.
pub const FANOUT: u64 = 512;
/// Upper bound of the numbers of nodes.
pub const NODES_MAX: u64 = 1 << 48;
/// Upper bound of the bytes of an encoded node: a leaf of 512 blocks, each in another segment.
pub const NODE_BYTES_MAX: u32 = 16 << 10;
/// Upper bound of the levels above the leaves: with 512 entries each they cover 2^64 blocks.
pub const LEVELS_MAX: u8 = 7;

/// Place of an encoded node, with its checksum. What lies at a place never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Segment, below [`SEGMENTS_MAX`]; not 0.
    pub segment: u64,
    /// Slot of the device that holds the segment: the segment table is itself read by places.
    pub slot: u32,
    /// Offset in the segment, in units.
    pub offset_units: u32,
    /// Bytes of the encoding.
    pub bytes: u32,
    /// Checksum of uuid and encoding.
    pub crc: u32,
}

/// Record of a node in the page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeRecord {
    /// The node itself. A leaf whose contents are all in its delta has none.
    pub base: Option<Spot>,
    /// Changes of a leaf since its base was written.
    pub delta: Option<Spot>,
    /// Hashes of extents, valid for the base.
    pub recipes: Option<Spot>,
}

/// Node of the page table: records of 512 nodes, or of nodes of the page table a level below.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageNode(BTreeMap<u16, NodeRecord>);

/// Inner node: numbers of the children that exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InnerNode(BTreeMap<u16, u64>);

impl Spot {
    /// Returns the place, in a segment and its slot, with the checksum of `encoded`, which is written there.
    #[must_use]
    pub fn of(uuid: &[u8; 16], (segment, slot): (u64, u32), offset_units: u32, encoded: &[u8]) -> Self {
        let bytes = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
        Self { segment, slot, offset_units, bytes, crc: checksum(uuid, encoded) }
    }

    /// Checks what was read there.
    ///
    /// # Errors
    /// When its length or its checksum differs.
    pub fn verify(&self, uuid: &[u8; 16], encoded: &[u8]) -> Result<(), NodeError> {
        let is_whole = u64_from_usize(encoded.len()) == u64::from(self.bytes);
        let is_sound = is_whole && has_checksum(uuid, encoded, self.crc);
        if is_sound { Ok(()) } else { Err(NodeError::Checksum) }
    }

    /// Returns the units from the start of the segment to the end of the node.
    #[must_use]
    pub const fn end_units(&self) -> u32 {
        self.offset_units.saturating_add(self.bytes.div_ceil(UNIT_BYTES))
    }

    pub(super) const fn is_valid(&self) -> bool {
        self.segment != 0
            && self.segment < SEGMENTS_MAX
            && self.bytes != 0
            && self.bytes <= NODE_BYTES_MAX
            && self.end_units() <= UNITS_MAX
    }

    fn put(&self, out: &mut Vec<u8>, before: &mut (u64, u32, u32)) {
        varint::put_difference(out, before.0, self.segment);
        if self.segment == before.0 {
            varint::put_difference(out, u64::from(before.2), u64::from(self.offset_units));
        } else {
            varint::put_difference(out, u64::from(before.1), u64::from(self.slot));
            varint::put(out, u64::from(self.offset_units));
        }
        varint::put(out, u64::from(self.bytes));
        out.extend_from_slice(&self.crc.to_le_bytes());
        *before = (self.segment, self.slot, self.end_units());
    }

    fn take(cursor: &mut Cursor<'_>, before: &mut (u64, u32, u32)) -> Result<Self, NodeError> {
        let segment = cursor.difference(before.0)?;
        let (slot, offset) = if segment == before.0 {
            (u64::from(before.1), cursor.difference(u64::from(before.2))?)
        } else {
            (cursor.difference(u64::from(before.1))?, cursor.number()?)
        };
        let slot = u32::try_from(slot).map_err(|_| NodeError::Field("place"))?;
        let offset_units = u32::try_from(offset).map_err(|_| NodeError::Field("place"))?;
        let (bytes, crc) = (cursor.short("length")?, u32::from_le_bytes(cursor.array()?));
        let spot = Self { segment, slot, offset_units, bytes, crc };
        if !spot.is_valid() {
            return Err(NodeError::Field("place"));
        }
        *before = (segment, slot, spot.end_units());
        Ok(spot)
    }
}

impl NodeRecord {
    /// Returns `true` if the node has nothing, so that it has no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.base.is_none() && self.delta.is_none() && self.recipes.is_none()
    }

    const fn parts(&self) -> [Option<Spot>; 3] {
        [self.base, self.delta, self.recipes]
    }
}

impl PageNode {
    /// Returns a record.
    #[must_use]
    pub fn get(&self, position: u16) -> Option<NodeRecord> {
        self.0.get(&position).copied()
    }

    /// Replaces a record; an empty one is removed.
    ///
    /// # Panics
    /// When the position is beyond the node, or a place is out of the format's bounds.
    pub fn set(&mut self, position: u16, record: NodeRecord) {
        assert!(u64::from(position) < FANOUT, "position {position}");
        assert!(record.parts().iter().flatten().all(Spot::is_valid), "no such place: {record:?}");
        if record.is_empty() {
            self.0.remove(&position);
        } else {
            self.0.insert(position, record);
        }
    }

    /// Returns all records by rising position.
    pub fn records(&self) -> impl Iterator<Item = (u16, NodeRecord)> {
        self.0.iter().map(|(position, record)| (*position, *record))
    }

    /// Returns `true` if no node has a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encodes the node. An empty one has no bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut next, mut before) = (Vec::new(), 0, (0, 0, 0));
        for (position, record) in &self.0 {
            let parts = record.parts();
            let bits = parts.iter().zip([1, 2, 4]).filter(|(part, _)| part.is_some());
            let bits: u64 = bits.map(|(_, bit)| bit).sum();
            varint::put(&mut out, u64::from(*position - next) << 3 | bits);
            parts.iter().flatten().for_each(|spot| spot.put(&mut out, &mut before));
            next = position + 1;
        }
        out
    }

    /// Decodes a node.
    ///
    /// # Errors
    /// When the bytes are none, or something in them is out of bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (mut cursor, mut node, mut next, mut before) = (Cursor(bytes), Self::default(), 0, (0, 0, 0));
        while !cursor.is_empty() {
            let head = cursor.number()?;
            let position = (head >> 3).checked_add(next).filter(|position| *position < FANOUT);
            let position = position.ok_or(NodeError::Field("position"))?;
            let mut part = |bit: u64| {
                let has_part = head & bit != 0;
                has_part.then(|| Spot::take(&mut cursor, &mut before)).transpose()
            };
            let record = NodeRecord { base: part(1)?, delta: part(2)?, recipes: part(4)? };
            if record.is_empty() {
                return Err(NodeError::Field("record"));
            }
            node.0.insert(u16::try_from(position).unwrap_or(u16::MAX), record);
            next = position + 1;
        }
        Ok(node)
    }
}

impl InnerNode {
    /// Returns the number of a child.
    #[must_use]
    pub fn get(&self, position: u16) -> Option<u64> {
        self.0.get(&position).copied()
    }

    /// Replaces the number of a child.
    ///
    /// # Panics
    /// When the position is beyond the node, or the number out of the format's bounds.
    pub fn set(&mut self, position: u16, number: u64) {
        assert!(u64::from(position) < FANOUT, "position {position}");
        assert!((1..NODES_MAX).contains(&number), "node {number}");
        self.0.insert(position, number);
    }

    /// Removes the children in a range of positions, both ends included.
    pub fn remove(&mut self, first: u16, last: u16) {
        self.0.retain(|position, _| *position < first || *position > last);
    }

    /// Returns all children by rising position.
    pub fn children(&self) -> impl Iterator<Item = (u16, u64)> {
        self.0.iter().map(|(position, number)| (*position, *number))
    }

    /// Returns `true` if there are no children.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encodes the node. An empty one has no bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut next, mut expected) = (0, 1);
        let mut children = self.children().peekable();
        while let Some((position, number)) = children.next() {
            let mut run = 1;
            while children.next_if_eq(&(position + run, number + u64::from(run))).is_some() {
                run += 1;
            }
            varint::put(&mut out, u64::from(position - next));
            varint::put(&mut out, u64::from(run - 1));
            varint::put_difference(&mut out, expected, number);
            (next, expected) = (position + run, number + u64::from(run));
        }
        out
    }

    /// Decodes a node.
    ///
    /// # Errors
    /// When the bytes are none, or something in them is out of bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (mut cursor, mut node, mut next, mut expected) = (Cursor(bytes), Self::default(), 0, 1);
        while !cursor.is_empty() {
            let first = cursor.position(next, FANOUT)?;
            let more = cursor.number()?;
            let last = first.checked_add(more).filter(|last| *last < FANOUT);
            let last = last.ok_or(NodeError::Field("run of children"))?;
            let number = cursor.difference(expected)?;
            let end = number.checked_add(more).filter(|end| number > 0 && *end < NODES_MAX);
            let end = end.ok_or(NodeError::Field("number of a node"))?;
            for (position, number) in (first..=last).zip(number..) {
                node.0.insert(u16::try_from(position).unwrap_or(u16::MAX), number);
            }
            (next, expected) = (last + 1, end + 1);
        }
        Ok(node)
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
