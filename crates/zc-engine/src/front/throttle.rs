//! The limits of a volume: starts and delays its requests.
//!
//! Job: up to six rates ([`VolumeLimits`]), of requests and of bytes, for reads, for writes, and for both together;
//! and two queues of waiting reads and writes. A request starts when all of its buckets admit it.
//!
//! Invariants: no request overtakes another of its queue. The one that waits longest for a shared bucket is not
//! overtaken by later ones of either queue, so that small ones do not starve a large one; one that waits for the
//! bucket of its own queue does not block the other. Without limits all waiting requests may start.
//!
//! It does not read a clock or interpret queued items (`shard/volumes`); `bucket` has the arithmetic of a rate.

use std::collections::VecDeque;

use serde::Serialize;
use zc_config::VolumeLimits;
use zc_nbd::server::Command;

use crate::front::bucket::{Bucket, Rate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Reads = 0,
    Writes = 1,
}

/// Cost of a request in addition to the request itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    line: Line,
    bytes: u64,
}

impl Cost {
    /// Returns the cost; `None`: free. A prefetch reads from the origin like a read. Trims and zeroings transfer no
    /// bytes. A flush makes charged writes durable, and a status query transfers nothing.
    pub(crate) const fn of(command: Command, len_bytes: u64) -> Option<Self> {
        match command {
            Command::Read | Command::Cache => Some(Self { line: Line::Reads, bytes: len_bytes }),
            Command::Write => Some(Self { line: Line::Writes, bytes: len_bytes }),
            Command::Trim | Command::WriteZeroes => Some(Self { line: Line::Writes, bytes: 0 }),
            Command::Flush | Command::BlockStatus => None,
        }
    }
}

impl Cost {
    pub(crate) const fn of_read(bytes: u64) -> Self {
        Self { line: Line::Reads, bytes }
    }

    /// Returns the cost of an origin write, or of a trim or zeroing, which transfer no bytes.
    pub(crate) const fn of_write(bytes: u64) -> Self {
        Self { line: Line::Writes, bytes }
    }
}

/// Number and duration of waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// Requests that had to wait.
    pub waited: u64,
    /// For how long, all together, as far as they wait no more. In microseconds.
    pub waited_us: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

/// Rates of requests and bytes.
#[derive(Debug, Default)]
struct Rates {
    requests: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Rates {
    fn set(&mut self, requests: Option<Rate>, bytes: Option<Rate>, now_ns: u64) {
        for (bucket, rate) in [(&mut self.requests, requests), (&mut self.bytes, bytes)] {
            match (bucket.as_mut(), rate) {
                (Some(bucket), Some(rate)) => bucket.set(rate, now_ns),
                (_, rate) => *bucket = rate.map(|rate| Bucket::new(rate, now_ns)),
            }
        }
    }

    fn wait_ns(&mut self, cost: Cost, now_ns: u64) -> u64 {
        let requests = self.requests.as_mut().map_or(0, |bucket| bucket.wait_ns(1, now_ns));
        // A request without bytes does not wait for the bytes of others.
        let bytes = self.bytes.as_mut().filter(|_| cost.bytes > 0);
        requests.max(bytes.map_or(0, |bucket| bucket.wait_ns(cost.bytes, now_ns)))
    }

    fn take(&mut self, cost: Cost, now_ns: u64) {
        if let Some(bucket) = &mut self.requests {
            bucket.take(1, now_ns);
        }
        if let Some(bucket) = &mut self.bytes {
            bucket.take(cost.bytes, now_ns);
        }
    }
}

#[derive(Debug)]
struct Waiter<T> {
    item: T,
    cost: Cost,
    since_ns: u64,
    /// Its place among those of both lines.
    number: u64,
}

/// When a waiter may begin.
struct BeginTime {
    line: Line,
    wait_ns: u64,
    /// The waiter waits longest for a limit that the other queue shares.
    holds_up: bool,
}

/// Limits of a volume, with waiting requests.
#[derive(Debug)]
pub(crate) struct Throttle<T> {
    limits: VolumeLimits,
    both: Rates,
    own: [Rates; 2],
    lines: [VecDeque<Waiter<T>>; 2],
    next_number: u64,
    waited: u64,
    waited_ns: u64,
}

impl<T> Throttle<T> {
    /// With these limits, and whole bursts.
    pub(crate) fn new(limits: VolumeLimits, now_ns: u64) -> Self {
        let mut new = Self {
            limits: VolumeLimits::default(),
            both: Rates::default(),
            own: Default::default(),
            lines: [VecDeque::new(), VecDeque::new()],
            next_number: 0,
            waited: 0,
            waited_ns: 0,
        };
        new.set(limits, now_ns);
        new
    }

