//! The superblock: identity, session, and the state and place in the log from which it continues.

use super::{BLOCK, Binding, Block, MediaError, as_block, put_u32, put_u64, u32_at, u64_at};
use crate::config::Shape;
use crate::ids::{BatchSeq, Place, Pointer, SegmentNo};
use crate::limits;

const MAGIC: [u8; 8] = *b"zcstore\x01";
const VERSION: u32 = 1;
/// Offset of the first segment.
pub(crate) const SEGMENTS_START_BYTES: u64 = 128 << 10;
/// Distance between the copies.
const COPY_STEP_BYTES: u64 = 64 << 10;
/// Tables whose roots it names.
pub(crate) const TABLES: usize = 4;

/// Records of a leaf of each of them.
const RECORDS_PER_LEAF: [u64; TABLES] = [72, 252, 168, 31];

/// A place in the log: where the next batch is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPlace {
    /// Its number.
    pub seq: BatchSeq,
    /// Nonce of the session that writes it.
    pub nonce: u64,
    /// Here,
    pub place: Place,
    /// or at the start of this segment.
    pub next: SegmentNo,
}

/// The root of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableRoot {
    /// The top page.
    pub pointer: Pointer,
    /// Levels of pages.
    pub height: u32,
}

/// The superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The store's identity.
    pub uuid: [u8; 16],
    /// Counts rewrites.
    pub sequence: u64,
    /// Counts openings.
    pub session: u64,
    /// A random number of the opening.
    pub nonce: u64,
    /// Number of segments.
    pub segments: u32,
    /// Size of a segment in bytes.
    pub segment_bytes: u32,
    /// Place where the log continues.
    pub log: LogPlace,
    /// Number of times that an operator accepted the loss of a part of the log.
    pub losses: u32,
    /// Number of recoveries that dropped commits that nothing proved, since that was last reported.
    pub dropped: u32,
    /// Chunk numbers from here on were never given.
    pub chunks_end: u64,
    /// Map page numbers from here on were never given.
    pub pages_end: u64,
    /// Counts new volumes, snapshots, clones and rollbacks.
    pub epoch: u64,
    /// Roots of chunk table, page table, segment table and catalog.
    pub tables: [TableRoot; TABLES],
}

impl Superblock {
    /// Byte offset of a copy on the device.
    #[must_use]
    pub const fn offset_bytes(copy: u8) -> u64 {
        copy as u64 * COPY_STEP_BYTES
    }

    /// Byte offset of a place on the device.
    #[must_use]
    pub const fn device_offset(place: Place, segment_bytes: u32) -> u64 {
        SEGMENTS_START_BYTES + place.segment.0 as u64 * segment_bytes as u64 + place.offset_bytes as u64
    }

    /// The size of the store's device.
    pub(crate) const fn shape(&self) -> Shape {
        Shape { segment_bytes: self.segment_bytes, segments: self.segments }
    }

    /// The first superblock of an empty store, or `None` when the device is too small or a size is out of bounds.
    #[must_use]
    pub fn format(uuid: [u8; 16], device_bytes: u64, segment_bytes: u32, nonce: u64) -> Option<Self> {
        let sane = (limits::SEGMENT_BYTES_MIN..=limits::SEGMENT_BYTES_MAX).contains(&segment_bytes)
            && segment_bytes.is_multiple_of(limits::BLOCK_BYTES);
        let room = device_bytes.checked_sub(SEGMENTS_START_BYTES).filter(|_| sane)?;
        let count = (room / u64::from(segment_bytes)).min(u64::from(limits::SEGMENTS_MAX));
        let segments = u32::try_from(count).ok().filter(|count| *count >= limits::SEGMENTS_MIN)?;
        let log = LogPlace { seq: BatchSeq(1 << 32), nonce, place: Place::default(), next: SegmentNo(1) };
        Some(Self {
            uuid,
            sequence: 1,
            session: 1,
            nonce,
            segments,
            segment_bytes,
            log,
            losses: 0,
            dropped: 0,
            chunks_end: 1,
            pages_end: 1,
            epoch: 1,
            tables: [TableRoot::default(); TABLES],
        })
    }

