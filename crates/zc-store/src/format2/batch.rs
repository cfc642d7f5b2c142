//! Batches: the header of the log's unit, and its directory of records (`FORMAT-2.md`, section 4.1).
//!
//! Invariants: a batch that decodes has contiguous frames within its payload and its segment, and leaves that decode.
//! It does not order batches, and it does not hold their contents.

use super::frame;
use super::leaf::{Leaf, LeafError};
use super::{BLOCK_BYTES, FRAME_BLOCKS_MAX, Name, UNIT_BYTES, UNITS_MAX, checksum, has_checksum, varint};
use zc_core::{Fingerprint, u64_from_usize, usize_from_u32};

const MAGIC: [u8; 4] = *b"zcS2";
const HEADER_BYTES: usize = 64;
/// Upper bound of a directory: a batch of 16 MiB of blocks that do not compress has 144 KiB.
pub const DIRECTORY_BYTES_MAX: u32 = 1 << 20;
/// Upper bound of a batch's payload.
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;
/// Upper bound of the leaves of a volume: with 2 MiB each they cover 2^64 bytes.
const LEAVES_MAX: u64 = 1 << 43;

/// Header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Number of the batch in the log.
    pub seq: u64,
    /// Random number of the session.
    pub nonce: u64,
    /// All batches up to this one were durable when the header was made.
    pub durable: u64,
    /// Segment, and where the batch lies in it, in units.
    pub segment: u64,
    /// See `segment`.
    pub offset_units: u32,
    /// Slot of the segment in which the log continues after this one.
    pub next_slot: u32,
    /// Ordinal of the first block of the batch.
    pub first_ordinal: u16,
    /// Bytes of contents behind the directory, a multiple of a block.
    pub payload_bytes: u32,
}

/// Contents that a batch stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFrame {
    /// Code of the compression.
    pub codec: u8,
    /// Bytes of the payload, without the frame's header.
    pub stored_bytes: u32,
    /// Fingerprint of each block.
    pub prints: Vec<Fingerprint>,
    /// Old names of the blocks, if the cleaner moved them.
    pub moved_from: Option<Vec<Name>>,
}

/// Place of an encoded node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePlace {
    /// Tree: a table of the store, or the map or recipes of a root.
    pub tree: u8,
    /// Level above the leaves.
    pub level: u8,
    /// Index in the level, or number of a map node.
    pub index: u64,
    /// Bytes of the encoding.
    pub bytes: u32,
}

/// Change that a batch records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Contents, at the next free offset of the payload.
    Frame(StoredFrame),
    /// A node of a tree, at the next free offset of the payload.
    Node(NodePlace),
    /// Blocks of one leaf of a volume get new entries: (volume, leaf, delta).
    Map(u32, u64, Leaf),
    /// Blocks of a volume hold nothing from now on: (volume, first block, count).
    Clear(u32, u64, u64),
    /// All writes of a cache's volume up to this run are in the log before: (uuid of the cache, volume, run).
    Mark([u8; 16], u32, u64),
    /// A change of the catalog, encoded by it.
    Catalog(Vec<u8>),
}

