//! Division of the capacity for dirty data among write-back volumes.
//!
//! The arithmetic applies to slots and to records (`CONSISTENCY.md`, "Room for dirty data"). A quarter of the capacity
//! is reserved in equal parts. A volume may take capacity within its reserve regardless of other volumes; beyond that
//! it may take capacity only while all together hold less than the shared part.
//!
//! Invariant: allocations of volumes within their reserves always fit. A slot that was opened while the shared
//! capacity was used up only has bodies of volumes within their reserves, and each of them is charged for it; so the
//! number of these slots never exceeds the sum of the reserves.
//!
//! Out of scope: counting the usage of volumes, and the order of admission (`admission`).

/// Share of the capacity that is reserved, if there is more than one volume: one in this number.
const RESERVED_PART: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    pub(super) reserve: u64,
    /// Bound for all volumes together, beyond which only reserves are available.
    pub(super) shared: u64,
    /// Bound for all volumes together.
    pub(super) all: u64,
}

impl Division {
    /// Divides a capacity `all` among `volumes` volumes. A single volume needs no reserve. If the quarter is less than
    /// one per volume, each gets one, unless that exceeds half of the capacity: then there are no reserves.
    pub(crate) const fn new(all: u64, volumes: u64) -> Self {
        let reserve = match (volumes, all / RESERVED_PART) {
            (0 | 1, _) => 0,
            (_, quarter) if quarter >= volumes => quarter / volumes,
            _ if volumes <= all / 2 => 1,
            _ => 0,
        };
        Self { reserve, shared: all - reserve * volumes, all }
    }

    /// Returns `true` if a volume that holds `own` may take `more` within its reserve. With reserves, a volume that
    /// holds nothing may always begin.
    pub(crate) const fn is_reserved(self, own: u64, more: u64) -> bool {
        self.reserve > 0 && (own == 0 || own + more <= self.reserve)
    }

    pub(crate) const fn reserved(self) -> u64 {
        self.all - self.shared
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn a_quarter_is_reserved_in_equal_parts_and_one_volume_has_all() {
        let share = |all, volumes| {
            let division = Division::new(all, volumes);
            (division.reserve, division.shared)
        };
        assert_eq!(share(74, 0), (0, 74));
        assert_eq!(share(74, 1), (0, 74));
        assert_eq!(share(74, 2), (9, 56));
        assert_eq!(share(74, 18), (1, 56));
        assert_eq!(share(74, 37), (1, 37), "one each, as long as half of the room is shared");
        assert_eq!(share(74, 38), (0, 74), "too many for reserves");
        assert_eq!(share(2, 2), (0, 2));
    }

    #[test]
    fn who_has_nothing_may_begin_where_there_are_reserves() {
        let division = Division::new(16, 2);
        assert_eq!((division.reserve, division.reserved()), (2, 4));
        assert!(division.is_reserved(0, 3) && division.is_reserved(1, 1));
        assert!(!division.is_reserved(1, 2) && !division.is_reserved(2, 1));
        assert!(!Division::new(16, 1).is_reserved(0, 1));
    }

    /// Slots with the bodies of each volume; the last one is open.
    #[derive(Default)]
    struct Slots {
        bodies: BTreeMap<u32, Vec<u64>>,
        last: u32,
        room: u32,
    }

    impl Slots {
        fn charge(&self, volume: u64) -> u64 {
            self.bodies.values().filter(|of| of.contains(&volume)).count() as u64
        }

        /// Places a body in the open slot, or in a new one.
        fn place(&mut self, volume: u64, opens: bool) {
            if opens || self.room == 0 {
                (self.last, self.room) = (self.last + 1, 3);
            }
            self.room -= 1;
            self.bodies.entry(self.last).or_default().push(volume);
        }

        fn clean(&mut self, volume: u64) {
            self.bodies.values_mut().for_each(|of| of.retain(|body| *body != volume));
            self.bodies.retain(|_, of| !of.is_empty());
        }
    }

    #[test]
    fn reserves_hold_however_volumes_share_slots_and_whoever_gives_nothing_back() {
        for seed in 1..300_u64 {
            let mut state = seed;
            // xorshift64
            let mut below = |end: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 16) % end
            };
            let (all, volumes) = (8 + below(32), 2 + below(4));
            let division = Division::new(all, volumes);
            let stuck: BTreeSet<u64> = (0..volumes).filter(|_| below(2) == 0).collect();
            let mut slots = Slots::default();
            for _ in 0..600 {
                let volume = below(volumes);
                if below(10) == 0 && !stuck.contains(&volume) {
                    slots.clean(volume);
                    continue;
                }
                let held = slots.bodies.len() as u64;
                let reserved = division.is_reserved(slots.charge(volume), 1);
                if held < division.shared || reserved {
                    slots.place(volume, below(3) == 0);
                }
                assert!(slots.bodies.len() as u64 <= all, "{division:?}, seed {seed}");
            }
        }
    }
}
