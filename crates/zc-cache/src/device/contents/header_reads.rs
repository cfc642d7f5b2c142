//! Reads of WEU headers, which verify hints of the fingerprint index, and their waiters.
//!
//! A hint names a slot that may hold a content; the full fingerprint in that slot's header is the proof (G7). Clean
//! and dirty insertions wait for the headers that they need, and so do misses with a recorded fingerprint. Headers of
//! expected lookups are prefetched, within at most half of the limit.
//!
//! Invariant: a waiter resumes when all headers requested for it have arrived or failed; at most one read of a header
//! is in flight.

use zc_core::{Map, WeuSlot};

use crate::base::Base;
use crate::device::slots::table::SlotTable;
use crate::ops::reduce::Owner;
use crate::ops::unit::Op;
use crate::seam::Action;

/// Maximum header reads in flight.
const HEADER_READS_MAX: usize = 16;
/// Maximum prefetches of headers in flight.
const HEADER_READS_AHEAD_MAX: usize = HEADER_READS_MAX / 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HeaderWaiter {
    /// An extent that is being reduced.
    Reduction(Owner, u64),
    /// A portion of a client's read.
    Miss(u64),
    /// The erasure of removed volumes' data.
    Erasure(WeuSlot),
}

/// Header reads in flight.
#[derive(Debug, Default)]
pub(crate) struct HeaderReads {
    waiters: Map<WeuSlot, Vec<HeaderWaiter>>,
    pending: Map<HeaderWaiter, u32>,
}

impl HeaderReads {
    /// Reads a header, unless too many reads are in flight. Returns `true` if it is being read.
    pub(super) fn read(&mut self, slot: WeuSlot, table: &mut SlotTable, base: &mut Base) -> bool {
        if self.waiters.contains_key(&slot) {
            return true;
        }
        if self.waiters.len() >= HEADER_READS_MAX {
            return false;
        }
        self.waiters.insert(slot, Vec::new());
        base.stats.hint_header_reads += 1;
        table.pin(slot);
        let hint_bytes = table.get(slot).header_bytes();
        let op = base.port.op(Op::HeaderPrints(slot));
        base.port.emit(Action::ReadHeader { op, slot, hint_bytes });
        true
    }

    /// As [`Self::read`], with a waiter to notify.
    pub(super) fn wait_for(
        &mut self,
        waiter: HeaderWaiter,
        slot: WeuSlot,
        table: &mut SlotTable,
        base: &mut Base,
    ) -> bool {
        let is_read = self.read(slot, table, base);
        if is_read {
            self.wait(slot, waiter);
        }
        is_read
    }

    /// Returns `true` if headers may be prefetched: no other header reads are more urgent.
    pub(super) fn has_room_ahead(&self) -> bool {
        self.waiters.len() < HEADER_READS_AHEAD_MAX
    }

    /// Returns `true` if the waiter waits for a header read.
    pub(crate) fn is_waiting(&self, waiter: HeaderWaiter) -> bool {
        self.pending.contains_key(&waiter)
    }

    fn wait(&mut self, slot: WeuSlot, waiter: HeaderWaiter) {
        self.waiters.entry(slot).or_default().push(waiter);
        *self.pending.entry(waiter).or_default() += 1;
    }

    /// Handles the completion of a header read. Returns the waiters that wait for no other header.
    pub(super) fn arrived(&mut self, slot: WeuSlot) -> Vec<HeaderWaiter> {
        let mut waiters = self.waiters.remove(&slot).unwrap_or_default();
        waiters.retain(|waiter| match self.pending.get_mut(waiter) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => self.pending.remove(waiter).is_some(),
        });
        waiters
    }
}
