//! What reads keep of whole extents for origins that store contents as the cache does, and a judge of that.
//!
//! A fingerprint or an encoding that is not of the bytes it came with would be wrong data in a store later. So every
//! one of them is compared with the bytes when they go to an origin, of whatever kind, and a write into bytes of which
//! something is kept is a violation.

use std::collections::BTreeMap;

use zc_cache::seam::ExtentRead;
use zc_core::{BufId, BufSlice, Codec, DedupDomain, FingerprintKind};
use zc_pool::KnownChunk;

use crate::world::World;

/// Of extents in buffers, by the place in the buffer.
pub(crate) type Known = BTreeMap<BufId, BTreeMap<u32, KnownChunk>>;

impl World {
    /// An extent was read and decoded: what that told is kept if it is wanted.
    pub(crate) fn keep(&mut self, part: &ExtentRead, codec: Codec, payload: &[u8], raw: &[u8]) {
        if !part.keep {
            return;
        }
        let print = match &part.proof {
            Some(proof) if proof.kind == FingerprintKind::Blake3 && proof.domain == DedupDomain::COMMON => {
                Some(zc_reduce::fingerprint(proof.kind, &proof.domain, raw))
            }
            Some(_) => None,
            None => part.expected.print,
        };
        let encoding = (codec != Codec::Raw).then(|| (codec, payload.to_vec().into()));
        let of_buf = self.known.entry(part.dest.buf).or_default();
        of_buf.insert(part.dest.start_bytes, KnownChunk { print, encoding });
    }

    /// Bytes of a buffer are about to change: nothing may be kept of them.
    pub(crate) fn keeps_nothing_of(&mut self, bytes: BufSlice) {
        let extent_bytes = self.geometry.extent_bytes;
        let end = bytes.start_bytes + bytes.len_bytes;
        let Some(known) = self.known.get(&bytes.buf) else { return };
        let kept = known.range(..end).next_back().map(|(at, _)| *at);
        if kept.is_some_and(|at| at + extent_bytes > bytes.start_bytes) {
            self.violate(format!("{bytes:?} change, although what was read of them is kept"));
        }
    }

    /// What is kept of whole extents among bytes that go to an origin, by the offset from the first byte. Each is
    /// compared with the bytes.
    pub(crate) fn known_in(&mut self, bytes: BufSlice) -> Vec<(u32, KnownChunk)> {
        let extent_bytes = self.geometry.extent_bytes;
        let end = bytes.start_bytes + bytes.len_bytes;
        let Some(known) = self.known.get(&bytes.buf) else { return Vec::new() };
        let known = known.range(bytes.start_bytes..).take_while(|(at, _)| **at + extent_bytes <= end);
        let known: Vec<(u32, KnownChunk)> = known.map(|(at, known)| (*at, known.clone())).collect();
        for (at, known) in &known {
            let extent = BufSlice { start_bytes: *at, len_bytes: extent_bytes, ..bytes };
            self.judge_known(extent, known);
        }
        known.into_iter().map(|(at, known)| (at - bytes.start_bytes, known)).collect()
    }

    fn judge_known(&mut self, extent: BufSlice, known: &KnownChunk) {
        let raw = self.slice(extent);
        if let Some(print) = known.print {
            self.coverage.note("extents to origins with their fingerprint");
            if print != zc_reduce::fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, &raw) {
                self.violate(format!("{extent:?} goes to an origin with the fingerprint of other bytes"));
            }
        }
        if let Some((codec, encoding)) = &known.encoding {
            self.coverage.note("extents to origins with their encoding");
            let mut decoded = vec![0; raw.len()];
            if self.reducer.decompress(*codec, encoding, &mut decoded).is_err() || decoded != raw {
                self.violate(format!("{extent:?} goes to an origin with the encoding of other bytes"));
            }
        }
    }
}
