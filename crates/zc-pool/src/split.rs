//! From bytes to chunks.
//!
//! Job: cut a range of bytes at the borders of chunks, and runs of chunks into pieces. Pure arithmetic.

use std::ops::Range;

/// A part of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The chunk.
    pub(crate) chunk: u64,
    /// First byte in it.
    pub(crate) start_bytes: u32,
    /// How many.
    pub(crate) len_bytes: u32,
}

/// A range of bytes, cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The part of the first chunk, if not all of it; also when the range lies inside one chunk.
    pub(crate) head: Option<Edge>,
    /// Whole chunks.
    pub(crate) whole: Range<u64>,
    /// The part of the last chunk.
    pub(crate) tail: Option<Edge>,
}

impl Cut {
    /// Cuts a range, which is not empty and does not wrap.
    pub(crate) fn new(offset_bytes: u64, len_bytes: u64, shift: u8) -> Self {
        let (size, end) = (1_u64 << shift, offset_bytes + len_bytes);
        let (first, last) = (offset_bytes >> shift, end >> shift);
        let (before, behind) = (narrow(offset_bytes % size), narrow(end % size));
        if first == last && (before > 0 || behind > 0) {
            let head = Edge { chunk: first, start_bytes: before, len_bytes: behind - before };
            return Self { head: Some(head), whole: last..last, tail: None };
        }
        let head = Edge { chunk: first, start_bytes: before, len_bytes: narrow(size) - before };
        let tail = Edge { chunk: last, start_bytes: 0, len_bytes: behind };
        Self {
            head: (before > 0).then_some(head),
            whole: first + u64::from(before > 0)..last,
            tail: (behind > 0).then_some(tail),
        }
    }

    /// All chunks that it touches.
    pub(crate) fn chunks(&self) -> Range<u64> {
        let first = self.head.map_or(self.whole.start, |edge| edge.chunk);
        let last = self.tail.or_else(|| self.head.filter(|_| self.whole.is_empty()));
        let end = last.map(|edge| edge.chunk + 1);
        first..end.unwrap_or(self.whole.end)
    }
}

/// Runs of at most `max` chunks.
pub(crate) fn runs(chunks: Range<u64>, max: u32) -> impl Iterator<Item = (u64, u32)> {
    let (mut next, end) = (chunks.start, chunks.end);
    std::iter::from_fn(move || {
        let count = narrow((end.saturating_sub(next)).min(u64::from(max)));
        let run = (count > 0).then_some((next, count));
        next += u64::from(count);
        run
    })
}

/// A number below the size of a chunk or piece.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_cut_at_borders() {
        let edge = |chunk, start_bytes, len_bytes| Some(Edge { chunk, start_bytes, len_bytes });
        assert_eq!(Cut::new(4096, 8192, 12), Cut { head: None, whole: 1..3, tail: None });
        assert_eq!(Cut::new(4100, 10, 12), Cut { head: edge(1, 4, 10), whole: 1..1, tail: None });
        assert_eq!(Cut::new(4100, 4092, 12), Cut { head: edge(1, 4, 4092), whole: 2..2, tail: None });
        assert_eq!(Cut::new(0, 10, 12), Cut { head: edge(0, 0, 10), whole: 0..0, tail: None });
        assert_eq!(
            Cut::new(4100, 8192, 12),
            Cut { head: edge(1, 4, 4092), whole: 2..3, tail: edge(3, 0, 4) }
        );
        assert_eq!(runs(3..8, 2).collect::<Vec<_>>(), [(3, 2), (5, 2), (7, 1)]);
    }

    proptest! {
        #[test]
        fn a_cut_covers_each_byte_once(offset in 0_u64..100_000, len in 1_u64..100_000, shift in 12_u8..18) {
            let cut = Cut::new(offset, len, shift);
            let mut at = offset;
            if let Some(head) = cut.head {
                prop_assert_eq!((head.chunk << shift) + u64::from(head.start_bytes), at);
                at += u64::from(head.len_bytes);
            }
            if !cut.whole.is_empty() {
                prop_assert_eq!(cut.whole.start << shift, at);
                at = cut.whole.end << shift;
            }
            if let Some(tail) = cut.tail {
                prop_assert_eq!(tail.chunk << shift, at);
                at += u64::from(tail.len_bytes);
            }
            prop_assert_eq!(at, offset + len);
            let chunks = cut.chunks();
            prop_assert_eq!((chunks.start, chunks.end), (offset >> shift, (offset + len).div_ceil(1 << shift)));
        }
    }
}
