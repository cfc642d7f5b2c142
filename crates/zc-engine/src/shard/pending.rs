//! Purposes of the shard's ring operations.
//!
//! Invariants: a token names one operation in flight and is free again when that completes.

use zc_cache::origin_deadlines::Ticket;
use zc_core::{ErrorKind, JournalSeq, Map, OpId, VolumeId, WeuSlot};
use zc_origin::Job;

/// A ring, and the I/O thread that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingId(usize);

impl RingId {
    /// Ring of the thread that always exists.
    pub(crate) const FIRST: Self = Self(0);

    /// Returns the first `rings` numbers.
    pub(crate) fn first(rings: usize) -> impl Iterator<Item = Self> {
        (0..rings).map(Self)
    }

    /// Its number, from 0.
    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// A tag of a queue of a ublk device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) device: u32,
    pub(crate) queue: u16,
    pub(crate) tag: u16,
}

impl Tag {
    pub(crate) const fn is_of(self, device: u32) -> bool {
        self.device == device
    }
}

/// The meaning of an operation in flight.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The wake-up from other threads.
    Wake,
    /// A listener waits for a connection.
    Accept {
        listener: usize,
    },
    /// Bytes from a client.
    Receive {
        conn: u64,
    },
    /// Bytes to a client.
    Send {
        conn: u64,
    },
    Ublk(Tag),
    /// A step of an origin request.
    Origin {
        ticket: Ticket,
        volume: VolumeId,
        job: Job,
    },
    /// A step of an origin request that was abandoned. The origin still has it, and with it its memory.
    LateOrigin {
        ticket: Ticket,
        volume: VolumeId,
    },
    /// A cache device operation that is the whole of a manager's operation.
    Device {
        op: OpId,
    },
    Journal {
        op: OpId,
        block: JournalSeq,
    },
    /// Part of a manager operation with several ring operations.
    Joined {
        join: u64,
    },
    /// Pages with stored extents.
    Extents(ExtentsPending),
    /// A WEU header, or the end of one.
    Header {
        op: OpId,
        slot: WeuSlot,
        again: bool,
    },
    /// Blocks of the index image.
    Image {
        op: OpId,
    },
    /// A cache device operation that was abandoned. The device still has it, and with it its memory.
    Late,
}

/// Report of an abandoned operation's completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// As that of a write or a flush.
    Change,
    Extents,
    Header,
    /// As that of a read of the index image.
    Image,
}

/// A device read of stored extents.
#[derive(Debug)]
pub(crate) struct ExtentsPending {
    pub(crate) op: OpId,
    pub(crate) start_bytes: u32,
    pub(crate) parts: Vec<zc_cache::seam::ExtentRead>,
    pub(crate) urgent: bool,
}

impl Pending {
    /// Returns `true` if a device or an origin works on it, and the manager waits for that. An abandoned operation of
    /// the cache device counts: no other manager uses the device before that has ended.
    const fn is_device(&self) -> bool {
        !matches!(
            self,
            Self::Wake
                | Self::Accept { .. }
                | Self::Receive { .. }
                | Self::Send { .. }
                | Self::Ublk(_)
                | Self::LateOrigin { .. }
        )
    }

    /// Returns `true` if it reads stored extents.
    const fn is_extent_read(&self) -> bool {
        matches!(self, Self::Extents(_))
    }
}

/// Numbers for operations in flight.
#[derive(Debug)]
pub(crate) struct Tokens {
    slots: Vec<Option<(RingId, Pending)>>,
    free: Vec<usize>,
    device_ops: usize,
    extent_reads: Vec<usize>,
}

