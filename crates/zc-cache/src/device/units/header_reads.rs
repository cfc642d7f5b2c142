//! Reads of WEU headers, which prove hints of the fingerprint index, and who waits for them.
//!
//! A hint names a slot that may hold a content; the full fingerprint in that slot's header tells (G7). Insertions,
//! clean and dirty ones, wait for the headers that they need, and so do misses whose fingerprint was learned. What will
//! be looked for soon has its headers read ahead, with half of the room at most.
//!
//! Invariant: a waiter goes on when all the headers that were asked for it have arrived or have failed; a header is read
//! once at a time, however many wait.

use zc_core::{ErrorKind, Fingerprint, Generation, Map, WeuSlot};
use zc_format::WeuHeader;

use crate::base::Base;
use crate::device::Device;
use crate::device::units::Op;
use crate::device::units::headers::Stored;
use crate::ops::reduce::Owner;
use crate::seam::{Action, Purpose};

/// Headers being read.
const HEADER_READS_MAX: usize = 16;
/// Headers being read that no insertion or dirty extent waits for yet.
const HEADER_READS_AHEAD_MAX: usize = HEADER_READS_MAX / 2;

/// A waiter for headers, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HeaderWaiter {
    /// An extent that is being reduced.
    Reduction(Owner, u64),
    /// A portion of a client's read.
    Miss(u64),
    /// The erasure of what volumes left that are gone.
    Erasure(WeuSlot),
}

/// Headers being read.
#[derive(Debug, Default)]
pub(crate) struct HeaderReads {
    /// Waiters of each header.
    waiters: Map<WeuSlot, Vec<HeaderWaiter>>,
    /// How many each waits for.
    pending: Map<HeaderWaiter, u32>,
}

impl HeaderReads {
    pub(crate) fn is_waiting(&self, waiter: HeaderWaiter) -> bool {
        self.pending.contains_key(&waiter)
    }

    fn wait(&mut self, slot: WeuSlot, waiter: HeaderWaiter) {
        self.waiters.entry(slot).or_default().push(waiter);
        *self.pending.entry(waiter).or_default() += 1;
    }

    /// A header is here, or will not be: those who wait for no other one now.
    fn arrived(&mut self, slot: WeuSlot) -> Vec<HeaderWaiter> {
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

/// What a lookup of a content came to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lookup {
    /// A header names the content here.
    Found { slot: WeuSlot, generation: Generation, stored: Stored },
    /// Headers are read that may name it.
    Waits,
    /// No header that can be had names it.
    Absent,
}

impl Device {
    /// Looks a content up in the headers at hand, in slots that are wanted. `may_wait`: headers that may name it are
    /// read, and the waiter hears of them.
    pub(crate) fn look_up(
        &mut self,
        print: &Fingerprint,
        waiter: HeaderWaiter,
        may_wait: bool,
        is_wanted: impl Fn(&Self, WeuSlot) -> bool,
        base: &mut Base,
    ) -> Lookup {
        let candidates = self.candidates(print);
        for slot in candidates.iter().copied() {
            if let Some((generation, stored)) = self.find_print(slot, print)
                && is_wanted(self, slot)
            {
                return Lookup::Found { slot, generation, stored };
            }
        }
        if may_wait {
            for slot in candidates {
                self.wait_for_header(waiter, slot, print, base);
            }
        }
        if self.units.header_reads.is_waiting(waiter) { Lookup::Waits } else { Lookup::Absent }
    }

    /// A content will be looked for soon: headers that may have it are read now, unless others are needed sooner.
    pub(crate) fn read_headers_ahead(&mut self, print: &Fingerprint, base: &mut Base) {
        for slot in self.candidates(print) {
            let has_room = self.units.header_reads.waiters.len() < HEADER_READS_AHEAD_MAX;
            if has_room
                && self.units.headers.find(slot, print).is_none()
                && self.units.slots.is_on_device(slot)
            {
                self.read_header(slot, base);
            }
        }
    }

    /// Has the header of a slot read that may hold a content, unless it is here and does not, or too many are read.
    pub(crate) fn wait_for_header(
        &mut self,
        waiter: HeaderWaiter,
        slot: WeuSlot,
        print: &Fingerprint,
        base: &mut Base,
    ) {
        if self.units.headers.find(slot, print).is_some() {
            base.stats.hint_misses += 1;
        } else if self.units.slots.is_on_device(slot) && self.read_header(slot, base) {
            self.units.header_reads.wait(slot, waiter);
        }
    }

    /// Has the header of a slot read, whatever is known of it. Returns `false` if too many are being read.
    pub(super) fn wait_for_any_header(
        &mut self,
        waiter: HeaderWaiter,
        slot: WeuSlot,
        base: &mut Base,
    ) -> bool {
        let is_read = self.read_header(slot, base);
        if is_read {
            self.units.header_reads.wait(slot, waiter);
        }
        is_read
    }

    /// Has a header read, unless too many are. Whether it is being read.
    fn read_header(&mut self, slot: WeuSlot, base: &mut Base) -> bool {
        if self.units.header_reads.waiters.contains_key(&slot) {
            return true;
        }
        if self.units.header_reads.waiters.len() >= HEADER_READS_MAX {
            return false;
        }
        self.units.header_reads.waiters.insert(slot, Vec::new());
        base.stats.hint_header_reads += 1;
        self.units.slots.pin(slot);
        let hint_bytes = self.units.slots.get(slot).header_bytes();
        let op = base.port.op(Op::HeaderPrints(slot));
        base.port.emit(Action::ReadHeader { op, slot, hint_bytes });
        true
    }
}

impl Device {
    /// A header was read, or could not be. Who waited for it and for no other any more.
    pub(crate) fn header_read(
        &mut self,
        slot: WeuSlot,
        result: &Result<Option<Box<WeuHeader>>, ErrorKind>,
        base: &mut Base,
    ) -> Vec<HeaderWaiter> {
        self.units.slots.unpin(slot);
        let entry = self.units.slots.get(slot);
        let (generation, weu_seq) = (entry.generation(), entry.weu_seq());
        match result {
            Ok(Some(header)) if (header.generation, header.weu_seq) == (generation, weu_seq) => {
                self.load_prints(header);
            }
            // What it has cannot be proved, and is not asked for again with each miss.
            _ => self.units.headers.load(slot, generation, []),
        }
        match *result {
            Ok(_) => base.device_read_worked(),
            Err(error) => base.device_read_failed(Purpose::HeaderRead, error),
        }
        self.units.header_reads.arrived(slot)
    }
}
