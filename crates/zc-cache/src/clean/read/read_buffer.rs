//! Decoded extents for readers that read an extent in several small requests.
//!
//! An LRU map from address to buffer. Invariants: at most `max_bytes` of buffers, one per address; every inserted
//! buffer is returned exactly once, by [`ReadBuffer::insert`] (evicted or replaced), [`ReadBuffer::invalidate`] or
//! [`ReadBuffer::drain`]. Out of scope: freeing buffers, and determining if they are current.

use smallvec::SmallVec;
use zc_core::{BufId, ExtentKey, HashKey, KeyedMap, WeuSlot, usize_from_u32};

use crate::device::slots::class_id::ClassId;
use crate::device::slots::policy::{lru::WeuLru, order::ReplacementPolicy};

#[derive(Debug)]
pub(crate) struct ReadBuffer {
    places: KeyedMap<ExtentKey, u32>,
    buffers: Vec<Option<(ExtentKey, BufId)>>,
    free: Vec<u32>,
    /// LRU order of the places.
    order: WeuLru,
    places_max: u32,
}

impl ReadBuffer {
    /// Creates an empty buffer of `max_bytes` for extents of `extent_bytes`. It holds nothing if `max_bytes` is less
    /// than one extent.
    pub(crate) fn new(max_bytes: u64, extent_bytes: u32, key: &HashKey) -> Self {
        let places = u32::try_from(max_bytes / u64::from(extent_bytes.max(1))).unwrap_or(u32::MAX - 1);
        Self {
            places: key.map(),
            buffers: Vec::new(),
            free: Vec::new(),
            order: WeuLru::new(places),
            places_max: places,
        }
    }

    /// Returns the buffer of an extent, which becomes the most recently used one.
    pub(crate) fn get(&mut self, key: &ExtentKey) -> Option<BufId> {
        let place = *self.places.get(key)?;
        self.order.touched(WeuSlot(place), ClassId::DEFAULT);
        self.buffers[usize_from_u32(place)].map(|(_, buf)| buf)
    }

    /// Inserts the buffer of an extent. Returns the buffers that are no longer held: the extent's former one, the
    /// least recently used one, or this one if none fits.
    pub(crate) fn insert(&mut self, key: ExtentKey, buf: BufId) -> SmallVec<[BufId; 1]> {
        let mut gone = SmallVec::new();
        gone.extend(self.invalidate(&key));
        if self.places_max == 0 {
            gone.push(buf);
            return gone;
        }
        let grown = u32::try_from(self.buffers.len()).unwrap_or(u32::MAX);
        if self.free.is_empty() && grown < self.places_max {
            self.buffers.push(None);
            self.free.push(grown);
        }
        if self.free.is_empty()
            && let Some(place) = self.order.victim(ClassId::DEFAULT, &mut |_| false)
        {
            gone.extend(self.vacate(place.0));
        }
        let Some(place) = self.free.pop() else { unreachable!("a place was freed") };
        self.buffers[usize_from_u32(place)] = Some((key, buf));
        self.places.insert(key, place);
        self.order.inserted(WeuSlot(place), ClassId::DEFAULT);
        gone
    }

    pub(crate) fn invalidate(&mut self, key: &ExtentKey) -> Option<BufId> {
        let place = *self.places.get(key)?;
        self.vacate(place)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = ExtentKey> {
        self.places.keys().copied()
    }

    /// Removes and returns all buffers.
    pub(crate) fn drain(&mut self) -> Vec<BufId> {
        let count = u32::try_from(self.buffers.len()).unwrap_or(u32::MAX);
        (0..count).filter_map(|place| self.vacate(place)).collect()
    }

    fn vacate(&mut self, place: u32) -> Option<BufId> {
        let (key, buf) = self.buffers[usize_from_u32(place)].take()?;
        self.places.remove(&key);
        self.order.removed(WeuSlot(place), ClassId::DEFAULT);
        self.free.push(place);
        Some(buf)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zc_core::{ExtentNo, VolumeId};

    use super::*;

    fn key(extent: u64) -> ExtentKey {
        ExtentKey { volume: VolumeId(1), extent: ExtentNo(extent) }
    }

    #[test]
    fn holds_nothing_without_room_for_one() {
        let mut buffer = ReadBuffer::new(8191, 8192, &HashKey::fixed());
        assert_eq!(buffer.insert(key(1), BufId(9)).as_slice(), [BufId(9)]);
        assert_eq!((buffer.get(&key(1)), buffer.invalidate(&key(1))), (None, None));
        assert!(buffer.drain().is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn behaves_like_a_vector(places in 1u64..5, steps in prop::collection::vec((0u8..20, 0u64..8), 1..200)) {
            let mut buffer = ReadBuffer::new(places * 8192 + 100, 8192, &HashKey::fixed());
            let mut model: Vec<(ExtentKey, BufId)> = Vec::new();
            for (n, (kind, extent)) in steps.into_iter().enumerate() {
                let (key, buf) = (key(extent), BufId(u64::try_from(n).expect("fits")));
                let at = model.iter().position(|(held, _)| *held == key);
                match kind {
                    0..8 => {
                        let mut gone: Vec<_> = at.map(|at| model.remove(at).1).into_iter().collect();
                        model.push((key, buf));
                        if u64::try_from(model.len()).expect("fits") > places {
                            gone.push(model.remove(0).1);
                        }
                        prop_assert_eq!(buffer.insert(key, buf).to_vec(), gone);
                    }
                    8..16 => {
                        let held = at.map(|at| model.remove(at));
                        model.extend(held);
                        prop_assert_eq!(buffer.get(&key), held.map(|(_, buf)| buf));
                    }
                    16..19 => {
                        prop_assert_eq!(buffer.invalidate(&key), at.map(|at| model.remove(at).1));
                    }
                    _ => {
                        let mut gone = buffer.drain();
                        gone.sort_unstable();
                        let mut all: Vec<_> = model.drain(..).map(|(_, buf)| buf).collect();
                        all.sort_unstable();
                        prop_assert_eq!(gone, all);
                    }
                }
            }
        }
    }
}
