//! Numbers of chunks and map pages: given, and given again.
//!
//! Invariant: a number is given again only after a mark has shown that nothing refers to it and its record is gone. What
//! was free at a crash is found again by the next mark.
//!
//! Numbers of one leaf of the table are given together, so that contents which come together have their records
//! together, for as long as they live: a write or a move of many contents then changes few pages. For that a leaf is
//! given again only when half of its numbers are free. The price is a table that is up to twice as long.

/// A set of numbers, a bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    pub(crate) fn has(&self, number: u64) -> bool {
        self.words.get(word_of(number)).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds it; whether it is new.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let index = word_of(number);
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (number % 64);
        let is_new = self.words[index] & bit == 0;
        self.words[index] |= bit;
        is_new
    }

    /// Adds all of a range.
    pub(crate) fn fill(&mut self, numbers: core::ops::Range<u64>) {
        for number in numbers {
            self.insert(number);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        8 * self.words.capacity()
    }

    /// How many of a range are not in it.
    fn count_absent(&self, numbers: core::ops::Range<u64>) -> u64 {
        let mut count = 0;
        let mut number = numbers.start;
        while number < numbers.end {
            let next = (number / 64 + 1) * 64;
            let word = self.words.get(word_of(number)).copied().unwrap_or(0);
            let absent = !word >> (number % 64);
            let here = next.min(numbers.end) - number;
            let of_range = if here < 64 { absent & ((1 << here) - 1) } else { absent };
            count += u64::from(of_range.count_ones());
            number = next;
        }
        count
    }

    /// The first number from `from` on that is not in it, below `end`.
    fn next_absent(&self, from: u64, end: u64) -> Option<u64> {
        let mut number = from;
        while number < end {
            let word = self.words.get(word_of(number)).copied().unwrap_or(0);
            let absent = !word >> (number % 64);
            if absent != 0 {
                let found = number + u64::from(absent.trailing_zeros());
                return (found < end).then_some(found);
            }
            number = (number / 64 + 1) * 64;
        }
        None
    }
}

fn word_of(number: u64) -> usize {
    zc_core::usize_from_u64(number / 64)
}

/// Leaves that are looked at for a free number at a time: a few tens of microseconds.
const LOOKS_MAX: usize = 4096;

/// The numbers of one kind.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: Next,
    /// Numbers of a leaf of the table.
    per_leaf: u64,
    /// Numbers in use as the last mark saw it; below `limit` what is not in it may be given.
    used: Bitmap,
    limit: u64,
}

/// Where numbers come from.
#[derive(Debug, Clone, Copy)]
struct Next {
    /// Of those that may be given again, what is before has been given, or is left out.
    cursor: u64,
    /// Never given.
    end: u64,
}

impl Numbers {
    pub(crate) fn new(end: u64, per_leaf: u64) -> Self {
        Self { next: Next { cursor: end, end }, per_leaf, used: Bitmap::default(), limit: end }
    }

    pub(crate) fn end(&self) -> u64 {
        self.next.end
    }

    /// The next `count` numbers that [`Numbers::take`] will give.
    pub(crate) fn peek(&self, count: usize) -> Vec<u64> {
        let mut next = self.next;
        (0..count).map(|_| self.give(&mut next)).collect()
    }

    pub(crate) fn take(&mut self) -> u64 {
        let mut next = self.next;
        let number = self.give(&mut next);
        self.next = next;
        number
    }

    fn give(&self, next: &mut Next) -> u64 {
        for _ in 0..LOOKS_MAX {
            let Some(number) = self.used.next_absent(next.cursor, self.limit) else {
                next.cursor = self.limit;
                break;
            };
            let leaf = number / self.per_leaf;
            let numbers = leaf * self.per_leaf..(leaf + 1) * self.per_leaf;
            next.cursor = number + 1;
            if 2 * self.used.count_absent(numbers.start..numbers.end.min(self.limit)) >= self.per_leaf {
                return number;
            }
            next.cursor = numbers.end;
        }
        next.end += 1;
        next.end - 1
    }

    /// A record of the log gave this number.
    pub(crate) fn given(&mut self, number: u64) {
        self.next.end = self.next.end.max(number + 1);
    }

    /// A mark ended, and the records of all others are gone.
    pub(crate) fn marked(&mut self, used: Bitmap) {
        self.used = used;
        self.next.cursor = 1;
        self.limit = self.next.end;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.used.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_again_after_a_mark() {
        let mut numbers = Numbers::new(1, 1);
        let peeked = numbers.peek(3);
        assert_eq!(peeked, [1, 2, 3]);
        assert_eq!((0..5).map(|_| numbers.take()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        let mut used = Bitmap::default();
        used.insert(2);
        used.insert(5);
        numbers.marked(used);
        assert_eq!(numbers.peek(5), [1, 3, 4, 6, 7]);
        assert_eq!((0..5).map(|_| numbers.take()).collect::<Vec<_>>(), [1, 3, 4, 6, 7]);
        numbers.given(11);
        assert_eq!((numbers.take(), numbers.end()), (12, 13));
    }

    #[test]
    fn a_leaf_is_given_again_when_half_of_it_is_free() {
        let mut numbers = Numbers::new(1, 4);
        (1..12).for_each(|number| assert_eq!(numbers.take(), number));
        // Leaves 0 to 3, 4 to 7 and 8 to 11: the first has one free number, the second two, the last three.
        let mut used = Bitmap::default();
        [0, 1, 3, 5, 6, 10].into_iter().for_each(|number| assert!(used.insert(number)));
        numbers.marked(used);
        assert_eq!(numbers.peek(6), [4, 7, 8, 9, 11, 12]);
        assert_eq!((0..6).map(|_| numbers.take()).collect::<Vec<_>>(), [4, 7, 8, 9, 11, 12]);
    }

    #[test]
    fn absent_numbers_are_counted_across_words() {
        let mut bitmap = Bitmap::default();
        [3, 63, 64, 130].into_iter().for_each(|number| assert!(bitmap.insert(number)));
        for (range, absent) in
            [(0..64, 62), (0..200, 196), (60..68, 6), (64..128, 63), (5..5, 0), (190..400, 210)]
        {
            assert_eq!(bitmap.count_absent(range.clone()), absent, "{range:?}");
        }
    }

    #[test]
    fn a_bitmap_skips_full_words() {
        let mut bitmap = Bitmap::default();
        (0..200).filter(|n| *n != 131).for_each(|n| assert!(bitmap.insert(n)));
        assert!(!bitmap.insert(7) && bitmap.has(7) && !bitmap.has(131) && !bitmap.has(1000));
        assert_eq!(bitmap.next_absent(0, 200), Some(131));
        assert_eq!(bitmap.next_absent(132, 200), None);
        assert_eq!(bitmap.next_absent(132, 201), Some(200));
    }
}