impl Tokens {
    pub(crate) fn new(rings: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), device_ops: 0, extent_reads: vec![0; rings] }
    }

    pub(crate) fn insert(&mut self, ring: RingId, pending: Pending) -> u64 {
        self.device_ops += usize::from(pending.is_device());
        self.extent_reads[ring.index()] += usize::from(pending.is_extent_read());
        let index = if let Some(index) = self.free.pop() {
            self.slots[index] = Some((ring, pending));
            index
        } else {
            self.slots.push(Some((ring, pending)));
            self.slots.len() - 1
        };
        zc_core::u64_from_usize(index)
    }

    pub(crate) fn take(&mut self, token: u64) -> (RingId, Pending) {
        let index = zc_core::usize_from_u64(token);
        let Some((ring, pending)) = self.slots.get_mut(index).and_then(Option::take) else {
            panic!("token {token} completed twice")
        };
        self.device_ops -= usize::from(pending.is_device());
        self.extent_reads[ring.index()] -= usize::from(pending.is_extent_read());
        self.free.push(index);
        (ring, pending)
    }

    /// Abandons the ring operations of a manager's operation: returns their kind, and their tokens. `None` if the
    /// device has none of it.
    pub(crate) fn abandon(&mut self, op: OpId, join: Option<u64>) -> Option<(Abandoned, Vec<u64>)> {
        let mut found = None;
        let mut tokens = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some((ring, pending)) = slot else { continue };
            let kind = match pending {
                Pending::Device { op: of } | Pending::Journal { op: of, .. } if *of == op => {
                    Abandoned::Change
                }
                Pending::Joined { join: of } if Some(*of) == join => Abandoned::Change,
                Pending::Extents(read) if read.op == op => Abandoned::Extents,
                Pending::Header { op: of, .. } if *of == op => Abandoned::Header,
                Pending::Image { op: of } if *of == op => Abandoned::Image,
                _ => continue,
            };
            self.extent_reads[ring.index()] -= usize::from(kind == Abandoned::Extents);
            *pending = Pending::Late;
            found = Some(kind);
            tokens.push(zc_core::u64_from_usize(index));
        }
        Some((found?, tokens))
    }

    /// Returns the token of an origin request's step, with its ring.
    pub(crate) fn of_origin(&self, ticket: Ticket) -> Option<(u64, RingId)> {
        let is_it = |slot: &Option<(RingId, Pending)>| match slot {
            Some((ring, Pending::Origin { ticket: of, .. })) if *of == ticket => Some(*ring),
            _ => None,
        };
        let found = self.slots.iter().enumerate().find_map(|(index, slot)| Some((index, is_it(slot)?)));
        found.map(|(index, ring)| (zc_core::u64_from_usize(index), ring))
    }

    /// Abandons an origin request's step: it is no longer the manager's.
    pub(crate) fn abandon_origin(&mut self, token: u64) {
        let slot = self.slots.get_mut(zc_core::usize_from_u64(token));
        if let Some(Some((_, pending))) = slot
            && let Pending::Origin { ticket, volume, .. } = *pending
        {
            *pending = Pending::LateOrigin { ticket, volume };
            self.device_ops -= 1;
        }
    }

    /// Reads of stored extents that the cache device works on for a ring.
    pub(crate) fn extent_reads(&self, ring: RingId) -> usize {
        self.extent_reads[ring.index()]
    }

    /// Number of device and origin operations in flight.
    pub(crate) const fn device_ops(&self) -> usize {
        self.device_ops
    }
}

/// Manager operations that take several ring operations.
#[derive(Debug, Default)]
pub(crate) struct JoinTable {
    table: Map<u64, Join>,
    next: u64,
}

#[derive(Debug)]
struct Join {
    op: OpId,
    left: usize,
    error: Option<ErrorKind>,
}

impl JoinTable {
    pub(crate) fn begin(&mut self, op: OpId, parts: usize) -> u64 {
        assert!(parts > 0, "an operation of no parts would never end");
        self.next += 1;
        self.table.insert(self.next, Join { op, left: parts, error: None });
        self.next
    }

    /// Returns the join of a manager operation with several ring operations, if any.
    pub(crate) fn of(&self, op: OpId) -> Option<u64> {
        self.table.iter().find(|(_, join)| join.op == op).map(|(number, _)| *number)
    }

    /// Drops a join whose parts were abandoned.
    pub(crate) fn forget(&mut self, join: u64) {
        self.table.remove(&join);
    }

