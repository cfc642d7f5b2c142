//! The buffer of pages waiting for placement.
//!
//! Invariants: a flush fits its flash pages; a piece is flushed once.

use zc_core::{u64_from_usize, usize_from_u32};

use super::{Fit, PAGE_BYTES, Scheme};

/// A compressed page, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) page: u32,
    /// Distinguishes it from earlier and later writes of the page.
    pub(super) version: u32,
    pub(super) bytes: u32,
    /// 1 if it is the rest of one that lies across two flash pages.
    pub(super) part: u8,
    /// `true` if a rest of it follows.
    pub(super) split: bool,
}

/// Contents of consecutive flash pages to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flush {
    pub(super) pages: u32,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Default)]
struct Bin {
    bytes: u32,
    pieces: Vec<Piece>,
}

impl Bin {
    fn add(&mut self, piece: Piece) {
        self.bytes += piece.bytes;
        self.pieces.push(piece);
    }

    const fn has_room(&self, bytes: u32) -> bool {
        self.bytes + bytes <= PAGE_BYTES
    }
}

/// The buffer of a scheme.
#[derive(Debug)]
pub(super) struct Packer {
    scheme: Scheme,
    bins: Vec<Bin>,
}

/// Size after joint compression relative to the sum of the pages, in thousandths: LZ4 on root file systems of Debian
/// 12 and 13 takes 1/1.785 of units of 4 KiB, 1/1.913 of 16 KiB, 1/1.934 of 32 KiB.
const fn together_permille(pages: u32) -> u32 {
    match pages {
        0..=1 => 1000,
        2..=4 => 933,
        _ => 923,
    }
}

/// Packs pieces by size, the largest first, each into the first bin that fits.
fn first_fit_decreasing(mut pieces: Vec<Piece>, bins: usize) -> Option<Vec<Bin>> {
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.bytes));
    let mut packed = vec![Bin::default(); bins];
    for piece in pieces {
        packed.iter_mut().find(|bin| bin.has_room(piece.bytes))?.add(piece);
    }
    Some(packed)
}

impl Packer {
    pub(super) fn new(scheme: Scheme) -> Self {
        let bins = match scheme {
            Scheme::BinPacking(bins, _) | Scheme::Reordering(bins) => bins.max(1),
            _ => 1,
        };
        Self { scheme, bins: vec![Bin::default(); usize_from_u32(bins)] }
    }

    /// Adds a page. Returns the data that must be written now.
    pub(super) fn insert(&mut self, piece: Piece) -> Option<Flush> {
        match self.scheme {
            Scheme::PageMapping => {
                Some(Flush { pages: 1, pieces: vec![Piece { bytes: PAGE_BYTES, ..piece }] })
            }
            Scheme::Chunk(pages) => self.chunk(pages, piece),
            Scheme::BinPacking(_, fit) => self.bin(fit, piece),
            Scheme::Reordering(_) => self.reorder(piece),
            Scheme::Compaction => self.compact(piece),
        }
    }

    fn chunk(&mut self, pages: u32, piece: Piece) -> Option<Flush> {
        self.bins[0].add(piece);
        if u64_from_usize(self.bins[0].pieces.len()) < u64::from(pages) {
            return None;
        }
        let Bin { bytes, pieces } = std::mem::take(&mut self.bins[0]);
        let bytes = (bytes * together_permille(pages)).div_ceil(1000);
        Some(Flush { pages: bytes.div_ceil(PAGE_BYTES).clamp(1, pages), pieces })
    }

    /// Puts it into a bin, if one fits.
    fn place(&mut self, fit: Fit, piece: Piece) -> bool {
        let mut fitting = self.bins.iter_mut().filter(|bin| bin.has_room(piece.bytes));
        let bin = match fit {
            Fit::First => fitting.next(),
            Fit::Best => fitting.max_by_key(|bin| bin.bytes),
        };
        let placed = bin.is_some();
        if let Some(bin) = bin {
            bin.add(piece);
        }
        placed
    }

    /// Empties the fullest bin for it.
    fn replace_fullest(&mut self, piece: Piece) -> Option<Flush> {
        let fullest = self.bins.iter_mut().max_by_key(|bin| bin.bytes)?;
        let full = std::mem::take(fullest);
        fullest.add(piece);
        Some(Flush { pages: 1, pieces: full.pieces })
    }

    fn bin(&mut self, fit: Fit, piece: Piece) -> Option<Flush> {
        if self.place(fit, piece) { None } else { self.replace_fullest(piece) }
    }

    fn reorder(&mut self, piece: Piece) -> Option<Flush> {
        if self.place(Fit::First, piece) {
            return None;
        }
        let all = self.bins.iter().flat_map(|bin| bin.pieces.iter().copied()).collect();
        if let Some(bins) = first_fit_decreasing(all, self.bins.len()) {
            self.bins = bins;
        }
        self.bin(Fit::First, piece)
    }

    fn compact(&mut self, piece: Piece) -> Option<Flush> {
        let bin = &mut self.bins[0];
        let room = PAGE_BYTES - bin.bytes;
        if piece.bytes <= room {
            bin.add(piece);
            return None;
        }
        let mut full = std::mem::take(bin);
        if room > 0 {
            full.add(Piece { bytes: room, split: true, ..piece });
            bin.add(Piece { bytes: piece.bytes - room, part: 1, ..piece });
        } else {
            bin.add(piece);
        }
        Some(Flush { pages: 1, pieces: full.pieces })
    }

