//! Blocks in memory, in front of the reads: buffers of database and operating system, as one.
//!
//! Replacement is CLOCK, which approximates both, and unlike direct mapping has no conflicts that a direct-mapped
//! cache behind it would share.
//!
//! Invariants: bounded number of blocks; 40 bytes each.

use zc_core::Map;

#[derive(Debug)]
struct Frame {
    block: u64,
    used: bool,
}

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    frames: Vec<Frame>,
    frames_max: usize,
    hand: usize,
    places: Map<u64, usize>,
}

impl Pool {
    /// Creates a pool of `frames_max` blocks; with 0, every access is a read.
    pub(super) fn new(frames_max: usize) -> Self {
        Self { frames: Vec::new(), frames_max, hand: 0, places: Map::default() }
    }

    /// Accesses a block; returns `true` if it was resident. It is resident afterwards.
    pub(super) fn uses(&mut self, block: u64) -> bool {
        if let Some(place) = self.places.get(&block) {
            self.frames[*place].used = true;
            return true;
        }
        if self.frames_max == 0 {
            return false;
        }
        let frame = Frame { block, used: false };
        if self.frames.len() < self.frames_max {
            self.places.insert(block, self.frames.len());
            self.frames.push(frame);
            return false;
        }
        while core::mem::take(&mut self.frames[self.hand].used) {
            self.hand = (self.hand + 1) % self.frames_max;
        }
        let gone = core::mem::replace(&mut self.frames[self.hand], frame);
        self.places.remove(&gone.block);
        self.places.insert(block, self.hand);
        self.hand = (self.hand + 1) % self.frames_max;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_outlives_what_was_not() {
        let mut pool = Pool::new(3);
        assert!(![1, 2, 3].map(|block| pool.uses(block)).contains(&true));
        assert!(pool.uses(1));
        assert!(!pool.uses(4), "takes the place of 2");
        assert!(pool.uses(1) && pool.uses(3) && pool.uses(4));
        assert!(!pool.uses(2));
        assert_eq!((pool.frames.len(), pool.places.len()), (3, 3));
    }

    #[test]
    fn no_pool_holds_nothing() {
        let mut pool = Pool::new(0);
        assert!(!pool.uses(1) && !pool.uses(1));
    }
}