    /// The bytes of a copy.
    #[must_use]
    pub fn encode(&self, copy: u8) -> Box<Block> {
        let mut b = Box::new([0; BLOCK]);
        put_u32(&mut b[..], 4, VERSION);
        b[8..16].copy_from_slice(&MAGIC);
        b[16..32].copy_from_slice(&self.uuid);
        put_u64(&mut b[..], 56, self.sequence);
        put_u64(&mut b[..], 64, self.session);
        put_u64(&mut b[..], 72, self.nonce);
        put_u32(&mut b[..], 80, self.segments);
        put_u32(&mut b[..], 84, self.segment_bytes);
        put_u64(&mut b[..], 88, self.log.seq.0);
        put_u64(&mut b[..], 96, self.log.nonce);
        put_u32(&mut b[..], 104, self.log.place.segment.0);
        put_u32(&mut b[..], 108, self.log.place.offset_bytes);
        put_u32(&mut b[..], 112, self.log.next.0);
        put_u32(&mut b[..], 116, self.losses);
        put_u64(&mut b[..], 120, self.chunks_end);
        put_u64(&mut b[..], 128, self.pages_end);
        put_u64(&mut b[..], 136, self.epoch);
        for (index, root) in self.tables.iter().enumerate() {
            put_pointer(&mut b[..], 144 + 16 * index, root.pointer);
            put_u32(&mut b[..], 156 + 16 * index, root.height);
        }
        put_u32(&mut b[..], 208, self.dropped);
        Binding::superblock(copy).seal(&mut b);
        b
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// When it is no superblock, damaged, from another place, or of a version or with features unknown here.
    pub fn decode(bytes: &[u8], copy: u8) -> Result<Self, MediaError> {
        let b = as_block(bytes)?;
        if b[8..16] != MAGIC {
            return Err(MediaError::Magic);
        }
        Binding::superblock(copy).check(b)?;
        if u32_at(b, 4) != VERSION || u64_at(b, 40) != 0 || u64_at(b, 48) != 0 {
            return Err(MediaError::Version);
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&b[16..32]);
        let mut tables = [TableRoot::default(); TABLES];
        for (index, root) in tables.iter_mut().enumerate() {
            *root =
                TableRoot { pointer: pointer_at(b, 144 + 16 * index), height: u32_at(b, 156 + 16 * index) };
        }
        let place = Place { segment: SegmentNo(u32_at(b, 104)), offset_bytes: u32_at(b, 108) };
        let next = SegmentNo(u32_at(b, 112));
        let log = LogPlace { seq: BatchSeq(u64_at(b, 88)), nonce: u64_at(b, 96), place, next };
        let found = Self {
            uuid,
            sequence: u64_at(b, 56),
            session: u64_at(b, 64),
            nonce: u64_at(b, 72),
            segments: u32_at(b, 80),
            segment_bytes: u32_at(b, 84),
            log,
            losses: u32_at(b, 116),
            dropped: u32_at(b, 208),
            chunks_end: u64_at(b, 120),
            pages_end: u64_at(b, 128),
            epoch: u64_at(b, 136),
            tables,
        };
        found.validate().map(|()| found)
    }

    /// Before anything is computed from what was read.
    fn validate(&self) -> Result<(), MediaError> {
        let sizes = (limits::SEGMENT_BYTES_MIN..=limits::SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
            && self.segment_bytes.is_multiple_of(limits::BLOCK_BYTES)
            && (limits::SEGMENTS_MIN..=limits::SEGMENTS_MAX).contains(&self.segments);
        if !sizes {
            return Err(MediaError::Field("geometry"));
        }
        let log = self.log.place;
        let is_log_inside = [log.segment, self.log.next].iter().all(|segment| segment.0 < self.segments)
            && log.offset_bytes <= self.segment_bytes
            && log.offset_bytes.is_multiple_of(limits::BLOCK_BYTES);
        if !is_log_inside {
            return Err(MediaError::Field("log"));
        }
        let counts = [self.sequence, self.epoch, self.log.seq.0];
        let are_counts = counts.iter().all(|count| (1..limits::COUNT_MAX).contains(count))
            && (1..limits::SESSIONS_MAX).contains(&self.session);
        if !are_counts {
            return Err(MediaError::Field("count"));
        }
        let pool_bytes = u64::from(self.segments) * u64::from(self.segment_bytes);
        let [chunks_max, pages_max] = limits::numbers_max(pool_bytes);
        if !(1..=chunks_max).contains(&self.chunks_end) || !(1..=pages_max).contains(&self.pages_end) {
            return Err(MediaError::Field("numbers"));
        }
        let numbers = [chunks_max, pages_max, u64::from(self.segments), u64::from(limits::ROOTS_MAX)];
        let is_sane = |((root, numbers), per_leaf): ((&TableRoot, u64), u64)| match root.height {
            0 => !root.pointer.is_some(),
            height => {
                height <= limits::table_height(numbers, per_leaf)
                    && root.pointer.is_inside(self.segments, self.segment_bytes)
            }
        };
        let mut tables = self.tables.iter().zip(numbers).zip(RECORDS_PER_LEAF);
        if tables.all(is_sane) { Ok(()) } else { Err(MediaError::Field("table")) }
    }
}

/// Reads a place and a checksum.
pub(crate) fn pointer_at(bytes: &[u8], at: usize) -> Pointer {
    let place = Place { segment: SegmentNo(u32_at(bytes, at)), offset_bytes: u32_at(bytes, at + 4) };
    Pointer { place, crc: u32_at(bytes, at + 8) }
}

/// Writes them.
pub(crate) fn put_pointer(bytes: &mut [u8], at: usize, pointer: Pointer) {
    put_u32(bytes, at, pointer.place.segment.0);
    put_u32(bytes, at + 4, pointer.place.offset_bytes);
    put_u32(bytes, at + 8, pointer.crc);
}
