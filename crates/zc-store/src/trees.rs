//! All trees of the store, and what changes them together.
//!
//! Job: the four tables, the catalog in memory, the numbers, the segments' counts, the mark: every change of one that
//! another must follow is here. Invariants: a record that points somewhere and the count of that segment change together;
//! a number that is put anywhere is marked if a mark runs. What it does not do: read, write, or wait (a page that is not
//! in memory is an answer, [`Missing`]).

use std::collections::{BTreeMap, BTreeSet};

use zc_core::{Codec, Fingerprint, HashKey};

use crate::catalog::{self, Root};
use crate::ids::{ChunkNo, PageNo, Place, Pointer, RootId};
use crate::limits::{self, BLOCK_BYTES};
use crate::lost::{LOST, LostPages};
use crate::map::numbers_of;
use crate::mark::Mark;
use crate::media::batch::Stored;
use crate::media::page::{HEADER, PageKey, TableId, level_of};
use crate::media::superblock::{Superblock, pointer_at, put_pointer};
use crate::media::{Block, put_u32, u32_at};
use crate::numbers::Numbers;
use crate::pager::{Missing, Pager};
use crate::segments::{self, Segment, Segments};
use crate::table::Table;

/// Bytes of a record of the chunk table.
const CHUNK_BYTES: usize = 56;
/// Place of its flags: the fingerprint is known; it could not be read when that was last tried.
const CHUNK_FLAGS: usize = 21;
const HAS_PRINT: u8 = 1;
const IS_DAMAGED: u8 = 2;
/// Bytes of a record of the page table.
const PAGE_BYTES: usize = 16;

/// The trees.
#[derive(Debug)]
pub(crate) struct Trees {
    pub(crate) pager: Pager,
    pub(crate) chunks: Table,
    pub(crate) pages: Table,
    pub(crate) segment_table: Table,
    pub(crate) catalog_table: Table,
    pub(crate) roots: BTreeMap<RootId, Root>,
    /// Differ from the catalog's pages.
    pub(crate) changed_roots: BTreeSet<RootId>,
    pub(crate) chunk_numbers: Numbers,
    pub(crate) page_numbers: Numbers,
    pub(crate) epoch: u64,
    pub(crate) segments: Segments,
    pub(crate) mark: Option<Mark>,
    pub(crate) lost: LostPages,
}

/// The name of a map page.
pub(crate) const fn map_key(number: PageNo) -> PageKey {
    PageKey { table: TableId::Map, level: 0, index: number.0 }
}

impl Trees {
    pub(crate) fn new(superblock: &Superblock, key: &HashKey) -> Self {
        let [chunks, pages, segment_table, catalog_table] = superblock.tables;
        let pool_bytes = u64::from(superblock.segments) * u64::from(superblock.segment_bytes);
        let [chunks_max, pages_max] = limits::numbers_max(pool_bytes);
        Self {
            pager: Pager::new(key),
            chunks: Table::new(TableId::Chunks, CHUNK_BYTES, chunks),
            pages: Table::new(TableId::Pages, PAGE_BYTES, pages),
            segment_table: Table::new(TableId::Segments, segments::RECORD_BYTES, segment_table),
            catalog_table: Table::new(TableId::Catalog, catalog::RECORD_BYTES, catalog_table),
            roots: BTreeMap::new(),
            changed_roots: BTreeSet::new(),
            chunk_numbers: Numbers::new(superblock.chunks_end, chunks_max),
            page_numbers: Numbers::new(superblock.pages_end, pages_max),
            epoch: superblock.epoch,
            segments: Segments::new(superblock.segments, superblock.segment_bytes),
            mark: None,
            lost: LostPages::default(),
        }
    }

    pub(crate) fn table(&mut self, id: TableId) -> Option<&mut Table> {
        match id {
            TableId::Map => None,
            TableId::Chunks => Some(&mut self.chunks),
            TableId::Pages => Some(&mut self.pages),
            TableId::Segments => Some(&mut self.segment_table),
            TableId::Catalog => Some(&mut self.catalog_table),
        }
    }

    /// What the chunk table says of a chunk.
    pub(crate) fn stored(&mut self, number: ChunkNo) -> Result<Option<Stored>, Missing> {
        let record = self.chunks.read(&mut self.pager, number.0)?;
        Ok(record.and_then(decode_chunk))
    }

    /// The fingerprints in a leaf of the chunk table.
    pub(crate) fn prints_of_leaf(&mut self, leaf: u64) -> Result<Vec<(Fingerprint, ChunkNo)>, Missing> {
        let first = leaf * self.chunks.per_leaf();
        let end = (first + self.chunks.per_leaf()).min(self.chunk_numbers.end());
        let mut prints = Vec::new();
        for number in (first.max(1)..end).map(ChunkNo) {
            let print = self.stored(number)?.and_then(|stored| stored.print);
            prints.extend(print.map(|print| (print, number)));
        }
        Ok(prints)
    }

