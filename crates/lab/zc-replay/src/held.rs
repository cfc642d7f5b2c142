//! Contents of a trace's blocks during the run, and of its extents.
//!
//! Invariants: the contents of a block are those of the last write, zeros after a discard, and initially those of the
//! trace; unknown contents are unique.

use std::collections::VecDeque;

use zc_cache::seam::Digest;
use zc_core::{Codec, Map, usize_from_u32, usize_from_u64};
use zc_flash::nitro::Access;
use zc_trace::Op;

use crate::content::{BLOCK_BYTES, ContentId};
use crate::load::{Step, Trace, block_key};

/// Present contents of blocks.
pub(crate) struct Held<'a> {
    trace: &'a Trace,
    /// Blocks whose contents differ from the initial ones.
    changed: Map<u64, ContentId>,
    next_unique: u32,
}

impl<'a> Held<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        Self { trace, changed: Map::default(), next_unique: trace.next_unique }
    }

    /// Applies a request to the blocks.
    pub(crate) fn take(&mut self, step: &Step) {
        for block in 0..u64::from(step.blocks) {
            let now = match step.op {
                Op::Write => self.trace.written[usize_from_u32(step.contents_at) + usize_from_u64(block)],
                Op::Discard => ContentId::ZERO,
                _ => break,
            };
            self.changed.insert(block_key(step.volume, step.first_block + block), now);
        }
    }

    fn content(&mut self, key: u64) -> ContentId {
        if let Some(id) = self.changed.get(&key).or_else(|| self.trace.initial.get(&key)) {
            return *id;
        }
        let id = ContentId::unique(self.next_unique);
        self.next_unique = self.next_unique.wrapping_add(1);
        self.changed.insert(key, id);
        id
    }

    fn contents(&mut self, start: u64, blocks: u64) -> Vec<ContentId> {
        (start..start + blocks).map(|key| self.content(key)).collect()
    }

    /// Returns the fingerprint of `blocks` blocks as one extent; 0 for zeros.
    pub(crate) fn print(&mut self, start: u64, blocks: u64) -> u64 {
        let ids = self.contents(start, blocks);
        print(self.trace, &ids)
    }
}

fn print(trace: &Trace, ids: &[ContentId]) -> u64 {
    match trace.contents.digest(ids) {
        Digest::Zero => 0,
        Digest::Print(print) => {
            let [a, b, c, d, e, f, g, h, ..] = print.0;
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
        }
    }
}

impl Trace {
    /// Returns the extents that the trace reads and writes, each with its whole contents at that time (the second pass
    /// of Nitro's simulator, section 5.2: writes update the fingerprints of blocks and of the extents around them).
    /// Consecutive writes of one extent count as one, since traces in units of 4 KiB split requests there.
    ///
    /// # Panics
    /// If the size of an extent is not a power of two or is below 4096.
    pub fn accesses(&self, extent_bytes: u32) -> impl Iterator<Item = Access> + '_ {
        assert!(extent_bytes.is_power_of_two() && extent_bytes >= BLOCK_BYTES);
        let blocks = u64::from(extent_bytes / BLOCK_BYTES);
        let mut held = Held::new(self);
        let mut steps = self.steps.iter();
        let mut ready: VecDeque<Access> = VecDeque::new();
        let mut last: Option<Access> = None;
        std::iter::from_fn(move || {
            loop {
                while let Some(access) = ready.pop_front() {
                    let goes_on = |last: &Access| last.write && access.write && last.key == access.key;
                    if let Some(done) = last.replace(access).filter(|last| !goes_on(last)) {
                        return Some(done);
                    }
                }
                let Some(step) = steps.next() else { return last.take() };
                held.take(step);
                if matches!(step.op, Op::Read | Op::Write) {
                    ready.extend(held.extents(step, blocks));
                }
            }
        })
    }
}

impl Held<'_> {
    /// The extents of a read or a write.
    fn extents(&mut self, step: &Step, blocks: u64) -> Vec<Access> {
        let (first, end) =
            (step.first_block / blocks, (step.first_block + u64::from(step.blocks)).div_ceil(blocks));
        let one = |extent: u64| {
            let key = block_key(step.volume, extent * blocks);
            let ids = self.contents(key, blocks);
            Access {
                key,
                write: step.op == Op::Write,
                content: print(self.trace, &ids),
                compressed_bytes: self.trace.contents.compressed_bytes(&ids, Codec::Lz4),
            }
        };
        (first..end).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ratios;
    use zc_trace::{Options, Reader};

    fn trace(text: &str) -> Trace {
        let reader = Reader::from_vec(text.as_bytes().to_vec(), Options::default()).unwrap();
        Trace::load(reader, Ratios::default()).unwrap()
    }

    #[test]
    fn extents_hold_what_their_blocks_do() {
        let trace = trace(
            "1 0 8 W 00000000000000a1 1000 9\n2 8 8 W 00000000000000a2 1000 9\n3 16 8 W 00000000000000a1 1000 9\n\
             4 8 8 R 00000000000000a2 1000 9\n5 24 8 W 00000000000000a2 1000 9\n6 16 8 R 00000000000000a1 1000 9\n\
             7 0 8 W 00000000000000a3 1000 9\n",
        );
        let seen: Vec<Access> = trace.accesses(8192).collect();
        let keys: Vec<_> = seen.iter().map(|access| (access.key, access.write)).collect();
        let expected = [(0, true), (2, true), (0, false), (2, true), (2, false), (0, true)];
        assert_eq!(keys, expected, "two halves written one after the other are one write");
        let content = |number: usize| seen[number].content;
        assert_eq!(content(0), content(2), "read as it was written");
        assert_eq!(content(0), content(3), "equal once both halves are");
        assert_ne!(content(1), content(3), "half of it was something else before");
        assert_ne!(content(5), content(0));
        assert_eq!(seen[0].compressed_bytes, 1910, "joined blocks compress better than the sum of 2000");
        assert_eq!(trace.accesses(4096).count(), 7);
    }

    #[test]
    fn what_was_discarded_is_zeros() {
        let request = |time_ns, op, len| Ok(zc_trace::Request::new(time_ns, op, 0, len));
        let all = [request(0, Op::Write, 8192), request(1, Op::Discard, 8192), request(2, Op::Read, 4096)];
        let trace = Trace::load(all.into_iter(), Ratios::default()).unwrap();
        let seen: Vec<_> = trace.accesses(8192).map(|access| (access.write, access.content == 0)).collect();
        assert_eq!(seen, [(true, false), (false, true)]);
    }
}
