//! Leaves of the segment table: slot and contents of each of 512 segments (`FORMAT-2.md`, section 5).
//!
//! Invariants: positions rise; slots, blocks and ends are within the bounds of the format. It does not allocate slots.

use std::collections::BTreeMap;

use super::bytes::{Cursor, NodeError};
use super::node::FANOUT;
use super::{UNITS_MAX, varint};

/// Segment on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Slot that holds it.
    pub slot: u32,
    /// Blocks that it names: its ordinals are below this.
    pub blocks: u32,
    /// End of its last batch, in units.
    pub end_units: u32,
    /// Number of its first batch.
    pub first_seq: u64,
}

/// Decoded leaf of the segment table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentLeaf(BTreeMap<u16, SegmentRecord>);

impl SegmentRecord {
    const fn is_valid(&self) -> bool {
        self.blocks <= 1 << 16 && self.end_units <= UNITS_MAX
    }
}

impl SegmentLeaf {
    /// Replaces the record of a segment.
    ///
    /// # Panics
    /// When the position is beyond the leaf, or the record out of the format's bounds.
    pub fn set(&mut self, position: u16, record: SegmentRecord) {
        assert!(u64::from(position) < FANOUT, "position {position}");
        assert!(record.is_valid(), "no such segment: {record:?}");
        self.0.insert(position, record);
    }

    /// Returns all segments by rising position.
    pub fn segments(&self) -> impl Iterator<Item = (u16, SegmentRecord)> {
        self.0.iter().map(|(position, record)| (*position, *record))
    }

    /// Encodes the leaf. An empty one has no bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut next, mut slot, mut seq) = (Vec::new(), 0, 0, 0);
        for (position, record) in &self.0 {
            varint::put(&mut out, u64::from(*position - next));
            varint::put_difference(&mut out, slot, u64::from(record.slot));
            varint::put(&mut out, u64::from(record.blocks));
            varint::put(&mut out, u64::from(record.end_units));
            varint::put_difference(&mut out, seq, record.first_seq);
            (next, slot, seq) = (position + 1, u64::from(record.slot), record.first_seq);
        }
        out
    }

    /// Decodes a leaf.
    ///
    /// # Errors
    /// When the bytes are none, or something in them is out of bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (mut cursor, mut leaf, mut next, mut slot, mut seq) = (Cursor(bytes), Self::default(), 0, 0, 0);
        while !cursor.is_empty() {
            let position = cursor.position(next, FANOUT)?;
            slot = cursor.difference(slot)?;
            let record = SegmentRecord {
                slot: u32::try_from(slot).map_err(|_| NodeError::Field("slot"))?,
                blocks: cursor.short("number of blocks")?,
                end_units: cursor.short("end of a segment")?,
                first_seq: cursor.difference(seq)?,
            };
            if !record.is_valid() {
                return Err(NodeError::Field("segment"));
            }
            seq = record.first_seq;
            leaf.0.insert(u16::try_from(position).unwrap_or(u16::MAX), record);
            next = position + 1;
        }
        Ok(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    #[test]
    fn segments_written_one_after_the_other_take_ten_bytes_each() {
        let mut leaf = SegmentLeaf::default();
        for position in 0..512_u16 {
            let first_seq = (7 << 32) + 8 * u64::from(position);
            let record =
                SegmentRecord { slot: 9 + u32::from(position), blocks: 1800, end_units: 65_536, first_seq };
            leaf.set(position, record);
        }
        let bytes = leaf.encode();
        assert!(bytes.len() <= 512 * 9, "{}", bytes.len());
        assert_eq!(SegmentLeaf::decode(&bytes), Ok(leaf));
    }

    #[test]
    fn bounds_of_fields_are_checked() {
        let encoded = |blocks: u64, end: u64, slot: u64| {
            let mut out = vec![0];
            varint::put_difference(&mut out, 0, slot);
            [blocks, end].into_iter().for_each(|value| varint::put(&mut out, value));
            varint::put_difference(&mut out, 0, 1);
            SegmentLeaf::decode(&out).map(drop)
        };
        assert_eq!(encoded(1 << 16, u64::from(UNITS_MAX), u64::from(u32::MAX)), Ok(()));
        assert_eq!(encoded((1 << 16) + 1, 0, 0), Err(NodeError::Field("segment")));
        assert_eq!(encoded(0, u64::from(UNITS_MAX) + 1, 0), Err(NodeError::Field("segment")));
        assert_eq!(encoded(0, 0, 1 << 32), Err(NodeError::Field("slot")));
        let position: &[u8] = &[0x80, 4];
        assert_eq!(SegmentLeaf::decode(position), Err(NodeError::Field("position")));
    }

    fn record() -> impl Strategy<Value = SegmentRecord> {
        (any::<u32>(), 0_u32..=1 << 16, 0..=UNITS_MAX, any::<u64>()).prop_map(
            |(slot, blocks, end_units, first_seq)| SegmentRecord { slot, blocks, end_units, first_seq },
        )
    }

    proptest! {
        #[test]
        fn leaves_round_trip(records in btree_map(0_u16..512, record(), 0..40)) {
            let mut leaf = SegmentLeaf::default();
            records.into_iter().for_each(|(position, record)| leaf.set(position, record));
            prop_assert_eq!(SegmentLeaf::decode(&leaf.encode()), Ok(leaf));
        }

        #[test]
        fn decoded_bytes_round_trip(bytes in vec(any::<u8>(), 0..64)) {
            if let Ok(leaf) = SegmentLeaf::decode(&bytes) {
                prop_assert_eq!(SegmentLeaf::decode(&leaf.encode()), Ok(leaf));
            }
        }
    }
}
