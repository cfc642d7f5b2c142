//! The index image: both indexes, written at a clean stop so that a start need not read headers (`FORMAT.md`, section
//! 10).
//!
//! Job: encode and decode its head, its pieces, their directory and the entries of slots; compute the position of each
//! piece. Invariants: a decoded directory has at most the blocks of its area; a piece is valid only in its place in
//! the image of its session. It does not interpret buckets, or check that the image is that of the newest stop (the
//! superblock names it).

use zc_core::{Generation, JournalSeq, VolumeId, WeuSeq, limits, usize_from_u32};

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};
use crate::{BLOCK, FormatError, Geometry};

const HEAD_MAGIC: u32 = u32::from_le_bytes(*b"zcIh");
const PIECE_MAGIC: u32 = u32::from_le_bytes(*b"zcIp");
const PIECE_HEADER_BYTES: u32 = 64;
/// Largest piece: a few hundred microseconds of work for the thread that serves clients.
const PIECE_BYTES_MAX: u32 = 256 << 10;
const PIECE_BLOCKS_MAX: u32 = PIECE_BYTES_MAX / limits::BLOCK_BYTES;
/// Most bytes of a piece's units.
const UNITS_BYTES_MAX: u32 = PIECE_BYTES_MAX - PIECE_HEADER_BYTES;
/// Bytes of an [`ImageSlot`].
const SLOT_BYTES: u32 = 16;
/// Largest bucket: 16 entries of 16 bytes.
const BUCKET_BYTES_MAX: u32 = 256;
/// Bytes of a bucket besides its entries: the number of used ones.
const BUCKET_COUNT_BYTES: u32 = 1;
const BUCKET_ENTRIES: u64 = 16;
const DIRECTORY_UNIT_BYTES: u32 = 1;
const BUCKETS_MAX: u64 = 1 << 32;
/// Encoding of "no owner".
const NO_OWNER: u16 = u16::MAX;
const FLAG_SEALED: u8 = 1;
const FLAG_FILLING: u8 = 2;

/// Shape of an index, on which the meaning of its buckets depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageTable {
    /// Number of buckets.
    pub buckets: u64,
    /// Entries in them.
    pub entries: u64,
    /// Size of a bucket in bytes.
    pub bucket_bytes: u32,
    /// Bits of a key.
    pub key_bits: u32,
}

/// First block of an index image: identifies the stop, and describes the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageHead {
    /// Session that wrote it at its end.
    pub session: u64,
    /// End of the journal at that time.
    pub journal_next: JournalSeq,
    /// Newest checkpoint at that time.
    pub checkpoint: u64,
    /// Newest region map at that time.
    pub region_map_sequence: u64,
    /// Layout of buckets.
    pub layout: u32,
    /// Slots of the cache.
    pub slots: u32,
    /// Size of a slot in bytes.
    pub weu_bytes: u32,
    /// Size of an extent in bytes.
    pub extent_bytes: u32,
    /// Bits of a slot's generation in an entry of the file index.
    pub generation_bits: u32,
    /// The file index.
    pub files: ImageTable,
    /// The fingerprint index.
    pub prints: ImageTable,
}

/// Contents of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImagePart {
    /// Block counts of the other pieces.
    Directory,
    /// Slots.
    Slots,
    /// Buckets of the file index.
    Files,
    /// Buckets of the fingerprint index.
    Prints,
}

/// A piece: its number and contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImagePiece {
    /// Its number.
    pub number: u64,
    /// Contents.
    pub part: ImagePart,
    /// First slot or bucket.
    pub first: u64,
    /// Number of slots or buckets.
    pub count: u32,
}

/// Position of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImagePlace {
    /// First block in the area.
    pub first_block: u64,
    /// Its blocks.
    pub blocks: u32,
}

/// Positions of an image's pieces in order of their numbers; the first piece is the directory itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDirectory {
    places: Vec<ImagePlace>,
}

/// State of a slot in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageSlot {
    /// Its generation.
    pub generation: Generation,
    /// Sequence of its unit, if it holds one.
    pub weu_seq: WeuSeq,
    /// Volume with most extents in its unit.
    pub owner: Option<VolumeId>,
    /// `true` if it holds a unit whose extents may be read.
    pub sealed: bool,
    /// `true` if that unit has dirty extents and no header.
    pub filling: bool,
}

impl ImagePart {
    const ALL: [Self; 4] = [Self::Directory, Self::Slots, Self::Files, Self::Prints];

    const fn code(self) -> u32 {
        match self {
            Self::Slots => 1,
            Self::Files => 2,
            Self::Prints => 3,
            Self::Directory => 4,
        }
    }
}

