//! Merges several traces into one: a scan in the middle of a random load, two machines in parallel.
//!
//! Job: return the requests of all parts in order of time, each relocated to the range of its part. Parts run
//! concurrently, or one after the other; the devices of a part are concatenated in the resulting volume, which is
//! device 0.
//!
//! Invariants: times never decrease; requests of one part keep their order, and a request stays one. Memory is that of
//! one request per part.
//!
//! It does not change contents. Parts on the same addresses overwrite each other, and a read has the content of its
//! own trace.

use std::collections::BTreeMap;
use std::iter::Peekable;

use crate::error::TraceError;
use crate::limits::ADDRESS_MAX;
use crate::request::Request;

/// Between parts that run one after the other.
const PAUSE_NS: u64 = 1_000_000_000;

/// Extent of each device of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends(BTreeMap<u32, u64>);

impl Ends {
    /// Takes a request into account.
    pub fn add(&mut self, request: &Request) {
        if request.op.has_range() {
            let end = self.0.entry(request.device).or_default();
            *end = request.end_bytes().max(*end);
        }
    }

    /// Bytes of all devices, side by side.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.values().fold(0, |sum: u64, end| sum.saturating_add(*end))
    }

    /// Returns the start of each device.
    fn bases(&self, first: u64) -> BTreeMap<u32, u64> {
        let mut next = first;
        let place = |(device, end): (&u32, &u64)| {
            let base = next;
            next = next.saturating_add(*end);
            (*device, base)
        };
        self.0.iter().map(place).collect()
    }
}

/// When parts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// All begin at 0.
    AtOnce,
    /// Each begins a second after the last request of the one before.
    InTurn,
}

/// A trace and where it goes.
struct Part<I: Iterator> {
    requests: Peekable<I>,
    bases: BTreeMap<u32, u64>,
}

/// The requests of several traces as one.
pub struct Composed<I: Iterator> {
    parts: Vec<Part<I>>,
    order: Order,
    /// The part that the last request was of.
    last: usize,
    now_ns: u64,
    /// When the part under way began, if parts take turns.
    begun_ns: u64,
}