/// Reasons why bytes are not the expected batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// No batch begins there.
    #[error("no batch")]
    Magic,
    /// The checksum does not match.
    #[error("a batch with a wrong checksum")]
    Checksum,
    /// The directory ends within a record.
    #[error("a batch whose directory is cut off")]
    Truncated,
    /// A field is out of bounds.
    #[error("a batch with an impossible {0}")]
    Field(&'static str),
    /// A map record holds no leaf.
    #[error("a batch with a record of a map: {0}")]
    Leaf(#[from] LeafError),
}

impl StoredFrame {
    /// Returns the units that the frame takes in a segment.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.stored_bytes.saturating_add(frame::HEADER_BYTES).div_ceil(UNIT_BYTES)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let blocks = u8::try_from(self.prints.len()).unwrap_or(0);
        assert!((1..=FRAME_BLOCKS_MAX).contains(&blocks), "a frame of {} blocks", self.prints.len());
        let is_moved = u8::from(self.moved_from.is_some());
        out.extend([is_moved << 7 | blocks, self.codec]);
        varint::put(out, u64::from(self.stored_bytes));
        self.prints.iter().for_each(|print| out.extend_from_slice(&print.0));
        let Some(names) = &self.moved_from else { return };
        assert_eq!(names.len(), self.prints.len(), "one old name for each block");
        let mut before = Name { pool: 0, segment: 0, ordinal: 0 };
        for name in names {
            varint::put_difference(out, before.place(), name.place());
            varint::put_difference(out, u64::from(before.ordinal), u64::from(name.ordinal));
            before = *name;
        }
    }

    fn decode(left: &mut &[u8]) -> Result<Self, BatchError> {
        let [head, codec] = take(left)?;
        let blocks = head & 0x7f;
        if !(1..=FRAME_BLOCKS_MAX).contains(&blocks) {
            return Err(BatchError::Field("frame"));
        }
        let stored_bytes = u32::try_from(number(left)?).ok();
        let stored_bytes = stored_bytes
            .filter(|bytes| *bytes <= u32::from(blocks) * BLOCK_BYTES)
            .ok_or(BatchError::Field("frame"))?;
        let prints = (0..blocks).map(|_| take(left).map(Fingerprint)).collect::<Result<_, _>>()?;
        let moved_from = if head & 0x80 == 0 { None } else { Some(Self::old_names(left, blocks)?) };
        Ok(Self { codec, stored_bytes, prints, moved_from })
    }

    fn old_names(left: &mut &[u8], blocks: u8) -> Result<Vec<Name>, BatchError> {
        let (mut place, mut ordinal) = (0, 0);
        let mut name = || {
            place = varint::take_difference(left, place).ok_or(BatchError::Truncated)?;
            ordinal = varint::take_difference(left, ordinal).ok_or(BatchError::Truncated)?;
            let name = Name::from_place(place, ordinal).ok_or(BatchError::Field("old name"))?;
            Ok(name)
        };
        (0..blocks).map(|_| name()).collect()
    }
}

impl Record {
    const PADDING: u8 = 0;
    const FRAME: u8 = 1;
    const NODE: u8 = 2;
    const MAP: u8 = 3;
    const CLEAR: u8 = 4;
    const MARK: u8 = 5;
    const CATALOG: u8 = 6;

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Frame(frame) => {
                out.push(Self::FRAME);
                frame.encode(out);
            }
            Self::Node(node) => {
                out.extend([Self::NODE, node.tree, node.level]);
                varint::put(out, node.index);
                varint::put(out, u64::from(node.bytes));
            }
            Self::Map(volume, leaf, delta) => {
                let bytes = delta.encode();
                out.push(Self::MAP);
                for value in [u64::from(*volume), *leaf, u64_from_usize(bytes.len())] {
                    varint::put(out, value);
                }
                out.extend_from_slice(&bytes);
            }
            Self::Clear(volume, first, count) => {
                out.push(Self::CLEAR);
                [u64::from(*volume), *first, *count].into_iter().for_each(|value| varint::put(out, value));
            }
            Self::Mark(cache, volume, run) => {
                out.push(Self::MARK);
                out.extend_from_slice(cache);
                [u64::from(*volume), *run].into_iter().for_each(|value| varint::put(out, value));
            }
            Self::Catalog(change) => {
                out.push(Self::CATALOG);
                varint::put(out, u64_from_usize(change.len()));
                out.extend_from_slice(change);
            }
        }
    }

    fn decode(left: &mut &[u8]) -> Result<Self, BatchError> {
        let [kind] = take(left)?;
        match kind {
            Self::FRAME => StoredFrame::decode(left).map(Self::Frame),
            Self::NODE => {
                let [tree, level] = take(left)?;
                let (index, bytes) = (number(left)?, number(left)?);
                let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0);
                Ok(Self::Node(NodePlace {
                    tree,
                    level,
                    index,
                    bytes: bytes.ok_or(BatchError::Field("node"))?,
                }))
            }
            Self::MAP => {
                let (volume, leaf) = (id(left)?, number(left)?);
                let delta = Leaf::decode(bytes(left)?)?;
                if leaf >= LEAVES_MAX {
                    return Err(BatchError::Field("leaf"));
                }
                Ok(Self::Map(volume, leaf, delta))
            }
            Self::CLEAR => {
                let (volume, first, count) = (id(left)?, number(left)?, number(left)?);
                first.checked_add(count).ok_or(BatchError::Field("range"))?;
                Ok(Self::Clear(volume, first, count))
            }
            Self::MARK => Ok(Self::Mark(take(left)?, id(left)?, number(left)?)),
            Self::CATALOG => Ok(Self::Catalog(bytes(left)?.to_vec())),
            _ => Err(BatchError::Field("record")),
        }
    }

    /// Bytes of the payload and number of blocks that the record describes.
    fn extent(&self) -> (u64, u64) {
        match self {
            Self::Frame(frame) => (u64::from(frame.units() * UNIT_BYTES), u64_from_usize(frame.prints.len())),
            Self::Node(node) => (u64::from(node.bytes).next_multiple_of(u64::from(UNIT_BYTES)), 0),
            _ => (0, 0),
        }
    }
}

