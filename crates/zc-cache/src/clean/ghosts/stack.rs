//! LRU list of addresses, divided at several sizes into the contents of caches of these sizes.
//!
//! LRU has the inclusion property: a larger cache holds everything that a smaller one does (Mattson and others, IBM
//! Systems Journal 1970). So one list with a mark at each size yields the hits of all of them. The list is divided
//! into parts, newest first; an address that leaves a part enters the next one.
//!
//! Overwritten addresses keep their place, as on the cache device.
//!
//! Invariants: an address is in at most one part; no part exceeds its share of the size, except during an update. Out
//! of scope: sampling and counting.

use zc_core::{Map, WeuSlot, usize_from_u32};

use crate::device::slots::policy::ring::{Queue, Ring};

/// LRU list whose places are numbered as slots of a [`Ring`].
#[derive(Debug)]
pub(super) struct Stack {
    /// Lengths of the parts, in quarters of the size.
    quarters: &'static [u32],
    ring: Ring,
    places: Map<u64, u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    held: Vec<u32>,
    dead: Vec<u32>,
    places_max: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    part: u8,
    /// Overwritten content, which keeps its place until it leaves the list.
    is_dead: bool,
}

impl Stack {
    /// An empty list of parts of so many quarters of the size, which has at most `size_max` addresses.
    pub(super) fn new(quarters: &'static [u32], size_max: u32) -> Self {
        let places_max = quarters.iter().sum::<u32>() * size_max.div_ceil(4) + 1;
        let parts = u32::try_from(quarters.len()).unwrap_or(u32::MAX);
        Self {
            quarters,
            ring: Ring::new(places_max, parts),
            places: Map::default(),
            entries: Vec::new(),
            free: Vec::new(),
            held: vec![0; quarters.len()],
            dead: vec![0; quarters.len()],
            places_max,
        }
    }

    pub(super) fn holds(&self, hash: u64) -> bool {
        self.places.contains_key(&hash)
    }

    /// Moves the address to the front of a list of this size. Returns the part that held it.
    pub(super) fn renew(&mut self, hash: u64, size: u32) -> Option<usize> {
        let known = self.places.get(&hash).copied();
        let place = known.unwrap_or_else(|| self.place_for(hash));
        let part = known.map(|place| self.part_of(place));
        if let Some(part) = part {
            self.ring.unlink(WeuSlot(place));
            self.held[part] -= 1;
        }
        self.ring.push(Queue(0), WeuSlot(place));
        self.entries[usize_from_u32(place)].part = 0;
        self.held[0] += 1;
        self.settle(size);
        part
    }

    /// Moves the address to the front and leaves its old content in place as dead: a cache that writes units in
    /// sequence keeps overwritten content until it evicts the unit.
    pub(super) fn overwrite(&mut self, hash: u64, size: u32) {
        if let Some(place) = self.places.remove(&hash) {
            let part = self.part_of(place);
            self.entries[usize_from_u32(place)].is_dead = true;
            self.dead[part] += 1;
        }
        self.renew(hash, size);
    }

    /// Addresses with current content in the first parts.
    pub(super) fn live(&self, parts: usize) -> u32 {
        self.held(parts) - self.dead[..parts].iter().sum::<u32>()
    }

    /// Number of sizes that the list has filled.
    pub(super) fn filled(&self, size: u32) -> usize {
        let held = u64::from(self.held(self.held.len()));
        let mut quarters = 0_u64;
        let mut is_filled = |part: &&u32| {
            quarters += u64::from(**part);
            held >= (u64::from(size) * quarters).div_ceil(4)
        };
        self.quarters.iter().take_while(|part| is_filled(part)).count()
    }

    pub(super) fn held(&self, parts: usize) -> u32 {
        self.held[..parts].iter().sum()
    }

