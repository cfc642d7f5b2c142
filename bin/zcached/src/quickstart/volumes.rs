//! Contents of the two volumes: `a` is the source image, its clone `b` the same with some blocks replaced.
//!
//! Invariant: contents depend on source, volume and offset alone, so they can be computed again to compare.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use zc_core::{u64_from_usize, usize_from_u64};

/// Unit in which `b` differs.
pub(crate) const BLOCK_BYTES: u64 = 8 << 10;
/// Blocks of `b` that are replaced, in per mille.
const REPLACED_PERMILLE: u64 = 30;

/// A volume, and the source of its contents.
#[derive(Debug)]
pub(crate) struct Volume {
    name: &'static str,
    source: File,
    len_bytes: u64,
    replaced: bool,
}

impl Volume {
    pub(crate) fn open(name: &'static str, source: &Path, len_bytes: u64) -> anyhow::Result<Self> {
        let file = File::open(source).with_context(|| format!("cannot read {}", source.display()))?;
        Ok(Self { name, source: file, len_bytes, replaced: name == "b" })
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Offsets of the blocks in which `b` differs.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.len_bytes / BLOCK_BYTES).filter(|block| is_replaced(*block)).map(|block| block * BLOCK_BYTES)
    }

    pub(crate) fn changed_bytes(&self) -> u64 {
        u64_from_usize(self.replaced().count()) * BLOCK_BYTES
    }

    /// Fills `buffer` with the expected contents at `offset`, a multiple of the block size.
    pub(crate) fn contents(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.source.read_exact_at(buffer, offset)?;
        if self.replaced {
            for (i, block) in buffer.chunks_mut(usize_from_u64(BLOCK_BYTES)).enumerate() {
                let number = offset / BLOCK_BYTES + u64_from_usize(i);
                if is_replaced(number) {
                    fill(number, block);
                }
            }
        }
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): a good number for every number.
pub(super) const fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const fn is_replaced(block: u64) -> bool {
    mix(block) % 1000 < REPLACED_PERMILLE
}

fn fill(block: u64, bytes: &mut [u8]) {
    for (i, word) in bytes.chunks_mut(8).enumerate() {
        let number = mix(mix(block).wrapping_add(u64_from_usize(i)));
        word.copy_from_slice(&number.to_le_bytes()[..word.len()]);
    }
}

/// Share of the blocks that differ, from 0 to 1.
pub(crate) fn differing_share(image_bytes: u64) -> f64 {
    let blocks = image_bytes / BLOCK_BYTES;
    let replaced = (0..blocks).filter(|&block| is_replaced(block)).count();
    u64_from_usize(replaced) as f64 / blocks.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_differ_in_three_per_cent_and_are_the_same_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("source");
        let len = 8 << 20;
        std::fs::write(&path, vec![7; usize_from_u64(len)]).unwrap();
        let read = |name, offset: u64, bytes: usize| {
            let mut buffer = vec![0; bytes];
            Volume::open(name, &path, len).unwrap().contents(offset, &mut buffer).unwrap();
            buffer
        };
        let (a, b) = (read("a", 0, usize_from_u64(len)), read("b", 0, usize_from_u64(len)));
        let block = usize_from_u64(BLOCK_BYTES);
        let differing = a.chunks(block).zip(b.chunks(block)).filter(|(a, b)| a != b).count();
        let share = differing as f64 / 1024.0;
        assert!((0.02..0.04).contains(&share) && (share - differing_share(len)).abs() < 1e-9, "{share}");
        assert_eq!(read("b", 3 << 20, 1 << 20), b[3 << 20..4 << 20], "whatever the request");
    }
}
