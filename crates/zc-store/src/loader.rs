//! Reads of pages: each page once, whoever wants it.
//!
//! Invariant: what is put into the page cache was checked against the pointer that led to it.

use zc_core::{ErrorKind, Map, OpId};

use crate::ids::Place;
use crate::media::Block;
use crate::media::page::{self, PageKey};
use crate::media::superblock::Superblock;
use crate::pager::Missing;
use crate::seam::{Action, StoreError};
use crate::trees::Trees;

/// Page reads in progress.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    by_op: Map<OpId, Missing>,
    by_key: Map<PageKey, OpId>,
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
        segment_bytes: u32,
        next_op: &mut u64,
        out: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        if !missing.pointer.is_some() {
            return Err(StoreError::Damaged(Place::default()));
        }
        if !self.by_key.contains_key(&missing.key) {
            *next_op += 1;
            let op = OpId(*next_op);
            self.by_key.insert(missing.key, op);
            self.by_op.insert(op, missing);
            let offset_bytes = Superblock::device_offset(missing.pointer.place, segment_bytes);
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
            Ok(block) if trusts(trees) || page::verify(&block, uuid, key, pointer).is_ok() => {
                trees.pager.insert_read(key, block);
                Ok(())
            }
            Ok(_) => Err(StoreError::Damaged(pointer.place)),
        };
        Some(Loaded { key, result })
    }

    /// The page is none any more: what the read brings does not count.
    pub(crate) fn cancel(&mut self, key: PageKey) -> bool {
        self.by_key.remove(&key).is_some_and(|op| self.by_op.remove(&op).is_some())
    }
}

/// S2: whether a deliberate bug takes pages as they are.
fn trusts(trees: &Trees) -> bool {
    #[cfg(zc_canary)]
    return trees.canary == Some(crate::config::Canary::TrustPages);
    #[cfg(not(zc_canary))]
    {
        let _ = trees;
        false
    }
}
