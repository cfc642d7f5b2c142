//! Operations for the shard's rings, including those that wait for an entry.
//!
//! Job: queue the operations of a turn for their ring, in order; hold those without a free entry; map a completion to
//! its purpose.
//!
//! Invariants: a ring never receives more operations than it has entries. An operation that was abandoned without an
//! entry never reaches the device. Those of one origin take at most their share of entries (`origin/queue`). A turn's
//! operations go to the ring of its thread, except those bound to another ring.
//!
//! It does not own a ring (`dispatch/threads`: each belongs to its thread), or interpret completions (`dispatch`
//! routes them to components).

use std::collections::VecDeque;

use zc_cache::origin_deadlines::Ticket;
use zc_core::{OpId, VolumeId};
use zc_io::{Operation, PollStats};
use zc_origin::Job;

use crate::origin::queue::OriginQueue;
use crate::shard::pending::{Abandoned, Pending, RingId, Tokens};

pub(crate) type Entry = (Operation, u64);

/// Queue of one ring, and its number of operations.
#[derive(Debug, Default)]
struct Outbox {
    /// For the ring's next submission. They have entries.
    ready: Vec<Entry>,
    /// Operations that the ring had no place for.
    backlog: VecDeque<Entry>,
    /// Places taken, those of `ready` included.
    taken: usize,
    polls: PollStats,
}

impl Outbox {
    fn put(&mut self, entry: Entry, places: usize) {
        if self.taken < places && self.backlog.is_empty() {
            self.taken += 1;
            self.ready.push(entry);
        } else {
            self.backlog.push_back(entry);
        }
    }

