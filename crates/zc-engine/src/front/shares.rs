//! Shares of the data plane: memory of each connection, and order of requests.
//!
//! Job: the arithmetic. Memory ([`Shares::may_hold`]): each connection has an exclusive reserve. Of the rest, a
//! connection may hold as much as it leaves free, a client and a volume three times that: `n` connections that release
//! nothing leave `1/(n + 1)` of it, for any demand. Order: start-time fair queueing. A connection's next request
//! starts at the virtual time at which its last one ended, or now; the earliest goes first; a turn starts requests up
//! to a bound of work. Connections of one volume share the share of one connection: the work of each is multiplied by
//! the number of them in line.
//!
//! Invariants: a connection is in `ready` at most once; `in_line` counts the entries of `ready` by volume.
//! `taken_bytes` is the sum over connections of their memory beyond the reserve. A connection that has waited for
//! [`AGED_MS`] and holds nothing beyond its reserve prevents others from taking more, so that many small requests do
//! not starve a large one.
//!
//! It is independent of requests and sockets (`shard/clients/nbd`), and does not bound the work of events and
//! completions.

use std::collections::{BTreeMap, BTreeSet};

use zc_core::VolumeId;
use zc_nbd::server::Command;

use crate::front::peer::Source;
use crate::front::settings::FrontLimits;
use crate::limits::{
    CACHE_BYTES_PER_UNIT, CACHE_PIECE_BYTES, CHANGE_BYTES_PER_UNIT, CHANGE_PIECE_BYTES, COPY_BYTES_PER_UNIT,
    FLUSH_UNITS, GROUP_SHARE, READ_PIECE_BYTES, REQUEST_UNITS, RESERVE_BYTES_MAX, RESERVED_PART, SERVE_BYTES,
    SERVE_SMALL_BYTES, STATUS_BYTES_MAX, STATUS_BYTES_PER_UNIT, TURN_UNITS,
};

/// A connection that holds memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) conn: u64,
    pub(crate) client: Source,
    pub(crate) volume: Option<VolumeId>,
    pub(crate) held_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) reserve_bytes: u64,
    /// Memory beyond the reserves of all possible connections.
    pub(crate) rest_bytes: u64,
}

impl Division {
    pub(crate) fn of(limits: &FrontLimits) -> Self {
        let connections = zc_core::u64_from_usize(limits.connections).max(1);
        let reserve_bytes = (limits.bytes / RESERVED_PART / connections).min(RESERVE_BYTES_MAX);
        Self { reserve_bytes, rest_bytes: limits.bytes - reserve_bytes * connections }
    }

