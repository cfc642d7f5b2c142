//! Recent frequency of keys, in four bits each: a count-min sketch of four rows that is halved after ten uses per
//! entry of the cache (the reset of W-TinyLFU's authors).

use zc_core::{u64_from_usize, usize_from_u64};

/// Rows.
const ROWS: usize = 4;
/// Largest count.
const COUNT_MAX: u64 = 15;
/// Counters in a word.
const PER_WORD: u64 = 16;
/// Uses per entry of the cache between two halvings.
const SAMPLE_FACTOR: u64 = 10;
/// Odd multipliers, one a row.
const SEEDS: [u64; ROWS] =
    [0xc3a5_c85c_97cb_3127, 0xb492_b66f_be98_f273, 0x9ae1_6a3b_2f90_404f, 0xcbf2_9ce4_8422_2325];

/// A sketch.
#[derive(Debug)]
pub(crate) struct Sketch {
    /// Rows one after the other, sixteen counters a word.
    words: Vec<u64>,
    /// Counters of a row less one; the number is a power of two.
    mask: u64,
    uses: u64,
    sample: u64,
}

impl Sketch {
    pub(crate) fn new(capacity: usize) -> Self {
        let counters = u64_from_usize(capacity).next_power_of_two().max(PER_WORD);
        let words = usize_from_u64(counters / PER_WORD).saturating_mul(ROWS);
        let sample = SAMPLE_FACTOR * u64_from_usize(capacity);
        Self { words: vec![0; words], mask: counters - 1, uses: 0, sample }
    }

    /// Word and shift of a key's counter in a row.
    fn place(&self, key: u64, row: usize) -> (usize, u64) {
        let mixed = (key ^ (key >> 32)).wrapping_add(SEEDS[row]).wrapping_mul(SEEDS[row]);
        let counter = (mixed ^ (mixed >> 29)).wrapping_mul(SEEDS[ROWS - 1 - row]) >> 20 & self.mask;
        let row_words = self.words.len() / ROWS;
        (row * row_words + usize_from_u64(counter / PER_WORD), counter % PER_WORD * 4)
    }

    /// Counts a use.
    pub(crate) fn add(&mut self, key: u64) {
        for row in 0..ROWS {
            let (word, shift) = self.place(key, row);
            if self.words[word] >> shift & COUNT_MAX < COUNT_MAX {
                self.words[word] += 1 << shift;
            }
        }
        self.uses += 1;
        if self.uses >= self.sample {
            self.uses /= 2;
            // Every counter loses its lowest bit to none of its neighbours.
            self.words.iter_mut().for_each(|word| *word = *word >> 1 & 0x7777_7777_7777_7777);
        }
    }

    /// Uses of a key, at most 15, never too few since the last halving.
    pub(crate) fn count(&self, key: u64) -> u64 {
        let counts = (0..ROWS).map(|row| self.place(key, row));
        counts.map(|(word, shift)| self.words[word] >> shift & COUNT_MAX).min().unwrap_or(0)
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        u64_from_usize(self.words.len() * size_of::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_few_keys_and_halve() {
        let mut sketch = Sketch::new(1000);
        (0..20).for_each(|_| sketch.add(7));
        (0..3).for_each(|_| sketch.add(8));
        assert_eq!((sketch.count(7), sketch.count(8), sketch.count(9)), (15, 3, 0));
        let more = 10_000 - 23;
        (0..more).for_each(|key| sketch.add(key + 1_000_000));
        assert!((7..=12).contains(&sketch.count(7)), "{}", sketch.count(7));
    }

    #[test]
    fn few_keys_of_many_are_taken_for_others() {
        let mut sketch = Sketch::new(4096);
        (0..2048).for_each(|key| sketch.add(key * 8));
        let wrong = (0..10_000).filter(|key| sketch.count(key * 8 + 1) > 0).count();
        assert!(wrong < 1000, "{wrong}");
    }
}
