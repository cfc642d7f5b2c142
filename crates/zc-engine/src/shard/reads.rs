//! Splits reads of stored extents: the blocks to read from the device, and the place of decoding.
//!
//! It does not read (`device`) or decode (`extents`).

use std::ops::Range;

use zc_cache::seam::ExtentRead;
use zc_core::usize_from_u32;
use zc_format::EXTENT_HEADER_BYTES;

use crate::limits::INLINE_DECODE_BYTES;
use crate::shard::extents::PartDecode;

/// Returns the blocks of the device within `pages` that can hold the extents: with blocks smaller than pages, this is
/// less than the pages that an extent overlaps. A raw 8 KiB extent with its header straddles three pages, 12 KiB, and
/// 17 or 18 blocks of 512 bytes. The length of a compressed one is in its header; it does not exceed that of a raw
/// one.
pub(crate) fn blocks_of(pages: &Range<u32>, parts: &[ExtentRead], block_bytes: u32) -> Range<u32> {
    let starts = parts.iter().map(|part| part.expected.offset_bytes);
    let ends = parts.iter().map(|part| {
        let expected = &part.expected;
        expected.offset_bytes.saturating_add(EXTENT_HEADER_BYTES).saturating_add(expected.raw_bytes)
    });
    let start = starts.min().unwrap_or(pages.start) / block_bytes * block_bytes;
    let end = ends.max().and_then(|end| end.checked_next_multiple_of(block_bytes)).unwrap_or(pages.end);
    // Never outside the pages: the manager's location is more exact than an extent's largest size.
    let start = start.clamp(pages.start, pages.end);
    start..end.clamp(start, pages.end)
}

/// Returns the cost of decoding on the data-plane thread, in decoded bytes; `None`: the workers do it. Pages as long
/// as their decoded bytes are uncompressed: verifying and copying takes a quarter of decompressing, and less than the
/// hand-over to a worker.
pub(crate) fn inline_cost_bytes(pages_bytes: usize, raw_bytes: u32) -> Option<u32> {
    if pages_bytes >= usize_from_u32(raw_bytes) {
        return Some(raw_bytes / 4);
    }
    (raw_bytes <= INLINE_DECODE_BYTES).then_some(raw_bytes)
}

/// Groups parts by [`INLINE_DECODE_BYTES`] decoded bytes (or one longer part): one job each, because handing a job
/// over and receiving its result costs as much as decoding an extent or two.
pub(crate) fn in_groups(decodes: Vec<PartDecode>) -> Vec<Vec<PartDecode>> {
    let mut groups: Vec<Vec<PartDecode>> = Vec::new();
    let mut left_bytes = 0;
    for decode in decodes {
        let bytes = decode.wanted.expected.raw_bytes;
        match groups.last_mut() {
            Some(last) if bytes <= left_bytes => {
                left_bytes -= bytes;
                last.push(decode);
            }
            _ => {
                left_bytes = INLINE_DECODE_BYTES.saturating_sub(bytes);
                groups.push(vec![decode]);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zc_core::{BufId, BufSlice, Generation, WeuSeq, WeuSlot};
    use zc_format::{ExpectedExtent, Salt};
    use zc_io::{AlignedBuf, Arena};

    use super::*;

    fn part(offset_bytes: u32) -> ExtentRead {
        let expected = ExpectedExtent {
            salt: Salt::NONE,
            slot: WeuSlot(1),
            generation: Generation(1),
            weu_seq: WeuSeq(1),
            offset_bytes,
            raw_bytes: 8192,
            first_sector: 0,
            key: None,
            print: None,
        };
        ExtentRead {
            expected,
            skip_bytes: 0,
            dest: BufSlice { buf: BufId(1), start_bytes: 0, len_bytes: 8192 },
            proof: None,
            keep: false,
        }
    }

    #[test]
    fn only_blocks_that_can_hold_the_extents_are_read() {
        assert_eq!(blocks_of(&(4096..16384), &[part(4160)], 512), 4096..12800);
        assert_eq!(blocks_of(&(4096..16384), &[part(8000)], 512), 7680..16384);
        assert_eq!(blocks_of(&(4096..16384), &[part(4160)], 4096), 4096..16384);
        assert_eq!(
            blocks_of(&(4096..8192), &[part(5120)], 512),
            5120..8192,
            "compressed: up to its last page"
        );
        assert_eq!(
            blocks_of(&(0..32768), &[part(20_000), part(640)], 512),
            512..28672,
            "neighbours in one read"
        );
    }

    #[test]
    fn what_is_not_compressed_is_decoded_at_once_and_long_compressed_reads_by_workers() {
        assert_eq!(inline_cost_bytes(12_800, 8192), Some(2048));
        assert_eq!(inline_cost_bytes(132 << 10, 128 << 10), Some(32 << 10));
        assert_eq!(inline_cost_bytes(4096, 8192), Some(8192));
        assert_eq!(inline_cost_bytes(16 << 10, 32 << 10), Some(32 << 10));
        assert_eq!(inline_cost_bytes(24 << 10, 40 << 10), None);
    }

    #[test]
    fn jobs_are_groups_of_a_bounded_length() {
        let pages = AlignedBuf::new(4096).into_shared();
        let decode = |number| PartDecode {
            read: 1,
            part: number,
            pages: pages.clone(),
            pages_offset_bytes: 0,
            wanted: part(0),
            dest: Arena::new(AlignedBuf::new(0)).lease(0..0),
        };
        let groups = in_groups((0..9).map(decode).collect());
        let parts: Vec<Vec<usize>> =
            groups.iter().map(|group| group.iter().map(|decode| decode.part).collect()).collect();
        assert_eq!(parts, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8]]);
        assert!(in_groups(Vec::new()).is_empty());
    }

    proptest! {
        #[test]
        fn every_extent_is_in_the_blocks_as_far_as_it_is_in_the_pages(
            offsets in prop::collection::vec(0_u32..200_000, 1..5),
            shift in 9_u32..13,
        ) {
            let parts: Vec<_> = offsets.iter().map(|offset| part(offset / 64 * 64)).collect();
            let first = parts.iter().map(|part| part.expected.offset_bytes / 4096 * 4096).min().unwrap();
            let end = parts.iter().map(|part| part.expected.offset_bytes + 64 + 8192).max().unwrap();
            let pages = first..end.next_multiple_of(4096);
            let blocks = blocks_of(&pages, &parts, 1 << shift);
            prop_assert!(blocks.start.is_multiple_of(1 << shift) && blocks.len().is_multiple_of(1 << shift));
            prop_assert!(blocks.start >= pages.start && blocks.end <= pages.end);
            for part in &parts {
                prop_assert!(blocks.start <= part.expected.offset_bytes);
                prop_assert!(part.expected.offset_bytes + 64 + 8192 <= blocks.end);
            }
        }
    }
}