impl ImageTable {
    /// Returns the most bytes of its buckets in an image.
    fn packed_bytes_max(&self) -> u64 {
        let entry_bytes = u64::from(self.bucket_bytes).div_ceil(BUCKET_ENTRIES);
        let counts = self.buckets.saturating_mul(u64::from(BUCKET_COUNT_BYTES));
        self.entries.saturating_mul(entry_bytes).saturating_add(counts)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.buckets).u64(self.entries).u32(self.bucket_bytes).u32(self.key_bits);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let table = Self { buckets: r.u64()?, entries: r.u64()?, bucket_bytes: r.u32()?, key_bits: r.u32()? };
        if table.buckets > BUCKETS_MAX || table.bucket_bytes > BUCKET_BYTES_MAX {
            return Err(FormatError::Field("index buckets"));
        }
        Ok(table)
    }
}

impl ImageHead {
    /// Returns the block's bytes for checkpoint area 0 or 1.
    #[must_use]
    pub fn encode(&self, area: usize, salt: Salt) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut w = Writer::new(&mut block);
        w.u32(0).u32(HEAD_MAGIC).u64(self.session).u64(self.journal_next.0).u64(self.checkpoint);
        w.u64(self.region_map_sequence).u32(self.layout).u32(self.slots);
        w.u32(self.weu_bytes).u32(self.extent_bytes).u32(self.generation_bits).u32(0);
        self.files.encode(&mut w);
        self.prints.encode(&mut w);
        Binding::copy(BlockType::ImageHead, area, salt).seal(&mut block);
        block
    }

    /// Decodes the head of an image in area 0 or 1, whose size is `area_blocks`, head included.
    ///
    /// # Errors
    /// When it is corrupt, from another place, or its directory does not fit.
    pub fn decode(bytes: &[u8], area: usize, area_blocks: u64, salt: Salt) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(bytes);
        r.u32()?;
        if r.u32()? != HEAD_MAGIC {
            return Err(FormatError::Magic);
        }
        Binding::copy(BlockType::ImageHead, area, salt).check(bytes)?;
        let (session, journal_next, checkpoint) = (r.u64()?, JournalSeq(r.u64()?), r.u64()?);
        let (region_map_sequence, layout, slots) = (r.u64()?, r.u32()?, r.u32()?);
        let (weu_bytes, extent_bytes, generation_bits) = (r.u32()?, r.u32()?, r.u32()?);
        r.u32()?;
        let (files, prints) = (ImageTable::decode(&mut r)?, ImageTable::decode(&mut r)?);
        let head = Self {
            session,
            journal_next,
            checkpoint,
            region_map_sequence,
            layout,
            slots,
            weu_bytes,
            extent_bytes,
            generation_bits,
            files,
            prints,
        };
        if head.directory().blocks_end() > area_blocks || !head.has_directory() {
            return Err(FormatError::Field("image blocks"));
        }
        Ok(head)
    }

    /// Returns `true` if a block begins like the head of an image.
    #[must_use]
    pub fn is_head(bytes: &[u8]) -> bool {
        bytes.get(4..8).is_some_and(|magic| magic == HEAD_MAGIC.to_le_bytes())
    }

    /// Returns `true` if any image with this number of entries fits the area.
    #[must_use]
    pub fn fits(&self, area_blocks: u64) -> bool {
        self.has_directory() && self.blocks_max() <= area_blocks
    }

    /// Returns the most blocks of an image with these entries, head included: each piece of a part but one may end
    /// with a single byte in its last block.
    fn blocks_max(&self) -> u64 {
        let block = u64::from(limits::BLOCK_BYTES);
        let beside = u64::from(PIECE_HEADER_BYTES).saturating_add(block).saturating_sub(1);
        ImagePart::ALL.into_iter().fold(1_u64, |blocks, part| {
            let pieces = self.run(part).pieces();
            let bytes = pieces.saturating_mul(beside).saturating_add(self.bytes_max(part));
            blocks.saturating_add(bytes.checked_div(block).unwrap_or(bytes))
        })
    }

    /// Returns the most bytes of the units of a part.
    fn bytes_max(&self, part: ImagePart) -> u64 {
        match part {
            ImagePart::Directory => self.others().saturating_mul(u64::from(DIRECTORY_UNIT_BYTES)),
            ImagePart::Slots => u64::from(self.slots).saturating_mul(u64::from(SLOT_BYTES)),
            ImagePart::Files => self.files.packed_bytes_max(),
            ImagePart::Prints => self.prints.packed_bytes_max(),
        }
    }

    /// Returns `true` if the directory fits one piece.
    fn has_directory(&self) -> bool {
        self.run(ImagePart::Directory).pieces() == 1
    }

    /// Returns the position of the directory, the first piece.
    #[must_use]
    pub fn directory(&self) -> ImagePlace {
        ImagePlace { first_block: 1, blocks: blocks_of(self.bytes_max(ImagePart::Directory)) }
    }

    /// Number of its pieces.
    #[must_use]
    pub fn pieces(&self) -> u64 {
        self.others().saturating_add(1)
    }

    /// Returns the number of pieces that the directory lists.
    fn others(&self) -> u64 {
        let [_, parts @ ..] = ImagePart::ALL;
        parts.into_iter().fold(0, |pieces, part| self.run(part).pieces().saturating_add(pieces))
    }

    /// Returns the piece of a number.
    #[must_use]
    pub fn piece(&self, number: u64) -> Option<ImagePiece> {
        let mut before = 0_u64;
        for part in ImagePart::ALL {
            let run = self.run(part);
            let index = number.checked_sub(before)?;
            if index < run.pieces() {
                let first = index.checked_mul(u64::from(run.per_piece))?;
                return Some(ImagePiece { number, part, first, count: run.count_of(first) });
            }
            before = before.checked_add(run.pieces())?;
        }
        None
    }

    fn run(&self, part: ImagePart) -> Run {
        let (units, unit_bytes) = match part {
            ImagePart::Directory => (self.others(), DIRECTORY_UNIT_BYTES),
            ImagePart::Slots => (u64::from(self.slots), SLOT_BYTES),
            ImagePart::Files => {
                (self.files.buckets, BUCKET_COUNT_BYTES.saturating_add(self.files.bucket_bytes))
            }
            ImagePart::Prints => {
                (self.prints.buckets, BUCKET_COUNT_BYTES.saturating_add(self.prints.bucket_bytes))
            }
        };
        Run {
            units,
            unit_bytes,
            per_piece: UNITS_BYTES_MAX.checked_div(unit_bytes).unwrap_or(UNITS_BYTES_MAX),
        }
    }

    /// Encodes a piece with these units into whole blocks.
    ///
    /// # Panics
    /// When the units exceed a piece, or do not have the length of their part.
    #[must_use]
    pub fn encode_piece(&self, piece: &ImagePiece, units: &[u8], salt: Salt) -> Vec<u8> {
        let len = u32::try_from(units.len()).unwrap_or(u32::MAX);
        assert!(self.may_be_long(piece, len), "a piece of another length");
        let mut bytes = vec![0; usize_from_u32(blocks_of(u64::from(len))).saturating_mul(BLOCK)];
        let mut w = Writer::new(&mut bytes);
        w.u32(0).u32(PIECE_MAGIC).u64(piece.number).u32(piece.part.code()).u32(piece.count);
        w.u64(piece.first).u32(len).u32(0).put(&[0; 24]).put(units);
        self.binding(piece, salt).seal(&mut bytes);
        bytes
    }

    /// Decodes the units of a piece from all of its blocks.
    ///
    /// # Errors
    /// When it is corrupt, of another image, or from another place.
    pub fn decode_piece<'a>(
        &self,
        piece: &ImagePiece,
        bytes: &'a [u8],
        salt: Salt,
    ) -> Result<&'a [u8], FormatError> {
        let mut r = Reader::new(bytes);
        r.u32()?;
        if r.u32()? != PIECE_MAGIC {
            return Err(FormatError::Magic);
        }
        self.binding(piece, salt).check(bytes)?;
        let (number, part, count, first) = (r.u64()?, r.u32()?, r.u32()?, r.u64()?);
        let len = r.u32()?;
        let is_this =
            (number, part, count, first) == (piece.number, piece.part.code(), piece.count, piece.first);
        if !is_this || !self.may_be_long(piece, len) {
            return Err(FormatError::Field("image piece"));
        }
        r.take(28)?;
        r.take(usize_from_u32(len))
    }

    /// Returns `true` if a piece may have this many bytes of units.
    fn may_be_long(&self, piece: &ImagePiece, len: u32) -> bool {
        let most = u64::from(piece.count).saturating_mul(u64::from(self.run(piece.part).unit_bytes));
        match piece.part {
            ImagePart::Directory | ImagePart::Slots => u64::from(len) == most,
            ImagePart::Files | ImagePart::Prints => u64::from(len) <= most && len >= piece.count,
        }
    }

    const fn binding(&self, piece: &ImagePiece, salt: Salt) -> Binding {
        Binding {
            salt,
            kind: BlockType::ImagePiece,
            place: piece.number,
            sequence: self.session,
            generation: 0,
        }
    }
}

