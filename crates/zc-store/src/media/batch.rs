//! Batch headers and their records: what recovery and the cleaner read.

use zc_core::{Codec, Fingerprint};

use super::page::{PageKey, TableId};
use super::{
    BLOCK, Binding, Block, MediaError, as_block, name_at, put_name, put_u16, put_u32, put_u64, u16_at,
    u32_at, u64_at,
};
use crate::ids::{BatchSeq, ChunkNo, Place, RootId, SegmentNo};

const MAGIC: [u8; 4] = *b"zcSb";
const HEADER: usize = 64;
/// Bytes of records in a header.
pub(crate) const RECORDS_BYTES_MAX: usize = BLOCK - HEADER;
/// Bytes of a chunk record.
pub(crate) const CHUNK_RECORD_BYTES: usize = 64;
/// Bytes of a map, clear, page or gone record.
pub(crate) const SHORT_RECORD_BYTES: usize = 24;
/// Bytes of a catalog record.
pub(crate) const CATALOG_RECORD_BYTES: usize = 96;
/// In a chunk's flags: its fingerprint is known.
const HAS_PRINT: u32 = 1;
const _: () = assert!(
    (CHUNK_RECORD_BYTES + SHORT_RECORD_BYTES) * crate::limits::REQUEST_CHUNKS_MAX as usize
        <= RECORDS_BYTES_MAX
);

/// A stored chunk: what its record and its entry in the chunk table say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub place: Place,
    /// Bytes there.
    pub stored_bytes: u32,
    /// Bytes decoded.
    pub raw_bytes: u32,
    /// CRC-32C of the bytes there.
    pub crc: u32,
    /// How they are encoded.
    pub codec: Codec,
    /// Fingerprint of the decoded bytes, if it is known.
    pub print: Option<Fingerprint>,
}

impl Stored {
    /// Returns `true` if its lengths can be: there is something, which is no longer than what it decodes to.
    pub(crate) const fn is_sane(&self) -> bool {
        0 < self.stored_bytes
            && self.stored_bytes <= self.raw_bytes
            && self.raw_bytes <= crate::limits::CHUNK_BYTES_MAX
    }
}

/// A change of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogChange {
    /// What.
    pub op: CatalogOp,
    /// The volume or snapshot that is made or changed.
    pub id: RootId,
    /// Whose contents it gets.
    pub source: RootId,
    /// Codec of a new volume.
    pub codec: Codec,
    /// Binary logarithm of its chunk size.
    pub chunk_shift: u8,
    /// Size in chunks.
    pub size_chunks: u64,
    /// Bit 0: contents are shared.
    pub flags: u64,
    /// Name of what is made.
    pub name: String,
}

/// What a catalog change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CatalogOp {
    /// A new, empty volume.
    Create = 1,
    /// A snapshot of a volume.
    Snapshot = 2,
    /// A volume that begins as a snapshot or another volume.
    Clone = 3,
    /// A volume gets the contents of a snapshot.
    Rollback = 4,
    /// A volume becomes larger.
    Grow = 5,
    /// A volume or snapshot goes.
    Delete = 6,
}

/// A record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A chunk is stored here.
    Chunk(ChunkNo, Stored),
    /// An address holds a chunk.
    Map(RootId, u64, ChunkNo),
    /// Addresses hold nothing.
    Clear(RootId, u64, u64),
    /// A page is stored at this offset.
    Page(PageKey, u32),
    /// The catalog changes.
    Catalog(CatalogChange),
    /// Chunks have no record any more: those of 64 numbers from this one on whose bits are set.
    Gone(ChunkNo, u64),
}

impl CatalogOp {
    const fn from_media(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Create),
            2 => Some(Self::Snapshot),
            3 => Some(Self::Clone),
            4 => Some(Self::Rollback),
            5 => Some(Self::Grow),
            6 => Some(Self::Delete),
            _ => None,
        }
    }
}

