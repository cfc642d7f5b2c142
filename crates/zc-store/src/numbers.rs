//! Numbers of chunks and map pages: given, and given again.
//!
//! Invariants: a number is given again only after a mark has shown that nothing refers to it and its record is gone. What
//! was free at a crash is found again by the next mark. No number from a bound on is ever given, which the size of the
//! pool sets: sets of numbers are as large as the largest.

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
    /// None from here on is ever given.
    max: u64,
}

impl Numbers {
    pub(crate) fn new(end: u64, max: u64) -> Self {
        Self { end, used: Bitmap::default(), cursor: end, limit: end, max }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns `true` if so many can be given.
    pub(crate) fn has(&self, count: usize) -> bool {
        self.end.saturating_add(zc_core::u64_from_usize(count)) <= self.max || self.peek(count).len() == count
    }

    /// Returns `true` if the number was given, or may be next.
    pub(crate) const fn may_be(&self, number: u64) -> bool {
        number < self.max
    }

    /// None of these is given until the next mark, among the next `count`: their records cannot be written.
    pub(crate) fn skip(&mut self, numbers: &core::ops::Range<u64>, count: usize) {
        for number in numbers.start.max(self.cursor)..numbers.end.min(self.limit) {
            self.used.insert(number);
        }
        let reach = self.end.saturating_add(zc_core::u64_from_usize(count));
        if numbers.start < reach && numbers.end > self.end {
            self.end = numbers.end.min(self.max);
        }
    }

    /// The next numbers that [`Numbers::take`] will give: `count`, or fewer if there are no more.
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
        numbers.extend(self.end..(self.end + missing).min(self.max));
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
        let mut numbers = Numbers::new(1, 14);
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
        assert!(numbers.has(1) && !numbers.has(2));
        assert_eq!(numbers.peek(3), [13]);
    }

    #[test]
    fn numbers_whose_records_cannot_be_written_are_passed_over() {
        let mut numbers = Numbers::new(10, 100);
        numbers.skip(&(20..30), 1);
        assert_eq!(numbers.peek(1), [10]);
        numbers.skip(&(5..15), 1);
        assert_eq!((numbers.take(), numbers.end()), (15, 16));
        let mut used = Bitmap::default();
        used.insert(3);
        numbers.marked(used);
        numbers.skip(&(0..5), 2);
        assert_eq!(numbers.peek(2), [5, 6]);
        numbers.skip(&(6..9), 4);
        assert_eq!(numbers.peek(4), [5, 9, 10, 11], "those in front are given");
        numbers.skip(&(5..50), 1);
        assert_eq!(numbers.take(), 50, "what is behind the last is passed over too");
        numbers.skip(&(53..60), 4);
        assert_eq!(numbers.peek(4), [60, 61, 62, 63], "a run at the end stays together");
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
