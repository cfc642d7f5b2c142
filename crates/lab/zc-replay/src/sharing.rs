//! Ratio of duplicates that a cache of a size can find among its insertions.

use zc_core::u64_from_usize;
use zc_policy::Kind;
use zc_trace::Op;

use crate::load::{Trace, block_key};

/// Inserted blocks of 4 KiB of an LRU cache of `contents` contents, over those with new contents. Blocks are inserted
/// when they are written, and when they are read and their content is absent.
///
/// # Panics
/// If the capacity is 0 or above [`zc_policy::CAPACITY_MAX`].
#[must_use]
pub fn duplicates(trace: &Trace, contents: usize) -> f64 {
    let mut policy = Kind::Lru.build(contents, Vec::new);
    let mut held: zc_core::Map<u64, crate::content::ContentId> = zc_core::Map::default();
    let (mut entered, mut new) = (0_u64, 0_u64);
    for step in &trace.steps {
        for block in 0..step.blocks {
            let key = block_key(step.volume, step.first_block + u64::from(block));
            let id = match step.op {
                Op::Write => {
                    let at = zc_core::usize_from_u32(step.contents_at + block);
                    let id = trace.written[at];
                    held.insert(key, id);
                    id
                }
                Op::Read => match held.get(&key).or_else(|| trace.initial.get(&key)) {
                    Some(id) => *id,
                    None => continue,
                },
                _ => continue,
            };
            let hit = policy.access(id.key());
            entered += u64::from(step.op == Op::Write || !hit);
            new += u64::from(!hit);
        }
    }
    debug_assert!(u64_from_usize(policy.len()) <= new);
    if new == 0 { 1.0 } else { entered as f64 / new as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ratios;
    use zc_trace::{Options, Reader};

    #[test]
    fn only_what_is_still_held_is_a_duplicate() {
        let text = "1 0 8 W 00000000000000a1 9 9\n2 8 8 W 00000000000000a2 9 9\n3 16 8 W 00000000000000a1 9 9\n\
                    4 0 8 R 00000000000000a1 9 9\n5 8 8 R 00000000000000a2 9 9\n";
        let reader = Reader::from_vec(text.as_bytes().to_vec(), Options::default()).unwrap();
        let trace = Trace::load(reader, Ratios::default()).unwrap();
        assert_eq!(duplicates(&trace, 2), 1.5, "reads that hit do not enter");
        assert_eq!(duplicates(&trace, 1), 1.0, "the last read does not hit");
    }
}