impl<I: Iterator> std::fmt::Debug for Composed<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Composed")
            .field("parts", &self.parts.len())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Composed<I> {
    /// Puts each trace, of which it is known how far it reaches, at its address in bytes.
    pub fn new(parts: impl IntoIterator<Item = (I, Ends, u64)>, order: Order) -> Self {
        let part = |(requests, ends, at): (I, Ends, u64)| Part {
            requests: requests.peekable(),
            bases: ends.bases(at),
        };
        Self { parts: parts.into_iter().map(part).collect(), order, last: 0, now_ns: 0, begun_ns: 0 }
    }

    /// The part whose turn it is: the first of those that are due first, so that pieces of one request, which have the
    /// same time, stay together.
    fn pick(&mut self) -> Option<usize> {
        let due = |part: &mut Part<I>| match part.requests.peek() {
            Some(Ok(request)) => Some(request.time_ns),
            Some(Err(_)) => Some(0),
            None => None,
        };
        let mut dues = self.parts.iter_mut().enumerate().filter_map(|(at, part)| Some((due(part)?, at)));
        match self.order {
            Order::AtOnce => dues.min().map(|(_, at)| at),
            Order::InTurn => dues.next().map(|(_, at)| at),
        }
    }
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Iterator for Composed<I> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.pick()?;
        if at != self.last && self.order == Order::InTurn {
            self.begun_ns = self.now_ns.saturating_add(PAUSE_NS);
        }
        self.last = at;
        let part = &mut self.parts[at];
        let request = match part.requests.next()? {
            Ok(request) => request,
            Err(error) => return Some(Err(error)),
        };
        self.now_ns = self.begun_ns.saturating_add(request.time_ns).max(self.now_ns);
        let base = part.bases.get(&request.device).copied().unwrap_or(0);
        let moved = Request {
            time_ns: self.now_ns,
            device: 0,
            offset_bytes: request.offset_bytes.saturating_add(base),
            ..request
        };
        if moved.end_bytes() > ADDRESS_MAX {
            return Some(Err(TraceError::OutOfRange));
        }
        Some(Ok(moved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    type Found = Result<Request, TraceError>;

    /// Reads of a block each, at these times and blocks.
    fn trace(reads: &[(u64, u64)]) -> Vec<Request> {
        let read = |(time_ns, block): &(u64, u64)| Request::new(*time_ns, Op::Read, block * 4096, 4096);
        reads.iter().map(read).collect()
    }

    fn ends(requests: &[Request]) -> Ends {
        let mut ends = Ends::default();
        requests.iter().for_each(|request| ends.add(request));
        ends
    }

    fn composed(parts: &[Vec<Request>], order: Order) -> Vec<(u64, u64)> {
        let mut at = 0;
        let parts = parts.iter().map(|requests| {
            let (ends, base) = (ends(requests), at);
            at += ends.bytes();
            (requests.clone().into_iter().map(Ok as fn(Request) -> Found), ends, base)
        });
        Composed::new(parts, order)
            .map(Result::unwrap)
            .map(|request| (request.time_ns, request.offset_bytes / 4096))
            .collect()
    }

    #[test]
    fn parts_lie_side_by_side_and_run_at_once() {
        let parts = [trace(&[(0, 3), (10, 0)]), trace(&[(5, 1), (10, 0), (20, 1)])];
        assert_eq!(composed(&parts, Order::AtOnce), [(0, 3), (5, 5), (10, 0), (10, 4), (20, 5)]);
    }

    #[test]
    fn parts_run_one_after_the_other() {
        let parts = [trace(&[(0, 3), (10, 0)]), trace(&[]), trace(&[(5, 1), (7, 0)])];
        let second = 10 + PAUSE_NS;
        assert_eq!(composed(&parts, Order::InTurn), [(0, 3), (10, 0), (second + 5, 5), (second + 7, 4)]);
    }

    #[test]
    fn pieces_of_one_request_stay_together() {
        let piece = |block, continues| Request { continues, ..trace(&[(5, block)])[0] };
        let parts = [vec![piece(0, false), piece(1, true)], vec![piece(0, false), piece(1, true)]];
        assert_eq!(composed(&parts, Order::AtOnce), [(5, 0), (5, 1), (5, 2), (5, 3)]);
        let other = [trace(&[(5, 0), (5, 1)]), vec![piece(0, false), piece(1, true), piece(2, false)]];
        assert_eq!(composed(&other, Order::AtOnce), [(5, 0), (5, 1), (5, 2), (5, 3), (5, 4)]);
    }

    #[test]
    fn time_does_not_go_back_where_a_trace_does() {
        let parts = [trace(&[(0, 0), (9, 0), (4, 0)]), trace(&[(7, 0)])];
        assert_eq!(composed(&parts, Order::AtOnce), [(0, 0), (7, 1), (9, 0), (9, 0)]);
    }

    #[test]
    fn devices_lie_side_by_side_too() {
        let requests: Vec<Request> = trace(&[(0, 1), (1, 1), (2, 0)])
            .into_iter()
            .zip([7, 2, 7])
            .map(|(r, device)| r.on(device))
            .collect();
        assert_eq!(composed(&[requests], Order::AtOnce), [(0, 3), (1, 1), (2, 2)]);
    }

    #[test]
    fn what_does_not_fit_the_addresses_is_an_error() {
        let requests = trace(&[(0, 0)]);
        let part =
            (requests.clone().into_iter().map(Ok as fn(Request) -> Found), ends(&requests), ADDRESS_MAX);
        let found: Vec<Found> = Composed::new([part], Order::AtOnce).collect();
        assert!(matches!(found[..], [Err(TraceError::OutOfRange)]));
    }
}
