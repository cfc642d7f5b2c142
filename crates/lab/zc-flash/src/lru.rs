//! Small numbers in the order of their last use: a doubly linked list in two arrays.
//!
//! Invariant: a number is in the list at most once.

use zc_core::usize_from_u32;

/// No number: the ends of the list.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
    listed: bool,
}

/// The list, of numbers below a bound.
#[derive(Debug)]
pub(crate) struct Lru {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    /// For numbers below `len`; none is listed.
    pub(crate) fn new(len: u32) -> Self {
        let link = Link { older: NONE, newer: NONE, listed: false };
        Self { links: vec![link; usize_from_u32(len)], oldest: NONE, newest: NONE }
    }

    /// Takes a number out, if it is listed.
    pub(crate) fn remove(&mut self, number: u32) {
        let link = self.links[usize_from_u32(number)];
        if !link.listed {
            return;
        }
        match link.older {
            NONE => self.oldest = link.newer,
            older => self.links[usize_from_u32(older)].newer = link.newer,
        }
        match link.newer {
            NONE => self.newest = link.older,
            newer => self.links[usize_from_u32(newer)].older = link.older,
        }
        self.links[usize_from_u32(number)].listed = false;
    }

    /// A number was used: it is the newest, listed before or not.
    pub(crate) fn touch(&mut self, number: u32) {
        self.remove(number);
        self.links[usize_from_u32(number)] = Link { older: self.newest, newer: NONE, listed: true };
        match self.newest {
            NONE => self.oldest = number,
            newest => self.links[usize_from_u32(newest)].newer = number,
        }
        self.newest = number;
    }

    /// Takes out the number that was not used for longest.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let oldest = self.oldest;
        (oldest != NONE).then(|| {
            self.remove(oldest);
            oldest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_comes_first() {
        let mut lru = Lru::new(5);
        [0, 1, 2, 3, 1, 4, 0].into_iter().for_each(|number| lru.touch(number));
        lru.remove(3);
        lru.remove(3);
        let order: Vec<u32> = std::iter::from_fn(|| lru.pop()).collect();
        assert_eq!(order, [2, 1, 4, 0]);
        assert_eq!(lru.pop(), None);
    }
}
