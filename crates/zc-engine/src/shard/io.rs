//! The shard's ring, and what waits for a place in it.
//!
//! Job: hand operations to the ring in the order in which they come, keep those that it has no place for, and say what
//! an ended one was for.
//!
//! Invariants: an operation that was abandoned before it had a place is never handed to the device. Those of one origin
//! take no more places than their share (`origin/queue`).
//!
//! What it does not do: know what an operation's end means (`dispatch` leads it to its component).

use std::collections::VecDeque;
use std::time::Duration;

use zc_core::{OpId, VolumeId};
use zc_io::{Completion, Gather, Operation, PollStats, Ring, RingOptions};
use zc_origin::Job;

use crate::error::EngineError;
use crate::limits::RING_ENTRIES;
use crate::origin::queue::OriginQueue;
use crate::shard::pending::{Abandoned, Pending, Tokens};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Io {
    ring: Ring,
    /// Places that the ring has.
    places: usize,
    tokens: Tokens,
    /// Operations that the ring had no place for.
    backlog: VecDeque<(Operation, u64)>,
    /// Operations of origins.
    origins: OriginQueue<(Operation, Pending)>,
}

impl Io {
    /// A ring of so many places, which looks for completions for so long before it sleeps.
    ///
    /// # Errors
    /// When the kernel gives no ring.
    pub(crate) fn new(places: usize, poll_max_us: u32) -> Result<Self, EngineError> {
        let ring = Ring::new(RingOptions { entries: RING_ENTRIES, ops_max: places, poll_max_us })?;
        Ok(Self {
            ring,
            places,
            tokens: Tokens::default(),
            backlog: VecDeque::new(),
            origins: OriginQueue::default(),
        })
    }

    /// Hands an operation to the ring, or keeps it until there is room.
    pub(crate) fn submit(&mut self, operation: Operation, pending: Pending) {
        let token = self.tokens.insert(pending);
        if !self.backlog.is_empty() {
            self.backlog.push_back((operation, token));
            return;
        }
        if let Err(full) = self.ring.submit(operation, token) {
            self.backlog.push_back((*full.operation, token));
        }
    }

    /// Hands a step of an origin's request to the ring, or keeps it until the origin has room.
    pub(crate) fn submit_to_origin(&mut self, operation: Operation, op: OpId, volume: VolumeId, job: Job) {
        let step = (operation, Pending::Origin { op, volume, job });
        if let Some((operation, pending)) = self.origins.put(volume, step) {
            self.submit(operation, pending);
        }
    }

    /// A step of an origin's request has ended: others may have its place.
    pub(crate) fn origin_has_room(&mut self, volume: VolumeId) {
        self.origins.ended(volume);
        while let Some((operation, pending)) = self.origins.next() {
            self.submit(operation, pending);
        }
    }

    /// Hands over what waited for a place, as far as there is room.
    pub(crate) fn submit_backlog(&mut self) {
        while self.ring.room() > 0 {
            let Some((operation, token)) = self.backlog.pop_front() else { return };
            if let Err(full) = self.ring.submit(operation, token) {
                self.backlog.push_front((*full.operation, token));
                return;
            }
        }
    }

    /// Submits what was handed over, and waits for `min` completions, or for as long as is said.
    ///
    /// # Errors
    /// When the ring fails.
    pub(crate) fn wait(
        &mut self,
        min: usize,
        gather: Option<Gather>,
        timeout: Duration,
        completions: &mut Vec<Completion>,
    ) -> Result<(), EngineError> {
        self.ring.submit_and_gather(min, gather, Some(timeout), completions)?;
        Ok(())
    }

    /// What an ended operation was for.
    pub(crate) fn ended(&mut self, token: u64) -> Pending {
        self.tokens.take(token)
    }

    /// Abandons the operations of a manager's operation: what they were. `None` if the device has none of it. Those that
    /// the ring had no place for yet are gone.
    pub(crate) fn abandon(&mut self, op: OpId, join: Option<u64>) -> Option<Abandoned> {
        let (what, abandoned) = self.tokens.abandon(op, join)?;
        let tokens = &mut self.tokens;
        self.backlog.retain(|(_, token)| {
            let is_kept = !abandoned.contains(token);
            if !is_kept {
                drop(tokens.take(*token));
            }
            is_kept
        });
        Some(what)
    }

    /// Reads of stored extents that the cache device works on.
    pub(crate) const fn extent_reads(&self) -> usize {
        self.tokens.extent_reads()
    }

    /// Operations that a device or an origin works on.
    pub(crate) const fn device_ops(&self) -> usize {
        self.tokens.device_ops()
    }

    /// Places that the ring has.
    pub(crate) const fn places(&self) -> usize {
        self.places
    }

    /// How the waits ended.
    pub(crate) fn poll_stats(&self) -> PollStats {
        self.ring.poll_stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_io::EventFd;

    #[test]
    fn what_is_abandoned_before_it_has_a_place_is_never_handed_over() {
        let mut io = Io::new(1, 0).unwrap();
        let event = EventFd::new().unwrap();
        let wait = || Operation::Wait { event: event.clone() };
        io.submit(wait(), Pending::Wake);
        io.submit(wait(), Pending::Device { op: OpId(1) });
        io.submit(wait(), Pending::Device { op: OpId(2) });
        assert_eq!((io.backlog.len(), io.device_ops()), (2, 2));
        assert_eq!(io.abandon(OpId(1), None), Some(Abandoned::Change));
        assert_eq!((io.backlog.len(), io.device_ops()), (1, 1));
        event.waker().wake();
        let mut completions = Vec::new();
        io.wait(1, None, Duration::from_secs(60), &mut completions).unwrap();
        assert!(matches!(io.ended(completions.remove(0).user), Pending::Wake));
        io.submit_backlog();
        assert!(io.backlog.is_empty(), "the other has its place");
    }
}
