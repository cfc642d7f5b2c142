//! The mark: what volumes and snapshots refer to, found while they change.
//!
//! Job: hold the two sets and the pages still to be visited. Invariant: a number that is put anywhere while a mark runs
//! is marked at once (Dijkstra's insertion barrier); so when no page is left to visit, whatever is not marked cannot be
//! reached from any root, now or later. `CONSISTENCY.md` has the argument. What it does not do: visit pages, sweep.

use crate::ids::{ChunkNo, PageNo};
use crate::numbers::Bitmap;

/// A mark in progress, or ended and being swept.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    pub(crate) chunks: Bitmap,
    pub(crate) pages: Bitmap,
    /// Marked, their contents not yet.
    pub(crate) to_visit: Vec<PageNo>,
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
}
