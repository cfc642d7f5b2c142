//! Records, and the blocks of journal and checkpoints that hold them (`FORMAT.md`, sections 7 and 8).
//!
//! Job: encode and decode both. Invariants: a record is 24 bytes, a block holds at most 168; decoded slots, volumes
//! and extents are below their limits (the manager checks the cache's own slot count). It does not interpret sequences
//! of records.

use zc_core::{
    ExtentKey, ExtentNo, Generation, JournalSeq, SectorSpan, VolumeId, WeuSeq, WeuSlot, limits,
    usize_from_u32,
};

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};
use crate::{BLOCK, FormatError};

/// Size of a record.
pub const RECORD_BYTES: usize = 24;
const HEAD_BYTES: usize = 64;
/// Position of the growing unit in a journal block.
const GROWING_AT: usize = 48;
/// Records in a full block.
pub const RECORDS_PER_BLOCK: usize = (BLOCK - HEAD_BYTES) / RECORD_BYTES;

const _: () = assert!(RECORDS_PER_BLOCK == 168);

/// Fact that a restart needs. Offsets are in 64-byte units from the start of the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Record {
    /// The slot holds this WEU, completely written.
    SlotSealed {
        /// The slot.
        slot: WeuSlot,
        /// Its generation.
        generation: Generation,
        /// The WEU's sequence number.
        weu_seq: WeuSeq,
        /// Size of its header on media.
        header_bytes: u32,
    },
    /// The slot's contents up to and including this generation are invalid.
    SlotRetired {
        /// The slot.
        slot: WeuSlot,
        /// The generation.
        generation: Generation,
    },
    /// An extent has the content stored there by another one (or by itself, earlier).
    Duplicate {
        /// The extent.
        key: ExtentKey,
        /// Slot of the stored extent.
        slot: WeuSlot,
        /// Generation of the slot.
        generation: Generation,
        /// Position in the slot.
        offset_units: u16,
        /// 4 KiB pages that it overlaps.
        pages: u8,
    },
    /// An extent is all zero.
    Zero {
        /// The extent.
        key: ExtentKey,
    },
    /// An extent no longer has a duplicate or zero mapping.
    Unmap {
        /// The extent.
        key: ExtentKey,
    },
    /// A base entry of a unit header no longer maps its extent.
    BaseInvalid {
        /// The extent (not given in checkpoints).
        key: ExtentKey,
        /// The slot.
        slot: WeuSlot,
        /// Its generation.
        generation: Generation,
        /// Entry, by its position.
        offset_units: u16,
    },
    /// The slot is being filled with dirty extents under this identity; its header may never have been written.
    SlotDirty {
        /// The slot.
        slot: WeuSlot,
        /// Its generation.
        generation: Generation,
        /// The WEU's sequence number.
        weu_seq: WeuSeq,
    },
    /// Sectors of an extent that the origin lacks are stored there. Valid after the next [`Record::Committed`] of the
    /// volume.
    Dirty {
        /// The extent.
        key: ExtentKey,
        /// Sectors.
        span: SectorSpan,
        /// Slot of the stored piece.
        slot: WeuSlot,
        /// Generation of the slot.
        generation: Generation,
        /// Position in the slot.
        offset_units: u16,
        /// 4 KiB pages that it overlaps.
        pages: u8,
    },
    /// Sectors of an extent are zero, which the origin lacks. Valid like [`Record::Dirty`].
    DirtyZero {
        /// The extent.
        key: ExtentKey,
        /// Sectors.
        span: SectorSpan,
        /// `true` if the origin must keep them allocated.
        no_hole: bool,
    },
    /// The dirty records of the volume since the last such record are epoch `epoch`, complete.
    Committed {
        /// The volume.
        volume: VolumeId,
        /// The epoch; one more than the last.
        epoch: u64,
    },
    /// The origin durably has the volume's epochs up to and including this one.
    Clean {
        /// The volume.
        volume: VolumeId,
        /// The epoch.
        epoch: u64,
    },
    /// Dirty records of the volume without a later commit are invalid, and so are commits after this epoch.
    DirtyReset {
        /// The volume.
        volume: VolumeId,
        /// Last valid epoch.
        epoch: u64,
    },
    /// The volume's epochs up to and including this one are durable on the cache device, with all their extents:
    /// clients may have received acknowledgements. Such a commit is valid even if one of its extents cannot be read.
    Durable {
        /// The volume.
        volume: VolumeId,
        /// The epoch.
        epoch: u64,
    },
}

