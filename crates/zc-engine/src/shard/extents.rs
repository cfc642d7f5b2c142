//! Stored extents read for a client: verified, decoded, the wanted part copied out (G3).
//!
//! Job: one [`PartDecode`] per extent of a device read, run on the data-plane thread or by a worker; [`ExtentsRead`]
//! gathers their results.
//!
//! Invariants: nothing reaches the destination before checksum, place and identity are verified. A payload that does
//! not decode to exactly one extent is a fault, even with a valid checksum. So is a content that does not match its
//! fingerprint, if the manager requests a proof.
//!
//! It does not decide on the effect of a fault; the manager does.

use std::ops::Range;

use bytes::Bytes;
use zc_cache::seam::{ExtentRead, PartResults};
use zc_core::{BufSlice, Codec, DedupDomain, FingerprintKind, OpId, usize_from_u32};
use zc_format::{ExtentError, ExtentHeader, VerifiedExtent};
use zc_io::{Lease, SharedBuf};
use zc_pool::KnownChunk;

use crate::shard::reduce::Scratch;

pub(crate) struct PartDecode {
    pub(crate) read: u64,
    pub(crate) part: usize,
    /// The pages that were read.
    pub(crate) pages: SharedBuf,
    pub(crate) pages_offset_bytes: u32,
    pub(crate) wanted: ExtentRead,
    pub(crate) dest: Lease,
}

impl PartDecode {
    pub(crate) fn run(mut self, scratch: &mut Scratch) -> Result<Option<Learned>, ExtentError> {
        let found = VerifiedPayload::verify(&self.pages, self.pages_offset_bytes, &self.wanted)?;
        found.decode(&self.wanted, &mut self.dest, scratch)
    }
}

/// Digest of a whole extent that a buffer holds, for [`ExtentRead::keep`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    pub(crate) at: BufSlice,
    pub(crate) known: KnownChunk,
}

/// A stored extent that verified.
pub(crate) struct VerifiedPayload<'a> {
    verified: VerifiedExtent,
    payload: &'a [u8],
    /// Position of the payload in the bytes read.
    place: Range<usize>,
}

impl<'a> VerifiedPayload<'a> {
    /// Verifies an extent in `bytes`, which were read from `offset_bytes` of its slot.
    ///
    /// # Errors
    /// Its fault.
    pub(crate) fn verify(
        bytes: &'a [u8],
        offset_bytes: u32,
        wanted: &ExtentRead,
    ) -> Result<Self, ExtentError> {
        let at = wanted.expected.offset_bytes.checked_sub(offset_bytes).map(usize_from_u32);
        let (at, own) = at.and_then(|at| Some((at, bytes.get(at..)?))).ok_or(ExtentError::Truncated)?;
        let verified = ExtentHeader::verify(own, &wanted.expected)?;
        let payload = own.get(verified.payload.clone()).ok_or(ExtentError::Truncated)?;
        let place = at + verified.payload.start..at + verified.payload.end;
        Ok(Self { verified, payload, place })
    }

    /// Returns the range of the wanted part in the bytes read, if it is stored as the client receives it. An extent to
    /// be proved or kept must be decoded.
    pub(crate) fn plain(&self, wanted: &ExtentRead) -> Option<Range<usize>> {
        let is_plain = self.verified.codec == Codec::Raw
            && self.payload.len() == usize_from_u32(wanted.expected.raw_bytes)
            && wanted.proof.is_none()
            && !wanted.keep;
        let start = self.place.start + usize_from_u32(wanted.skip_bytes);
        let end = start + usize_from_u32(wanted.dest.len_bytes);
        (is_plain && end <= self.place.end).then_some(start..end)
    }

    /// Copies the wanted part to `dest`, decoded and, if requested, proved.
    ///
    /// # Errors
    /// When the payload does not decode to one extent, or has another content than expected.
    pub(crate) fn decode(
        self,
        wanted: &ExtentRead,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Learned>, ExtentError> {
        let Self { verified, payload, .. } = self;
        let raw_bytes = usize_from_u32(wanted.expected.raw_bytes);
        let skip = usize_from_u32(wanted.skip_bytes);
        let mut print = wanted.expected.print;
        if let Some(proof) = &wanted.proof {
            let computed =
                scratch.fingerprint(verified.codec, payload, raw_bytes, proof).ok_or(ExtentError::Payload)?;
            if !verified.is_content(&computed) {
                return Err(ExtentError::Content);
            }
            let is_plain = proof.kind == FingerprintKind::Blake3 && proof.domain == DedupDomain::COMMON;
            print = is_plain.then_some(computed);
        }
        scratch
            .decompress_part(verified.codec, payload, raw_bytes, skip, dest)
            .ok_or(ExtentError::Payload)?;
        let is_encoded = verified.codec != Codec::Raw;
        let known = || KnownChunk {
            print,
            encoding: is_encoded.then(|| (verified.codec, Bytes::copy_from_slice(payload))),
        };
        Ok(wanted.keep.then(|| Learned { at: wanted.dest, known: known() }))
    }
}

/// A device read whose extents are being decoded by workers.
#[derive(Debug)]
pub(crate) struct ExtentsRead {
    op: OpId,
    left: usize,
    results: PartResults,
}

impl ExtentsRead {
    pub(crate) fn new(op: OpId, parts: usize) -> Self {
        // Every result is replaced before it is handed out.
        Self { op, left: parts, results: PartResults::from_elem(Err(ExtentError::Truncated), parts) }
    }