    /// Books the end of a part; the outcome of the whole when it was the last.
    pub(crate) fn ended(
        &mut self,
        join: u64,
        result: Result<(), ErrorKind>,
    ) -> Option<(OpId, Result<(), ErrorKind>)> {
        let Some(entry) = self.table.get_mut(&join) else { panic!("join {join} has ended") };
        entry.error = entry.error.or_else(|| result.err());
        entry.left -= 1;
        if entry.left > 0 {
            return None;
        }
        self.table.remove(&join).map(|entry| (entry.op, entry.error.map_or(Ok(()), Err)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_reused_after_their_end_only() {
        let mut tokens = Tokens::new(1);
        let one = tokens.insert(RingId::FIRST, Pending::Wake);
        let two = tokens.insert(RingId::FIRST, Pending::Device { op: OpId(7) });
        assert_ne!(one, two);
        assert_eq!(tokens.device_ops(), 1);
        assert!(matches!(tokens.take(two).1, Pending::Device { op: OpId(7) }));
        assert_eq!((tokens.device_ops(), tokens.insert(RingId::FIRST, Pending::Wake)), (0, two));
    }

    #[test]
    fn an_abandoned_operation_keeps_its_tokens_until_the_device_answers() {
        let (mut tokens, mut joins) = (Tokens::new(1), JoinTable::default());
        let join = joins.begin(OpId(1), 2);
        let parts = [0, 1].map(|_| tokens.insert(RingId::FIRST, Pending::Joined { join }));
        let other = tokens.insert(RingId::FIRST, Pending::Device { op: OpId(2) });
        assert_eq!(joins.of(OpId(1)), Some(join));
        assert_eq!(tokens.abandon(OpId(1), joins.of(OpId(1))), Some((Abandoned::Change, parts.to_vec())));
        joins.forget(join);
        assert_eq!(joins.of(OpId(1)), None);
        assert_eq!(tokens.abandon(OpId(1), None), None, "once");
        assert_eq!(tokens.device_ops(), 3, "the device has them still");
        assert!(matches!(tokens.take(parts[0]).1, Pending::Late));
        assert!(matches!(tokens.take(other).1, Pending::Device { op: OpId(2) }));
        let header =
            tokens.insert(RingId::FIRST, Pending::Header { op: OpId(3), slot: WeuSlot(1), again: false });
        assert_eq!(tokens.abandon(OpId(3), None), Some((Abandoned::Header, vec![header])));
    }

    #[test]
    fn reads_of_extents_are_counted_until_they_end_or_are_abandoned() {
        let read = |op| {
            let read = ExtentsPending { op: OpId(op), start_bytes: 0, parts: Vec::new(), urgent: true };
            Pending::Extents(read)
        };
        let mut tokens = Tokens::new(1);
        let (first, second) = (tokens.insert(RingId::FIRST, read(1)), tokens.insert(RingId::FIRST, read(2)));
        let _write = tokens.insert(RingId::FIRST, Pending::Device { op: OpId(3) });
        assert_eq!(tokens.extent_reads(RingId::FIRST), 2);
        assert!(tokens.abandon(OpId(1), None).is_some());
        assert_eq!(tokens.extent_reads(RingId::FIRST), 1, "no turn waits for an abandoned one");
        assert!(matches!(tokens.take(first).1, Pending::Late));
        assert!(matches!(tokens.take(second).1, Pending::Extents(_)));
        assert_eq!(tokens.extent_reads(RingId::FIRST), 0);
    }

    #[test]
    fn a_join_ends_with_its_last_part_and_its_first_error() {
        let mut joins = JoinTable::default();
        let join = joins.begin(OpId(1), 3);
        assert_eq!(joins.ended(join, Ok(())), None);
        assert_eq!(joins.ended(join, Err(ErrorKind::NoSpace)), None);
        assert_eq!(joins.ended(join, Err(ErrorKind::Io)), Some((OpId(1), Err(ErrorKind::NoSpace))));
    }
}