/// Fields that all records share on media.
#[derive(Default)]
struct Raw {
    kind: u8,
    pages: u8,
    volume: u16,
    slot: u32,
    wide: u64,
    generation: u32,
    offset_units: u16,
    first: u8,
    last: u8,
}

impl Record {
    fn to_raw(self) -> Raw {
        let keyed =
            |kind, key: ExtentKey| Raw { kind, volume: key.volume.0, wide: key.extent.0, ..Raw::default() };
        match self {
            Self::SlotSealed { slot, generation, weu_seq, header_bytes } => Raw {
                kind: 1,
                slot: slot.0,
                generation: generation.0,
                wide: weu_seq.0,
                offset_units: u16::try_from(header_bytes / limits::BLOCK_BYTES).unwrap_or(u16::MAX),
                ..Raw::default()
            },
            Self::SlotRetired { slot, generation } => {
                Raw { kind: 2, slot: slot.0, generation: generation.0, ..Raw::default() }
            }
            Self::Duplicate { key, slot, generation, offset_units, pages } => {
                Raw { slot: slot.0, generation: generation.0, offset_units, pages, ..keyed(3, key) }
            }
            Self::Zero { key } => keyed(4, key),
            Self::Unmap { key } => keyed(5, key),
            Self::BaseInvalid { key, slot, generation, offset_units } => {
                Raw { slot: slot.0, generation: generation.0, offset_units, ..keyed(6, key) }
            }
            Self::SlotDirty { slot, generation, weu_seq } => {
                Raw { kind: 7, slot: slot.0, generation: generation.0, wide: weu_seq.0, ..Raw::default() }
            }
            Self::Dirty { key, span, slot, generation, offset_units, pages } => Raw {
                slot: slot.0,
                generation: generation.0,
                offset_units,
                pages,
                first: span.first(),
                last: span.last(),
                ..keyed(8, key)
            },
            Self::DirtyZero { key, span, no_hole } => {
                Raw { pages: u8::from(no_hole), first: span.first(), last: span.last(), ..keyed(9, key) }
            }
            Self::Committed { volume, epoch } => epoch_raw(10, volume, epoch),
            Self::Clean { volume, epoch } => epoch_raw(11, volume, epoch),
            Self::DirtyReset { volume, epoch } => epoch_raw(12, volume, epoch),
            Self::Durable { volume, epoch } => epoch_raw(13, volume, epoch),
        }
    }

    fn from_raw(raw: &Raw) -> Result<Self, FormatError> {
        let slot = WeuSlot(raw.slot);
        let generation = Generation(raw.generation);
        let offset_units = raw.offset_units;
        let key = ExtentKey { volume: VolumeId(raw.volume), extent: ExtentNo(raw.wide) };
        let keyed = matches!(raw.kind, 3..=6 | 8 | 9);
        let of_volume = keyed || matches!(raw.kind, 10..=13);
        if slot.0 >= limits::SLOTS_MAX
            || (of_volume && raw.volume >= limits::VOLUMES_MAX)
            || (keyed && raw.wide >= limits::EXTENTS_PER_VOLUME_MAX)
        {
            return Err(FormatError::Field("record"));
        }
        let span = || SectorSpan::from_ends(raw.first, raw.last).ok_or(FormatError::Field("sectors"));
        let (volume, epoch) = (VolumeId(raw.volume), raw.wide);
        Ok(match raw.kind {
            1 => Self::SlotSealed {
                slot,
                generation,
                weu_seq: WeuSeq(raw.wide),
                header_bytes: u32::from(offset_units) * limits::BLOCK_BYTES,
            },
            2 => Self::SlotRetired { slot, generation },
            3 => Self::Duplicate { key, slot, generation, offset_units, pages: raw.pages },
            4 => Self::Zero { key },
            5 => Self::Unmap { key },
            6 => Self::BaseInvalid { key, slot, generation, offset_units },
            7 => Self::SlotDirty { slot, generation, weu_seq: WeuSeq(raw.wide) },
            8 => Self::Dirty { key, span: span()?, slot, generation, offset_units, pages: raw.pages },
            9 => Self::DirtyZero { key, span: span()?, no_hole: raw.pages != 0 },
            10 => Self::Committed { volume, epoch },
            11 => Self::Clean { volume, epoch },
            12 => Self::DirtyReset { volume, epoch },
            13 => Self::Durable { volume, epoch },
            _ => return Err(FormatError::Field("record kind")),
        })
    }

