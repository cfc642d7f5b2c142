//! Reads of pages: each page once, whoever wants it.
//!
//! Invariant: what is put into the page cache was checked against the pointer that led to it, and says nothing that the
//! pool has no place for: sets of numbers are as large as the largest. A page that fails is one of the lost.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use zc_core::{ErrorKind, Map, OpId};

use crate::config::Shape;
use crate::media::Block;
use crate::media::page::{self, PageKey};
use crate::media::superblock::Superblock;
use crate::pager::Missing;
use crate::seam::{Action, StoreError};
use crate::trees::{Trees, is_sane};

/// Page reads in progress.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    by_op: Map<OpId, Missing>,
    by_key: BTreeMap<PageKey, OpId>,
}

/// A page read that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub(crate) key: PageKey,
    pub(crate) result: Result<(), StoreError>,
}

impl Loader {
    /// Reads a page, unless it is being read.
    pub(crate) fn want(
        &mut self,
        missing: Missing,
        shape: Shape,
        next_op: &mut u64,
        out: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        if !missing.pointer.is_inside(shape.segments, shape.segment_bytes) {
            return Err(StoreError::Damaged(missing.pointer.place));
        }
        if let Entry::Vacant(place) = self.by_key.entry(missing.key) {
            *next_op += 1;
            let op = OpId(*next_op);
            place.insert(op);
            self.by_op.insert(op, missing);
            let offset_bytes = Superblock::device_offset(missing.pointer.place, shape.segment_bytes);
            out.push(Action::ReadBlock { op, offset_bytes });
        }
        Ok(())
    }

    /// A block was read. `None` if it was not asked for here.
    pub(crate) fn read(
        &mut self,
        op: OpId,
        result: Result<Box<Block>, ErrorKind>,
        uuid: [u8; 16],
        trees: &mut Trees,
    ) -> Option<Loaded> {
        let missing = self.by_op.remove(&op)?;
        let (key, pointer) = (missing.key, missing.pointer);
        self.by_key.remove(&key);
        let result = match result {
            Err(kind) => Err(StoreError::Device(kind)),
            Ok(block) if page::verify(&block, uuid, key, pointer).is_ok() && is_sane(trees, key, &block) => {
                trees.lost.remove(key);
                trees.pager.insert_read(key, block);
                Ok(())
            }
            Ok(_) => {
                trees.lost.insert(missing);
                Err(StoreError::Damaged(pointer.place))
            }
        };
        Some(Loaded { key, result })
    }

    /// The page is none any more: what the read brings does not count.
    pub(crate) fn cancel(&mut self, key: PageKey) -> bool {
        self.by_key.remove(&key).is_some_and(|op| self.by_op.remove(&op).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PageNo, Place, SegmentNo};
    use crate::media::put_u64;
    use crate::trees::map_key;

    #[test]
    fn a_page_that_names_what_was_never_given_is_damaged() {
        let uuid = [7; 16];
        let superblock = Superblock::format(uuid, 64 << 20, 64 << 10, 1).unwrap();
        let place = Place { segment: SegmentNo(3), offset_bytes: 4096 };
        for (level, number, is_sound) in [(0, 1, true), (0, 2, false), (1, 4, true), (1, 1 << 50, false)] {
            let mut trees = Trees::new(&superblock, &zc_core::HashKey::fixed());
            trees.chunk_numbers.given(1);
            trees.page_numbers.given(4);
            let key = map_key(PageNo(2));
            let mut block = page::new_page(key, level, 1);
            put_u64(&mut block[..], page::HEADER + 8, number);
            let pointer = page::seal(&mut block, uuid, place);
            let (mut loader, mut next_op, mut out) = (Loader::default(), 0, Vec::new());
            let shape = Shape { segment_bytes: 64 << 10, segments: superblock.segments };
            loader.want(Missing { key, pointer }, shape, &mut next_op, &mut out).unwrap();
            let loaded = loader.read(OpId(1), Ok(block), uuid, &mut trees).unwrap();
            let expected = if is_sound { Ok(()) } else { Err(StoreError::Damaged(place)) };
            assert_eq!((loaded.result, trees.pager.has(key)), (expected, is_sound), "{level} {number}");
        }
    }
}