    /// Passes over numbers of chunks whose records cannot be written, among the next `count`.
    pub(crate) fn pass_lost_chunk_numbers(&mut self, count: usize) {
        while !self.lost.is_empty() {
            let next = self.chunk_numbers.peek(count);
            let lost = next.into_iter().find_map(|number| {
                let missing = self.chunks.read(&mut self.pager, number).err()?;
                self.lost.has(&missing).then_some(missing.key)
            });
            let Some(key) = lost else { return };
            self.chunk_numbers.skip(&self.chunks.numbers_below(key), count);
        }
    }

    /// The number of the next map page, whose record can be changed. If records that cannot be read have all numbers that
    /// are left, the page that has them is missing for good: the change fails.
    pub(crate) fn new_page_number(&mut self) -> Result<PageNo, Missing> {
        loop {
            let next = self.page_numbers.peek(1);
            let Some(next) = next.first() else {
                let key = map_key(PageNo(self.page_numbers.end()));
                return Err(Missing { key, pointer: Pointer::default() });
            };
            match self.pages.make_writable(&mut self.pager, *next) {
                Ok(()) => return Ok(PageNo(self.page_numbers.take())),
                Err(missing) if self.lost.has(&missing) => {
                    self.page_numbers.skip(&self.pages.numbers_below(missing.key), 1);
                }
                Err(missing) => return Err(missing),
            }
        }
    }

    /// Returns `true` if the chunk could not be read when that was last tried.
    pub(crate) fn is_noted_damaged(&mut self, number: ChunkNo) -> Result<bool, Missing> {
        let record = self.chunks.read(&mut self.pager, number.0)?;
        Ok(record.is_some_and(|record| record[CHUNK_FLAGS] & IS_DAMAGED != 0))
    }

    /// Notes in the record of a chunk whether it can be read. The record was made writable.
    pub(crate) fn note_damaged(&mut self, number: ChunkNo, is_damaged: bool) {
        let flags = &mut self.chunks.record_mut(&mut self.pager, number.0)[CHUNK_FLAGS];
        *flags = if is_damaged { *flags | IS_DAMAGED } else { *flags & !IS_DAMAGED };
    }

    pub(crate) fn make_chunk_writable(&mut self, number: ChunkNo) -> Result<(), Missing> {
        self.chunks.make_writable(&mut self.pager, number.0)
    }

    /// The chunk is stored there from now on, or not at all. Its record was made writable.
    pub(crate) fn put_chunk(&mut self, number: ChunkNo, stored: Option<Stored>) {
        let record = self.chunks.record_mut(&mut self.pager, number.0);
        let old = decode_chunk(record);
        record.fill(0);
        if let Some(new) = stored {
            encode_chunk(record, &new);
        }
        if let Some(old) = old {
            self.segments.unrefer(old.place, old.stored_bytes);
        }
        if let Some(new) = stored {
            self.segments.refer(new.place, new.stored_bytes);
        }
    }

    /// What the page table says of a map page.
    pub(crate) fn page_pointer(&mut self, number: PageNo) -> Result<Pointer, Missing> {
        let record = self.pages.read(&mut self.pager, number.0)?;
        Ok(record.map_or_else(Pointer::default, |record| pointer_at(record, 0)))
    }

    /// The map page is stored there from now on, or not at all. Its record was made writable. Where it was.
    pub(crate) fn put_page_pointer(&mut self, number: PageNo, pointer: Pointer) -> Option<Place> {
        let record = self.pages.record_mut(&mut self.pager, number.0);
        let old = pointer_at(record, 0);
        put_pointer(record, 0, pointer);
        if old.is_some() {
            self.segments.unrefer(old.place, BLOCK_BYTES);
        }
        if pointer.is_some() {
            self.segments.refer(pointer.place, BLOCK_BYTES);
        }
        old.is_some().then_some(old.place)
    }

    /// Makes sure that a map page of this level is in memory.
    pub(crate) fn load_map_page(&mut self, number: PageNo, level: u8) -> Result<(), Missing> {
        self.load_any_map_page(number)?;
        let key = map_key(number);
        if level_of(self.pager.page(key)) == level {
            return Ok(());
        }
        // It is none that could be here, and reading it again changes nothing.
        Err(Missing { key, pointer: Pointer::default() })
    }

    /// Makes sure that a map page is in memory, whatever its level.
    pub(crate) fn load_any_map_page(&mut self, number: PageNo) -> Result<(), Missing> {
        let key = map_key(number);
        if self.pager.get(key).is_some() {
            return Ok(());
        }
        let pointer = self.page_pointer(number)?;
        Err(Missing { key, pointer })
    }

    pub(crate) fn with_mark(&mut self, act: impl FnOnce(&mut Mark)) {
        // S3: what was chosen to be freed is freed although a writer referred to it again meanwhile.
        if let Some(mark) = &mut self.mark {
            act(mark);
        }
    }

    pub(crate) fn root(&self, id: RootId) -> Option<&Root> {
        self.roots.get(&id)
    }

    /// A root to be changed.
    ///
    /// # Panics
    /// When there is none: callers have looked.
    pub(crate) fn root_mut(&mut self, id: RootId) -> &mut Root {
        self.changed_roots.insert(id);
        let Some(root) = self.roots.get_mut(&id) else { panic!("{id:?} was looked up and is gone") };
        root
    }