    /// The record's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        let raw = self.to_raw();
        let mut bytes = [0; RECORD_BYTES];
        let mut w = Writer::new(&mut bytes);
        w.u8(raw.kind).u8(raw.pages).u16(raw.volume).u32(raw.slot).u64(raw.wide);
        w.u32(raw.generation).u16(raw.offset_units).u8(raw.first).u8(raw.last);
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the kind is unknown or a number is out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes);
        let raw = Raw {
            kind: r.u8()?,
            pages: r.u8()?,
            volume: r.u16()?,
            slot: r.u32()?,
            wide: r.u64()?,
            generation: r.u32()?,
            offset_units: r.u16()?,
            first: r.u8()?,
            last: r.u8()?,
        };
        Self::from_raw(&raw)
    }
}

/// Position of the first piece whose summaries continue a journal block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrowingUnit {
    /// Slot of the unit that is being filled with dirty extents.
    pub slot: WeuSlot,
    /// Its generation, at least 1.
    pub generation: Generation,
    /// First 4 KiB page not yet written.
    pub page: u32,
}

/// A block of the journal ring.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JournalBlock {
    /// Sequence number; its place in the ring is the number modulo the ring's size.
    pub sequence: JournalSeq,
    /// Session that wrote it.
    pub session: u64,
    /// Sequence of the newest region map when it was written: a restart that finds an older map has lost one.
    pub region_map_sequence: u64,
    /// Commits in blocks before this one were durable with all their extents when the block was written.
    pub proved: JournalSeq,
    /// Position of summaries that continue the block.
    pub growing: Option<GrowingUnit>,
    /// At most [`RECORDS_PER_BLOCK`].
    pub records: Vec<Record>,
}

const JOURNAL_MAGIC: u32 = u32::from_le_bytes(*b"zcJb");
const CHECKPOINT_MAGIC: u32 = u32::from_le_bytes(*b"zcKb");

impl JournalBlock {
    /// Encodes the block.
    ///
    /// # Panics
    /// When it holds too many records.
    #[must_use]
    pub fn encode(&self, salt: Salt) -> Vec<u8> {
        let mut block = encode_block(
            JOURNAL_MAGIC,
            self.sequence.0,
            self.session,
            self.region_map_sequence,
            self.proved.0,
            &self.records,
        );
        if let (Some(unit), Some(place)) = (self.growing, block.get_mut(GROWING_AT..HEAD_BYTES)) {
            Writer::new(place).u32(unit.slot.0).u32(unit.generation.0).u32(unit.page);
        }
        journal_binding(self.sequence, salt).seal(&mut block);
        block
    }

    /// Decodes the block with the number `sequence`.
    ///
    /// # Errors
    /// When it is another block, of an older ring cycle, torn or corrupt.
    pub fn decode(bytes: &[u8], sequence: JournalSeq, salt: Salt) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
        let head = decode_head(bytes, JOURNAL_MAGIC)?;
        if head.number != sequence.0 {
            return Err(FormatError::Field("journal sequence"));
        }
        journal_binding(sequence, salt).check(bytes)?;
        Ok(Self {
            sequence,
            session: head.session,
            region_map_sequence: head.extra,
            proved: JournalSeq(head.proved),
            growing: decode_growing(bytes)?,
            records: decode_records(bytes, head.count)?,
        })
    }

    /// Returns the number in a block that looks like a journal block. Not verified.
    #[must_use]
    pub fn peek_sequence(bytes: &[u8]) -> Option<JournalSeq> {
        decode_head(bytes, JOURNAL_MAGIC).ok().map(|head| JournalSeq(head.number))
    }
}