    /// Retains the addresses for which `keep` returns `true`.
    pub(super) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let gone: Vec<u32> = self.places.extract_if(|hash, _| !keep(*hash)).map(|(_, place)| place).collect();
        gone.into_iter().for_each(|place| self.vacate(place));
        let is_gone = |(_, entry): &(u32, &Entry)| entry.is_dead && !keep(entry.hash);
        let dead: Vec<u32> = (0..).zip(&self.entries).filter(is_gone).map(|(place, _)| place).collect();
        dead.into_iter().for_each(|place| self.vacate(place));
    }

    pub(super) fn ram_bytes(&self) -> u64 {
        /// RAM of a mapped address: with its control byte, and the eighth of the map that stays empty.
        const MAPPED_BYTES: u64 = 20;
        let entry = zc_core::u64_from_usize(size_of::<Entry>());
        self.ring.ram_bytes() + u64::from(self.places_max) * (entry + MAPPED_BYTES)
    }

    fn part_of(&self, place: u32) -> usize {
        usize::from(self.entries[usize_from_u32(place)].part)
    }

    /// Allocates a place for a new address, in no part yet.
    fn place_for(&mut self, hash: u64) -> u32 {
        if self.free.is_empty() && self.entries.len() < usize_from_u32(self.places_max) {
            self.free.push(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
            self.entries.push(Entry { hash, part: 0, is_dead: false });
        }
        if self.free.is_empty() {
            self.drop_oldest();
        }
        let Some(place) = self.free.pop() else { unreachable!("a place was freed") };
        self.entries[usize_from_u32(place)].hash = hash;
        self.places.insert(hash, place);
        place
    }

    fn drop_oldest(&mut self) {
        let oldest =
            (0..).map(Queue).take(self.quarters.len()).filter_map(|part| self.ring.oldest(part)).last();
        if let Some(WeuSlot(place)) = oldest {
            self.forget(place);
        }
    }

    fn forget(&mut self, place: u32) {
        let entry = self.entries[usize_from_u32(place)];
        if !entry.is_dead {
            self.places.remove(&entry.hash);
        }
        self.vacate(place);
    }

    fn vacate(&mut self, place: u32) {
        let part = self.part_of(place);
        let was_dead = core::mem::take(&mut self.entries[usize_from_u32(place)].is_dead);
        self.dead[part] -= u32::from(was_dead);
        self.ring.unlink(WeuSlot(place));
        self.held[part] -= 1;
        self.free.push(place);
    }

    /// Moves the excess of each part to the next one; the last one drops it.
    fn settle(&mut self, size: u32) {
        for (part, queue) in (0..self.quarters.len()).zip(0..) {
            let most = (u64::from(size) * u64::from(self.quarters[part])).div_ceil(4);
            while u64::from(self.held[part]) > most {
                let Some(slot) = self.ring.oldest(Queue(queue)) else { break };
                if part + 1 == self.quarters.len() {
                    self.forget(slot.0);
                } else {
                    if self.entries[usize_from_u32(slot.0)].is_dead {
                        self.dead[part] -= 1;
                        self.dead[part + 1] += 1;
                    }
                    self.ring.renew(Queue(queue + 1), slot);
                    self.held[part] -= 1;
                    self.held[part + 1] += 1;
                    self.entries[usize_from_u32(slot.0)].part += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: the list as a vector, newest first.
    fn position(list: &mut Vec<u64>, hash: u64) -> Option<usize> {
        let at = list.iter().position(|held| *held == hash);
        if let Some(at) = at {
            list.remove(at);
        }
        list.insert(0, hash);
        at
    }

    #[test]
    fn parts_tell_how_far_back_an_address_was_used() {
        let (mut stack, mut list) = (Stack::new(&[1, 1, 2, 4], 40), Vec::new());
        let mut x = 1_u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Low numbers are more frequent.
            let hash = (x >> 33) % ((x >> 50) % 150 + 1);
            let wanted =
                position(&mut list, hash).and_then(|at| [10, 20, 40, 80].iter().position(|end| at < *end));
            assert_eq!(stack.renew(hash, 40), wanted);
        }
        assert_eq!((stack.held(1), stack.held(3), stack.held(4)), (10, 40, 80));
    }

    #[test]
    fn a_list_that_shrinks_forgets_the_oldest() {
        let mut stack = Stack::new(&[4], 100);
        (0..100).for_each(|hash| assert_eq!(stack.renew(hash, 100), None));
        stack.renew(100, 10);
        assert_eq!(stack.held(1), 10);
        assert!((91..=100).all(|hash| stack.holds(hash)) && !stack.holds(90));
        stack.retain(|hash| hash % 2 == 0);
        assert_eq!(stack.held(1), 5);
        assert!(stack.holds(100) && !stack.holds(99));
        (200..295).for_each(|hash| assert_eq!(stack.renew(hash, 100), None));
        assert!(stack.holds(92) && stack.held(1) == 100, "places are used again");
    }
}
