//! Pieces of the export's content, by which it is recognised after a reconnect.
//!
//! Invariants: at most [`SAMPLES_MAX`] pieces of at most [`SAMPLE_BYTES_MAX`] bytes. A piece holds the content of
//! the export when it was read or written; changes of its range remove it.

use zc_core::{u64_from_usize, usize_from_u64};

use crate::limits::{SAMPLE_BYTES_MAX, SAMPLES_MAX};
use crate::pause::Dice;

/// Pieces that are drawn as if the stream of accesses had this length at most, so that new content replaces old.
const STREAM_MAX: u64 = 4096;

/// One piece, complete or being filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    /// Bytes that have arrived.
    filled: u64,
}

impl Sample {
    /// An empty piece, to be filled by read data.
    pub(crate) fn empty(offset: u64, len_bytes: u64) -> Self {
        Self { offset, bytes: vec![0; usize_from_u64(len_bytes)], filled: 0 }
    }

    /// A piece with content.
    pub(crate) fn full(offset: u64, bytes: &[u8]) -> Self {
        Self { offset, bytes: bytes.to_vec(), filled: u64_from_usize(bytes.len()) }
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset + u64_from_usize(self.bytes.len())
    }

    /// Copies the overlap of read data with the range. `data` is `None` for zeros.
    pub(crate) fn fill(&mut self, offset: u64, len_bytes: u64, data: Option<&[u8]>) {
        let (from, to) = (offset.max(self.offset), (offset + len_bytes).min(self.end()));
        if from >= to {
            return;
        }
        let own = usize_from_u64(from - self.offset)..usize_from_u64(to - self.offset);
        match data {
            Some(data) => {
                let theirs = usize_from_u64(from - offset)..usize_from_u64(to - offset);
                self.bytes[own].copy_from_slice(&data[theirs]);
            }
            None => self.bytes[own].fill(0),
        }
        self.filled += to - from;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled == u64_from_usize(self.bytes.len())
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    kept: Vec<Sample>,
    seen: u64,
}

impl Samples {
    /// Draws a sample from an access to `start..end`. Returns its range, `None` if there is to be none.
    pub(crate) fn draw(&mut self, start: u64, end: u64, dice: &mut Dice) -> Option<(u64, u64)> {
        self.seen = (self.seen + 1).min(STREAM_MAX);
        let is_drawn = self.kept.len() < SAMPLES_MAX || dice.below(self.seen) < u64_from_usize(SAMPLES_MAX);
        let pieces = (end - start).div_ceil(SAMPLE_BYTES_MAX);
        if !is_drawn || pieces == 0 {
            return None;
        }
        let from = start + dice.below(pieces) * SAMPLE_BYTES_MAX;
        Some((from, (from + SAMPLE_BYTES_MAX).min(end)))
    }

    /// Keeps a piece. Replaces another one if [`SAMPLES_MAX`] are kept.
    pub(crate) fn keep(&mut self, sample: Sample, dice: &mut Dice) {
        self.forget(sample.offset, sample.end());
        if self.kept.len() < SAMPLES_MAX {
            self.kept.push(sample);
            return;
        }
        let at = usize_from_u64(dice.below(u64_from_usize(SAMPLES_MAX)));
        self.kept[at] = sample;
    }

    /// Removes the samples that overlap a changed range.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        self.kept.retain(|kept| kept.end() <= start || kept.offset >= end);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.kept.iter()
    }

    /// Returns `true` if a kept piece has a byte within the range that is not zero.
    pub(crate) fn contradict_zeros(&self, start: u64, end: u64) -> bool {
        self.kept.iter().any(|kept| {
            let (from, to) = (start.max(kept.offset), end.min(kept.end()));
            let overlap = from.saturating_sub(kept.offset)..to.max(from).saturating_sub(kept.offset);
            let overlap = usize_from_u64(overlap.start)..usize_from_u64(overlap.end);
            kept.bytes.get(overlap).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
        })
    }

    /// Returns `true` unless a kept piece that begins at the same place has other content.
    pub(crate) fn agree(&self, read: &Sample) -> bool {
        let same = self.kept.iter().find(|kept| kept.offset == read.offset);
        same.is_none_or(|kept| kept.bytes.starts_with(&read.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_bounded_and_forget_what_changes() {
        let (mut samples, mut dice) = (Samples::default(), Dice::new(3));
        for piece in 0..10_000_u64 {
            let start = piece * 8192;
            if let Some((from, to)) = samples.draw(start, start + 8192, &mut dice) {
                assert!(from >= start && to <= start + 8192 && to - from == 4096);
                samples.keep(Sample::full(from, &vec![1; 4096]), &mut dice);
            }
        }
        assert_eq!(samples.kept.len(), SAMPLES_MAX);
        assert!(samples.iter().any(|kept| kept.offset > 8192 * 5000), "new content takes part");
        samples.forget(0, u64::MAX);
        assert_eq!(samples.kept.len(), 0);
    }

    #[test]
    fn pieces_are_filled_by_what_arrives_of_them() {
        let mut sample = Sample::empty(10, 4);
        sample.fill(0, 12, Some(&[9; 12]));
        assert!(!sample.is_full());
        sample.fill(12, 100, None);
        assert!(sample.is_full());
        assert_eq!(sample.bytes, [9, 9, 0, 0]);
        let mut samples = Samples::default();
        samples.keep(Sample::full(10, &[9, 9, 0, 0]), &mut Dice::new(1));
        assert!(samples.agree(&sample));
        sample.bytes[3] = 1;
        assert!(!samples.agree(&sample));
        sample.offset = 20;
        assert!(samples.agree(&sample), "nothing is known of that place");
    }
}
