//! Contents of blocks without their bytes: identities, fingerprints of whole extents, and compressed sizes.
//!
//! A content is that of one block of 4 KiB. Traces with fingerprints name it; in others each write has a new one.
//!
//! # Sizes
//! Traces contain the size of a block after LZ4 and Zstandard at level 1. Without it, a ratio is drawn from a normal
//! distribution (Nitro 5.2: mean 2, variance 0.25) and is at least 1; equal contents have equal sizes. That is the
//! ratio of LZ4; Zstandard's sizes are 21 % smaller. Sizes of zlib are in no trace; they are assumed to be
//! Zstandard's.
//!
//! An extent of several blocks compresses better than its blocks. The factors come from root file systems of Debian 12
//! and 13, compressed as 4, 8, 16, 32 and 128 KiB: together they store 1.785, 1.851, 1.913, 1.934 and 1.982 times less
//! under LZ4 and 2.261, 2.362, 2.439, 2.426 and 2.459 under Zstandard; 64 KiB is interpolated. Incompressible blocks,
//! about one in eight there, gain nothing from being joined.
//!
//! Error of the model on other data: 400 files of a Debian system (programs, libraries, documents of 64 KiB to 20 MB,
//! the first MiB of each) compressed both ways. The sum over all extents is 1.1, 1.6, 3.4, 4.5 and 3.4 % too large at
//! 8 to 128 KiB under LZ4 (0.8, 1.5, 3.4, 4.4, 4.0 % under Zstandard), where the plain sum of their blocks is 5 to 16
//! % too large. Of single extents half are within 3 to 8 %, and nine in ten within 14 % at 8 KiB, 38 % at 32 and 55 %
//! at 128 KiB.

use std::hash::Hasher;

use zc_cache::seam::Digest;
use zc_core::{Codec, Fingerprint, Map, u64_from_usize, usize_from_u32};
use zc_trace::{Content, joined};

/// Unit of contents.
pub(crate) const BLOCK_BYTES: u32 = 4096;
/// The first half of the MD5 of a block of zeros, and all of it.
const ZEROES: [u128; 2] = [0x620f_0b67_a91f_7f74, 0x620f_0b67_a91f_7f74_151b_c5be_745b_7110];
/// Contents that no trace names have this bit.
const UNIQUE_BIT: u32 = 1 << 31;
/// Contents that a trace may name, and as many that it does not.
pub(crate) const CONTENTS_MAX: u32 = UNIQUE_BIT - 1;

/// Content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContentId(u32);

impl ContentId {
    /// Zeros.
    pub(crate) const ZERO: Self = Self(0);

    /// Its number, as a key.
    pub(crate) const fn key(self) -> u64 {
        self.0 as u64
    }

    /// The content of this number that no trace names.
    pub(crate) const fn unique(number: u32) -> Self {
        Self(number | UNIQUE_BIT)
    }
}

/// Compression ratios of contents without sizes in the trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratios {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl Default for Ratios {
    /// Nitro 5.2.
    fn default() -> Self {
        Self { mean: 2.0, deviation: 0.5 }
    }
}

/// Sizes of a block after compression.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    lz4: u16,
    zstd: u16,
    sized_by: SizedBy,
}

/// Codecs with a known size of a content; for the others, that size is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizedBy {
    Both,
    Lz4,
    Zstd,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    print: u128,
    sizes: Option<Sizes>,
}

/// All contents that a trace names.
#[derive(Debug)]
pub(crate) struct Contents {
    known: Vec<Known>,
    by_print: Map<u128, ContentId>,
    ratios: Ratios,
}

