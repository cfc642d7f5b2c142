//! Sets of extent numbers as ranges.
//!
//! Invariants: ranges are ordered, non-empty and not adjacent. Out of scope: a bound on the number of ranges.

use core::ops::Range;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(Vec<Range<u64>>);

impl RangeSet {
    /// Union of ranges in any order.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| range.start < range.end).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => merged.push(range),
            }
        }
        Self(merged)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let before = self.0.partition_point(|range| range.start <= number);
        before.checked_sub(1).is_some_and(|at| number < self.0[at].end)
    }

    /// Returns the first range that ends after `number`, clipped to begin there.
    pub(crate) fn from(&self, number: u64) -> Option<Range<u64>> {
        let range = self.0.get(self.0.partition_point(|range| range.end <= number))?;
        Some(range.start.max(number)..range.end)
    }

    /// Returns the first `count` numbers.
    pub(crate) fn first(&self, count: u64) -> Self {
        let mut left = count;
        let cut = |range: &Range<u64>| {
            let end = range.end.min(range.start + left);
            left -= end - range.start;
            range.start..end
        };
        Self::of(self.0.iter().map(cut))
    }

    /// Returns the first numbers that are missing in the other set, at most `most` in a row.
    pub(crate) fn first_beyond(&self, other: &Self, most: u64) -> Option<Range<u64>> {
        self.0.iter().find_map(|range| {
            let mut start = range.start;
            for taken in other.0.iter().filter(|taken| taken.end > range.start) {
                if taken.start > start {
                    break;
                }
                start = taken.end;
            }
            let next = other.from(start).map_or(u64::MAX, |taken| taken.start);
            let end = range.end.min(next).min(start.saturating_add(most));
            (start < end).then_some(start..end)
        })
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        *self = Self::of(core::mem::take(&mut self.0).into_iter().chain([range]));
    }

    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        let around =
            |held: Range<u64>| [held.start..held.end.min(range.start), held.start.max(range.end)..held.end];
        *self = Self::of(core::mem::take(&mut self.0).into_iter().flat_map(around));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn numbers(ranges: &[Range<u64>]) -> BTreeSet<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    fn some() -> impl Strategy<Value = Vec<Range<u64>>> {
        let range = (0_u64..60, 0_u64..9).prop_map(|(start, count)| start..start + count);
        prop::collection::vec(range, 0..6)
    }

    proptest! {
        #[test]
        fn it_has_the_numbers_of_its_ranges(a in some(), b in some(), at in 0_u64..70, most in 1_u64..9) {
            let (set, other) = (RangeSet::of(a.clone()), RangeSet::of(b.clone()));
            let (of_a, of_b) = (numbers(&a), numbers(&b));
            prop_assert_eq!(&numbers(&set.0), &of_a);
            prop_assert!(set.0.windows(2).all(|two| two[0].end < two[1].start));
            prop_assert_eq!(set.contains(at), of_a.contains(&at));
            prop_assert_eq!(set.from(at).map(|range| range.start), of_a.range(at..).next().copied());
            prop_assert_eq!(set.count(), zc_core::u64_from_usize(of_a.len()));
            let first: BTreeSet<u64> = of_a.iter().copied().take(usize::try_from(at).unwrap()).collect();
            prop_assert_eq!(numbers(&set.first(at).0), first);
            let beyond = set.first_beyond(&other, most);
            prop_assert_eq!(beyond.clone().map(|range| range.start), of_a.difference(&of_b).next().copied());
            if let Some(range) = beyond {
                prop_assert!(range.end - range.start <= most);
                prop_assert!(range.clone().all(|number| of_a.contains(&number) && !of_b.contains(&number)));
                let (mut more, mut less) = (other, set);
                more.insert(range.clone());
                less.remove(&range);
                let piece: BTreeSet<u64> = range.collect();
                prop_assert_eq!(numbers(&more.0), &of_b | &piece);
                prop_assert_eq!(numbers(&less.0), &of_a - &piece);
            }
        }
    }
}