impl ImagePlace {
    /// Returns the first block after it.
    #[must_use]
    pub fn blocks_end(&self) -> u64 {
        self.first_block.saturating_add(u64::from(self.blocks))
    }
}

impl ImageDirectory {
    /// Creates a directory that places itself only.
    #[must_use]
    pub fn new(head: &ImageHead) -> Self {
        Self { places: vec![head.directory()] }
    }

    /// Places the next piece, of `bytes`.
    pub fn place_next(&mut self, bytes: usize) -> ImagePlace {
        let blocks = u32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX);
        let place = ImagePlace { first_block: self.blocks(), blocks };
        self.places.push(place);
        place
    }

    /// Returns the position of a piece.
    #[must_use]
    pub fn place(&self, number: u64) -> Option<ImagePlace> {
        self.places.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the blocks placed so far, head included.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.places.last().map_or(1, ImagePlace::blocks_end)
    }

    /// Encodes the directory. All pieces must be placed.
    ///
    /// # Panics
    /// When some are not, or one is too long.
    #[must_use]
    pub fn encode(&self, head: &ImageHead, salt: Salt) -> Vec<u8> {
        let others = self.places.iter().skip(1);
        let units: Vec<u8> = others.map(|place| u8::try_from(place.blocks).unwrap_or(0)).collect();
        let Some(piece) = head.piece(0) else { unreachable!("an image has a directory") };
        head.encode_piece(&piece, &units, salt)
    }

    /// Decodes the directory of an image in an area of `area_blocks` blocks, head included.
    ///
    /// # Errors
    /// When it is corrupt, of another image, or has more blocks than the area.
    pub fn decode(head: &ImageHead, bytes: &[u8], area_blocks: u64, salt: Salt) -> Result<Self, FormatError> {
        let piece = head.piece(0).ok_or(FormatError::Field("image blocks"))?;
        let mut directory = Self::new(head);
        for blocks in head.decode_piece(&piece, bytes, salt)? {
            if !(1..=PIECE_BLOCKS_MAX).contains(&u32::from(*blocks)) {
                return Err(FormatError::Field("image blocks"));
            }
            directory.place_next(usize::from(*blocks).saturating_mul(BLOCK));
        }
        if directory.blocks() > area_blocks {
            return Err(FormatError::Field("image blocks"));
        }
        Ok(directory)
    }
}

