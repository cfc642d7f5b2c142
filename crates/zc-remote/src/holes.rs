//! Ranges of the export that read as zeros, as the server has reported.
//!
//! Job: hold reported holes until they are changed, so that a read of one needs no answer of the server.
//!
//! Invariants: a range is held only if no change of it was sent after its status was. Count and shortest length are
//! bounded. A hole that contradicts content that was read from the export ends the trust in all holes.
//!
//! Out of scope: requesting the status.

use std::collections::{BTreeMap, BTreeSet};

use crate::Run;
use crate::limits::{HOLE_BYTES_MIN, HOLE_CUT_BYTES, HOLES_MAX, REGION_BYTES, REGIONS_MAX};
use crate::samples::Samples;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// End of each hole by its first byte. They neither overlap nor touch.
    ends: BTreeMap<u64, u64>,
    /// Regions whose status was requested.
    requested: BTreeSet<u64>,
    /// Status of a region is in flight.
    is_requesting: bool,
    /// A reported hole had content.
    is_distrusted: bool,
}

impl Holes {
    /// Forgets everything but the distrust: the connections have ended.
    pub(crate) fn reset(&mut self) {
        *self = Self { is_distrusted: self.is_distrusted, ..Self::default() };
    }

    /// Returns `false` once the server has reported a hole that had content.
    pub(crate) const fn is_trusted(&self) -> bool {
        !self.is_distrusted
    }

    /// Returns the region of a byte if its holes are to be requested now.
    pub(crate) fn region_due(&self, at: u64, size_bytes: u64) -> Option<(u64, u64)> {
        let region = at / REGION_BYTES;
        let is_due = !self.is_distrusted
            && !self.is_requesting
            && !self.requested.contains(&region)
            && self.requested.len() < REGIONS_MAX
            && self.ends.len() < HOLES_MAX;
        let start = region * REGION_BYTES;
        is_due.then(|| (start, start.saturating_add(REGION_BYTES).min(size_bytes)))
    }

    /// The status of a region was requested.
    pub(crate) fn requested(&mut self, start: u64) {
        self.requested.insert(start / REGION_BYTES);
        self.is_requesting = true;
    }

    /// The status of a region was answered.
    pub(crate) const fn answered(&mut self) {
        self.is_requesting = false;
    }

