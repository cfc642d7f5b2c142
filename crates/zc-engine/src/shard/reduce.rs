//! Runs `zc-reduce` on leases.
//!
//! Invariants: results depend on the bytes alone. It starts no threads.

use std::fmt;

use zc_cache::seam::{Digest, Proof};
use zc_core::{Codec, DedupDomain, Fingerprint, FingerprintKind, limits::EXTENT_BYTES_MAX, usize_from_u32};
use zc_reduce::Reducer;

/// Facts about bytes that the manager gets instead of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Facts {
    /// Fingerprint, or zero.
    Hashed(Digest),
    /// Stored size, if below the limit.
    Compressed(Option<u32>),
    /// `true` if equal.
    Compared(bool),
}

/// A thread's working memory for codecs.
pub(crate) struct Scratch {
    reducer: Reducer,
    /// A whole decoded extent, of which only a part is wanted.
    decoded: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { reducer: Reducer::new(), decoded: Vec::new() }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

pub(crate) fn hash(bytes: &[u8], kind: FingerprintKind, domain: &DedupDomain) -> Facts {
    Facts::Hashed(if zc_reduce::is_zero(bytes) {
        Digest::Zero
    } else {
        Digest::Print(zc_reduce::fingerprint(kind, domain, bytes))
    })
}

impl Scratch {
    pub(crate) fn compress(&mut self, bytes: &[u8], codec: Codec, out: &mut [u8]) -> Facts {
        let stored = self.reducer.compress(codec, bytes, out);
        Facts::Compressed(stored.and_then(|len| u32::try_from(len).ok()))
    }

    /// Returns the fingerprint of a decoded payload. `None`: it does not decode.
    pub(crate) fn fingerprint(
        &mut self,
        codec: Codec,
        payload: &[u8],
        raw_bytes: usize,
        proof: &Proof,
    ) -> Option<Fingerprint> {
        let content = if codec == Codec::Raw {
            (payload.len() == raw_bytes).then_some(payload)?
        } else {
            self.decode(codec, payload, raw_bytes)?
        };
        Some(zc_reduce::fingerprint(proof.kind, &proof.domain, content))
    }

    fn decode(&mut self, codec: Codec, payload: &[u8], raw_bytes: usize) -> Option<&[u8]> {
        if raw_bytes > usize_from_u32(EXTENT_BYTES_MAX) {
            return None;
        }
        self.decoded.resize(raw_bytes, 0);
        self.reducer.decompress(codec, payload, &mut self.decoded).ok()?;
        Some(&self.decoded)
    }

    /// Decodes an extent of `raw_bytes` and copies the part from `skip` to `dest`. `None`: it does not decode.
    pub(crate) fn decompress_part(
        &mut self,
        codec: Codec,
        payload: &[u8],
        raw_bytes: usize,
        skip: usize,
        dest: &mut [u8],
    ) -> Option<()> {
        let wanted = skip..skip.checked_add(dest.len())?;
        if codec == Codec::Raw {
            if payload.len() != raw_bytes {
                return None;
            }
            dest.copy_from_slice(payload.get(wanted)?);
            return Some(());
        }
        if wanted == (0..raw_bytes) {
            return self.reducer.decompress(codec, payload, dest).ok();
        }
        dest.copy_from_slice(self.decode(codec, payload, raw_bytes)?.get(wanted)?);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_an_extent_can_be_decoded() {
        let raw: Vec<u8> = (0..8192_u32).map(|at| u8::try_from(at / 64 % 200).unwrap()).collect();
        let mut scratch = Scratch::default();
        for codec in [Codec::Lz4, Codec::Zlib(3), Codec::Zstd(1)] {
            let mut out = vec![0; 8192];
            let Facts::Compressed(Some(len)) = scratch.compress(&raw, codec, &mut out) else {
                panic!("{codec:?}")
            };
            let payload = &out[..usize_from_u32(len)];
            for (skip, len) in [(0, 8192), (0, 512), (4096, 4096), (7680, 512)] {
                let mut dest = vec![0; len];
                scratch.decompress_part(codec, payload, 8192, skip, &mut dest).unwrap();
                assert_eq!(dest, raw[skip..skip + len]);
            }
            let mut dest = vec![0; 512];
            assert_eq!(scratch.decompress_part(codec, payload, 8192, 8000, &mut dest), None);
            assert_eq!(scratch.decompress_part(codec, payload, 4096, 0, &mut dest), None);
        }
    }
}
