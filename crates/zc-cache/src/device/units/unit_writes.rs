//! Piece writes of dirty units: those in flight, and those that no flush has covered.
//!
//! Writes are numbered, so that a commit can name those that it needs. Invariants: numbers increase; a FUA write needs
//! no flush after its completion. Out of scope: writing and flushing.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct UnitWrites {
    in_flight: BTreeSet<u64>,
    next: u64,
    /// Writes without FUA, in flight or completed, that no flush has covered yet.
    unflushed: BTreeSet<u64>,
    /// Number of the first write that the flush in flight does not cover.
    flushing_before: u64,
}

impl UnitWrites {
    /// Begins a write; `durable`: with FUA. Returns its number.
    pub(super) fn begin(&mut self, durable: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.in_flight.insert(number);
        if !durable {
            self.unflushed.insert(number);
        }
        number
    }

    pub(super) fn ended(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }

    /// Number after the last begun write.
    pub(crate) const fn mark(&self) -> u64 {
        self.next
    }

    /// Returns `true` if all writes before the mark have completed.
    pub(crate) fn are_written(&self, mark: u64) -> bool {
        self.in_flight.first().is_none_or(|number| *number >= mark)
    }

    /// Returns `true` if all writes before the mark are covered by a flush or need none.
    pub(crate) fn are_flushed(&self, mark: u64) -> bool {
        self.unflushed.first().is_none_or(|number| *number >= mark)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns `true` if all begun writes are covered by a flush or need none.
    pub(crate) fn is_flushed(&self) -> bool {
        self.unflushed.is_empty()
    }

    /// Begins a flush of the device, which covers all completed writes.
    pub(crate) fn flush_begins(&mut self) {
        self.flushing_before = self.in_flight.first().copied().unwrap_or(self.next);
    }

    pub(crate) fn flush_ended(&mut self) {
        self.unflushed = self.unflushed.split_off(&self.flushing_before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_had_ended_when_it_began() {
        let mut writes = UnitWrites::default();
        let (a, b) = (writes.begin(false), writes.begin(false));
        let mark = writes.mark();
        writes.ended(a);
        writes.flush_begins();
        writes.ended(b);
        writes.flush_ended();
        assert!(writes.are_written(mark) && !writes.are_flushed(mark), "the second ended too late");
        assert!(writes.are_flushed(b), "the first is durable");
        writes.flush_begins();
        writes.flush_ended();
        assert!(writes.are_flushed(mark) && writes.is_flushed());
    }

    #[test]
    fn a_durable_write_needs_no_flush_but_its_end() {
        let mut writes = UnitWrites::default();
        let number = writes.begin(true);
        assert!(writes.is_flushed() && !writes.is_idle() && !writes.are_written(writes.mark()));
        writes.ended(number);
        assert!(writes.is_idle());
    }

    #[test]
    fn writes_after_a_mark_are_no_matter() {
        let mut writes = UnitWrites::default();
        let mark = writes.mark();
        writes.begin(false);
        assert!(writes.are_written(mark) && writes.are_flushed(mark));
    }
}