const fn mixed(mut state: u64) -> u64 {
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

const fn halves(value: u128) -> (u64, u64) {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are wanted")]
    let halves = (value as u64, (value >> 64) as u64);
    halves
}

fn stored(size: u32) -> u16 {
    u16::try_from(size.clamp(1, BLOCK_BYTES)).unwrap_or(4096)
}

impl Contents {
    pub(crate) fn new(ratios: Ratios) -> Self {
        let zero = Known { print: 0, sizes: Some(Sizes { lz4: 26, zstd: 19, sized_by: SizedBy::Both }) };
        Self { known: vec![zero], by_print: Map::default(), ratios }
    }

    /// A number of which every bit depends on all of the key's.
    pub(crate) const fn hash(key: u64) -> u64 {
        mixed(key)
    }

    /// The content of a request's block of this number; `None` when there are too many.
    pub(crate) fn intern(&mut self, content: &Content, block: u32) -> Option<ContentId> {
        if ZEROES.contains(&content.fingerprint) {
            return Some(ContentId::ZERO);
        }
        // A fingerprint of several blocks: they differ, and come back with it.
        let (low, high) = halves(content.fingerprint);
        let print = match block {
            0 => content.fingerprint,
            _ => u128::from(mixed(low ^ u64::from(block))) << 64 | u128::from(mixed(high ^ low)),
        };
        let sizes = |lz4, zstd, sized_by| Some(Sizes { lz4: stored(lz4), zstd: stored(zstd), sized_by });
        let sizes = match (content.lz4_bytes, content.zstd1_bytes) {
            (Some(lz4), Some(zstd)) => sizes(lz4, zstd, SizedBy::Both),
            (Some(lz4), None) => sizes(lz4, lz4, SizedBy::Lz4),
            (None, Some(zstd)) => sizes(zstd, zstd, SizedBy::Zstd),
            (None, None) => None,
        };
        if let Some(id) = self.by_print.get(&print) {
            // Recordings may contain the size of a content later than its fingerprint.
            if let Some(known) = self.known.get_mut(usize_from_u32(id.0)) {
                known.sizes = known.sizes.or(sizes);
            }
            return Some(*id);
        }
        let id = u32::try_from(self.known.len()).ok().filter(|id| *id < CONTENTS_MAX).map(ContentId)?;
        self.known.push(Known { print, sizes });
        self.by_print.insert(print, id);
        Some(id)
    }

    fn get(&self, id: ContentId) -> Known {
        match self.known.get(usize_from_u32(id.0)) {
            Some(known) if id.0 & UNIQUE_BIT == 0 => *known,
            _ => Known { print: u128::from(mixed(u64::from(id.0))) << 64 | u128::from(id.0), sizes: None },
        }
    }

    /// The fingerprint of a content, and its bytes under LZ4.
    pub(crate) fn made_of(&self, id: ContentId) -> (u128, u32) {
        (self.get(id).print, u32::from(self.sizes(id).lz4))
    }

    /// Contents with a known size under another codec only.
    pub(crate) fn told_by_others(&self, codec: Codec) -> u64 {
        let other = match codec {
            Codec::Raw => return 0,
            Codec::Lz4 => SizedBy::Zstd,
            Codec::Zlib(_) | Codec::Zstd(_) => SizedBy::Lz4,
        };
        let concerned = |known: &&Known| known.sizes.is_some_and(|sizes| sizes.sized_by == other);
        u64_from_usize(self.known.iter().filter(concerned).count())
    }

    /// Returns the digest of these blocks as one extent.
    pub(crate) fn digest(&self, ids: &[ContentId]) -> Digest {
        if ids.iter().all(|id| *id == ContentId::ZERO) {
            return Digest::Zero;
        }
        let (mut first, mut second) = (0, 0x6a09_e667_f3bc_c908);
        for id in ids {
            let (low, high) = halves(self.get(*id).print);
            first = mixed(first ^ low).wrapping_add(high);
            second = mixed(second ^ high.rotate_left(17)).wrapping_add(low);
        }
        let words = [mixed(first), mixed(second), mixed(first ^ second), mixed(first.wrapping_sub(second))];
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Digest::Print(Fingerprint(bytes))
    }

    fn sizes(&self, id: ContentId) -> Sizes {
        let known = self.get(id);
        known.sizes.unwrap_or_else(|| {
            let (low, high) = halves(known.print);
            let uniform = |bits: u64| (mixed(bits ^ 0x5151) >> 11) as f64 / (1_u64 << 53) as f64;
            // Box and Muller 1958.
            let (radius, angle) = (1.0 - uniform(low), uniform(high ^ low.rotate_left(9)));
            let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
            let ratio = (self.ratios.mean + self.ratios.deviation * normal).max(1.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 4096")]
            let size = stored((f64::from(BLOCK_BYTES) / ratio) as u32);
            // Between the two as on root file systems of Debian 12 and 13.
            let zstd = if u32::from(size) < BLOCK_BYTES { stored(u32::from(size) * 79 / 100) } else { size };
            Sizes { lz4: size, zstd, sized_by: SizedBy::Both }
        })
    }

    /// Bytes of these blocks compressed as one extent.
    pub(crate) fn compressed_bytes(&self, ids: &[ContentId], codec: Codec) -> u32 {
        let (mut raw, mut small) = (0_u64, 0_u64);
        for id in ids {
            let sizes = self.sizes(*id);
            let size = match codec {
                Codec::Raw => BLOCK_BYTES,
                Codec::Lz4 => u32::from(sizes.lz4),
                Codec::Zlib(_) | Codec::Zstd(_) => u32::from(sizes.zstd),
            };
            let sum = if size >= BLOCK_BYTES { &mut raw } else { &mut small };
            *sum += u64::from(size);
        }
        let table = if matches!(codec, Codec::Lz4) { joined::LZ4 } else { joined::ZSTD };
        let left = (small * joined::factor(&table, ids.len())).div_ceil(1000);
        u32::try_from(raw + left).unwrap_or(u32::MAX)
    }

    /// Feeds all known facts about contents to a hasher.
    pub(crate) fn identify(&self, hasher: &mut impl Hasher) {
        for Known { print, sizes } in &self.known {
            hasher.write_u128(*print);
            let Some(Sizes { lz4, zstd, .. }) = sizes else { continue };
            hasher.write_u32(u32::from(*lz4) << 16 | u32::from(*zstd));
        }
    }

    /// Bytes of RAM held.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let table = self.by_print.capacity() * (size_of::<(u128, ContentId)>() + 1);
        u64_from_usize(table + self.known.capacity() * size_of::<Known>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(fingerprint: u128, lz4: Option<u32>) -> Content {
        Content { fingerprint, lz4_bytes: lz4, zstd1_bytes: lz4.map(|size| size / 2) }
    }

    #[test]
    fn equal_prints_are_one_content() {
        let mut contents = Contents::new(Ratios::default());
        let one = contents.intern(&content(7, Some(2000)), 0).unwrap();
        assert_eq!(contents.intern(&content(7, Some(2000)), 0), Some(one));
        let second = contents.intern(&content(7, Some(2000)), 1).unwrap();
        assert_ne!(second, one);
        assert_eq!(contents.intern(&content(ZEROES[1], None), 0), Some(ContentId::ZERO));
        assert_eq!(contents.digest(&[ContentId::ZERO, ContentId::ZERO]), Digest::Zero);
        let digests: std::collections::BTreeSet<String> = [
            &[one, second][..],
            &[second, one],
            &[one, one],
            &[one],
            &[ContentId::unique(1)],
            &[ContentId::unique(2)],
        ]
        .into_iter()
        .map(|ids| format!("{:?}", contents.digest(ids)))
        .collect();
        assert_eq!(digests.len(), 6);
    }

    #[test]
    fn sizes_by_another_codec_are_known_as_such() {
        let mut contents = Contents::new(Ratios::default());
        for (print, lz4_bytes, zstd1_bytes) in [
            (7, Some(2000), None),
            (8, Some(2000), Some(900)),
            (9, None, Some(800)),
            (10, Some(3000), None),
            (11, None, None),
        ] {
            contents.intern(&Content { fingerprint: print, lz4_bytes, zstd1_bytes }, 0).unwrap();
        }
        let sized_by = [Codec::Lz4, Codec::Zstd(3), Codec::Zlib(6), Codec::Raw]
            .map(|codec| contents.told_by_others(codec));
        assert_eq!(sized_by, [1, 2, 2, 0]);
    }

    #[test]
    fn sizes_are_told_or_drawn() {
        let mut contents = Contents::new(Ratios::default());
        let one = contents.intern(&content(7, Some(2000)), 0).unwrap();
        let raw = contents.intern(&content(8, Some(4096)), 0).unwrap();
        assert_eq!(contents.compressed_bytes(&[one], Codec::Lz4), 2000);
        assert_eq!(contents.compressed_bytes(&[one], Codec::Zstd(1)), 1000);
        assert_eq!(contents.compressed_bytes(&[one, one], Codec::Lz4), 3820);
        assert_eq!(contents.compressed_bytes(&[raw, raw], Codec::Lz4), 8192);
        assert_eq!(contents.compressed_bytes(&[raw, one, one], Codec::Lz4), 4096 + 3820);
        assert_eq!(contents.compressed_bytes(&[one], Codec::Raw), 4096);
        let sizes = |codec| -> Vec<u32> {
            (0..10_000).map(|n| contents.compressed_bytes(&[ContentId::unique(n)], codec)).collect()
        };
        let drawn = sizes(Codec::Lz4);
        let zstd = sizes(Codec::Zstd(1)).iter().map(|size| u64::from(*size)).sum::<u64>();
        let share = zstd as f64 / drawn.iter().map(|size| f64::from(*size)).sum::<f64>();
        assert!((0.78..0.81).contains(&share), "{share}");
        let ratios: Vec<f64> = drawn.iter().map(|size| 4096.0 / f64::from(*size)).collect();
        let mean = ratios.iter().sum::<f64>() / 10_000.0;
        let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / 10_000.0;
        assert!((mean - 2.0).abs() < 0.03, "{mean}");
        assert!((variance - 0.25).abs() < 0.03, "{variance}");
    }
}