    /// Returns the memory of a connection beyond its reserve.
    pub(crate) const fn beyond(self, held_bytes: u64) -> u64 {
        held_bytes.saturating_sub(self.reserve_bytes)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shares {
    taken_bytes: u64,
    // Ordered: clients choose their addresses, and the hash of `Map` has no key.
    by_client: BTreeMap<Source, u64>,
    by_volume: BTreeMap<VolumeId, u64>,
    /// The connection that has waited for memory for too long.
    aged: Option<u64>,
    /// Bytes of reads and prefetches that are with the manager.
    serving_bytes: u64,
    /// Virtual time, in units of work.
    now_units: u64,
    /// Connections with queued requests, by the virtual time of the next one. At equal times those below their share
    /// come first.
    ready: BTreeSet<(u64, bool, u64, Option<VolumeId>)>,
    /// Their number by volume; `None`: without a volume yet.
    in_line: BTreeMap<Option<VolumeId>, u64>,
    /// Volume of the connection being served.
    turn_of: Option<VolumeId>,
    /// Work that this turn may still begin.
    left_units: u64,
    /// `true` if memory was released since waiters were last checked.
    pub(crate) has_room: bool,
}

impl Shares {
    /// Returns `true` if a connection may hold `more_bytes` in addition.
    pub(crate) fn may_hold(&self, division: Division, who: &Holder, more_bytes: u64) -> bool {
        let own = division.beyond(who.held_bytes + more_bytes);
        let more = own - division.beyond(who.held_bytes);
        if more == 0 || self.taken_bytes == 0 {
            return true;
        }
        let Some(free) = division.rest_bytes.checked_sub(self.taken_bytes + more) else { return false };
        if let Some(aged) = self.aged {
            return aged == who.conn;
        }
        let client = self.by_client.get(&who.client).copied().unwrap_or(0) + more;
        let volume = who.volume.and_then(|volume| self.by_volume.get(&volume).copied()).unwrap_or(0) + more;
        own <= free && client <= free * GROUP_SHARE && volume <= free * GROUP_SHARE
    }

    /// A connection that held `before` beyond its reserve holds `now`.
    pub(crate) fn recount(&mut self, who: &Holder, before: u64, now: u64) {
        if before == now {
            return;
        }
        self.has_room |= now < before;
        self.taken_bytes = self.taken_bytes - before + now;
        replace(&mut self.by_client, who.client, before, now);
        if let Some(volume) = who.volume {
            replace(&mut self.by_volume, volume, before, now);
        }
    }

    /// Names the connection that has waited too long, if any.
    pub(crate) fn set_aged(&mut self, aged: Option<u64>) {
        self.has_room |= aged != self.aged;
        self.aged = aged;
    }

    pub(crate) const fn aged(&self) -> Option<u64> {
        self.aged
    }

    /// Returns `true` if a read or prefetch may be passed to the manager now: small ones always, others while the
    /// queued bytes do not delay the next one for long.
    pub(crate) const fn may_serve(&self, own_bytes: u64, len_bytes: u64) -> bool {
        own_bytes + len_bytes <= SERVE_SMALL_BYTES
            || self.serving_bytes == 0
            || self.serving_bytes + len_bytes <= SERVE_BYTES
    }

    pub(crate) const fn serve(&mut self, len_bytes: u64) {
        self.serving_bytes += len_bytes;
    }

    pub(crate) const fn served(&mut self, len_bytes: u64) {
        self.serving_bytes -= len_bytes;
        self.has_room |= len_bytes > 0;
    }

    /// Begins a turn with its full work budget.
    pub(crate) const fn begin_turn(&mut self) {
        self.left_units = TURN_UNITS;
    }

    /// Queues a connection of this volume. It keeps its place until [`Self::next`] returns it.
    pub(crate) fn add(&mut self, conn: u64, volume: Option<VolumeId>, virtual_units: u64) {
        let has_its_share = virtual_units >= self.now_units;
        self.ready.insert((virtual_units.max(self.now_units), has_its_share, conn, volume));
        *self.in_line.entry(volume).or_insert(0) += 1;
    }

    /// Returns the next connection and its virtual time; `None` if none is queued or the turn's work budget is used
    /// up.
    pub(crate) fn next(&mut self) -> Option<(u64, u64)> {
        if self.left_units == 0 {
            return None;
        }
        let (units, _, conn, volume) = self.ready.pop_first()?;
        self.now_units = self.now_units.max(units);
        replace(&mut self.in_line, volume, 1, 0);
        self.turn_of = volume;
        Some((units, conn))
    }

    /// Charges work to the connection at the head. Returns the charged units: multiplied by the connections of its
    /// volume in line.
    pub(crate) fn spend(&mut self, units: u64) -> u64 {
        self.left_units = self.left_units.saturating_sub(units);
        units * (1 + self.in_line.get(&self.turn_of).copied().unwrap_or(0))
    }

    /// Returns `true` if this turn has requests and budget left.
    pub(crate) fn can_go_on(&self) -> bool {
        self.left_units > 0 && !self.ready.is_empty()
    }

    /// Returns `true` if requests remain for the next turn.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.ready.is_empty()
    }
}

fn replace<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, key: K, before: u64, now: u64) {
    let sum = sums.entry(key).or_insert(0);
    *sum = *sum - before + now;
    if *sum == 0 {
        sums.remove(&key);
    }
}

/// Returns the number of bytes of a request that are passed to the manager at once.
pub(crate) const fn piece(command: Command, len_bytes: u64) -> u64 {
    let most = match command {
        Command::Cache => CACHE_PIECE_BYTES,
        Command::Read => READ_PIECE_BYTES,
        Command::Trim | Command::WriteZeroes => CHANGE_PIECE_BYTES,
        Command::BlockStatus => STATUS_BYTES_MAX,
        Command::Write | Command::Flush => u64::MAX,
    };
    if len_bytes < most { len_bytes } else { most }
}