impl Record {
    pub(crate) const fn bytes(&self) -> usize {
        match self {
            Self::Chunk(..) => CHUNK_RECORD_BYTES,
            Self::Map(..) | Self::Clear(..) | Self::Page(..) | Self::Gone(..) => SHORT_RECORD_BYTES,
            Self::Catalog(_) => CATALOG_RECORD_BYTES,
        }
    }

    fn encode(&self, out: &mut [u8]) {
        match self {
            Self::Chunk(number, stored) => {
                out[0] = 1;
                out[1] = stored.codec.media_code();
                put_u32(out, 4, stored.stored_bytes);
                put_u32(out, 8, stored.raw_bytes);
                put_u32(out, 12, stored.crc);
                put_u64(out, 16, number.0);
                put_u32(out, 24, stored.place.offset_bytes);
                if let Some(print) = stored.print {
                    put_u32(out, 28, HAS_PRINT);
                    out[32..64].copy_from_slice(&print.0);
                }
            }
            Self::Map(root, address, number) => encode_short(out, 2, *root, *address, number.0),
            Self::Clear(root, first, count) => encode_short(out, 3, *root, *first, *count),
            Self::Page(key, offset) => {
                out[0] = 4;
                out[1] = key.table as u8;
                out[2] = key.level;
                put_u32(out, 4, *offset);
                put_u64(out, 8, key.index);
            }
            Self::Catalog(change) => {
                out[0] = 5;
                out[1] = change.op as u8;
                put_u16(out, 2, change.id.0);
                put_u16(out, 4, change.source.0);
                out[6] = change.codec.media_code();
                out[7] = change.chunk_shift;
                put_u64(out, 8, change.size_chunks);
                put_u64(out, 16, change.flags);
                put_name(out, 24, &change.name);
            }
            Self::Gone(first, numbers) => encode_short(out, 6, RootId(0), first.0, *numbers),
        }
    }

    /// The record at the start of `bytes`; `segment` is where its batch is.
    fn decode(bytes: &[u8], segment: SegmentNo) -> Result<Self, MediaError> {
        let len = match bytes.first() {
            Some(1) => CHUNK_RECORD_BYTES,
            Some(2..=4 | 6) => SHORT_RECORD_BYTES,
            Some(5) => CATALOG_RECORD_BYTES,
            _ => return Err(MediaError::Field("record kind")),
        };
        let b = bytes.get(..len).ok_or(MediaError::Field("records"))?;
        let root = RootId(u16_at(b, 2));
        Ok(match b[0] {
            1 => Self::Chunk(ChunkNo(u64_at(b, 16)), decode_stored(b, segment)?),
            2 => Self::Map(root, u64_at(b, 8), ChunkNo(u64_at(b, 16))),
            3 => Self::Clear(root, u64_at(b, 8), u64_at(b, 16)),
            6 => Self::Gone(ChunkNo(u64_at(b, 8)), u64_at(b, 16)),
            4 => {
                let table = TableId::from_media(b[1]).ok_or(MediaError::Field("table"))?;
                Self::Page(PageKey { table, level: b[2], index: u64_at(b, 8) }, u32_at(b, 4))
            }
            _ => Self::Catalog(CatalogChange {
                op: CatalogOp::from_media(b[1]).ok_or(MediaError::Field("catalog operation"))?,
                id: root,
                source: RootId(u16_at(b, 4)),
                codec: Codec::from_media_code(b[6]).ok_or(MediaError::Field("codec"))?,
                chunk_shift: b[7],
                size_chunks: u64_at(b, 8),
                flags: u64_at(b, 16),
                name: name_at(b, 24)?,
            }),
        })
    }
}

fn encode_short(out: &mut [u8], kind: u8, root: RootId, first: u64, second: u64) {
    out[0] = kind;
    put_u16(out, 2, root.0);
    put_u64(out, 8, first);
    put_u64(out, 16, second);
}