/// Encodes record block number `block` of checkpoint `sequence`.
///
/// # Panics
/// When there are too many records.
#[must_use]
pub fn encode_checkpoint_block(sequence: u64, block: u64, records: &[Record], salt: Salt) -> Vec<u8> {
    let mut bytes = encode_block(CHECKPOINT_MAGIC, block, 0, sequence, 0, records);
    checkpoint_binding(sequence, block, salt).seal(&mut bytes);
    bytes
}

/// Decodes record block `block` of checkpoint `sequence`.
///
/// # Errors
/// When it is another block, torn or corrupt.
pub fn decode_checkpoint_block(
    bytes: &[u8],
    sequence: u64,
    block: u64,
    salt: Salt,
) -> Result<Vec<Record>, FormatError> {
    let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
    let head = decode_head(bytes, CHECKPOINT_MAGIC)?;
    if head.number != block || head.extra != sequence {
        return Err(FormatError::Field("checkpoint block number"));
    }
    checkpoint_binding(sequence, block, salt).check(bytes)?;
    decode_records(bytes, head.count)
}

fn journal_binding(sequence: JournalSeq, salt: Salt) -> Binding {
    Binding { salt, kind: BlockType::JournalBlock, place: 0, sequence: sequence.0, generation: 0 }
}

fn checkpoint_binding(sequence: u64, block: u64, salt: Salt) -> Binding {
    Binding { salt, kind: BlockType::CheckpointBlock, place: block, sequence, generation: 0 }
}

struct Head {
    number: u64,
    session: u64,
    extra: u64,
    count: usize,
    proved: u64,
}

fn epoch_raw(kind: u8, volume: VolumeId, epoch: u64) -> Raw {
    Raw { kind, volume: volume.0, wide: epoch, ..Raw::default() }
}

fn encode_block(
    magic: u32,
    number: u64,
    session: u64,
    extra: u64,
    proved: u64,
    records: &[Record],
) -> Vec<u8> {
    assert!(records.len() <= RECORDS_PER_BLOCK, "{} records in one block", records.len());
    let mut block = vec![0; BLOCK];
    let count = u32::try_from(records.len()).unwrap_or(0);
    let mut w = Writer::new(&mut block);
    w.u32(0).u32(magic).u64(number).u64(session).u64(extra).u32(count);
    w.u32(0).u64(proved).put(&[0; HEAD_BYTES - GROWING_AT]);
    for record in records {
        w.put(&record.encode());
    }
    block
}

fn decode_head(bytes: &[u8], magic: u32) -> Result<Head, FormatError> {
    let mut r = Reader::new(bytes);
    r.u32()?;
    if r.u32()? != magic {
        return Err(FormatError::Magic);
    }
    let (number, session, extra) = (r.u64()?, r.u64()?, r.u64()?);
    let count = usize_from_u32(r.u32()?);
    if count > RECORDS_PER_BLOCK {
        return Err(FormatError::Field("record count"));
    }
    r.u32()?;
    Ok(Head { number, session, extra, count, proved: r.u64()? })
}

fn decode_growing(bytes: &[u8]) -> Result<Option<GrowingUnit>, FormatError> {
    let mut r = Reader::new(bytes.get(GROWING_AT..).ok_or(FormatError::Truncated)?);
    let unit = GrowingUnit { slot: WeuSlot(r.u32()?), generation: Generation(r.u32()?), page: r.u32()? };
    Ok((unit.generation.0 > 0).then_some(unit))
}

fn decode_records(bytes: &[u8], count: usize) -> Result<Vec<Record>, FormatError> {
    let records = bytes.get(HEAD_BYTES..).ok_or(FormatError::Truncated)?;
    records.chunks_exact(RECORD_BYTES).take(count).map(Record::decode).collect()
}