impl BatchHeader {
    /// Encodes header and directory, padded to whole blocks; the payload follows.
    ///
    /// # Panics
    /// When the records do not fit in the bounds of the format, or their contents in the payload.
    #[must_use]
    pub fn encode(&self, uuid: &[u8; 16], records: &[Record]) -> Vec<u8> {
        self.encode_at_least(uuid, records, 0)
    }

    fn encode_at_least(&self, uuid: &[u8; 16], records: &[Record], bytes: usize) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        records.iter().for_each(|record| record.encode(&mut out));
        if out.len() < bytes {
            out.resize(bytes, Record::PADDING);
        }
        let directory_bytes = u32::try_from(out.len() - HEADER_BYTES).unwrap_or(u32::MAX);
        let found = self.check(directory_bytes, records);
        assert_eq!(found, Ok(()), "a batch out of bounds: {self:?}");
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&[0; 4]);
        put(&MAGIC);
        [self.seq, self.nonce, self.durable, self.segment].iter().for_each(|value| put(&value.to_le_bytes()));
        put(&self.offset_units.to_le_bytes());
        put(&self.next_slot.to_le_bytes());
        put(&u32::from(self.first_ordinal).to_le_bytes());
        put(&directory_bytes.to_le_bytes());
        put(&self.payload_bytes.to_le_bytes());
        let crc = checksum(uuid, &out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out.resize(out.len().next_multiple_of(usize_from_u32(BLOCK_BYTES)), 0);
        out
    }

    /// Encodes header and directory as [`BatchHeader::encode`] does, padded to so many blocks if they take fewer.
    ///
    /// # Panics
    /// As [`BatchHeader::encode`].
    #[must_use]
    pub fn encode_padded(&self, uuid: &[u8; 16], records: &[Record], blocks: u32) -> Vec<u8> {
        let shortest = usize_from_u32(blocks.saturating_sub(1) * BLOCK_BYTES) + 1;
        self.encode_at_least(uuid, records, shortest)
    }

    /// Decodes header and directory of the batch at the front of `bytes`.
    ///
    /// # Errors
    /// When no batch lies there, it is corrupt or of another pool, or a field is out of bounds.
    pub fn decode(uuid: &[u8; 16], bytes: &[u8]) -> Result<(Self, Vec<Record>), BatchError> {
        let mut left = bytes;
        let [crc]: [u32; 1] = [u32::from_le_bytes(take(&mut left)?)];
        if take(&mut left)? != MAGIC {
            return Err(BatchError::Magic);
        }
        let mut long = || take(&mut left).map(u64::from_le_bytes);
        let (seq, nonce, durable, segment) = (long()?, long()?, long()?, long()?);
        let mut short = || take(&mut left).map(u32::from_le_bytes);
        let (offset_units, next_slot, first_ordinal) = (short()?, short()?, short()?);
        let (directory_bytes, payload_bytes) = (short()?, short()?);
        if directory_bytes > DIRECTORY_BYTES_MAX {
            return Err(BatchError::Field("directory"));
        }
        let end = HEADER_BYTES + usize_from_u32(directory_bytes);
        let covered = bytes.get(4..end).ok_or(BatchError::Truncated)?;
        if !has_checksum(uuid, covered, crc) {
            return Err(BatchError::Checksum);
        }
        let first_ordinal = u16::try_from(first_ordinal).map_err(|_| BatchError::Field("ordinal"))?;
        let header =
            Self { seq, nonce, durable, segment, offset_units, next_slot, first_ordinal, payload_bytes };
        let (mut records, mut left) = (Vec::new(), bytes.get(HEADER_BYTES..end).unwrap_or_default());
        while let Some((kind, rest)) = left.split_first() {
            if *kind == Record::PADDING {
                left = rest;
            } else {
                records.push(Record::decode(&mut left)?);
            }
        }
        header.check(directory_bytes, &records)?;
        Ok((header, records))
    }

    /// Returns the blocks of the device that header and directory take, from the bytes of the directory.
    #[must_use]
    pub const fn directory_blocks(directory_bytes: u32) -> u32 {
        (directory_bytes.saturating_add(64)).div_ceil(BLOCK_BYTES)
    }

    /// Checks the bounds of the fields, and that the contents of the records fit in payload and segment.
    fn check(&self, directory_bytes: u32, records: &[Record]) -> Result<(), BatchError> {
        let first = Name { pool: 0, segment: self.segment, ordinal: self.first_ordinal };
        if !first.is_valid() {
            return Err(BatchError::Field("segment"));
        }
        if directory_bytes > DIRECTORY_BYTES_MAX {
            return Err(BatchError::Field("directory"));
        }
        let is_whole = self.payload_bytes.is_multiple_of(BLOCK_BYTES);
        if !is_whole || self.payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(BatchError::Field("payload"));
        }
        let blocks = Self::directory_blocks(directory_bytes) + self.payload_bytes / BLOCK_BYTES;
        let end = self.offset_units.checked_add(blocks * (BLOCK_BYTES / UNIT_BYTES));
        if end.is_none_or(|end| end > UNITS_MAX) {
            return Err(BatchError::Field("offset"));
        }
        let (mut bytes, mut ordinals) = (0, u64::from(self.first_ordinal));
        for record in records {
            let (more, blocks) = record.extent();
            (bytes, ordinals) = (bytes + more, ordinals + blocks);
        }
        if bytes > u64::from(self.payload_bytes) || ordinals > u64::from(u16::MAX) + 1 {
            return Err(BatchError::Field("contents"));
        }
        Ok(())
    }
}

fn take<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], BatchError> {
    let (first, rest) = left.split_first_chunk().ok_or(BatchError::Truncated)?;
    *left = rest;
    Ok(*first)
}

fn number(left: &mut &[u8]) -> Result<u64, BatchError> {
    varint::take(left).ok_or(BatchError::Truncated)
}

fn id(left: &mut &[u8]) -> Result<u32, BatchError> {
    u32::try_from(number(left)?).map_err(|_| BatchError::Field("volume"))
}

fn bytes<'a>(left: &mut &'a [u8]) -> Result<&'a [u8], BatchError> {
    let len = usize::try_from(number(left)?).map_err(|_| BatchError::Truncated)?;
    let (first, rest) = left.split_at_checked(len).ok_or(BatchError::Truncated)?;
    *left = rest;
    Ok(first)
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
