//! Connection slots: connections are counted by source, and a full server is divided between sources.
//!
//! Job: the decisions. Clients that choose an export ("handshakes") have [`HANDSHAKE_PLACES`] of their own besides
//! those of `nbd.connections_max`, so that neither kind blocks the other. A new connection without a slot displaces a
//! random handshake of the source with the most, if that has more than its own; or one older than
//! [`HANDSHAKE_GRACE_MS`]. A flood from one source thus costs only that source, and even there admitted clients have
//! time to proceed. A client that chose an export when all slots are taken displaces one of the source with the most
//! ([`Admission::larger`]), if that has more than its own and more than [`ATTACHED_PART`] of all.
//!
//! Invariants: a connection is counted from [`Admission::enter`] to [`Admission::leave`]; the sums agree with it.
//!
//! It is independent of sockets, closes nothing, and does not determine idle attached clients (`shard/clients/nbd`).

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use crate::front::peer::Source;
use crate::limits::{ATTACHED_PART, HANDSHAKE_GRACE_MS, HANDSHAKE_PLACES};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Connections with an export.
    pub(crate) attached: usize,
    /// Maximum connections of one address; 0 = unbounded.
    pub(crate) per_address: usize,
    /// Maximum connections of one user on Unix sockets; 0 = unbounded.
    pub(crate) per_user: usize,
}

impl Bounds {
    const fn of(self, source: Source) -> usize {
        if source.is_address() { self.per_address } else { self.per_user }
    }
}

/// Decision on a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Admitted,
    /// The newcomer gets the place of this connection, which is to be closed.
    Displaces(u64),
    /// There is none, for this reason.
    Refused(&'static str),
}

/// A client that chooses its export.
#[derive(Debug, Clone, Copy)]
struct Handshake {
    conn: u64,
    since_ms: u64,
}

/// Connections of one source.
#[derive(Debug, Default)]
struct Count {
    handshakes: Vec<Handshake>,
    attached: usize,
}

impl Count {
    const fn all(&self) -> usize {
        self.handshakes.len() + self.attached
    }
}

/// All clients that have a place.
#[derive(Debug)]
pub(crate) struct Admission {
    // Ordered: clients choose their addresses, and the hash of `Map` has no key.
    sources: BTreeMap<Source, Count>,
    handshakes: usize,
    attached: usize,
    /// A secret key, and the number of draws with it.
    random: (RandomState, u64),
}

impl Default for Admission {
    fn default() -> Self {
        Self { sources: BTreeMap::new(), handshakes: 0, attached: 0, random: (RandomState::new(), 0) }
    }
}

impl Admission {
    /// Decides on a new connection from `source`. Nothing is counted yet.
    pub(crate) fn arrive(&mut self, bounds: Bounds, source: Source, now_ms: u64) -> Arrival {
        let (own, own_handshakes) =
            self.sources.get(&source).map_or((0, 0), |count| (count.all(), count.handshakes.len()));
        let most = bounds.of(source);
        if most > 0 && own >= most {
            let why = "it has nbd.connections_per_client_max connections";
            return self.displace(Some(source), now_ms).map_or(Arrival::Refused(why), Arrival::Displaces);
        }
        if self.attached >= bounds.attached && self.larger(bounds, own + 1).is_empty() {
            return Arrival::Refused("there are nbd.connections_max connections");
        }
        if self.handshakes + self.attached < bounds.attached + HANDSHAKE_PLACES {
            return Arrival::Admitted;
        }
        let largest = self.largest_in_handshake();
        if let Some((largest, count)) = largest
            && count > own_handshakes + 1
            && let Some(conn) = self.draw(largest, u64::MAX)
        {
            return Arrival::Displaces(conn);
        }
        let why = "too many clients choose an export at once";
        self.displace(None, now_ms).map_or(Arrival::Refused(why), Arrival::Displaces)
    }

    /// Returns the handshake to close when file descriptors run out: one of the source with the most.
    pub(crate) fn spare(&mut self) -> Option<u64> {
        let (largest, _) = self.largest_in_handshake()?;
        self.draw(largest, u64::MAX)
    }

