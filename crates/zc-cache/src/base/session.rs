//! Session number and numbering of units.
//!
//! Invariant: unit numbers are unique, and higher than those of all earlier sessions.

use zc_core::WeuSeq;

#[derive(Debug)]
pub(crate) struct Session {
    number: u64,
    /// The cache's identity, if units may contain summaries.
    uuid: Option<[u8; 16]>,
    /// First session of this cache; headers of earlier ones belong to a previous cache on the device.
    first: u64,
    next: WeuSeq,
    begin: WeuSeq,
}

impl Session {
    /// Creates session `number` of a cache whose first session is `first`. Units are numbered from `next`. `uuid` is
    /// the cache's identity if units may contain summaries.
    pub(crate) const fn new(number: u64, first: u64, next: WeuSeq, uuid: Option<[u8; 16]>) -> Self {
        Self { number, uuid, first, next, begin: next }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// Returns `true` if the session belongs to an earlier cache on the device.
    pub(crate) const fn is_of_earlier_cache(&self, session: u64) -> bool {
        session < self.first
    }

    pub(crate) const fn next(&self) -> WeuSeq {
        self.next
    }

    /// Consumes the number that [`Self::next`] returned.
    pub(crate) const fn take_next(&mut self) {
        self.next = WeuSeq(self.next.0 + 1);
    }

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
