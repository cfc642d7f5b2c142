//! Work for processors: what bytes are, and how they are stored.
//!
//! Job: carry bytes to a worker and facts back. Invariant: the outcome depends on the job alone. What it does not do:
//! threads, or any decision.

use bytes::Bytes;
use zc_core::{Codec, DedupDomain, ErrorKind, Fingerprint, FingerprintKind, u64_from_usize, usize_from_u32};
use zc_reduce::{Reducer, useful_stored_bytes_max};
use zc_store::{Stored, payload_crc};

use crate::limits::{ZLIB_LEVEL, ZSTD_LEVEL};

/// A chunk to be stored, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    Zero,
    Print(Option<Fingerprint>),
}

/// Stored bytes that were read.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub(crate) stored: Stored,
    pub(crate) bytes: Result<Bytes, ErrorKind>,
    pub(crate) dest_offset_bytes: u32,
}

/// A job. It can be run on any thread.
#[derive(Debug)]
pub struct Job(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    /// Which chunks are zero, and the fingerprints of those that are to have one.
    Examine { chunks: Vec<(Bytes, Option<Fingerprint>)>, hash: bool },
    /// Compress what comes without its encoding.
    Encode { codec: Codec, chunks: Vec<(Bytes, Option<Bytes>)> },
    /// Check, and decode into so many bytes if they are wanted.
    Decode { parts: Vec<Fetched>, dest_bytes: Option<u32> },
}

/// What came of a job.
#[derive(Debug)]
pub struct Outcome(pub(crate) Found);

#[derive(Debug)]
pub(crate) enum Found {
    /// The facts, and how many fingerprints were computed for them.
    Examined(Vec<Fact>, u64),
    /// The encoding if it is shorter, and the CRC of what is to be stored; how many were compressed.
    Encoded(Vec<(Option<Bytes>, u32)>, u64),
    Decoded {
        parts: Vec<Fetched>,
        dest: Option<Bytes>,
    },
}

impl Job {
    /// Bytes that it goes over: a measure of its time.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes: usize = match &self.0 {
            Kind::Examine { chunks, .. } => chunks.iter().map(|(bytes, _)| bytes.len()).sum(),
            Kind::Encode { chunks, .. } => chunks.iter().map(|(bytes, _)| bytes.len()).sum(),
            Kind::Decode { parts, dest_bytes } => {
                let read: usize = parts.iter().map(|part| usize_from_u32(part.stored.stored_bytes)).sum();
                read + usize_from_u32(dest_bytes.unwrap_or(0))
            }
        };
        u64_from_usize(bytes)
    }

    /// Does the work.
    #[must_use]
    pub fn run(self, reducer: &mut Reducer) -> Outcome {
        Outcome(match self.0 {
            Kind::Examine { chunks, hash } => {
                let mut computed = 0;
                let facts = chunks.iter().map(|(bytes, print)| examine(bytes, *print, hash, &mut computed));
                Found::Examined(facts.collect(), computed)
            }
            Kind::Encode { codec, chunks } => {
                let mut computed = 0;
                let encoded = |(bytes, known): (Bytes, Option<Bytes>)| {
                    taken_over(reducer, codec, &bytes, known).unwrap_or_else(|| {
                        computed += 1;
                        encode(reducer, codec, &bytes)
                    })
                };
                Found::Encoded(chunks.into_iter().map(encoded).collect(), computed)
            }
            Kind::Decode { parts, dest_bytes } => decode(reducer, parts, dest_bytes),
        })
    }
}

fn examine(bytes: &[u8], known: Option<Fingerprint>, hash: bool, computed: &mut u64) -> Fact {
    if zc_reduce::is_zero(bytes) {
        return Fact::Zero;
    }
    let compute = || zc_reduce::fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, bytes);
    if known.is_some() {
        debug_assert_eq!(known, Some(compute()), "a fingerprint came down that its bytes do not have");
        return Fact::Print(known);
    }
    *computed += u64::from(hash);
    Fact::Print(hash.then(compute))
}

/// An encoding that came with the bytes, if it is worth being stored.
fn taken_over(
    reducer: &mut Reducer,
    codec: Codec,
    bytes: &[u8],
    known: Option<Bytes>,
) -> Option<(Option<Bytes>, u32)> {
    let raw_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let known = known.filter(|known| known.len() <= usize_from_u32(useful_stored_bytes_max(raw_bytes)))?;
    if cfg!(debug_assertions) {
        let mut decoded = vec![0; bytes.len()];
        let result = reducer.decompress(codec, &known, &mut decoded);
        assert!(result.is_ok() && decoded == bytes, "an encoding came down that its bytes do not have");
    }
    let crc = payload_crc(&known);
    Some((Some(known), crc))
}