    /// Drops the buffered version of an overwritten page, if the layout allows it.
    pub(super) fn forget(&mut self, page: u32, version: u32) {
        if self.scheme == Scheme::Compaction {
            return;
        }
        let own = |piece: &Piece| piece.page == page && piece.version == version;
        for bin in &mut self.bins {
            if let Some(at) = bin.pieces.iter().position(own) {
                bin.bytes -= bin.pieces.swap_remove(at).bytes;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn piece(page: u32, bytes: u32) -> Piece {
        Piece { page, version: 1, bytes, part: 0, split: false }
    }

    fn flushes(scheme: Scheme, sizes: &[u32]) -> Vec<Vec<(u32, u32)>> {
        let mut packer = Packer::new(scheme);
        let all = (0..).zip(sizes).filter_map(|(page, bytes)| packer.insert(piece(page, *bytes)));
        all.map(|flush| flush.pieces.iter().map(|piece| (piece.page, piece.bytes)).collect()).collect()
    }

    /// The paper's Figure 1: 0.6, 0.3, 0.65 and 0.4 of a page.
    const FIGURE_1: [u32; 5] = [2458, 1229, 2662, 1638, 4096];

    #[test]
    fn figure_1_is_packed_as_drawn() {
        assert_eq!(flushes(Scheme::Compaction, &FIGURE_1)[0], [(0, 2458), (1, 1229), (2, 409)]);
        assert_eq!(flushes(Scheme::Compaction, &FIGURE_1)[1], [(2, 2253), (3, 1638), (4, 205)]);
        assert_eq!(flushes(Scheme::BinPacking(1, Fit::First), &FIGURE_1)[0], [(0, 2458), (1, 1229)]);
        // Repacked by size: 2662 + 1229 and 2458 + 1638.
        let packed = flushes(Scheme::Reordering(2), &FIGURE_1);
        assert_eq!(packed, [[(0, 2458), (3, 1638)]]);
        let chunk = Packer::new(Scheme::Chunk(4)).chunk_of(&FIGURE_1[..4]);
        assert_eq!((chunk.pages, chunk.pieces.len()), (2, 4));
    }

    impl Packer {
        fn chunk_of(mut self, sizes: &[u32]) -> Flush {
            let all = (0..).zip(sizes).filter_map(|(page, bytes)| self.insert(piece(page, *bytes)));
            all.last().unwrap()
        }
    }

    #[test]
    fn best_fit_takes_the_fullest_bin_that_has_room() {
        // 1000 more for bins with 2000 and 3000 bytes: only best-fit then has space for another 2000, and fills both.
        let sizes = [2000, 3000, 1000, 2000, 1096];
        assert_eq!(flushes(Scheme::BinPacking(2, Fit::First), &sizes), [[(1, 3000)]]);
        assert_eq!(flushes(Scheme::BinPacking(2, Fit::Best), &sizes), [[(0, 2000), (3, 2000)]]);
    }

    #[test]
    fn what_is_written_again_leaves_its_bin() {
        let mut packer = Packer::new(Scheme::BinPacking(1, Fit::First));
        assert_eq!(packer.insert(piece(1, 3000)), None);
        packer.forget(1, 1);
        assert_eq!(packer.insert(piece(2, 4000)), None);
        assert_eq!(packer.insert(piece(3, 4000)).unwrap().pieces, [piece(2, 4000)]);
    }

    fn schemes() -> impl Strategy<Value = Scheme> {
        prop_oneof![
            Just(Scheme::PageMapping),
            (2_u32..9).prop_map(Scheme::Chunk),
            (1_u32..9).prop_map(|bins| Scheme::BinPacking(bins, Fit::First)),
            (1_u32..9).prop_map(|bins| Scheme::BinPacking(bins, Fit::Best)),
            (1_u32..9).prop_map(Scheme::Reordering),
            Just(Scheme::Compaction),
        ]
    }

    proptest! {
        #[test]
        fn flushes_fit_and_lose_nothing(
            scheme in schemes(),
            sizes in proptest::collection::vec(1_u32..=4096, 1..200),
        ) {
            let mut packer = Packer::new(scheme);
            let mut seen = vec![0; sizes.len()];
            for (page, bytes) in (0..).zip(&sizes) {
                let Some(flush) = packer.insert(piece(page, *bytes)) else { continue };
                let bytes: u32 = flush.pieces.iter().map(|piece| piece.bytes).sum();
                let chunk = matches!(scheme, Scheme::Chunk(_));
                prop_assert!(chunk || bytes <= PAGE_BYTES * flush.pages);
                flush.pieces.iter().for_each(|piece| seen[usize_from_u32(piece.page)] += piece.bytes);
            }
            for piece in packer.bins.iter().flat_map(|bin| &bin.pieces) {
                seen[usize_from_u32(piece.page)] += piece.bytes;
            }
            let whole = |bytes: &u32| if scheme == Scheme::PageMapping { PAGE_BYTES } else { *bytes };
            prop_assert_eq!(seen, sizes.iter().map(whole).collect::<Vec<_>>());
        }
    }
}