    /// The contents or the size of a volume change.
    pub(crate) fn count_change(&mut self, id: RootId) {
        let root = self.root_mut(id);
        root.changes = root.changes.wrapping_add(1);
    }

    /// The tops of the tables, for a superblock.
    pub(crate) fn table_roots(&self) -> [crate::media::superblock::TableRoot; 4] {
        [self.chunks.root(), self.pages.root(), self.segment_table.root(), self.catalog_table.root()]
    }

    /// A page of a table gets a place.
    pub(crate) fn place_table_page(&mut self, key: PageKey, pointer: Pointer) {
        let Self { pager, chunks, pages, segment_table, catalog_table, segments, .. } = self;
        let table = match key.table {
            TableId::Chunks => chunks,
            TableId::Pages => pages,
            TableId::Catalog => catalog_table,
            TableId::Segments | TableId::Map => segment_table,
        };
        let old = table.set_pointer(pager, key, pointer);
        if key.table == TableId::Segments {
            old.into_iter().for_each(|place| segments.unrefer_own(place));
            segments.refer_own(pointer.place);
        } else {
            old.into_iter().for_each(|place| segments.unrefer(place, BLOCK_BYTES));
            segments.refer(pointer.place, BLOCK_BYTES);
        }
    }
}

/// Returns `true` if a page holds what can be true in a pool of this shape. Pointers to other pages are checked when
/// they are used.
pub(crate) fn is_sane(trees: &Trees, key: PageKey, block: &Block) -> bool {
    let (segments, size) = (trees.segments.count(), trees.segments.segment_bytes());
    let mut contents = block[HEADER..].as_chunks::<CHUNK_BYTES>().0.iter();
    match (key.table, key.level) {
        (TableId::Map, _) => {
            let given = if level_of(block) == 0 { &trees.chunk_numbers } else { &trees.page_numbers };
            numbers_of(block).all(|number| number < given.end() || number == LOST)
        }
        (TableId::Chunks, 0) => contents.all(|record| {
            decode_chunk(record).is_none_or(|stored| {
                let Place { segment, offset_bytes } = stored.place;
                let end = offset_bytes.checked_add(stored.stored_bytes);
                let is_inside = segment.0 < segments && end.is_some_and(|end| end <= size);
                is_inside && offset_bytes >= BLOCK_BYTES && stored.is_sane()
            })
        }),
        (TableId::Pages, 0) => block[HEADER..].as_chunks::<PAGE_BYTES>().0.iter().all(|record| {
            let pointer = pointer_at(record, 0);
            !pointer.is_some() || pointer.is_inside(segments, size)
        }),
        (TableId::Segments, 0) => {
            let records = block[HEADER..].as_chunks::<{ segments::RECORD_BYTES }>().0.iter();
            records.clone().all(|record| Segment::is_sane(record, size))
        }
        _ => true,
    }
}

fn encode_chunk(out: &mut [u8], stored: &Stored) {
    put_u32(out, 0, stored.place.segment.0);
    put_u32(out, 4, stored.place.offset_bytes);
    put_u32(out, 8, stored.stored_bytes);
    put_u32(out, 12, stored.raw_bytes);
    put_u32(out, 16, stored.crc);
    out[20] = stored.codec.media_code();
    if let Some(print) = stored.print {
        out[CHUNK_FLAGS] = HAS_PRINT;
        out[24..56].copy_from_slice(&print.0);
    }
}

fn decode_chunk(bytes: &[u8]) -> Option<Stored> {
    let pointer = pointer_at(bytes, 0);
    if !pointer.is_some() {
        return None;
    }
    let mut print = Fingerprint([0; 32]);
    print.0.copy_from_slice(&bytes[24..56]);
    Some(Stored {
        place: Place { segment: pointer.place.segment, offset_bytes: pointer.place.offset_bytes },
        stored_bytes: u32_at(bytes, 8),
        raw_bytes: u32_at(bytes, 12),
        crc: u32_at(bytes, 16),
        codec: Codec::from_media_code(bytes[20]).unwrap_or(Codec::Raw),
        print: (bytes[CHUNK_FLAGS] & HAS_PRINT != 0).then_some(print),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SegmentNo;

    #[test]
    fn a_lost_page_with_every_number_that_is_left_fails_the_change() {
        let mut superblock = Superblock::format([7; 16], 64 << 20, 64 << 10, 1).unwrap();
        let pointer = Pointer { place: Place { segment: SegmentNo(3), offset_bytes: 4096 }, crc: 5 };
        superblock.tables[1].pointer = pointer;
        superblock.tables[1].height = 3;
        let mut trees = Trees::new(&superblock, &HashKey::fixed());
        let missing = trees.new_page_number().unwrap_err();
        assert_eq!(missing.pointer, pointer, "the top page is to be read");
        trees.lost.insert(missing);
        for _ in 0..2 {
            let missing = trees.new_page_number().unwrap_err();
            assert!(trees.lost.has(&missing), "reading it again changes nothing: {missing:?}");
        }
        assert!(!trees.page_numbers.has(1), "later changes find no number");
    }
}
