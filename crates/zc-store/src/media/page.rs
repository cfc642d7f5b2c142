//! Pages of trees: a header that names the page, then records or numbers.

use super::{BLOCK, Binding, Block, MediaError, put_u64, u64_at};
use crate::ids::{Place, Pointer};

const MAGIC: [u8; 4] = *b"zcSp";
/// Where the contents begin.
pub(crate) const HEADER: usize = 64;
/// Bytes of contents.
pub(crate) const CONTENTS: usize = BLOCK - HEADER;

/// The trees, by their numbers on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TableId {
    /// Volume maps.
    Map = 0,
    /// The chunk table.
    Chunks = 1,
    /// The page table.
    Pages = 2,
    /// The segment table.
    Segments = 3,
    /// The catalog.
    Catalog = 4,
}

impl TableId {
    pub(crate) const fn from_media(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Map),
            1 => Some(Self::Chunks),
            2 => Some(Self::Pages),
            3 => Some(Self::Segments),
            4 => Some(Self::Catalog),
            _ => None,
        }
    }
}

/// Which page: its tree, level and position. Map pages are named by number alone, at level 0 of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// The tree.
    pub table: TableId,
    /// The level; 0 for leaves, and for the names of all map pages.
    pub level: u8,
    /// Position in the level, or number of a map page.
    pub index: u64,
}

/// A page without contents. Map pages have their level in the block, not in the key.
pub(crate) fn new_page(key: PageKey, level: u8, birth: u64) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    block[4..8].copy_from_slice(&MAGIC);
    block[8] = key.table as u8;
    block[9] = level;
    put_u64(&mut block[..], 16, key.index);
    put_u64(&mut block[..], 24, birth);
    block
}

/// The level that a page says it has.
pub(crate) fn level_of(block: &Block) -> u8 {
    block[9]
}

/// The epoch in which a map page was made.
pub(crate) fn birth_of(block: &Block) -> u64 {
    u64_at(block, 24)
}

/// Makes a copy of a map page another page.
pub(crate) fn rename(block: &mut Block, index: u64, birth: u64) {
    put_u64(block, 16, index);
    put_u64(block, 24, birth);
}

/// Puts the checksum for a place into a page.
pub(crate) fn seal(block: &mut Block, uuid: [u8; 16], place: Place) -> Pointer {
    Pointer { place, crc: Binding::page(uuid, place).seal(block) }
}

/// Checks that a block is the page that a pointer speaks of.
pub(crate) fn verify(
    block: &Block,
    uuid: [u8; 16],
    key: PageKey,
    pointer: Pointer,
) -> Result<(), MediaError> {
    if block[4..8] != MAGIC {
        return Err(MediaError::Magic);
    }
    Binding::page(uuid, pointer.place).check(block)?;
    if super::u32_at(block, 0) != pointer.crc {
        return Err(MediaError::Checksum);
    }
    let named = block[8] == key.table as u8 && u64_at(block, 16) == key.index;
    let level = key.table == TableId::Map || block[9] == key.level;
    if named && level { Ok(()) } else { Err(MediaError::Field("page name")) }
}
