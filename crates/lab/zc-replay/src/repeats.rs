//! A trace without hits in a cache of any size.
//!
//! Job: drop the requests for an extent of an earlier request, for comparisons of a cache without hits and no cache: a
//! merely small cache has hits between neighbouring requests, and on the last half-read extent.

use zc_core::Set;
use zc_trace::Op;

use crate::content::BLOCK_BYTES;
use crate::load::{Step, Trace, block_key};

impl Trace {
    /// Drops requests for known extents of this size, 4 KiB at least. The extents of a dropped write count as known,
    /// as later reads would see other contents.
    #[must_use]
    pub fn without_repeats(mut self, extent_bytes: u32) -> Self {
        let extent_blocks = u64::from((extent_bytes / BLOCK_BYTES).max(1));
        let mut seen = Set::default();
        self.steps.retain(|step| {
            let new = extents(step, extent_blocks).all(|extent| !seen.contains(&extent));
            if new || step.op != Op::Read {
                seen.extend(extents(step, extent_blocks));
            }
            new
        });
        self
    }
}

fn extents(step: &Step, extent_blocks: u64) -> impl Iterator<Item = u64> + use<> {
    let first = block_key(step.volume, step.first_block);
    let end = (first + u64::from(step.blocks)).div_ceil(extent_blocks);
    first / extent_blocks..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Ratios;
    use zc_trace::Request;

    #[test]
    fn an_extent_is_named_once_and_what_was_left_unwritten_never_read() {
        let request = |op, block: u64, blocks: u32| Ok(Request::new(0, op, block * 4096, blocks * 4096));
        let all = [
            request(Op::Read, 0, 3),
            request(Op::Read, 3, 4),
            request(Op::Read, 4, 2),
            request(Op::Write, 1, 8),
            request(Op::Read, 8, 1),
            request(Op::Write, 10, 2),
            Ok(Request::new(0, Op::Read, 0, 4096).on(1)),
        ];
        let trace = Trace::load(all.into_iter(), Ratios::default()).unwrap().without_repeats(8192);
        let seen: Vec<_> = trace.steps.iter().map(|s| (s.op, s.volume, s.first_block, s.blocks)).collect();
        let expected = [(Op::Read, 0, 0, 3), (Op::Read, 0, 4, 2), (Op::Write, 0, 10, 2), (Op::Read, 1, 0, 1)];
        assert_eq!(seen, expected);
        assert_eq!(trace.written.len(), 10, "contents stay where the writes expect them");
    }
}
