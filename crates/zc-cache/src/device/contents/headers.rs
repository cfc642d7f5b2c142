//! Cache of WEU headers: full fingerprints that verify hints of the fingerprint index (G7).
//!
//! Headers of the open WEU and of WEUs being written are always cached. For other WEUs the number of fingerprints is
//! bounded, with LRU eviction; a header without fingerprints counts as one. Streams of duplicates find their originals
//! in few WEUs, so one header read of about 30 KiB serves hundreds of them.

use smallvec::SmallVec;
use zc_core::{Fingerprint, Generation, HashKey, KeyedMap, Map, WeuSlot};

use crate::device::stored::Stored;

#[derive(Debug)]
struct Header {
    generation: Generation,
    prints: KeyedMap<Fingerprint, Stored>,
    /// The WEU is in memory, so its header is not evicted.
    unit_in_memory: bool,
    used: u64,
}

impl Header {
    /// Weight in the bound.
    fn weight(&self) -> usize {
        self.prints.len().max(1)
    }
}

#[derive(Debug)]
pub(crate) struct HeaderCache {
    headers: Map<WeuSlot, Header>,
    /// Units that may not be on the device at all yet.
    in_memory: SmallVec<[WeuSlot; 8]>,
    written_units: u64,
    /// Fingerprints of the last written unit, an estimate for the next ones.
    usual_prints: usize,
    /// Weight of the headers of WEUs that are not in memory.
    written_prints: usize,
    written_prints_max: usize,
    clock: u64,
    /// Hash key: clients choose contents, and so fingerprints.
    key: HashKey,
}

impl HeaderCache {
    /// Creates a cache of at most this number of fingerprints of WEUs that are not in memory.
    pub(crate) fn new(written_prints_max: usize, key: &HashKey) -> Self {
        Self {
            headers: Map::default(),
            in_memory: SmallVec::new(),
            written_units: 0,
            usual_prints: 0,
            written_prints: 0,
            written_prints_max,
            clock: 0,
            key: key.clone(),
        }
    }

    pub(crate) fn open(&mut self, slot: WeuSlot, generation: Generation) {
        self.clock += 1;
        let prints = KeyedMap::with_capacity_and_hasher(self.usual_prints, self.key.clone());
        self.put(slot, Header { generation, prints, unit_in_memory: true, used: self.clock });
        self.in_memory.push(slot);
    }

    pub(crate) fn add(&mut self, slot: WeuSlot, print: Fingerprint, stored: Stored) {
        if let Some(header) = self.headers.get_mut(&slot) {
            header.prints.entry(print).or_insert(stored);
        }
    }

    /// Records that the WEU is on the device, so that its header may be evicted.
    pub(crate) fn unit_written(&mut self, slot: WeuSlot) {
        let Some(header) = self.headers.get_mut(&slot).filter(|header| header.unit_in_memory) else { return };
        self.in_memory.retain(|held| *held != slot);
        self.written_units += 1;
        self.usual_prints = header.prints.len();
        if header.prints.is_empty() {
            self.headers.remove(&slot);
            return;
        }
        header.unit_in_memory = false;
        self.written_prints += header.weight();
        self.shrink();
    }

    /// Inserts a header that was read.
    pub(crate) fn load(
        &mut self,
        slot: WeuSlot,
        generation: Generation,
        found: impl IntoIterator<Item = (Fingerprint, Stored)>,
    ) {
        self.clock += 1;
        let mut prints = self.key.map();
        prints.extend(found);
        self.put(slot, Header { generation, prints, unit_in_memory: false, used: self.clock });
        self.shrink();
    }

    /// Looks up a content in a cached header. Returns `None` if the header is not cached, `Some(None)` if it lacks
    /// the content.
    pub(crate) fn find(
        &mut self,
        slot: WeuSlot,
        print: &Fingerprint,
    ) -> Option<Option<(Generation, Stored)>> {
        self.clock += 1;
        let clock = self.clock;
        let header = self.headers.get_mut(&slot)?;
        header.used = clock;
        Some(header.prints.get(print).map(|stored| (header.generation, *stored)))
    }

    /// Returns the content at a place of a unit if its header is cached. Scans the header.
    pub(crate) fn content_at(&self, slot: WeuSlot, stored: Stored) -> Option<Fingerprint> {
        let prints = &self.headers.get(&slot)?.prints;
        prints.iter().find(|(_, place)| **place == stored).map(|(print, _)| *print)
    }

    /// Number of units written to the device; while it is unchanged, [`HeaderCache::find_in_memory`] finds the same
    /// contents.
    pub(crate) fn written_units(&self) -> u64 {
        self.written_units
    }

    /// Returns the place of the content in a unit that is not on the device yet.
    pub(crate) fn find_in_memory(&self, print: &Fingerprint) -> Option<(WeuSlot, Generation, Stored)> {
        self.in_memory.iter().find_map(|slot| {
            let header = self.headers.get(slot)?;
            header.prints.get(print).map(|stored| (*slot, header.generation, *stored))
        })
    }

