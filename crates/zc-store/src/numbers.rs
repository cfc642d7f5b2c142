//! Numbers of chunks and map pages: given, and given again.
//!
//! Invariant: a number is given again only after a mark has shown that nothing refers to it and its record is gone. What
//! was free at a crash is found again by the next mark.

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

/// The numbers of one kind.
#[derive(Debug)]
pub(crate) struct Numbers {
    end: u64,
    /// Numbers in use as the last mark saw it; below `limit` what is not in it may be given.
    used: Bitmap,
    cursor: u64,
    limit: u64,
}

impl Numbers {
    pub(crate) fn new(end: u64) -> Self {
        Self { end, used: Bitmap::default(), cursor: end, limit: end }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The next `count` numbers that [`Numbers::take`] will give.
    pub(crate) fn peek(&self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(count);
        let mut cursor = self.cursor;
        while numbers.len() < count
            && let Some(number) = self.used.next_absent(cursor, self.limit)
        {
            numbers.push(number);
            cursor = number + 1;
        }
        let missing = (count - numbers.len()) as u64;
        numbers.extend(self.end..self.end + missing);
        numbers
    }

    pub(crate) fn take(&mut self) -> u64 {
        if let Some(number) = self.used.next_absent(self.cursor, self.limit) {
            self.cursor = number + 1;
            return number;
        }
        self.cursor = self.limit;
        self.end += 1;
        self.end - 1
    }

    /// A record of the log gave this number.
    pub(crate) fn given(&mut self, number: u64) {
        self.end = self.end.max(number + 1);
    }

    /// A mark ended, and the records of all others are gone.
    pub(crate) fn marked(&mut self, used: Bitmap) {
        self.used = used;
        self.cursor = 1;
        self.limit = self.end;
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
        let mut numbers = Numbers::new(1);
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
    fn a_bitmap_skips_full_words() {
        let mut bitmap = Bitmap::default();
        (0..200).filter(|n| *n != 131).for_each(|n| assert!(bitmap.insert(n)));
        assert!(!bitmap.insert(7) && bitmap.has(7) && !bitmap.has(131) && !bitmap.has(1000));
        assert_eq!(bitmap.next_absent(0, 200), Some(131));
        assert_eq!(bitmap.next_absent(132, 200), None);
        assert_eq!(bitmap.next_absent(132, 201), Some(200));
    }
}
