//! Packer: chooses an extent's place in the open unit.
//!
//! A hit reads the 4 KiB pages that its extent touches. An extent appended directly after the previous one often
//! touches one page more than its size requires. The packers are those of "Compression and SSD: Where and How?" (Zuck,
//! Toledo, Sotnikov and Harnik, INFLOW 2014, section 3): *append* is its compaction, *first-fit* and *best-fit* are
//! its bin packing. A bin is the free end of a page after earlier extents. The whole unit is in memory until it is
//! written, so bins need no buffers, and none must be emptied for another. An extent is placed in a bin with enough
//! space; otherwise after all others if it touches no additional page there; otherwise at the next page, and the
//! skipped end of the page becomes a bin.
//!
//! Extents of a batch are appended under every packer: a reader of all of them reads the shared pages once, whereas
//! scattered ones would take a device read each (see the paper, section 4.2.1, on reads after re-ordering).
//!
//! Invariants: places are multiples of 64 bytes and do not overlap; a bin lies within a page, before the end of the
//! last extent; at most [`BINS_MAX`] bins are searched.
//!
//! Out of scope: moving placed extents (the paper's re-ordering; they may have been read and shared already), packing
//! dirty units (their pages are written while they fill), holding bytes.

use core::ops::Range;
use std::collections::VecDeque;

use zc_core::limits::{BLOCK_BYTES, PLACE_ALIGN_BYTES};

use crate::config::Packer;

/// Newest bins that are searched for an extent. Without a bound padding is a tenth of a point less, with 8 it is five
/// points more (extents of 4 KiB at 1.9:1).
const BINS_MAX: usize = 64;

/// Used parts of a unit.
#[derive(Debug)]
pub(crate) struct Layout {
    packer: Packer,
    fill_bytes: u32,
    placed_bytes: u32,
    bins: VecDeque<Range<u32>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) offset_bytes: u32,
    /// Skipped range before it, which stays empty for now.
    pub(crate) skipped: Range<u32>,
}

impl Layout {
    pub(crate) const fn new(packer: Packer) -> Self {
        Self { packer, fill_bytes: 0, placed_bytes: 0, bins: VecDeque::new() }
    }

    pub(crate) const fn fill_bytes(&self) -> u32 {
        self.fill_bytes
    }

    /// Empty bytes before the end of the last extent.
    pub(crate) const fn padding_bytes(&self) -> u32 {
        self.fill_bytes - self.placed_bytes
    }

    /// Finds a place for an extent of `bytes` bytes, a multiple of 64, in the unit's first `limit_bytes`, a multiple
    /// of 4096.
    pub(crate) fn pack(&mut self, bytes: u32, limit_bytes: u32) -> Option<Spot> {
        if self.packer == Packer::Append {
            return self.append(bytes, limit_bytes);
        }
        // The unit's header may have grown into the space of earlier places.
        if self.fill_bytes > limit_bytes {
            return None;
        }
        if let Some(offset_bytes) = self.take_bin(bytes) {
            self.placed_bytes += bytes;
            return Some(Spot { offset_bytes, skipped: offset_bytes..offset_bytes });
        }
        let page = self.fill_bytes.next_multiple_of(BLOCK_BYTES);
        let skips = pages_touched(self.fill_bytes, bytes) > pages_touched(page, bytes);
        let spot = self.put_behind(if skips { page } else { self.fill_bytes }, bytes, limit_bytes)?;
        if skips {
            if self.bins.len() == BINS_MAX {
                self.bins.pop_front();
            }
            self.bins.push_back(spot.skipped.clone());
        }
        Some(spot)
    }

    /// Finds a place directly after the last extent.
    pub(crate) fn append(&mut self, bytes: u32, limit_bytes: u32) -> Option<Spot> {
        self.put_behind(self.fill_bytes, bytes, limit_bytes)
    }

    fn put_behind(&mut self, offset_bytes: u32, bytes: u32, limit_bytes: u32) -> Option<Spot> {
        debug_assert!(bytes.is_multiple_of(PLACE_ALIGN_BYTES), "{bytes} bytes are no place");
        if bytes > limit_bytes.saturating_sub(offset_bytes) {
            return None;
        }
        let skipped = self.fill_bytes..offset_bytes;
        self.fill_bytes = offset_bytes + bytes;
        self.placed_bytes += bytes;
        Some(Spot { offset_bytes, skipped })
    }

    fn take_bin(&mut self, bytes: u32) -> Option<u32> {
        let room = |bin: &Range<u32>| bin.end - bin.start;
        let mut fitting = self.bins.iter().enumerate().filter(|(_, bin)| room(bin) >= bytes);
        let (index, _) = match self.packer {
            Packer::Append => None,
            Packer::FirstFit => fitting.next(),
            Packer::BestFit => fitting.min_by_key(|(_, bin)| room(bin)),
        }?;
        let bin = self.bins.get_mut(index)?;
        let offset_bytes = bin.start;
        bin.start += bytes;
        if bin.start == bin.end {
            self.bins.remove(index);
        }
        Some(offset_bytes)
    }
}