    fn largest_in_handshake(&self) -> Option<(Source, usize)> {
        let counts = self.sources.iter().map(|(source, count)| (*source, count.handshakes.len()));
        counts.filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count)
    }

    /// A handshake, of that source or of any, that has had its time.
    fn displace(&mut self, source: Option<Source>, now_ms: u64) -> Option<u64> {
        let until_ms = now_ms.checked_sub(HANDSHAKE_GRACE_MS)?;
        if let Some(source) = source {
            return self.draw(source, until_ms);
        }
        let sources: Vec<Source> = self.sources.keys().copied().collect();
        let first = self.number_below(sources.len())?;
        let (before, behind) = sources.split_at(first);
        behind.iter().chain(before).find_map(|source| self.draw(*source, until_ms))
    }

    /// A random handshake of a source that began until then.
    fn draw(&mut self, source: Source, until_ms: u64) -> Option<u64> {
        let began = |handshake: &&Handshake| handshake.since_ms <= until_ms;
        let count = self.sources.get(&source)?.handshakes.iter().filter(began).count();
        let number = self.number_below(count)?;
        self.sources.get(&source)?.handshakes.iter().filter(began).nth(number).map(|drawn| drawn.conn)
    }

    /// A random number; `None` if there is none below `end`.
    fn number_below(&mut self, end: usize) -> Option<usize> {
        let (key, draws) = &mut self.random;
        *draws += 1;
        let drawn = key.hash_one(*draws);
        drawn.checked_rem(zc_core::u64_from_usize(end)).map(zc_core::usize_from_u64)
    }

    /// Sources with more attached clients than `own`, and more than a share of all, the largest first: one of their
    /// slots is reassigned.
    pub(crate) fn larger(&self, bounds: Bounds, own: usize) -> Vec<Source> {
        let least = own.max(bounds.attached / ATTACHED_PART);
        let mut larger: Vec<(usize, Source)> = self
            .sources
            .iter()
            .filter(|(_, count)| count.attached > least)
            .map(|(source, count)| (count.attached, *source))
            .collect();
        larger.sort_unstable_by(|one, other| other.cmp(one));
        larger.into_iter().map(|(_, source)| source).collect()
    }

    /// Returns `true` if all places of attached clients are taken.
    pub(crate) const fn is_full(&self, bounds: Bounds) -> bool {
        self.attached >= bounds.attached
    }

    /// Connections of a source that have chosen an export.
    pub(crate) fn attached_of(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, |count| count.attached)
    }

    /// Records an admitted connection.
    pub(crate) fn enter(&mut self, conn: u64, source: Source, now_ms: u64) {
        self.sources.entry(source).or_default().handshakes.push(Handshake { conn, since_ms: now_ms });
        self.handshakes += 1;
    }

    /// The connection has chosen its export.
    pub(crate) fn attach(&mut self, conn: u64, source: Source) {
        let count = self.sources.entry(source).or_default();
        let before = count.handshakes.len();
        count.handshakes.retain(|handshake| handshake.conn != conn);
        assert_eq!(count.handshakes.len() + 1, before, "a connection attaches once, after it entered");
        count.attached += 1;
        self.handshakes -= 1;
        self.attached += 1;
    }

    /// Records a closed connection.
    pub(crate) fn leave(&mut self, conn: u64, source: Source, was_attached: bool) {
        let Some(count) = self.sources.get_mut(&source) else { panic!("connection {conn} was not counted") };
        if was_attached {
            count.attached -= 1;
            self.attached -= 1;
        } else {
            let before = count.handshakes.len();
            count.handshakes.retain(|handshake| handshake.conn != conn);
            assert_eq!(count.handshakes.len() + 1, before, "a connection leaves once");
            self.handshakes -= 1;
        }
        if count.all() == 0 {
            self.sources.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::peer::Peer;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { attached: 256, per_address: 128, per_user: 0 };

    fn source(number: u32) -> Source {
        Source::of(Peer::Ip(std::net::Ipv4Addr::from_bits(number).into()), 64)
    }

    /// A house, and the connections that entered it.
    #[derive(Default)]
    struct House {
        admission: Admission,
        inside: BTreeMap<u64, (Source, bool)>,
        next: u64,
    }

    impl House {
        /// Simulates one more connection; returns its number if it was admitted.
        fn come(&mut self, bounds: Bounds, source: Source, now_ms: u64) -> Option<u64> {
            match self.admission.arrive(bounds, source, now_ms) {
                Arrival::Refused(_) => return None,
                Arrival::Displaces(conn) => self.go(conn),
                Arrival::Admitted => {}
            }
            self.next += 1;
            self.admission.enter(self.next, source, now_ms);
            self.inside.insert(self.next, (source, false));
            Some(self.next)
        }

        fn go(&mut self, conn: u64) {
            let (source, is_attached) = self.inside.remove(&conn).unwrap();
            self.admission.leave(conn, source, is_attached);
        }

        fn attach(&mut self, conn: u64) {
            let entry = self.inside.get_mut(&conn).unwrap();
            entry.1 = true;
            self.admission.attach(conn, entry.0);
        }
    }

    #[test]
    fn a_flood_from_one_source_keeps_no_other_out() {
        let mut house = House::default();
        for bounds in [BOUNDS, Bounds { per_address: 0, ..BOUNDS }] {
            let mut far = None;
            // 3,300 a second, none of which proceeds; a client that needs 300 ms arrives after two seconds.
            for number in 0..9_900_u64 {
                let now_ms = number * 10 / 33;
                house.come(bounds, source(1), now_ms);
                if number == 6_600 {
                    far = house.come(bounds, source(2), now_ms);
                }
                if number == 6_600 + 990 {
                    let far = far.expect("it gets in");
                    assert!(house.inside.contains_key(&far), "it was not displaced");
                    house.attach(far);
                }
            }
            house.go(far.unwrap());
        }
    }

    #[test]
    fn within_one_source_whoever_gets_in_has_time() {
        let mut house = House::default();
        let (mut tries, mut done) = (0, 0);
        let mut mine: Option<(u64, u64)> = None;
        for number in 0..33_000_u64 {
            let now_ms = number * 10 / 33;
            house.come(BOUNDS, source(1), now_ms);
            if let Some((conn, until_ms)) = mine
                && now_ms >= until_ms
            {
                assert!(house.inside.contains_key(&conn), "displaced within its time");
                house.go(conn);
                (done, mine) = (done + 1, None);
            }
            if mine.is_none() && number % 330 == 0 {
                tries += 1;
                mine = house.come(BOUNDS, source(1), now_ms).map(|conn| (conn, now_ms + 300));
            }
        }
        assert!(done > 0, "none of {tries} got in");
    }

    #[test]
    fn sources_that_fill_the_house_make_room_for_a_small_one_only() {
        let mut house = House::default();
        for (number, count) in [(1, 128), (2, 128)] {
            for _ in 0..count {
                let conn = house.come(BOUNDS, source(number), 0).unwrap();
                house.attach(conn);
            }
        }
        assert!(house.admission.is_full(BOUNDS));
        assert_eq!(house.admission.larger(BOUNDS, 1).len(), 2);
        assert!(house.come(BOUNDS, source(3), 0).is_some(), "it may choose an export");
        assert_eq!(house.admission.larger(BOUNDS, 128), [], "an equal one gets nothing");
        // Eight sources with an eighth each: none has more than its part.
        let mut house = House::default();
        for number in 0..256 {
            let conn = house.come(BOUNDS, source(number / 32), 0).unwrap();
            house.attach(conn);
        }
        assert_eq!(house.admission.larger(BOUNDS, 1), []);
        assert_eq!(
            house.admission.arrive(BOUNDS, source(99), 0),
            Arrival::Refused("there are nbd.connections_max connections")
        );
    }

    #[test]
    fn attached_clients_leave_handshakes_their_places_and_the_other_way_round() {
        let mut house = House::default();
        let no_bound = Bounds { per_address: 0, ..BOUNDS };
        for _ in 0..256 {
            let conn = house.come(no_bound, source(1), 0).unwrap();
            house.attach(conn);
        }
        for number in 2..2 + u32::try_from(HANDSHAKE_PLACES).unwrap() {
            assert!(house.come(no_bound, source(number), 0).is_some());
        }
        assert_eq!(
            house.admission.arrive(no_bound, source(999), HANDSHAKE_GRACE_MS - 1),
            Arrival::Refused("too many clients choose an export at once"),
            "all have one and none has had its time"
        );
        let later = house.admission.arrive(no_bound, source(999), HANDSHAKE_GRACE_MS);
        assert!(matches!(later, Arrival::Displaces(_)), "{later:?}");
    }

    proptest! {
        #[test]
        fn no_bound_is_exceeded(steps in prop::collection::vec((0_u32..6, 0_u8..4, 0_u64..700), 0..400)) {
            let bounds = Bounds { attached: 8, per_address: 5, per_user: 0 };
            let (mut house, mut now_ms) = (House::default(), 0);
            for (number, what, ms) in steps {
                now_ms += ms;
                let first = house.inside.iter().find(|(_, (_, attached))| !attached).map(|(conn, _)| *conn);
                match (what, first) {
                    (0, Some(conn)) => house.go(conn),
                    (1, Some(conn)) if !house.admission.is_full(bounds) => house.attach(conn),
                    _ => drop(house.come(bounds, source(number), now_ms)),
                }
                let attached = house.inside.values().filter(|(_, attached)| *attached).count();
                prop_assert_eq!(house.admission.attached, attached);
                prop_assert!(attached <= 8);
                prop_assert!(house.inside.len() <= 8 + HANDSHAKE_PLACES);
                for number in 0..6 {
                    let own = house.inside.values().filter(|(own, _)| *own == source(number)).count();
                    prop_assert!(own <= 5);
                }
            }
        }
    }
}