    /// Changes the limits, including those for the rest of started requests.
    pub(crate) fn set(&mut self, limits: VolumeLimits, now_ns: u64) {
        if limits == self.limits {
            return;
        }
        self.limits = limits;
        let iops = |per_s: u32| Rate::new(per_s.into(), limits.iops_burst.map(u64::from));
        let bytes = |per_s: u64| Rate::new(per_s, limits.bytes_burst);
        let [reads, writes] = &mut self.own;
        self.both.set(iops(limits.iops), bytes(limits.bytes_per_s), now_ns);
        reads.set(iops(limits.read_iops), bytes(limits.read_bytes_per_s), now_ns);
        writes.set(iops(limits.write_iops), bytes(limits.write_bytes_per_s), now_ns);
    }

    /// Returns `true` if no request waits, and none will.
    pub(crate) fn is_off(&self) -> bool {
        self.limits == VolumeLimits::default() && !self.are_waiting()
    }

    /// Submits a request. Returns it if it may start now; otherwise it is queued.
    pub(crate) fn ask(&mut self, item: T, cost: Cost, now_ns: u64) -> Option<T> {
        let is_first = self.lines[cost.line as usize].is_empty();
        let others = if cost.line == Line::Reads { Line::Writes } else { Line::Reads };
        let is_held_up = self.outlook(others, now_ns).is_some_and(|other| other.holds_up);
        if is_first && !is_held_up && self.wait_ns(cost, now_ns) == 0 {
            self.take(cost, now_ns);
            return Some(item);
        }
        self.waited += 1;
        self.next_number += 1;
        let waiter = Waiter { item, cost, since_ns: now_ns, number: self.next_number };
        self.lines[cost.line as usize].push_back(waiter);
        None
    }

    pub(crate) fn next(&mut self, now_ns: u64) -> Option<T> {
        let ready = self.outlooks(now_ns).into_iter().flatten().find(|outlook| outlook.wait_ns == 0)?;
        let waiter = self.lines[ready.line as usize].pop_front()?;
        self.take(waiter.cost, now_ns);
        self.count(&waiter, now_ns);
        Some(waiter.item)
    }

    /// Nanoseconds until the next may begin; `None`: no request waits.
    pub(crate) fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        self.outlooks(now_ns).into_iter().flatten().map(|outlook| outlook.wait_ns).min()
    }

    /// Removes the waiting requests that `goes` selects, without charging the limits.
    pub(crate) fn take_out(&mut self, goes: impl Fn(&T) -> bool, now_ns: u64) -> Vec<T> {
        let mut out = Vec::new();
        for line in 0..self.lines.len() {
            for waiter in std::mem::take(&mut self.lines[line]) {
                if goes(&waiter.item) {
                    self.count(&waiter, now_ns);
                    out.push(waiter.item);
                } else {
                    self.lines[line].push_back(waiter);
                }
            }
        }
        out
    }

    /// Returns `true` if any request waits.
    pub(crate) fn are_waiting(&self) -> bool {
        self.lines.iter().any(|line| !line.is_empty())
    }

    pub(crate) fn waits(&self) -> Waits {
        let waiting = self.lines.iter().map(VecDeque::len).sum();
        Waits {
            waited: self.waited,
            waited_us: self.waited_ns / 1000,
            waiting: zc_core::u64_from_usize(waiting),
        }
    }

    /// Returns the waiting times of both queues' heads, the older one first; without the younger one if it may not
    /// overtake.
    fn outlooks(&mut self, now_ns: u64) -> [Option<BeginTime>; 2] {
        let number = |line: &VecDeque<Waiter<T>>| line.front().map_or(u64::MAX, |waiter| waiter.number);
        let [reads, writes] = &self.lines;
        let (first, second) = if number(reads) <= number(writes) {
            (Line::Reads, Line::Writes)
        } else {
            (Line::Writes, Line::Reads)
        };
        let older = self.outlook(first, now_ns);
        let younger = if older.as_ref().is_some_and(|older| older.holds_up) {
            None
        } else {
            self.outlook(second, now_ns)
        };
        [older, younger]
    }

    fn outlook(&mut self, line: Line, now_ns: u64) -> Option<BeginTime> {
        let cost = self.lines[line as usize].front()?.cost;
        let both_ns = self.both.wait_ns(cost, now_ns);
        let own_ns = self.own[line as usize].wait_ns(cost, now_ns);
        Some(BeginTime { line, wait_ns: both_ns.max(own_ns), holds_up: both_ns > own_ns })
    }

    fn wait_ns(&mut self, cost: Cost, now_ns: u64) -> u64 {
        self.both.wait_ns(cost, now_ns).max(self.own[cost.line as usize].wait_ns(cost, now_ns))
    }