    fn fill(&mut self, places: usize) {
        while self.taken < places {
            let Some(entry) = self.backlog.pop_front() else { return };
            self.taken += 1;
            self.ready.push(entry);
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Io {
    outboxes: Vec<Outbox>,
    /// Ring of the thread with the turn.
    current: RingId,
    places: usize,
    tokens: Tokens,
    origins: OriginQueue<(Operation, Pending)>,
    /// Connections, and queues of devices, of each ring.
    clients: Vec<usize>,
}

impl Io {
    /// Creates `rings` queues, with `places` entries each.
    pub(crate) fn new(rings: usize, places: usize) -> Self {
        Self {
            outboxes: (0..rings).map(|_| Outbox::default()).collect(),
            current: RingId::FIRST,
            places,
            tokens: Tokens::new(rings),
            origins: OriginQueue::default(),
            clients: vec![0; rings],
        }
    }

    /// Returns the ring for a new connection or device queue: the one with the fewest. The first ring also serves
    /// listeners and workers' results, so it is last among equals.
    pub(crate) fn ring_for_client(&mut self) -> RingId {
        let fewest = |ring: &RingId| (self.clients[ring.index()], std::cmp::Reverse(*ring));
        let ring = self.rings().min_by_key(fewest).unwrap_or(RingId::FIRST);
        self.clients[ring.index()] += 1;
        ring
    }

    /// Records that a connection or device queue of a ring is closed.
    pub(crate) fn client_has_left(&mut self, ring: RingId) {
        self.clients[ring.index()] -= 1;
    }

    /// Begins a turn of a ring's thread, with its polling statistics.
    pub(crate) fn begin_turn(&mut self, ring: RingId, polls: PollStats) {
        self.current = ring;
        self.outboxes[ring.index()].polls = polls;
    }

    /// The ring whose thread has the turn.
    pub(crate) const fn current(&self) -> RingId {
        self.current
    }

    pub(crate) fn rings(&self) -> impl Iterator<Item = RingId> + use<> {
        RingId::first(self.outboxes.len())
    }

    /// Submits an operation to the ring of this turn, or queues it until there is space.
    pub(crate) fn submit(&mut self, operation: Operation, pending: Pending) {
        self.submit_on(self.current, operation, pending);
    }

    /// Submits an operation to a ring, or queues it until there is space.
    pub(crate) fn submit_on(&mut self, ring: RingId, operation: Operation, pending: Pending) {
        let token = self.tokens.insert(ring, pending);
        self.outboxes[ring.index()].put((operation, token), self.places);
    }

    /// Submits a step of an origin's request to the ring, or queues it until the origin's share has space.
    pub(crate) fn submit_to_origin(
        &mut self,
        operation: Operation,
        ticket: Ticket,
        volume: VolumeId,
        job: Job,
    ) {
        let step = (operation, Pending::Origin { ticket, volume, job });
        if let Some((operation, pending)) = self.origins.put(volume, step) {
            self.submit(operation, pending);
        }
    }

    /// Frees the ring entry of a completed step of an origin, which other steps may use.
    pub(crate) fn origin_has_room(&mut self, volume: VolumeId) {
        self.origins.ended(volume);
        while let Some((operation, pending)) = self.origins.next() {
            self.submit(operation, pending);
        }
    }

    /// Abandons an origin request that has been in flight for too long. Returns `true` if its current step has not
    /// reached the origin: it is dropped. Otherwise the ring keeps its memory until the origin returns it.
    pub(crate) fn abandon_origin(&mut self, volume: VolumeId, ticket: Ticket) -> bool {
        let is_it = |(_, pending): &(Operation, Pending)| matches!(pending, Pending::Origin { ticket: of, .. } if *of == ticket);
        if self.origins.withdraw(volume, is_it).is_some() {
            return true;
        }
        let Some((token, ring)) = self.tokens.of_origin(ticket) else { return false };
        let backlog = &mut self.outboxes[ring.index()].backlog;
        if let Some(place) = backlog.iter().position(|(_, of)| *of == token) {
            drop(backlog.remove(place));
            drop(self.tokens.take(token));
            self.origin_has_room(volume);
            return true;
        }
        self.tokens.abandon_origin(token);
        false
    }

    /// Appends the operations for the ring of this turn, including waiting ones, as far as entries are free.
    pub(crate) fn take_ready(&mut self, into: &mut Vec<Entry>) {
        let outbox = &mut self.outboxes[self.current.index()];
        outbox.fill(self.places);
        into.append(&mut outbox.ready);
    }

    /// Rings of other threads that received operations in this turn.
    pub(crate) fn others_with_work(&self) -> impl Iterator<Item = RingId> {
        self.rings().filter(|ring| *ring != self.current && !self.outboxes[ring.index()].ready.is_empty())
    }

    /// Returns the purpose of a completed operation of this turn's ring.
    pub(crate) fn ended(&mut self, token: u64) -> Pending {
        let (ring, pending) = self.tokens.take(token);
        debug_assert_eq!(ring, self.current, "a ring's operations end with its thread");
        self.outboxes[ring.index()].taken -= 1;
        pending
    }

    /// Abandons the ring operations of a manager's operation, and returns their kind. `None` if the device has none of
    /// it. Those without an entry are dropped.
    pub(crate) fn abandon(&mut self, op: OpId, join: Option<u64>) -> Option<Abandoned> {
        let (what, abandoned) = self.tokens.abandon(op, join)?;
        let tokens = &mut self.tokens;
        for outbox in &mut self.outboxes {
            outbox.backlog.retain(|(_, token)| {
                let is_kept = !abandoned.contains(token);
                if !is_kept {
                    drop(tokens.take(*token));
                }
                is_kept
            });
        }
        Some(what)
    }

    /// Number of reads of stored extents in flight on the ring of this turn.
    pub(crate) fn extent_reads(&self) -> usize {
        self.tokens.extent_reads(self.current)
    }

    /// Number of device and origin operations in flight.
    pub(crate) const fn device_ops(&self) -> usize {
        self.tokens.device_ops()
    }

    pub(crate) const fn places(&self) -> usize {
        self.places
    }

    /// Returns the outcomes of all rings' waits.
    pub(crate) fn poll_stats(&self) -> PollStats {
        let polls = self.outboxes.iter().map(|outbox| outbox.polls);
        polls.fold(PollStats::default(), |sum, polls| PollStats {
            met: sum.met + polls.met,
            slept: sum.slept + polls.slept,
            looked_us: sum.looked_us + polls.looked_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_io::EventFd;

    fn taken(io: &mut Io) -> Vec<Entry> {
        let mut ready = Vec::new();
        io.take_ready(&mut ready);
        ready
    }

    fn wait() -> Operation {
        Operation::Wait { event: EventFd::new().unwrap() }
    }

    #[test]
    fn what_is_abandoned_before_it_has_a_place_is_never_handed_over() {
        let mut io = Io::new(1, 1);
        io.submit(wait(), Pending::Wake);
        io.submit(wait(), Pending::Device { op: OpId(1) });
        io.submit(wait(), Pending::Device { op: OpId(2) });
        let ready = taken(&mut io);
        assert_eq!((ready.len(), io.device_ops()), (1, 2));
        assert_eq!(io.abandon(OpId(1), None), Some(Abandoned::Change));
        assert_eq!(io.device_ops(), 1);
        assert!(taken(&mut io).is_empty(), "the ring is full");
        assert!(matches!(io.ended(ready[0].1), Pending::Wake));
        let ready = taken(&mut io);
        assert_eq!(ready.len(), 1, "the other has its place");
        assert!(matches!(io.ended(ready[0].1), Pending::Device { op: OpId(2) }));
    }

    #[test]
    fn operations_stay_in_order_while_some_wait_for_a_place() {
        let mut io = Io::new(1, 1);
        let op = |op| Pending::Device { op: OpId(op) };
        (1..=3).for_each(|number| io.submit(wait(), op(number)));
        let first = taken(&mut io);
        assert!(matches!(io.ended(first[0].1), Pending::Device { op: OpId(1) }));
        io.submit(wait(), op(4));
        for number in 2..=4 {
            let next = taken(&mut io);
            assert_eq!(next.len(), 1);
            assert!(matches!(io.ended(next[0].1), Pending::Device { op } if op == OpId(number)));
        }
    }

    #[test]
    fn clients_are_divided_evenly() {
        let mut io = Io::new(3, 8);
        let rings: Vec<usize> = (0..4).map(|_| io.ring_for_client().index()).collect();
        assert_eq!(rings, [2, 1, 0, 2]);
        io.client_has_left(RingId::FIRST);
        assert_eq!(io.ring_for_client(), RingId::FIRST, "it has none");
    }

    #[test]
    fn what_belongs_to_another_ring_waits_for_its_thread() {
        let mut io = Io::new(2, 8);
        let [first, second] = [0, 1].map(|index| io.rings().nth(index).unwrap());
        io.begin_turn(first, PollStats::default());
        io.submit(wait(), Pending::Wake);
        io.submit_on(second, wait(), Pending::Receive { conn: 7 });
        assert_eq!(io.others_with_work().collect::<Vec<_>>(), [second]);
        assert_eq!(taken(&mut io).len(), 1);
        io.begin_turn(second, PollStats { met: 2, ..PollStats::default() });
        assert_eq!(io.others_with_work().count(), 0);
        let ready = taken(&mut io);
        assert!(matches!(io.ended(ready[0].1), Pending::Receive { conn: 7 }));
        assert_eq!(io.poll_stats().met, 2);
    }
}