/// About how many microseconds of the data plane a request takes, or the piece of it that is begun.
pub(crate) const fn units(command: Command, len_bytes: u64) -> u64 {
    REQUEST_UNITS
        + match command {
            Command::Read | Command::Write => piece(command, len_bytes) / COPY_BYTES_PER_UNIT,
            Command::Cache => piece(command, len_bytes) / CACHE_BYTES_PER_UNIT,
            Command::Trim | Command::WriteZeroes => piece(command, len_bytes) / CHANGE_BYTES_PER_UNIT,
            Command::Flush => FLUSH_UNITS,
            Command::BlockStatus => piece(command, len_bytes) / STATUS_BYTES_PER_UNIT,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const DIVISION: Division = Division { reserve_bytes: MIB / 4, rest_bytes: 192 * MIB };

    fn user(number: u32) -> Source {
        Source::of(crate::front::peer::Peer::User(number), 64)
    }

    fn who(conn: u64, held_bytes: u64) -> Holder {
        Holder { conn, client: user(1), volume: Some(VolumeId(1)), held_bytes }
    }

    /// Fills its share in pieces; returns the bytes held.
    fn fill(shares: &mut Shares, holder: Holder, piece_bytes: u64) -> u64 {
        let mut holder = holder;
        while shares.may_hold(DIVISION, &holder, piece_bytes) {
            let before = DIVISION.beyond(holder.held_bytes);
            holder.held_bytes += piece_bytes;
            shares.recount(&holder, before, DIVISION.beyond(holder.held_bytes));
        }
        holder.held_bytes
    }

    #[test]
    fn the_memory_is_divided_into_reserves_and_a_rest() {
        let mut limits =
            FrontLimits { connections: 256, bytes: 256 * MIB, ..crate::front::settings::LIMITS_OF_TESTS };
        assert_eq!(Division::of(&limits), DIVISION);
        limits.connections = 65_536;
        assert_eq!(Division::of(&limits), Division { reserve_bytes: 1024, rest_bytes: 192 * MIB });
    }

    #[test]
    fn connections_that_give_nothing_back_leave_a_share() {
        let mut shares = Shares::default();
        for conn in 1..=7 {
            let most = 192 * MIB / 2 + MIB;
            let held = fill(&mut shares, who(conn, 0), MIB);
            assert!(held <= most, "{conn}: {held}");
        }
        // One client leaves a quarter; a connection of another client gets half of that.
        assert!(shares.taken_bytes <= 145 * MIB, "{}", shares.taken_bytes);
        let other = Holder { client: user(2), volume: Some(VolumeId(2)), ..who(8, 0) };
        assert!(shares.may_hold(DIVISION, &other, 20 * MIB));
        assert!(!shares.may_hold(DIVISION, &other, 40 * MIB));
        assert!(shares.may_hold(DIVISION, &who(9, 0), MIB / 4), "the reserve");
    }

    #[test]
    fn the_largest_request_goes_alone_and_one_that_waited_goes_next() {
        let small = Division { reserve_bytes: 1024, rest_bytes: 24 * MIB };
        let mut shares = Shares::default();
        assert!(shares.may_hold(small, &who(1, 0), 32 * MIB));
        let greedy = who(1, 0);
        shares.recount(&greedy, 0, 90 * MIB);
        let (old, new) = (who(2, 0), who(3, 0));
        assert!(!shares.may_hold(DIVISION, &old, 64 * MIB));
        shares.set_aged(Some(2));
        assert!(shares.may_hold(DIVISION, &old, 64 * MIB), "it fits");
        assert!(!shares.may_hold(DIVISION, &new, MIB), "others wait for it");
        shares.recount(&greedy, 90 * MIB, 150 * MIB);
        assert!(!shares.may_hold(DIVISION, &old, 64 * MIB), "it does not fit");
    }

    #[test]
    fn a_turn_begins_a_bounded_amount_of_work_in_the_order_of_virtual_time() {
        let mut shares = Shares::default();
        let mut at = [0_u64; 3];
        // Number 0 sends the largest reads, 1 small ones; 2 arrives after ten turns.
        let costs = [units(Command::Read, 32 * MIB), units(Command::Read, 4096), units(Command::Read, 4096)];
        let mut begun = [0_u64; 3];
        let volume_of = |conn: u64| Some(VolumeId(u16::try_from(conn).unwrap()));
        shares.add(0, volume_of(0), 0);
        shares.add(1, volume_of(1), 0);
        for turn in 0..40 {
            shares.begin_turn();
            if turn == 10 {
                shares.add(2, volume_of(2), 0);
            }
            let mut first = None;
            while let Some((units, conn)) = shares.next() {
                let index = zc_core::usize_from_u64(conn);
                first = first.or(Some(conn));
                at[index] = units + shares.spend(costs[index]);
                begun[index] += 1;
                shares.add(conn, volume_of(conn), at[index]);
            }
            assert!(turn != 10 || begun[2] > 0, "the newcomer is served in its first turn");
        }
        let work = [begun[0] * costs[0], begun[1] * costs[1]];
        assert!(work[0].abs_diff(work[1]) <= 2 * costs[0], "equal shares of work: {work:?}");
    }

    #[test]
    fn connections_of_one_volume_share_what_another_volume_s_only_one_gets() {
        let mut shares = Shares::default();
        // Volume 1 has 50 connections, volume 2 one.
        let volume_of = |conn: u64| Some(VolumeId(if conn < 50 { 1 } else { 2 }));
        (0..=50).for_each(|conn| shares.add(conn, volume_of(conn), 0));
        let mut begun = [0_u64; 51];
        for _ in 0..100 {
            shares.begin_turn();
            while let Some((now, conn)) = shares.next() {
                begun[zc_core::usize_from_u64(conn)] += 1;
                let at = now + shares.spend(10);
                shares.add(conn, volume_of(conn), at);
            }
        }
        let (many, one): (u64, u64) = (begun[..50].iter().sum(), begun[50]);
        assert!(many.abs_diff(one) <= 100, "{many} of the many, {one} of the one");
        let (least, most) = (begun[..50].iter().min().unwrap(), begun[..50].iter().max().unwrap());
        assert!(most - least <= 2, "the many share alike: {least} to {most}");
        assert_eq!(shares.in_line.values().sum::<u64>(), 51, "all are in line");
    }

    /// Returns the turns until a small read starts next to `greedy` connections with constant requests of this size.
    fn turns_beside(greedy: u64, command: Command, len_bytes: u64) -> u64 {
        let mut shares = Shares::default();
        let (quiet, mut at) = (greedy, vec![0; zc_core::usize_from_u64(greedy)]);
        let volume_of = |conn: u64| Some(VolumeId(if conn == greedy { 2 } else { 1 }));
        (0..greedy).for_each(|conn| shares.add(conn, volume_of(conn), 0));
        for turn in 0..1000 {
            shares.begin_turn();
            if turn == 100 {
                shares.add(quiet, volume_of(quiet), 0);
            }
            while let Some((now, conn)) = shares.next() {
                if conn == quiet {
                    return turn - 100;
                }
                let own = &mut at[zc_core::usize_from_u64(conn)];
                *own = now + shares.spend(units(command, len_bytes));
                shares.add(conn, volume_of(conn), *own);
            }
        }
        panic!("it never begins");
    }

    #[test]
    fn beside_any_load_a_quiet_client_begins_within_a_few_turns() {
        let loads = [
            ("8 readers of 32 MiB", 8, Command::Read, 32 * MIB),
            ("prefetches of 4 GiB", 8, Command::Cache, 4096 * MIB),
            ("200 small zeroings", 200, Command::WriteZeroes, 4096),
            ("50 zeroings of a whole volume", 50, Command::WriteZeroes, 1 << 40),
            ("flushes", 64, Command::Flush, 0),
            ("reads of one byte", 200, Command::Read, 1),
            ("questions about all of a volume", 32, Command::BlockStatus, 1 << 40),
        ];
        for (name, greedy, command, len_bytes) in loads {
            let turns = turns_beside(greedy, command, len_bytes);
            assert!(turns <= 2, "{name}: {turns} turns");
        }
        assert!(units(Command::WriteZeroes, 1 << 40) <= TURN_UNITS, "a piece is a part of a turn");
        assert!(units(Command::Cache, 1 << 40) <= TURN_UNITS);
        assert!(units(Command::Read, 32 * MIB) <= TURN_UNITS);
    }

    #[test]
    fn service_is_bounded_except_for_small_requests() {
        let mut shares = Shares::default();
        assert!(shares.may_serve(0, 64 * MIB), "any alone");
        shares.serve(SERVE_BYTES);
        assert!(!shares.may_serve(0, MIB));
        assert!(shares.may_serve(0, SERVE_SMALL_BYTES));
        assert!(!shares.may_serve(SERVE_SMALL_BYTES, 1));
        shares.served(SERVE_BYTES);
        assert!(shares.may_serve(0, MIB) && shares.has_room);
    }
}
