//! Identity that distinguishes this session's units and records from those of earlier ones.
//!
//! Job: number units. Invariant: a number is given once; those of this session are higher than all before.

use zc_core::WeuSeq;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Session {
    number: u64,
    /// The cache's identity, if units may hold summaries.
    uuid: Option<[u8; 16]>,
    /// Headers of sessions before it were written by an earlier cache on the device.
    first: u64,
    next: WeuSeq,
    /// The first unit of this session.
    begin: WeuSeq,
}

impl Session {
    /// Session `number` on a cache whose first session is `first`; its units begin with `next`. `uuid` is the cache's
    /// identity, if units may hold summaries.
    pub(crate) const fn new(number: u64, first: u64, next: WeuSeq, uuid: Option<[u8; 16]>) -> Self {
        Self { number, uuid, first, next, begin: next }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The cache's identity, if units may hold summaries.
    pub(crate) const fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// Returns `true` if this session number wrote to an earlier cache on the device.
    pub(crate) const fn is_of_earlier_cache(&self, session: u64) -> bool {
        session < self.first
    }

    pub(crate) const fn next(&self) -> WeuSeq {
        self.next
    }

    /// Takes the number that [`Self::next`] returned.
    pub(crate) const fn take_next(&mut self) {
        self.next = WeuSeq(self.next.0 + 1);
    }

    /// Returns `true` if this session wrote the unit.
    pub(crate) const fn wrote(&self, unit: WeuSeq) -> bool {
        unit.0 >= self.begin.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_this_sessions_from_its_first_number_on() {
        let mut session = Session::new(7, 3, WeuSeq(100), None);
        assert!(!session.wrote(WeuSeq(99)) && session.wrote(WeuSeq(100)));
        session.take_next();
        assert_eq!(session.next(), WeuSeq(101));
        assert!(session.wrote(WeuSeq(100)), "the first stays the first");
        assert!(session.is_of_earlier_cache(2) && !session.is_of_earlier_cache(3));
    }
}
