//! The mark: what volumes and snapshots refer to, found while they change.
//!
//! Job: hold the two sets and the pages still to be visited. Invariant: a number that is put anywhere while a mark runs
//! is marked at once (Dijkstra's insertion barrier); so when no page is left to visit, whatever is not marked cannot be
//! reached from any root, now or later. `CONSISTENCY.md` has the argument. What it does not do: visit pages, sweep.

use std::collections::BTreeMap;

use crate::ids::{ChunkNo, PageNo, Pointer};
use crate::media::page::PageKey;
use crate::numbers::Bitmap;
use crate::pager::Missing;

/// Map pages that a mark could not read: the page, what could not be read for it, and where that was. Neither changes as
/// long as it is not read.
type Lost = BTreeMap<(PageNo, PageKey), Pointer>;

/// What lost map pages may refer to: everything that had a number when they were first found lost.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    lost: Lost,
    chunks_end: u64,
    pages_end: u64,
}

impl Suspects {
    /// A mark has visited all that it can. What pages that it lost may refer to is marked; what got its number after they
    /// were first lost, they cannot refer to. `ends`: numbers of chunks and pages from there on were never given.
    pub(crate) fn marked(&mut self, mark: &mut Mark, ends: [u64; 2]) {
        let lost = core::mem::take(&mut mark.lost);
        let are_known = lost.iter().all(|(page, at)| self.lost.get(page) == Some(at));
        if !are_known {
            [self.chunks_end, self.pages_end] = ends;
        } else if lost.is_empty() {
            *self = Self::default();
        }
        self.lost = lost;
        mark.chunks.fill(0..self.chunks_end);
        mark.pages.fill(0..self.pages_end);
    }

    /// Map pages that the last mark could not read.
    pub(crate) fn lost_pages(&self) -> usize {
        self.lost.len()
    }
}

/// A mark in progress, or ended and being swept.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    pub(crate) chunks: Bitmap,
    pub(crate) pages: Bitmap,
    /// Marked, their contents not yet.
    pub(crate) to_visit: Vec<PageNo>,
    /// The page that is being visited, and what has to be read for that.
    visiting: Option<(PageNo, Missing)>,
    lost: Lost,
    /// All was visited; what is not marked is going.
    pub(crate) sweeping: bool,
}

impl Mark {
    pub(crate) fn chunk(&mut self, number: ChunkNo) {
        if number.0 != 0 {
            self.chunks.insert(number.0);
        }
    }

    /// The page is referred to: it will be visited.
    pub(crate) fn page(&mut self, number: PageNo) {
        if number.0 != 0 && self.pages.insert(number.0) {
            self.to_visit.push(number);
        }
    }

    /// A page that is made now, whose contents are marked by who puts them.
    pub(crate) fn new_page(&mut self, number: PageNo) {
        self.pages.insert(number.0);
    }

    /// The next page to be visited.
    pub(crate) fn next(&mut self) -> Option<PageNo> {
        self.visiting.take().map(|(page, _)| page).or_else(|| self.to_visit.pop())
    }

    /// The visit of the page goes on when something has been read.
    pub(crate) fn waits(&mut self, page: PageNo, missing: Missing) {
        self.visiting = Some((page, missing));
    }

    /// What is waited for cannot be read: what the page refers to is not known.
    pub(crate) fn lose(&mut self) {
        if let Some((page, Missing { key, pointer })) = self.visiting.take() {
            self.lost.insert((page, key), pointer);
        }
    }

    /// Whether the sweep is about to take the chunk away.
    pub(crate) fn dooms(&self, number: ChunkNo) -> bool {
        self.sweeping && !self.chunks.has(number.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_visited_once_and_the_rest_is_doomed() {
        let mut mark = Mark::default();
        mark.page(PageNo(0));
        mark.page(PageNo(3));
        mark.page(PageNo(3));
        mark.new_page(PageNo(4));
        mark.page(PageNo(4));
        assert_eq!(mark.to_visit, [PageNo(3)], "0 is none, 3 was marked, 4 is marked by who fills it");
        mark.chunk(ChunkNo(0));
        mark.chunk(ChunkNo(9));
        assert!(!mark.chunks.has(0) && !mark.dooms(ChunkNo(8)), "nothing is going before all was visited");
        mark.sweeping = true;
        assert!(mark.dooms(ChunkNo(8)) && !mark.dooms(ChunkNo(9)));
    }

    #[test]
    fn what_a_lost_page_may_refer_to_is_kept_and_what_is_younger_is_not() {
        let pointer = |offset_bytes| Pointer {
            place: crate::ids::Place { segment: crate::ids::SegmentNo(1), offset_bytes },
            crc: 1,
        };
        let mut suspects = Suspects::default();
        let mut round = |lost: &[(u64, u32)], ends| {
            let mut mark = Mark::default();
            for (page, offset_bytes) in lost {
                let key = crate::trees::map_key(PageNo(*page));
                mark.waits(PageNo(*page), Missing { key, pointer: pointer(*offset_bytes) });
                mark.lose();
            }
            suspects.marked(&mut mark, ends);
            let chunks = (0..20).filter(|chunk| mark.chunks.has(*chunk)).count();
            let pages = (0..20).filter(|page| mark.pages.has(*page)).count();
            (chunks, pages, suspects.lost_pages())
        };
        assert_eq!(round(&[], [5, 3]), (0, 0, 0));
        assert_eq!(round(&[(1, 8)], [5, 3]), (5, 3, 1), "it may refer to all that there is");
        assert_eq!(round(&[(1, 8)], [9, 6]), (5, 3, 1), "and to nothing that came later");
        assert_eq!(round(&[(1, 12)], [11, 6]), (11, 6, 1), "it was read and changed meanwhile");
        assert_eq!(round(&[(1, 12), (2, 8)], [13, 7]), (13, 7, 2), "another one");
        assert_eq!(round(&[(2, 8)], [15, 8]), (13, 7, 1));
        assert_eq!(round(&[], [15, 8]), (0, 0, 0));
        assert_eq!(round(&[(2, 8)], [16, 9]), (16, 9, 1), "what it was before counts no more");
    }
}
