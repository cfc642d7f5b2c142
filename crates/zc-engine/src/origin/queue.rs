//! Operations of origins: those in flight in the kernel, and those that wait for a place.
//!
//! Job: bound the places of the ring that one origin, and all origins together, may have.
//!
//! Invariants: an origin that hangs keeps its share and no more: other origins, the cache device and clients always find
//! places. Operations of one origin begin in the order in which they came; origins take turns.
//!
//! Out of scope: submission to the ring (`shard/io`), and the order of overlapping requests (the cache manager).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use zc_core::VolumeId;

use crate::limits::{ORIGIN_OPS_MAX, ORIGINS_OPS_MAX};

/// Operations of origins; `T` is a waiting operation.
#[derive(Debug)]
pub(crate) struct OriginQueue<T> {
    origins: BTreeMap<VolumeId, Origin<T>>,
    begun: usize,
    waiting: usize,
    turn: VolumeId,
}

#[derive(Debug)]
struct Origin<T> {
    begun: usize,
    waiting: VecDeque<T>,
}

impl<T> Default for OriginQueue<T> {
    fn default() -> Self {
        Self { origins: BTreeMap::new(), begun: 0, waiting: 0, turn: VolumeId(0) }
    }
}

impl<T> OriginQueue<T> {
    /// Adds an operation. Returns it if it may begin now, otherwise queues it.
    pub(crate) fn put(&mut self, volume: VolumeId, operation: T) -> Option<T> {
        let origin =
            self.origins.entry(volume).or_insert_with(|| Origin { begun: 0, waiting: VecDeque::new() });
        if origin.waiting.is_empty() && origin.begun < ORIGIN_OPS_MAX && self.begun < ORIGINS_OPS_MAX {
            origin.begun += 1;
            self.begun += 1;
            return Some(operation);
        }
        origin.waiting.push_back(operation);
        self.waiting += 1;
        None
    }

    pub(crate) fn ended(&mut self, volume: VolumeId) {
        if let Some(origin) = self.origins.get_mut(&volume) {
            origin.begun -= 1;
            self.begun -= 1;
        }
    }

    /// Takes a waiting operation out of the queue.
    pub(crate) fn withdraw(&mut self, volume: VolumeId, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let origin = self.origins.get_mut(&volume)?;
        let place = origin.waiting.iter().position(is_it)?;
        self.waiting -= 1;
        origin.waiting.remove(place)
    }

    /// The next operation that may begin now.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.waiting == 0 || self.begun >= ORIGINS_OPS_MAX {
            return None;
        }
        let can_begin = |(_, origin): &(&VolumeId, &Origin<T>)| {
            !origin.waiting.is_empty() && origin.begun < ORIGIN_OPS_MAX
        };
        let later = self.origins.range((Bound::Excluded(self.turn), Bound::Unbounded)).find(can_begin);
        let (volume, _) = later.or_else(|| self.origins.iter().find(can_begin))?;
        self.turn = *volume;
        let origin = self.origins.get_mut(&self.turn)?;
        let operation = origin.waiting.pop_front()?;
        origin.begun += 1;
        self.begun += 1;
        self.waiting -= 1;
        Some(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUNG: VolumeId = VolumeId(1);
    const WELL: VolumeId = VolumeId(2);

    #[test]
    fn an_origin_that_hangs_takes_no_more_than_its_share() {
        let mut queue = OriginQueue::default();
        let begun = (0..8192).filter_map(|number| queue.put(HUNG, number)).count();
        assert_eq!(begun, ORIGIN_OPS_MAX);
        assert_eq!(queue.put(WELL, 0), Some(0), "another goes on");
        queue.ended(WELL);
        assert_eq!(queue.next(), None, "nothing ended at the origin that hangs");
        queue.ended(HUNG);
        assert_eq!(queue.put(HUNG, 9000), None, "those that wait go first");
        assert_eq!((queue.next(), queue.next()), (Some(ORIGIN_OPS_MAX), None));
    }

    #[test]
    fn what_is_withdrawn_does_not_begin() {
        let mut queue = OriginQueue::default();
        let begun = (0..ORIGIN_OPS_MAX + 2).filter_map(|number| queue.put(HUNG, number)).count();
        assert_eq!(begun, ORIGIN_OPS_MAX);
        assert_eq!(queue.withdraw(HUNG, |number| *number == ORIGIN_OPS_MAX), Some(ORIGIN_OPS_MAX));
        assert_eq!(queue.withdraw(HUNG, |number| *number == 0), None, "it has begun");
        queue.ended(HUNG);
        assert_eq!((queue.next(), queue.next()), (Some(ORIGIN_OPS_MAX + 1), None));
    }

    #[test]
    fn many_origins_leave_places_and_take_turns() {
        let mut queue = OriginQueue::default();
        let mut begun = 0;
        for number in 0..ORIGIN_OPS_MAX {
            for volume in 0..8 {
                begun += usize::from(queue.put(VolumeId(volume), (volume, number)).is_some());
            }
        }
        assert_eq!(begun, ORIGINS_OPS_MAX);
        for _ in 0..3 {
            queue.ended(VolumeId(0));
        }
        let turns: Vec<_> = std::iter::from_fn(|| queue.next()).map(|(volume, _)| volume).collect();
        assert_eq!(turns, [1, 2, 3]);
    }
}