    pub(crate) fn remove(&mut self, slot: WeuSlot) {
        let Some(header) = self.headers.remove(&slot) else { return };
        if header.unit_in_memory {
            self.in_memory.retain(|held| *held != slot);
        } else {
            self.written_prints -= header.weight();
        }
    }

    fn put(&mut self, slot: WeuSlot, header: Header) {
        self.remove(slot);
        if !header.unit_in_memory {
            self.written_prints += header.weight();
        }
        self.headers.insert(slot, header);
    }

    /// Evicts headers, except the one just inserted, which a lookup waits for.
    fn shrink(&mut self) {
        while self.written_prints > self.written_prints_max {
            let old = self.headers.iter().filter(|(_, h)| !h.unit_in_memory && h.used < self.clock);
            let Some((slot, _)) = old.min_by_key(|(slot, h)| (h.used, **slot)) else { return };
            self.remove(*slot);
        }
    }

    /// Approximate RAM in bytes.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let per_entry = size_of::<(Fingerprint, Stored)>() + 1;
        let entries: usize =
            self.headers.values().map(|h| h.prints.capacity() * per_entry + size_of::<Header>()).sum();
        zc_core::u64_from_usize(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(number: u8) -> Fingerprint {
        Fingerprint([number; 32])
    }

    fn prints(numbers: core::ops::Range<u8>) -> impl Iterator<Item = (Fingerprint, Stored)> {
        numbers.map(|number| (print(number), Stored { offset_units: number.into(), pages: 1 }))
    }

    #[test]
    fn as_many_headers_stay_as_have_so_many_fingerprints_together() {
        let mut headers = HeaderCache::new(8, &HashKey::fixed());
        let generation = Generation(1);
        for slot in 0..4 {
            headers.load(WeuSlot(slot), generation, prints(0..2));
        }
        assert!(headers.find(WeuSlot(0), &print(0)).is_some(), "eight have room, and this is used");
        // Two headers of one print each are evicted for one of three.
        headers.load(WeuSlot(4), generation, prints(0..3));
        let here = |headers: &mut HeaderCache| {
            (0..6).filter(|slot| headers.find(WeuSlot(*slot), &print(9)).is_some()).collect::<Vec<u32>>()
        };
        assert_eq!(here(&mut headers), [0, 3, 4]);
        // A header that is read again or removed is not counted twice.
        headers.load(WeuSlot(4), generation, prints(0..3));
        headers.remove(WeuSlot(3));
        assert_eq!(headers.written_prints, 5);
        // An open unit counts once it is on the device.
        headers.open(WeuSlot(5), generation);
        (0..4)
            .for_each(|number| headers.add(WeuSlot(5), print(number), Stored { offset_units: 0, pages: 1 }));
        assert_eq!(here(&mut headers), [0, 4, 5]);
        headers.unit_written(WeuSlot(5));
        headers.unit_written(WeuSlot(5));
        assert_eq!((here(&mut headers), headers.written_prints), (vec![4, 5], 7));
        headers.load(WeuSlot(0), generation, prints(0..9));
        assert_eq!(here(&mut headers), [0], "more than all may have, and alone");
    }

    #[test]
    fn what_units_in_memory_hold_is_found_until_they_are_written() {
        let mut headers = HeaderCache::new(8, &HashKey::fixed());
        let stored = Stored { offset_units: 3, pages: 1 };
        for slot in 0..3 {
            headers.open(WeuSlot(slot), Generation(slot + 5));
        }
        headers.add(WeuSlot(1), print(1), stored);
        headers.load(WeuSlot(3), Generation(1), prints(2..3));
        assert_eq!(headers.find_in_memory(&print(1)), Some((WeuSlot(1), Generation(6), stored)));
        assert_eq!(headers.find_in_memory(&print(2)), None, "on the device alone");
        let content =
            |slot, offset_units| headers.content_at(WeuSlot(slot), Stored { offset_units, pages: 1 });
        assert_eq!((content(1, 3), content(1, 4), content(7, 3)), (Some(print(1)), None, None));
        let before = headers.written_units();
        headers.remove(WeuSlot(0));
        assert_eq!(headers.written_units(), before, "what was dropped holds nothing that could be missed");
        headers.unit_written(WeuSlot(1));
        assert_eq!((headers.find_in_memory(&print(1)), headers.written_units()), (None, before + 1));
        headers.unit_written(WeuSlot(2));
        assert!(headers.in_memory.is_empty());
    }

    #[test]
    fn headers_without_fingerprints_are_bounded_too() {
        let mut headers = HeaderCache::new(4, &HashKey::fixed());
        for slot in 0..6 {
            headers.load(WeuSlot(slot), Generation(1), prints(0..0));
        }
        assert_eq!(headers.headers.len(), 4);
        headers.open(WeuSlot(6), Generation(1));
        headers.unit_written(WeuSlot(6));
        assert_eq!(
            (headers.headers.len(), headers.written_prints),
            (4, 4),
            "no lookup will find anything in it"
        );
    }
}