    fn take(&mut self, cost: Cost, now_ns: u64) {
        self.both.take(cost, now_ns);
        self.own[cost.line as usize].take(cost, now_ns);
    }

    fn count(&mut self, waiter: &Waiter<T>, now_ns: u64) {
        self.waited_ns = self.waited_ns.saturating_add(now_ns.saturating_sub(waiter.since_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::bucket::tests::exceeds;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const NONE: VolumeLimits = VolumeLimits {
        iops: 0,
        read_iops: 0,
        write_iops: 0,
        iops_burst: None,
        bytes_per_s: 0,
        read_bytes_per_s: 0,
        write_bytes_per_s: 0,
        bytes_burst: None,
        origin_iops: 0,
        origin_bytes_per_s: 0,
    };

    fn cost(command: Command, len_bytes: u64) -> Cost {
        Cost::of(command, len_bytes).unwrap()
    }

    /// Requests that begin until then, with the time, by no other clock than that of the throttle.
    fn begin_until(throttle: &mut Throttle<u64>, mut now_ns: u64, end_ns: u64) -> Vec<(u64, u64)> {
        let mut begun = Vec::new();
        loop {
            while let Some(item) = throttle.next(now_ns) {
                begun.push((now_ns, item));
            }
            match throttle.due_ns(now_ns) {
                Some(wait_ns) if now_ns + wait_ns <= end_ns => {
                    assert!(wait_ns > 0, "what may begin has begun");
                    now_ns += wait_ns;
                }
                _ => return begun,
            }
        }
    }

    #[test]
    fn what_costs_and_what_is_free() {
        assert_eq!(Cost::of(Command::Flush, 0), None);
        assert_eq!(Cost::of(Command::BlockStatus, 1 << 30), None);
        assert_eq!(cost(Command::Cache, 7), cost(Command::Read, 7));
        assert_eq!(cost(Command::WriteZeroes, 7), cost(Command::Write, 0));
        assert_eq!(cost(Command::Trim, 7), cost(Command::Write, 0));
    }

    #[test]
    fn requests_begin_in_order_at_the_rate() {
        let limits = VolumeLimits { iops: 10, iops_burst: Some(2), ..NONE };
        let mut throttle = Throttle::new(limits, 0);
        let begun: Vec<bool> =
            (0..6).map(|item| throttle.ask(item, cost(Command::Read, 1), 0).is_some()).collect();
        assert_eq!(begun, [true, true, false, false, false, false]);
        assert_eq!(throttle.waits(), Waits { waited: 4, waited_us: 0, waiting: 4 });
        let begun = begin_until(&mut throttle, 0, S);
        assert_eq!(begun, [(S / 10, 2), (2 * S / 10, 3), (3 * S / 10, 4), (4 * S / 10, 5)]);
        assert_eq!(throttle.waits(), Waits { waited: 4, waited_us: 1_000_000, waiting: 0 });
    }

    #[test]
    fn a_large_request_does_not_starve_beside_small_ones() {
        let limits = VolumeLimits { bytes_per_s: 1000, bytes_burst: Some(100), ..NONE };
        let mut throttle = Throttle::new(limits, 0);
        assert!(throttle.ask(0, cost(Command::Read, 100), 0).is_some());
        assert!(throttle.ask(1, cost(Command::Write, 5000), 0).is_none());
        for item in 2..50 {
            assert!(throttle.ask(item, cost(Command::Read, 10), 0).is_none());
        }
        let begun = begin_until(&mut throttle, 0, 60 * S);
        assert_eq!(begun[0], (S / 10, 1), "a whole burst is there");
        assert_eq!(begun[1], (5 * S + S / 100, 2), "the next ones make up for it");
        assert_eq!(begun.len(), 49);
    }

    #[test]
    fn a_line_that_waits_for_its_own_rate_does_not_hold_up_the_other() {
        let limits = VolumeLimits { write_iops: 1, iops: 1000, iops_burst: Some(1), ..NONE };
        let mut throttle = Throttle::new(limits, 0);
        assert!(throttle.ask(0, cost(Command::Write, 1), 0).is_some());
        assert!(throttle.ask(1, cost(Command::Write, 1), S / 2).is_none());
        assert!(
            throttle.ask(2, cost(Command::Read, 1), S / 2).is_some(),
            "reads have no rate but the common one"
        );
        assert!(throttle.ask(3, cost(Command::Read, 1), S / 2).is_none());
        let begun = begin_until(&mut throttle, S / 2, 2 * S);
        assert_eq!(begun, [(S / 2 + S / 1000, 3), (S, 1)]);
    }

    #[test]
    fn trims_take_no_bytes() {
        let limits = VolumeLimits { bytes_per_s: 1000, bytes_burst: Some(512), ..NONE };
        let mut throttle = Throttle::new(limits, 0);
        assert!(throttle.ask(0, cost(Command::Write, 4096), 0).is_some());
        assert!(throttle.ask(1, cost(Command::Trim, 1 << 30), 0).is_some());
        assert!(throttle.ask(2, cost(Command::Write, 1), 0).is_none());
    }

    #[test]
    fn without_limits_all_that_waits_begins_and_what_is_taken_out_does_not() {
        let limits = VolumeLimits { write_iops: 1, iops_burst: Some(1), ..NONE };
        let mut throttle = Throttle::new(limits, 0);
        for item in 0..5 {
            throttle.ask(item, cost(Command::Write, 1), 0);
        }
        assert_eq!(throttle.take_out(|item| *item == 2, S / 10), [2]);
        assert!(throttle.are_waiting());
        throttle.set(NONE, S / 10);
        assert_eq!(begin_until(&mut throttle, S / 10, S / 10).len(), 3);
        assert_eq!(throttle.waits(), Waits { waited: 4, waited_us: 400_000, waiting: 0 });
        assert!(throttle.ask(9, cost(Command::Write, 1 << 40), S).is_some());
    }

    fn any_limits() -> impl Strategy<Value = VolumeLimits> {
        let rate = || prop_oneof![Just(0_u32), 1_u32..2000];
        let burst = || prop::option::of(1_u32..300);
        (rate(), rate(), rate(), burst(), rate(), rate(), rate(), burst()).prop_map(
            |(iops, read_iops, write_iops, iops_burst, both, reads, writes, bytes)| VolumeLimits {
                iops,
                read_iops,
                write_iops,
                iops_burst,
                bytes_per_s: u64::from(both) * 100,
                read_bytes_per_s: u64::from(reads) * 100,
                write_bytes_per_s: u64::from(writes) * 100,
                bytes_burst: bytes.map(|bytes| u64::from(bytes) * 100),
                ..NONE
            },
        )
    }

    proptest! {
        /// For arbitrary arrivals no rate is exceeded, each queue keeps its order, and all requests begin eventually.
        #[test]
        fn no_rate_is_exceeded_and_none_starves(
            limits in any_limits(),
            asked in prop::collection::vec((any::<bool>(), 0_u64..20_000, 0_u64..200_000_000), 1..120),
        ) {
            let mut throttle = Throttle::new(limits, 0);
            let (mut now_ns, mut begun) = (0, Vec::new());
            for (item, (reads, bytes, pause_ns)) in asked.iter().enumerate() {
                let item = zc_core::u64_from_usize(item);
                begun.extend(begin_until(&mut throttle, now_ns, now_ns + pause_ns));
                now_ns += pause_ns;
                let command = if *reads { Command::Read } else { Command::Write };
                begun.extend(throttle.ask(item, cost(command, *bytes), now_ns).map(|item| (now_ns, item)));
            }
            begun.extend(begin_until(&mut throttle, now_ns, u64::MAX / 2));
            prop_assert_eq!(begun.len(), asked.len(), "all begin");
            let of = |item: u64| asked[zc_core::usize_from_u64(item)];
            for reads in [true, false] {
                let line: Vec<u64> =
                    begun.iter().map(|(_, item)| *item).filter(|item| of(*item).0 == reads).collect();
                prop_assert!(line.is_sorted());
            }
            let requests = limits.iops_burst.map(u64::from);
            let rates = [
                (limits.iops.into(), requests, None, false),
                (limits.read_iops.into(), requests, Some(true), false),
                (limits.write_iops.into(), requests, Some(false), false),
                (limits.bytes_per_s, limits.bytes_burst, None, true),
                (limits.read_bytes_per_s, limits.bytes_burst, Some(true), true),
                (limits.write_bytes_per_s, limits.bytes_burst, Some(false), true),
            ];
            for (per_s, burst, only, in_bytes) in rates {
                if per_s == 0 {
                    continue;
                }
                let counts = |(at_ns, item): &(u64, u64)| {
                    let (reads, bytes, _) = of(*item);
                    let is_of_it = only.is_none_or(|only| only == reads) && !(in_bytes && bytes == 0);
                    is_of_it.then_some((*at_ns, if in_bytes { bytes } else { 1 }))
                };
                let taken: Vec<_> = begun.iter().filter_map(counts).collect();
                let burst = burst.unwrap_or(per_s / 10).max(1);
                prop_assert_eq!(exceeds((per_s, burst), &taken), None, "{} a second", per_s);
            }
        }
    }
}
