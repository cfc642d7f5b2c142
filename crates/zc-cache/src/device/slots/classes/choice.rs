//! Order in which classes lose a unit when a slot is needed.
//!
//! 1. Classes above their quota.
//! 2. Classes above their reserve: a lower priority first; of equal ones the class whose next unit was used
//! 3. The class that the slot is for, within its reserve: its new content replaces its old.
//! 4. For dirty data, which must be placed: all others, in the order of 2.
//!
//! A class without an evictable unit is skipped.
//!
//! Out of scope: the choice of a unit within the class.

use core::cmp::Reverse;

use crate::device::slots::{bounds::Bounds, class_id::ClassId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) class: ClassId,
    pub(crate) units: u32,
    pub(crate) bounds: Bounds,
    /// Last use of the first unit in its order of eviction, as a count of opened units.
    pub(crate) last_used: u32,
}

impl Standing {
    fn is_over_quota(&self) -> bool {
        self.bounds.quota.is_some_and(|quota| self.units > quota)
    }

    const fn above_reserve(&self) -> u32 {
        self.units.saturating_sub(self.bounds.reserve)
    }
}

/// Intended use of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotPurpose {
    /// Class of the clean extents that need it.
    pub(crate) class: Option<ClassId>,
    pub(crate) is_for_dirty: bool,
}

/// Returns the classes that may lose a unit, in order of preference.
pub(crate) fn losers(mut standings: Vec<Standing>, wanted: SlotPurpose) -> Vec<ClassId> {
    let rank = |standing: &Standing| {
        if standing.is_over_quota() {
            Some(0)
        } else if standing.above_reserve() > 0 {
            Some(1)
        } else if wanted.class == Some(standing.class) {
            Some(2)
        } else {
            wanted.is_for_dirty.then_some(3)
        }
    };
    standings.retain(|standing| rank(standing).is_some());
    standings.sort_by_key(|standing| {
        let Standing { class, bounds, last_used, .. } = *standing;
        (rank(standing), bounds.priority, last_used, Reverse(standing.above_reserve()), class)
    });
    standings.into_iter().map(|standing| standing.class).collect()
}

#[cfg(test)]
mod tests {
    use zc_core::Priority::{self, High, Low, Normal};

    use super::*;

    const FOR_NONE: SlotPurpose = SlotPurpose { class: None, is_for_dirty: false };

    fn class(id: u8, units: u32, reserve: u32, priority: Priority, last_used: u32) -> Standing {
        let bounds = Bounds { quota: None, reserve, priority };
        Standing { class: ClassId::new(id), units, bounds, last_used }
    }

    fn order(standings: &[Standing], wanted: SlotPurpose) -> Vec<u32> {
        losers(standings.to_vec(), wanted).into_iter().map(|class| class.number()).collect()
    }

    #[test]
    fn a_lower_priority_loses_first_then_what_was_used_the_longest_ago() {
        let standings = [
            class(0, 50, 0, Normal, 7),
            class(1, 9, 0, High, 1),
            class(2, 9, 0, Low, 99),
            class(3, 9, 0, Normal, 3),
            class(4, 80, 0, Normal, 7),
        ];
        assert_eq!(order(&standings, FOR_NONE), [2, 3, 4, 0, 1]);
    }

    #[test]
    fn a_class_within_its_reserve_loses_to_itself_and_to_dirty_data_alone() {
        let standings = [class(0, 5, 0, High, 9), class(1, 10, 10, Low, 1), class(2, 11, 10, Normal, 2)];
        assert_eq!(order(&standings, FOR_NONE), [2, 0]);
        let wanted = |id, is_for_dirty| SlotPurpose { class: Some(ClassId::new(id)), is_for_dirty };
        assert_eq!(order(&standings, wanted(1, false)), [2, 0, 1]);
        assert_eq!(order(&standings, wanted(0, false)), [2, 0]);
        assert_eq!(order(&standings, wanted(0, true)), [2, 0, 1]);
    }

    #[test]
    fn a_class_above_its_quota_loses_before_all_others() {
        let mut above = class(1, 6, 6, High, 9);
        above.bounds.quota = Some(5);
        assert_eq!(order(&[class(0, 5, 0, Low, 1), above], FOR_NONE), [1, 0]);
        above.bounds.quota = Some(6);
        assert_eq!(order(&[class(0, 5, 0, Low, 1), above], FOR_NONE), [0]);
    }
}