/// The pieces of one part.
struct Run {
    units: u64,
    unit_bytes: u32,
    per_piece: u32,
}

impl Run {
    fn pieces(&self) -> u64 {
        self.units.div_ceil(u64::from(self.per_piece.max(1)))
    }

    /// Returns the units of the piece that begins with this one.
    fn count_of(&self, first: u64) -> u32 {
        let rest = self.units.saturating_sub(first).min(u64::from(self.per_piece));
        u32::try_from(rest).unwrap_or(u32::MAX)
    }
}

/// Returns the blocks of a piece with this many bytes of units.
fn blocks_of(units_bytes: u64) -> u32 {
    let bytes = units_bytes.saturating_add(u64::from(PIECE_HEADER_BYTES));
    u32::try_from(bytes.div_ceil(u64::from(limits::BLOCK_BYTES))).unwrap_or(u32::MAX)
}

impl ImageSlot {
    /// Appends its bytes.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        let mut unit = [0; SLOT_BYTES as usize];
        let sealed = if self.sealed { FLAG_SEALED } else { 0 };
        let filling = if self.filling { FLAG_FILLING } else { 0 };
        let owner = self.owner.map_or(NO_OWNER, |owner| owner.0);
        let mut w = Writer::new(&mut unit);
        w.u32(self.generation.0).u16(owner).u8(sealed | filling).u8(0).u64(self.weu_seq.0);
        bytes.extend_from_slice(&unit);
    }

    /// Decodes the slots of a piece.
    ///
    /// # Errors
    /// When one has an impossible owner or unknown flags.
    pub fn decode_all(units: &[u8]) -> impl Iterator<Item = Result<Self, FormatError>> {
        units.chunks_exact(usize_from_u32(SLOT_BYTES)).map(Self::decode)
    }

    fn decode(unit: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(unit);
        let (generation, owner, flags) = (Generation(r.u32()?), r.u16()?, r.u8()?);
        r.u8()?;
        let owner = (owner != NO_OWNER).then_some(VolumeId(owner));
        if flags & !(FLAG_SEALED | FLAG_FILLING) != 0
            || owner.is_some_and(|owner| owner.0 >= limits::VOLUMES_MAX)
        {
            return Err(FormatError::Field("image slot"));
        }
        let (sealed, filling) = (flags & FLAG_SEALED != 0, flags & FLAG_FILLING != 0);
        Ok(Self { generation, weu_seq: WeuSeq(r.u64()?), owner, sealed, filling })
    }
}

impl Geometry {
    /// Returns the offset of a block of an index image in checkpoint area 0 or 1; its head is block 0.
    #[must_use]
    pub fn image_block_offset(&self, area: usize, block: u64) -> u64 {
        let [first, second] = self.checkpoint;
        let start = if area == 0 { first } else { second };
        start.saturating_add(block.saturating_mul(u64::from(limits::BLOCK_BYTES)))
    }
}

#[cfg(test)]
#[path = "index_image_tests.rs"]
mod tests;
