//! Recently placed extents, as targets of corruption.

use std::collections::VecDeque;

use zc_format::ExtentHeader;

/// Maximum number of extents remembered.
const PLACED_MAX: usize = 64;

/// Placement of an extent, or of a piece of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) header: ExtentHeader,
    pub(crate) offset_bytes: u32,
}

/// Most recently placed extents.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlacedExtents(VecDeque<Placed>);

impl PlacedExtents {
    pub(crate) fn note(&mut self, header: ExtentHeader, offset_bytes: u32) {
        if self.0.len() == PLACED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Placed { header, offset_bytes });
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, index: usize) -> Option<Placed> {
        self.0.remove(index)
    }

    pub(crate) fn take_all(&mut self) -> VecDeque<Placed> {
        core::mem::take(&mut self.0)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