    /// Adds the zeros of a status that begins at `start`. Returns `false` if content contradicts them.
    pub(crate) fn add(&mut self, start: u64, runs: &[Run], samples: &Samples) -> bool {
        if self.is_distrusted {
            return true;
        }
        let mut at = start;
        for run in runs {
            let end = at.saturating_add(run.len_bytes);
            if run.is_zero() && samples.contradict_zeros(at, end) {
                self.is_distrusted = true;
                self.ends.clear();
                return false;
            }
            if run.is_zero() && run.len_bytes >= HOLE_BYTES_MIN {
                self.insert(at, end);
            }
            at = end;
        }
        true
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        while let Some((&from, &to)) = self.ends.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            (start, end) = (start.min(from), end.max(to));
            self.ends.remove(&from);
        }
        if self.ends.len() < HOLES_MAX {
            self.ends.insert(start, end);
        }
    }

    /// Removes a changed range.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        while let Some((&from, &to)) = self.ends.range(..end).next_back().filter(|(_, to)| **to > start) {
            self.ends.remove(&from);
            for (from, to) in [(from, start), (end, to)] {
                if to > from && to - from >= HOLE_BYTES_MIN && self.ends.len() < HOLES_MAX {
                    self.ends.insert(from, to);
                }
            }
        }
    }

    /// Returns the end of the zeros that begin at `at`, at most `end`; `at` itself if there are none.
    pub(crate) fn zeros_from(&self, at: u64, end: u64) -> u64 {
        self.ends.range(..=at).next_back().map_or(at, |(_, to)| (*to).min(end).max(at))
    }

    /// Returns the start of the next hole within `at..end` that is worth a request less or two short ones, `end` if there
    /// is none.
    pub(crate) fn cut(&self, at: u64, end: u64) -> u64 {
        let is_worth = |(from, to): &(&u64, &u64)| **to >= end || **to - **from >= HOLE_CUT_BYTES;
        self.ends.range(at..end).find(is_worth).map_or(end, |(from, _)| *from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pause::Dice;
    use crate::samples::Sample;
    use proptest::prelude::*;
    use zc_nbd::proto::STATE_ZERO;

    const UNIT: u64 = HOLE_CUT_BYTES;

    fn zeros(len_bytes: u64) -> Run {
        Run { len_bytes, flags: STATE_ZERO }
    }

    fn data(len_bytes: u64) -> Run {
        Run { len_bytes, flags: 0 }
    }

    #[test]
    fn holes_are_bounded_and_short_ones_are_not_kept() {
        let mut holes = Holes::default();
        let runs: Vec<Run> = (0..2 * HOLES_MAX).flat_map(|_| [zeros(UNIT), data(512)]).collect();
        assert!(holes.add(0, &runs, &Samples::default()));
        assert_eq!(holes.ends.len(), HOLES_MAX);
        assert_eq!(holes.region_due(0, u64::MAX), None, "there is no space for more");
        let mut holes = Holes::default();
        holes.add(0, &[zeros(HOLE_BYTES_MIN - 512)], &Samples::default());
        assert_eq!(holes.zeros_from(0, UNIT), 0);
    }

    #[test]
    fn a_region_is_requested_once_and_one_at_a_time() {
        let mut holes = Holes::default();
        let size = 2 * REGION_BYTES + 512;
        assert_eq!(holes.region_due(REGION_BYTES + 5, size), Some((REGION_BYTES, 2 * REGION_BYTES)));
        holes.requested(REGION_BYTES);
        assert_eq!(holes.region_due(0, size), None, "one is in flight");
        holes.answered();
        assert_eq!(holes.region_due(REGION_BYTES, size), None);
        assert_eq!(holes.region_due(size - 1, size), Some((2 * REGION_BYTES, size)));
        holes.reset();
        assert_eq!(holes.region_due(REGION_BYTES, size), Some((REGION_BYTES, 2 * REGION_BYTES)));
    }

    #[test]
    fn a_hole_with_content_ends_the_trust() {
        let mut samples = Samples::default();
        samples.keep(Sample::full(UNIT, &[0, 0, 1]), &mut Dice::new(1));
        let mut holes = Holes::default();
        assert!(holes.add(0, &[zeros(UNIT), data(UNIT), zeros(UNIT)], &samples));
        assert_eq!(holes.zeros_from(0, 2 * UNIT), UNIT);
        assert!(!holes.add(0, &[zeros(2 * UNIT)], &samples));
        assert!(!holes.is_trusted() && holes.zeros_from(0, UNIT) == 0);
        holes.reset();
        assert!(!holes.is_trusted() && holes.region_due(0, UNIT).is_none());
    }

    proptest! {
        #[test]
        fn holes_agree_with_a_bitmap(
            steps in prop::collection::vec((any::<bool>(), 0_u64..30, 1_u64..12), 0..40),
        ) {
            let (mut holes, mut zero) = (Holes::default(), [false; 48]);
            for (adds, from, count) in steps {
                let range = usize::try_from(from).unwrap()..usize::try_from(from + count).unwrap();
                zero[range].fill(adds);
                if adds {
                    holes.add(from * UNIT, &[zeros(count * UNIT)], &Samples::default());
                } else {
                    holes.forget(from * UNIT, (from + count) * UNIT);
                }
                for at in 0..48_u64 {
                    let left = &zero[usize::try_from(at).unwrap()..];
                    let run = left.iter().take_while(|zero| **zero).count();
                    let end = holes.zeros_from(at * UNIT, 48 * UNIT) / UNIT;
                    prop_assert_eq!(usize::try_from(end - at).unwrap(), run);
                    if run == 0 {
                        let next = holes.cut(at * UNIT, 48 * UNIT) / UNIT;
                        let data = left.iter().take_while(|zero| !**zero).count();
                        prop_assert_eq!(usize::try_from(next - at).unwrap(), data);
                    }
                }
            }
        }
    }
}