    /// Books a result; true when it was the last.
    pub(crate) fn decoded(&mut self, part: usize, result: Result<(), ExtentError>) -> bool {
        assert!(self.left > 0, "a part too many");
        self.left -= 1;
        self.results[part] = result;
        self.left == 0
    }

    pub(crate) fn finish(self) -> (OpId, PartResults) {
        assert_eq!(self.left, 0, "parts are missing");
        (self.op, self.results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::reduce::Facts;
    use zc_cache::seam::Proof;
    use zc_core::{
        BufId, BufSlice, Codec, DedupDomain, ExtentKey, Fingerprint, FingerprintKind, Generation, WeuSeq,
        WeuSlot,
    };
    use zc_format::{ExpectedExtent, Salt};
    use zc_io::{AlignedBuf, Arena};

    const RAW: u32 = 8192;

    fn decode(
        weu: &[u8],
        wanted: &ExtentRead,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Learned>, ExtentError> {
        VerifiedPayload::verify(weu, 0, wanted)?.decode(wanted, dest, scratch)
    }

    fn sealed(codec: Codec, payload: &[u8]) -> (AlignedBuf, ExtentRead) {
        sealed_as(Fingerprint([7; 32]), codec, payload)
    }

    fn sealed_as(fingerprint: Fingerprint, codec: Codec, payload: &[u8]) -> (AlignedBuf, ExtentRead) {
        let header = ExtentHeader {
            slot: WeuSlot(3),
            generation: Generation(2),
            weu_seq: WeuSeq(9),
            stored_bytes: u32::try_from(payload.len()).unwrap(),
            raw_bytes: RAW,
            first_sector: 0,
            key: ExtentKey::default_for_test(),
            codec,
            fingerprint,
        };
        let mut weu = AlignedBuf::new(32 << 10);
        header.seal(4160, payload, &mut weu[4160..4160 + 64 + payload.len()], Salt::NONE);
        let expected = ExpectedExtent {
            salt: Salt::NONE,
            slot: WeuSlot(3),
            generation: Generation(2),
            weu_seq: WeuSeq(9),
            offset_bytes: 4160,
            raw_bytes: RAW,
            first_sector: 0,
            key: None,
            print: None,
        };
        let dest = BufSlice { buf: BufId(1), start_bytes: 0, len_bytes: 512 };
        (weu, ExtentRead { expected, skip_bytes: 1024, dest, proof: None, keep: false })
    }

    trait ForTest {
        fn default_for_test() -> Self;
    }

    impl ForTest for ExtentKey {
        fn default_for_test() -> Self {
            Self { volume: zc_core::VolumeId(1), extent: zc_core::ExtentNo(5) }
        }
    }

    #[test]
    fn the_wanted_part_of_a_raw_extent_arrives_and_a_flipped_bit_does_not() {
        let payload: Vec<u8> = (0..RAW).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (mut weu, wanted) = sealed(Codec::Raw, &payload);
        let mut scratch = Scratch::default();
        let mut dest = vec![0; 512];
        assert_eq!(decode(&weu, &wanted, &mut dest, &mut scratch), Ok(None));
        assert_eq!(dest, payload[1024..1536]);
        weu[4160 + 64 + 2000] ^= 4;
        dest.fill(0);
        assert_eq!(decode(&weu, &wanted, &mut dest, &mut scratch), Err(ExtentError::Checksum));
        assert!(dest.iter().all(|&byte| byte == 0), "nothing arrives before the proof");
    }

    #[test]
    fn what_is_kept_of_an_extent_is_its_encoding_and_a_fingerprint_without_a_key() {
        let raw: Vec<u8> = (0..RAW).map(|at| u8::try_from(at / 64 % 200).unwrap()).collect();
        let mut packed = vec![0; 8192];
        let mut scratch = Scratch::default();
        let Facts::Compressed(Some(len)) = scratch.compress(&raw, Codec::Lz4, &mut packed) else {
            panic!("it compresses")
        };
        let packed = &packed[..usize_from_u32(len)];
        let kept = |kind, domain, codec, payload: &[u8], known: Option<Fingerprint>| {
            let print = zc_reduce::fingerprint(kind, &domain, &raw);
            let (weu, mut wanted) = sealed_as(print, codec, payload);
            (wanted.keep, wanted.expected.print) = (true, known);
            wanted.proof = known.is_none().then_some(Proof { kind, domain });
            let learned = decode(&weu, &wanted, &mut [0; 512], &mut Scratch::default()).unwrap();
            let Learned { at, known } = learned.unwrap();
            assert_eq!(at, wanted.dest);
            (known.print == Some(print), known.encoding)
        };
        let (common, keyed) = (DedupDomain::COMMON, DedupDomain::keyed([3; 32]));
        let encoding = Some((Codec::Lz4, Bytes::copy_from_slice(packed)));
        let blake = FingerprintKind::Blake3;
        let print = zc_reduce::fingerprint(blake, &common, &raw);
        assert_eq!(kept(blake, common, Codec::Lz4, packed, None), (true, encoding.clone()));
        assert_eq!(kept(blake, common, Codec::Lz4, packed, Some(print)), (true, encoding.clone()));
        assert_eq!(kept(blake, common, Codec::Raw, &raw, None), (true, None));
        assert_eq!(kept(blake, keyed, Codec::Lz4, packed, None), (false, encoding.clone()));
        assert_eq!(kept(FingerprintKind::Sha1, common, Codec::Lz4, packed, None), (false, encoding));
    }

    #[test]
    fn a_content_that_is_not_that_of_its_fingerprint_does_not_arrive() {
        let proof = Proof { kind: FingerprintKind::Blake3, domain: DedupDomain::keyed([3; 32]) };
        let raw: Vec<u8> = (0..RAW).map(|at| u8::try_from(at / 64 % 200).unwrap()).collect();
        let print = zc_reduce::fingerprint(proof.kind, &proof.domain, &raw);
        let mut packed = vec![0; 8192];
        let mut scratch = Scratch::default();
        let Facts::Compressed(Some(len)) = scratch.compress(&raw, Codec::Lz4, &mut packed) else {
            panic!("it compresses")
        };
        for (codec, payload) in [(Codec::Raw, &raw[..]), (Codec::Lz4, &packed[..usize_from_u32(len)])] {
            for (print, result) in [(print, Ok(None)), (Fingerprint([7; 32]), Err(ExtentError::Content))] {
                let (weu, mut wanted) = sealed_as(print, codec, payload);
                wanted.proof = Some(proof);
                let mut dest = vec![0; 512];
                assert_eq!(decode(&weu, &wanted, &mut dest, &mut scratch), result);
                assert_eq!(dest == raw[1024..1536], result.is_ok());
            }
        }
    }

    #[test]
    fn only_what_is_stored_as_a_client_gets_it_is_plain() {
        let payload: Vec<u8> = (0..RAW).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (weu, wanted) = sealed(Codec::Raw, &payload);
        let plain =
            |wanted: &ExtentRead| VerifiedPayload::verify(&weu[4096..], 4096, wanted).unwrap().plain(wanted);
        let range = plain(&wanted).unwrap();
        assert_eq!(weu[4096..][range], payload[1024..1536]);
        let kept = ExtentRead { keep: true, ..wanted };
        let proof = Proof { kind: FingerprintKind::Blake3, domain: DedupDomain::COMMON };
        let proved = ExtentRead { proof: Some(proof), ..wanted };
        let beyond = ExtentRead { skip_bytes: RAW - 511, ..wanted };
        assert_eq!([&kept, &proved, &beyond].map(plain), [None, None, None]);
        let (weu, wanted) = sealed(Codec::Lz4, &payload[..100]);
        assert_eq!(VerifiedPayload::verify(&weu, 0, &wanted).unwrap().plain(&wanted), None);
    }

    #[test]
    fn a_payload_of_the_wrong_size_is_a_fault() {
        let (weu, wanted) = sealed(Codec::Raw, &[1; 100]);
        let mut scratch = Scratch::default();
        let mut dest = vec![0; 512];
        assert_eq!(decode(&weu, &wanted, &mut dest, &mut scratch), Err(ExtentError::Payload));
        let (weu, wanted) = sealed(Codec::Lz4, &[255; 100]);
        assert_eq!(decode(&weu, &wanted, &mut dest, &mut scratch), Err(ExtentError::Payload));
    }

    #[test]
    fn parts_of_a_device_read_are_found_in_its_pages() {
        let payload = vec![9; usize_from_u32(RAW)];
        let (weu, wanted) = sealed(Codec::Raw, &payload);
        let pages = AlignedBuf::from(&weu[4096..16384]).into_shared();
        let arena = Arena::new(AlignedBuf::new(512));
        let mut scratch = Scratch::default();
        let part = |pages_offset_bytes, dest| PartDecode {
            read: 1,
            part: 0,
            pages: pages.clone(),
            pages_offset_bytes,
            wanted: wanted.clone(),
            dest,
        };
        assert_eq!(part(4096, arena.lease(0..512)).run(&mut scratch), Ok(None));
        assert!(arena.read_lease(0..512).iter().all(|&byte| byte == 9));
        assert_eq!(part(8192, arena.lease(0..512)).run(&mut scratch), Err(ExtentError::Truncated));
        let mut read = ExtentsRead::new(OpId(4), 2);
        assert!(!read.decoded(1, Err(ExtentError::Place)));
        assert!(read.decoded(0, Ok(())));
        let (op, results) = read.finish();
        assert_eq!((op, results.as_slice()), (OpId(4), &[Ok(()), Err(ExtentError::Place)][..]));
    }
}
