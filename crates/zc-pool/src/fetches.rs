//! Fetches: stored bytes come from the device or from memory, then to a job that checks them.
//!
//! Job: read what lies close together at once, and cut it apart. Invariants: a fetch ends once, when all its reads and
//! its job have. What it does not do: check bytes (the job does).

use bytes::Bytes;
use zc_core::{BufId, ErrorKind, Map, OpId, usize_from_u32};
use zc_store::limits::BLOCK_BYTES;
use zc_store::seam::{FetchPart, FetchTo};
use zc_store::{Event, Superblock};

use crate::job::{Fetched, Job, Kind};
use crate::limits::{GAP_BYTES_MAX, READ_BYTES_MAX};
use crate::pool::{InFlight, Pool};
use crate::seam::{DeviceOperation, Work};

/// A fetch in progress; named by the store's operation.
#[derive(Debug)]
pub(crate) struct Fetch {
    parts: Vec<Fetched>,
    reads_left: usize,
    to: FetchTo,
    urgent: bool,
}

/// Fetches by the store's operations.
pub(crate) type Fetches = Map<OpId, Fetch>;

/// One read of the device, and the parts of the fetch that it brings: index and offset in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    offset_bytes: u64,
    len_bytes: u32,
    parts: Vec<(usize, u32)>,
}

impl Span {
    /// A read for each of its parts, whose lengths are told by index.
    fn each(self, stored_bytes: impl Fn(usize) -> u32) -> impl Iterator<Item = Self> {
        let from = self.offset_bytes;
        let place = move |(index, start): (usize, u32)| (index, from + u64::from(start), stored_bytes(index));
        self.parts.into_iter().map(place).flat_map(|place| spans(vec![place]))
    }
}

impl Pool {
    pub(crate) fn fetch(&mut self, op: OpId, parts: &[FetchPart], to: FetchTo, urgent: bool) {
        let segment_bytes = self.segment_bytes();
        let device = |part: &FetchPart| part.memory.is_none();
        let places = parts.iter().enumerate().filter(|(_, part)| device(part)).map(|(index, part)| {
            (index, Superblock::device_offset(part.stored.place, segment_bytes), part.stored.stored_bytes)
        });
        let spans = spans(places.collect());
        let fetched = parts.iter().map(|part| Fetched {
            stored: part.stored,
            bytes: part.memory.map_or(Err(ErrorKind::Io), |slice| Ok(self.slice(slice))),
            dest_offset_bytes: part.dest_offset_bytes,
        });
        let fetch = Fetch { parts: fetched.collect(), reads_left: spans.len(), to, urgent };
        self.fetches.insert(op, fetch);
        spans.into_iter().for_each(|span| self.read_span(op, span));
        self.check_fetched(op);
    }

    pub(crate) fn span_read(&mut self, op: OpId, span: Span, result: &Result<Bytes, ErrorKind>) {
        let Some(fetch) = self.fetches.get_mut(&op) else { return };
        fetch.reads_left -= 1;
        if result.is_err() && span.parts.len() > 1 {
            // A place that cannot be read takes no neighbour along: each part is read by itself.
            let alone: Vec<Span> = span.each(|index| fetch.parts[index].stored.stored_bytes).collect();
            fetch.reads_left += alone.len();
            alone.into_iter().for_each(|span| self.read_span(op, span));
            return;
        }
        for (index, start) in &span.parts {
            let part = &mut fetch.parts[*index];
            let start = usize_from_u32(*start);
            let end = start + usize_from_u32(part.stored.stored_bytes);
            part.bytes = match result {
                Ok(bytes) if bytes.len() >= end => Ok(bytes.slice(start..end)),
                Ok(_) => Err(ErrorKind::Io),
                Err(kind) => Err(*kind),
            };
        }
        self.check_fetched(op);
    }