fn encode(reducer: &mut Reducer, codec: Codec, bytes: &[u8]) -> (Option<Bytes>, u32) {
    let raw_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    // The catalog keeps no levels.
    let codec = match codec {
        Codec::Zlib(0) => Codec::Zlib(ZLIB_LEVEL),
        Codec::Zstd(0) => Codec::Zstd(ZSTD_LEVEL),
        other => other,
    };
    let mut out = vec![0; usize_from_u32(useful_stored_bytes_max(raw_bytes))];
    match reducer.compress(codec, bytes, &mut out) {
        Some(len) => {
            // What is kept until it is written takes no more memory than it has bytes.
            let stored = Bytes::copy_from_slice(&out[..len]);
            let crc = payload_crc(&stored);
            (Some(stored), crc)
        }
        None => (None, payload_crc(bytes)),
    }
}

fn decode(reducer: &mut Reducer, mut parts: Vec<Fetched>, dest_bytes: Option<u32>) -> Found {
    let mut dest = dest_bytes.map(|len| vec![0; usize_from_u32(len)]);
    for part in &mut parts {
        let Ok(bytes) = &part.bytes else { continue };
        let decoded = payload_crc(bytes) == part.stored.crc
            && dest.as_mut().is_none_or(|dest| decode_part(reducer, part, bytes, dest).is_some());
        if !decoded {
            part.bytes = Err(ErrorKind::Corrupt);
        }
    }
    Found::Decoded { parts, dest: dest.map(Bytes::from) }
}

fn decode_part(reducer: &mut Reducer, part: &Fetched, bytes: &[u8], dest: &mut [u8]) -> Option<()> {
    let start = usize_from_u32(part.dest_offset_bytes);
    let dest = dest.get_mut(start..)?.get_mut(..usize_from_u32(part.stored.raw_bytes))?;
    reducer.decompress(part.stored.codec, bytes, dest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_store::Place;

    #[test]
    fn what_is_encoded_decodes_and_damage_is_found() {
        let mut reducer = Reducer::new();
        let text = Bytes::from(b"again and again; ".repeat(241)[..4096].to_vec());
        for codec in [Codec::Raw, Codec::Lz4, Codec::Zlib(0), Codec::Zstd(0), Codec::Zstd(1)] {
            let job = Job(Kind::Encode { codec, chunks: vec![(text.clone(), None)] });
            let Found::Encoded(mut encoded, 1) = job.run(&mut reducer).0 else { panic!("encodings") };
            let (shorter, crc) = encoded.remove(0);
            assert_eq!(shorter.is_none(), codec == Codec::Raw);
            let bytes = shorter.unwrap_or_else(|| text.clone());
            let stored_bytes = u32::try_from(bytes.len()).unwrap();
            let place = Place::default();
            let stored = Stored { place, stored_bytes, raw_bytes: 4096, crc, codec, print: None };
            let mut damaged = bytes.to_vec();
            damaged[0] ^= 1;
            let part = |bytes, dest_offset_bytes| Fetched { stored, bytes: Ok(bytes), dest_offset_bytes };
            let parts = vec![part(bytes, 0), part(damaged.into(), 4096)];
            let job = Job(Kind::Decode { parts, dest_bytes: Some(3 * 4096) });
            let Found::Decoded { parts, dest } = job.run(&mut reducer).0 else { panic!("bytes") };
            assert_eq!(parts[0].bytes.as_ref().err(), None);
            assert_eq!(parts[1].bytes, Err(ErrorKind::Corrupt));
            let dest = dest.unwrap();
            assert_eq!(dest[..4096], text[..]);
            assert!(dest[4096..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn zeros_and_fingerprints_are_told() {
        let mut reducer = Reducer::new();
        let ones = Bytes::from(vec![1; 4096]);
        let print = zc_reduce::fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, &ones);
        for hash in [false, true] {
            let chunks =
                vec![(Bytes::from(vec![0; 4096]), None), (ones.clone(), Some(print)), (ones.clone(), None)];
            let Found::Examined(facts, computed) = Job(Kind::Examine { chunks, hash }).run(&mut reducer).0
            else {
                panic!("facts")
            };
            assert_eq!(facts, [Fact::Zero, Fact::Print(Some(print)), Fact::Print(hash.then_some(print))]);
            assert_eq!(computed, u64::from(hash), "what is known is not computed again");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a fingerprint came down that its bytes do not have")]
    fn a_wrong_fingerprint_is_noticed_where_that_is_checked() {
        let chunks = vec![(Bytes::from(vec![1; 4096]), Some(Fingerprint([7; 32])))];
        let _outcome = Job(Kind::Examine { chunks, hash: true }).run(&mut Reducer::new());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "an encoding came down that its bytes do not have")]
    fn a_wrong_encoding_is_noticed_where_that_is_checked() {
        let chunks = vec![(Bytes::from(vec![1; 4096]), Some(Bytes::from(vec![0; 9])))];
        let _outcome = Job(Kind::Encode { codec: Codec::Lz4, chunks }).run(&mut Reducer::new());
    }
}
