//! Sets of sectors of an extent.

use core::ops::Range;

use crate::limits;

/// The smallest addressable piece of a volume.
pub const SECTOR_BYTES: u32 = 512;

const WORDS: usize = limits::SECTORS_PER_EXTENT_MAX / 64;

/// A set of sectors of one extent (at most 256: 128 KiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SectorMap {
    words: [u64; WORDS],
}

impl SectorMap {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The set of the sectors in `range`.
    ///
    /// # Panics
    /// When the range reaches past the largest extent.
    #[must_use]
    pub fn from_range(range: Range<u32>) -> Self {
        let mut map = Self::EMPTY;
        map.insert(range);
        map
    }

    /// Adds the sectors in `range`.
    ///
    /// # Panics
    /// When the range reaches past the largest extent.
    pub fn insert(&mut self, range: Range<u32>) {
        for sector in range {
            self.words[(sector / 64) as usize] |= 1 << (sector % 64);
        }
    }

    /// Removes the sectors in `range`.
    ///
    /// # Panics
    /// When the range reaches past the largest extent.
    pub fn remove(&mut self, range: Range<u32>) {
        for sector in range {
            self.words[(sector / 64) as usize] &= !(1 << (sector % 64));
        }
    }

    /// Returns `true` if all sectors in `range` are in the set.
    #[must_use]
    pub fn contains(&self, mut range: Range<u32>) -> bool {
        range.all(|sector| {
            self.words.get((sector / 64) as usize).is_some_and(|w| w & (1 << (sector % 64)) != 0)
        })
    }

    /// Returns `true` if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Number of sectors in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// The maximal runs of sectors below `sectors` that are in the set (`present`) or absent from it.
    pub fn runs(&self, sectors: u32, present: bool) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            while at < sectors && self.contains(at..at + 1) != present {
                at += 1;
            }
            if at >= sectors {
                return None;
            }
            let start = at;
            while at < sectors && self.contains(at..at + 1) == present {
                at += 1;
            }
            Some(start..at)
        })
    }
}

/// Non-empty run of sectors of one extent in its form on media: first and last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorSpan {
    first: u8,
    last: u8,
}

impl SectorSpan {
    /// Returns the run of the sectors in `range`, or `None` if it is empty or exceeds the largest extent.
    #[must_use]
    pub fn new(range: &Range<u32>) -> Option<Self> {
        let last = range.end.checked_sub(1)?;
        Self::from_ends(u8::try_from(range.start).ok()?, u8::try_from(last).ok()?)
    }

    /// Returns the run from `first` to `last`, both included, or `None` if it is empty.
    #[must_use]
    pub const fn from_ends(first: u8, last: u8) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// First sector.
    #[must_use]
    pub const fn first(self) -> u8 {
        self.first
    }

    /// Last sector.
    #[must_use]
    pub const fn last(self) -> u8 {
        self.last
    }

    /// The sectors.
    #[must_use]
    pub fn range(self) -> Range<u32> {
        u32::from(self.first)..u32::from(self.last) + 1
    }

    /// Bytes that the sectors hold.
    #[must_use]
    pub fn len_bytes(self) -> u32 {
        (u32::from(self.last - self.first) + 1) * SECTOR_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_split_present_and_absent() {
        let mut map = SectorMap::from_range(2..5);
        map.insert(63..66);
        assert_eq!(map.runs(70, true).collect::<Vec<_>>(), vec![2..5, 63..66]);
        assert_eq!(map.runs(70, false).collect::<Vec<_>>(), vec![0..2, 5..63, 66..70]);
        assert_eq!(map.count(), 6);
        map.remove(0..70);
        assert!(map.is_empty());
        assert!(!map.contains(0..1));
    }
}