fn decode_stored(b: &[u8], segment: SegmentNo) -> Result<Stored, MediaError> {
    let mut print = Fingerprint([0; 32]);
    print.0.copy_from_slice(&b[32..64]);
    let stored = Stored {
        place: Place { segment, offset_bytes: u32_at(b, 24) },
        stored_bytes: u32_at(b, 4),
        raw_bytes: u32_at(b, 8),
        crc: u32_at(b, 12),
        codec: Codec::from_media_code(b[1]).ok_or(MediaError::Field("codec"))?,
        print: (u32_at(b, 28) & HAS_PRINT != 0).then_some(print),
    };
    if stored.is_sane() { Ok(stored) } else { Err(MediaError::Field("chunk")) }
}

/// A batch header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchHeader {
    /// Its number.
    pub seq: BatchSeq,
    /// Nonce of its session.
    pub nonce: u64,
    /// Batches up to this one were durable when it was made.
    pub durable: BatchSeq,
    /// Segment in which the log goes on when this one is full.
    pub next: SegmentNo,
    /// Bytes after the header.
    pub payload_bytes: u32,
    /// What it holds.
    pub records: Vec<Record>,
}

impl BatchHeader {
    /// The block for a place.
    ///
    /// # Panics
    /// When the records do not fit: their sizes are summed up before.
    #[must_use]
    pub fn encode(&self, uuid: [u8; 16], place: Place) -> Box<Block> {
        let mut b = Box::new([0; BLOCK]);
        b[4..8].copy_from_slice(&MAGIC);
        put_u64(&mut b[..], 8, self.seq.0);
        put_u64(&mut b[..], 16, self.nonce);
        put_u64(&mut b[..], 24, self.durable.0);
        put_u32(&mut b[..], 32, self.next.0);
        put_u32(&mut b[..], 36, self.payload_bytes);
        let mut at = HEADER;
        for record in &self.records {
            record.encode(&mut b[at..at + record.bytes()]);
            at += record.bytes();
        }
        let records_bytes = u32::try_from(at - HEADER).unwrap_or(u32::MAX);
        put_u32(&mut b[..], 40, records_bytes);
        Binding::batch(uuid, place).seal(&mut b);
        b
    }

    /// Reads the header at a place of a segment of this size.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn decode(
        bytes: &[u8],
        uuid: [u8; 16],
        place: Place,
        segment_bytes: u32,
    ) -> Result<Self, MediaError> {
        let b = as_block(bytes)?;
        if b[4..8] != MAGIC {
            return Err(MediaError::Magic);
        }
        Binding::batch(uuid, place).check(b)?;
        let payload_bytes = u32_at(b, 36);
        let block = crate::limits::BLOCK_BYTES;
        let end = place.offset_bytes.checked_add(block).and_then(|start| start.checked_add(payload_bytes));
        if !payload_bytes.is_multiple_of(block) || end.is_none_or(|end| end > segment_bytes) {
            return Err(MediaError::Field("payload_bytes"));
        }
        let (seq, durable) = (BatchSeq(u64_at(b, 8)), BatchSeq(u64_at(b, 24)));
        if seq.0 >= crate::limits::COUNT_MAX || durable >= seq {
            return Err(MediaError::Field("seq"));
        }
        let len = zc_core::usize_from_u32(u32_at(b, 40));
        let mut rest = b[HEADER..].get(..len).ok_or(MediaError::Field("records_bytes"))?;
        let mut records = Vec::new();
        // Contents follow each other in the payload.
        let mut contents = place.offset_bytes + block..place.offset_bytes + block + payload_bytes;
        while !rest.is_empty() {
            let record = Record::decode(rest, place.segment)?;
            if let Record::Chunk(_, stored) = &record {
                let start = stored.place.offset_bytes;
                let end = start.checked_add(stored.stored_bytes).filter(|end| *end <= contents.end);
                contents.start =
                    end.filter(|_| start >= contents.start).ok_or(MediaError::Field("contents"))?;
            }
            rest = &rest[record.bytes()..];
            records.push(record);
        }
        Ok(Self {
            seq,
            nonce: u64_at(b, 16),
            durable,
            next: SegmentNo(u32_at(b, 32)),
            payload_bytes,
            records,
        })
    }

    /// Bytes of the whole batch.
    pub(crate) const fn bytes(&self) -> u32 {
        crate::limits::BLOCK_BYTES + self.payload_bytes
    }
}
