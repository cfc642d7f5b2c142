//! Spans: which reads of the device bring the parts of a fetch.
//!
//! Job: read what lies close together at once. Pure arithmetic. Invariant: a read has at most [`READ_BYTES_MAX`] bytes
//! unless it brings one part. What it does not do: read.

use zc_store::limits::BLOCK_BYTES;

use crate::limits::{GAP_BYTES_MAX, READ_BYTES_MAX};

/// One read of the device, and the parts of the fetch that it brings: index and offset in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u32,
    pub(crate) parts: Vec<(usize, u32)>,
}

impl Span {
    /// A read for each of its parts, whose lengths are told by index.
    pub(crate) fn each(self, stored_bytes: impl Fn(usize) -> u32) -> impl Iterator<Item = Self> {
        let from = self.offset_bytes;
        let place = move |(index, start): (usize, u32)| (index, from + u64::from(start), stored_bytes(index));
        self.parts.into_iter().map(place).flat_map(|place| spans(vec![place]))
    }
}

/// Which reads bring these parts: number, offset on the device, length.
pub(crate) fn spans(mut places: Vec<(usize, u64, u32)>) -> Vec<Span> {
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