/// Pages touched by `bytes` bytes from an offset on.
const fn pages_touched(offset_bytes: u32, bytes: u32) -> u32 {
    (offset_bytes % BLOCK_BYTES + bytes).div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u32 = 64 << 10;

    fn offsets(packer: Packer, sizes: &[u32]) -> Vec<u32> {
        let mut layout = Layout::new(packer);
        sizes.iter().map(|bytes| layout.pack(*bytes, UNIT).unwrap().offset_bytes).collect()
    }

    /// The paper's Figure 1: 0.6, 0.3, 0.65 and 0.4 of a page, here in steps of 64 bytes.
    #[test]
    fn figure_1_is_packed_as_drawn() {
        let sizes = [2432, 1216, 2624, 1600];
        assert_eq!(offsets(Packer::Append, &sizes), [0, 2432, 3648, 6272]);
        assert_eq!(offsets(Packer::FirstFit, &sizes), [0, 2432, 4096, 8192]);
    }

    #[test]
    fn best_fit_takes_the_smallest_bin_that_has_room() {
        // Bins of 1536 and 1024 bytes remain.
        let sizes = [2560, 3072, 3072, 1024, 1536];
        assert_eq!(offsets(Packer::FirstFit, &sizes), [0, 4096, 8192, 2560, 12288]);
        assert_eq!(offsets(Packer::BestFit, &sizes), [0, 4096, 8192, 7168, 2560]);
    }

    #[test]
    fn the_last_page_of_a_large_extent_is_shared() {
        // 2 pages and 64 bytes; the second page has space left, the third one has not.
        assert_eq!(offsets(Packer::FirstFit, &[8256, 8000, 5120, 3072]), [0, 8256, 16384, 21504]);
        assert_eq!(offsets(Packer::FirstFit, &[8256, 6144, 8192, 1600]), [0, 8256, 16384, 14400]);
    }

    #[test]
    fn the_end_of_the_unit_is_used() {
        let mut layout = Layout::new(Packer::BestFit);
        assert_eq!(layout.pack(7168, 12288).unwrap().offset_bytes, 0);
        assert_eq!(layout.pack(4160, 12288).unwrap(), Spot { offset_bytes: 7168, skipped: 7168..7168 });
        assert_eq!(layout.pack(1024, 12288), None);
        assert_eq!(layout.pack(960, 12288).unwrap().offset_bytes, 11328);
        assert_eq!((layout.fill_bytes(), layout.padding_bytes()), (12288, 0));
    }

    #[test]
    fn a_header_that_grew_leaves_no_room_in_bins() {
        let mut layout = Layout::new(Packer::FirstFit);
        layout.pack(2048, 12288).unwrap();
        layout.pack(4096, 12288).unwrap();
        assert_eq!(layout.pack(1024, 4096), None);
        assert_eq!(layout.pack(1024, 8192).unwrap().offset_bytes, 2048);
    }

    fn packers() -> impl Strategy<Value = Packer> {
        prop_oneof![Just(Packer::Append), Just(Packer::FirstFit), Just(Packer::BestFit)]
    }

    proptest! {
        #[test]
        fn places_do_not_overlap_and_touch_the_fewest_pages(
            packer in packers(),
            limit_pages in 8_u32..64,
            sizes in proptest::collection::vec((2_u32..300, proptest::bool::weighted(0.2)), 1..400),
        ) {
            let limit = limit_pages * BLOCK_BYTES;
            let mut layout = Layout::new(packer);
            let mut used = vec![false; zc_core::usize_from_u32(limit / PLACE_ALIGN_BYTES)];
            for (units, together) in sizes {
                let (bytes, fill) = (units * PLACE_ALIGN_BYTES, layout.fill_bytes());
                let spot =
                    if together { layout.append(bytes, limit) } else { layout.pack(bytes, limit) };
                let Some(Spot { offset_bytes, skipped }) = spot else {
                    prop_assert!(bytes > limit - fill, "there was room from {fill} on");
                    continue;
                };
                prop_assert!(offset_bytes.is_multiple_of(PLACE_ALIGN_BYTES) && offset_bytes + bytes <= limit);
                for unit in offset_bytes / PLACE_ALIGN_BYTES..(offset_bytes + bytes) / PLACE_ALIGN_BYTES {
                    let unit = &mut used[zc_core::usize_from_u32(unit)];
                    prop_assert!(!*unit, "placed over another one");
                    *unit = true;
                }
                let packed = packer != Packer::Append && !together;
                if packed {
                    prop_assert_eq!(pages_touched(offset_bytes, bytes), pages_touched(0, bytes));
                }
                prop_assert!(packed || (offset_bytes, skipped.is_empty()) == (fill, true));
                let behind = if offset_bytes < fill { offset_bytes..offset_bytes } else { fill..offset_bytes };
                prop_assert_eq!(skipped, behind);
                let free = used[..zc_core::usize_from_u32(layout.fill_bytes() / PLACE_ALIGN_BYTES)].iter();
                let free_units = u32::try_from(free.filter(|used| !**used).count()).unwrap();
                prop_assert_eq!(layout.padding_bytes(), free_units * PLACE_ALIGN_BYTES);
                prop_assert!(layout.bins.len() <= BINS_MAX);
            }
        }
    }
}