    fn read_span(&mut self, fetch: OpId, span: Span) {
        let (offset_bytes, len_bytes) = (span.offset_bytes, span.len_bytes);
        let read = self.begin(InFlight::Fetch { fetch, span });
        let operation = DeviceOperation::Read { offset_bytes, len_bytes };
        self.out.push(Work::Device { op: read, operation });
    }

    /// All bytes are there: they are checked.
    fn check_fetched(&mut self, op: OpId) {
        let Some(fetch) = self.fetches.get_mut(&op).filter(|fetch| fetch.reads_left == 0) else { return };
        let (parts, urgent) = (core::mem::take(&mut fetch.parts), fetch.urgent);
        let dest_bytes = match fetch.to {
            FetchTo::Decoded(dest) => Some(self.dest_bytes(dest)),
            FetchTo::Stored(_) | FetchTo::Nowhere => None,
        };
        let job = Job(Kind::Decode { parts, dest_bytes });
        let decode = self.begin(InFlight::Decode { fetch: op });
        self.out.push(Work::Job { op: decode, job, urgent });
    }

    pub(crate) fn decoded(&mut self, op: OpId, parts: Vec<Fetched>, dest: Option<Bytes>) {
        let Some(fetch) = self.fetches.remove(&op) else { return };
        if let (FetchTo::Decoded(buf), Some(bytes)) = (fetch.to, dest) {
            self.dest_filled(buf, bytes);
        }
        let mut results = Vec::with_capacity(parts.len());
        for (number, part) in (0..).zip(parts) {
            results.push(part.bytes.as_ref().map(|_| ()).map_err(|kind| *kind));
            if let FetchTo::Stored(first) = fetch.to {
                // A part that failed has a buffer too: the store lets go of all of them.
                self.bufs.insert(BufId(first.0 + number), part.bytes.unwrap_or_default());
            }
        }
        self.events.push_back(Event::Fetched { op, results });
    }
}

/// Which reads bring these parts: number, offset on the device, length.
fn spans(mut places: Vec<(usize, u64, u32)>) -> Vec<Span> {
    let block = u64::from(BLOCK_BYTES);
    places.sort_unstable_by_key(|(_, offset, _)| *offset);
    let mut spans: Vec<Span> = Vec::new();
    for (index, offset, len) in places {
        let start = offset - offset % block;
        let end = (offset + u64::from(len)).next_multiple_of(block);
        let near = spans.last_mut().filter(|span| {
            let span_end = span.offset_bytes + u64::from(span.len_bytes);
            start <= span_end + u64::from(GAP_BYTES_MAX)
                && end.saturating_sub(span.offset_bytes) <= u64::from(READ_BYTES_MAX)
        });
        if let Some(span) = near {
            span.parts.push((index, narrow(offset - span.offset_bytes)));
            span.len_bytes = span.len_bytes.max(narrow(end - span.offset_bytes));
        } else {
            let parts = vec![(index, narrow(offset - start))];
            spans.push(Span { offset_bytes: start, len_bytes: narrow(end - start), parts });
        }
    }
    spans
}

/// A length within one read.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_at_once() {
        let read = spans(vec![(2, 100_000, 3000), (0, 8192, 3000), (1, 11_192, 9000)]);
        let first = Span { offset_bytes: 8192, len_bytes: 12_288, parts: vec![(0, 0), (1, 3000)] };
        let second = Span { offset_bytes: 98_304, len_bytes: 8192, parts: vec![(2, 1696)] };
        assert_eq!(read, [first, second]);
    }

    #[test]
    fn a_read_has_a_bound() {
        let places = (0..100).map(|at| (at, 4096 * zc_core::u64_from_usize(at) * 8, 32_768)).collect();
        let read = spans(places);
        assert_eq!(
            read.iter().map(|span| span.len_bytes).collect::<Vec<_>>(),
            [1 << 20, 1 << 20, 1 << 20, 4 << 15]
        );
        assert_eq!(read.iter().map(|span| span.parts.len()).sum::<usize>(), 100);
    }
}
