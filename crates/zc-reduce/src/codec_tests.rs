//! Tests of the codecs: round trips, refusal of corrupt input, and independence of calls.

use proptest::prelude::*;
use zc_core::Codec;

use crate::{DecodeError, Reducer, SAVING_BYTES_MIN, useful_stored_bytes_max};

const CODECS: [Codec; 6] =
    [Codec::Lz4, Codec::Zlib(1), Codec::Zlib(6), Codec::Zlib(9), Codec::Zstd(1), Codec::Zstd(19)];

/// Incompressible bytes, the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(b"noise").finalize_xof().fill(&mut bytes);
    bytes
}

/// Bytes that every codec compresses: two bits of noise each.
fn quiet(len: usize) -> Vec<u8> {
    noise(len).iter().map(|byte| byte & 3).collect()
}

/// The encoding of `input`, which must save enough to be stored.
fn stored(reducer: &mut Reducer, codec: Codec, input: &[u8]) -> Vec<u8> {
    let most = useful_stored_bytes_max(u32::try_from(input.len()).unwrap());
    let mut out = vec![0; usize::try_from(most).unwrap()];
    let len = reducer.compress(codec, input, &mut out).expect("the input compresses");
    out.truncate(len);
    out
}

proptest! {
    #[test]
    fn what_compresses_comes_back(input in prop::collection::vec(0_u8..4, 1024..70_000), codec in 0..CODECS.len()) {
        let mut reducer = Reducer::new();
        let stored = stored(&mut reducer, CODECS[codec], &input);
        let mut back = vec![0xff; input.len()];
        reducer.decompress(CODECS[codec], &stored, &mut back).unwrap();
        prop_assert_eq!(back, input);
    }

    /// Any input round-trips if the output buffer fits the worst case.
    #[test]
    fn anything_comes_back(input in prop::collection::vec(any::<u8>(), 0..3000), codec in 0..CODECS.len()) {
        let mut reducer = Reducer::new();
        let mut out = vec![0; input.len() * 2 + 1024];
        let len = reducer.compress(CODECS[codec], &input, &mut out).expect("room for the worst case");
        let mut back = vec![0xff; input.len()];
        reducer.decompress(CODECS[codec], &out[..len], &mut back).unwrap();
        prop_assert_eq!(back, input);
    }

    /// Garbage is an error or, by chance, an extent of the right size; the bytes after the output stay untouched.
    #[test]
    fn garbage_stays_inside_the_output(bytes in prop::collection::vec(any::<u8>(), 0..512), codec in 0..CODECS.len()) {
        let mut reducer = Reducer::new();
        let mut out = vec![0xa5; 4096 + 64];
        let verdict = reducer.decompress(CODECS[codec], &bytes, &mut out[..4096]);
        prop_assert!(verdict.is_err() || !bytes.is_empty());
        prop_assert_eq!(&out[4096..], &[0xa5; 64]);
    }

    /// Encodings with one byte changed or the tail cut: an error, or other bytes, which the extent's CRC detects; the
    /// reducer remains usable.
    #[test]
    fn damage_is_survived(codec in 0..CODECS.len(), at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let (codec, input) = (CODECS[codec], quiet(8192));
        let mut reducer = Reducer::new();
        let whole = stored(&mut reducer, codec, &input);
        let at = at.index(whole.len());
        let mut back = vec![0; input.len()];

        let mut damaged = whole.clone();
        damaged[at] ^= flip;
        let verdict = reducer.decompress(codec, &damaged, &mut back);
        prop_assert!(verdict == Err(DecodeError) || back.len() == input.len());
        prop_assert_eq!(reducer.decompress(codec, &whole[..at], &mut back), Err(DecodeError));

        reducer.decompress(codec, &whole, &mut back).unwrap();
        prop_assert_eq!(back, input);
    }
}

#[test]
fn incompressible_input_is_refused_not_expanded() {
    let mut reducer = Reducer::new();
    for len in [4096, 8192, 128 << 10] {
        let mut out = vec![0; len - usize::try_from(SAVING_BYTES_MIN).unwrap()];
        for codec in CODECS {
            assert_eq!(reducer.compress(codec, &noise(len), &mut out), None, "{codec:?}, {len} bytes");
        }
        assert_eq!(reducer.compress(Codec::Raw, &quiet(len), &mut out), None);
    }
}

/// A bound of exactly the encoding's size suffices for LZ4, which encodes into another buffer and copies; one byte
/// less never does.
#[test]
fn the_bound_is_kept_to_the_byte() {
    let mut reducer = Reducer::new();
    for codec in CODECS {
        let len = stored(&mut reducer, codec, &quiet(8192)).len();
        assert_eq!(reducer.compress(codec, &quiet(8192), &mut vec![0; len - 1]), None, "{codec:?}");
    }
    let len = stored(&mut reducer, Codec::Lz4, &quiet(8192)).len();
    assert_eq!(reducer.compress(Codec::Lz4, &quiet(8192), &mut vec![0; len]), Some(len));
}

#[test]
fn the_exact_size_is_required() {
    let mut reducer = Reducer::new();
    let input = quiet(8192);
    for codec in CODECS {
        let stored = stored(&mut reducer, codec, &input);
        for len in [0, 1, 8191, 8193, 16384] {
            let verdict = reducer.decompress(codec, &stored, &mut vec![0; len]);
            assert_eq!(verdict, Err(DecodeError), "{codec:?} into {len} bytes");
        }
        let mut longer = stored.clone();
        longer.push(0);
        let verdict = reducer.decompress(codec, &longer, &mut vec![0; 8192]);
        assert_eq!(verdict, Err(DecodeError), "{codec:?} with a byte behind it");
    }
    assert_eq!(reducer.decompress(Codec::Raw, &input, &mut vec![0; 8191]), Err(DecodeError));
    assert_eq!(reducer.decompress(Codec::Raw, &input[1..], &mut vec![0; 8192]), Err(DecodeError));
    let mut raw = vec![0; 8192];
    reducer.decompress(Codec::Raw, &input, &mut raw).unwrap();
    assert_eq!(raw, input);
}

/// Reused tables and contexts must not leak between calls: sizes, codecs and levels alternate on one reducer, with
/// refusals and errors in between, and every result equals that of a new one.
#[test]
fn a_used_reducer_works_like_a_new_one() {
    let mut used = Reducer::new();
    let lens = [4096, 128 << 10, 8192, 64 << 10, 512, 65_535, 65_536];
    for (turn, len) in lens.into_iter().cycle().take(28).enumerate() {
        let codec = CODECS[turn % CODECS.len()];
        let input = quiet(len);
        let encoded = stored(&mut used, codec, &input);
        assert_eq!(encoded, stored(&mut Reducer::new(), codec, &input), "{codec:?}, {len} bytes");
        assert_eq!(used.compress(codec, &noise(len), &mut vec![0; len - 64]), None);
        assert_eq!(used.decompress(codec, &noise(100), &mut vec![0; len]), Err(DecodeError));
        let mut back = vec![0; len];
        used.decompress(codec, &encoded, &mut back).unwrap();
        assert_eq!(back, input);
    }
}

/// A zstd frame with a 2 GiB window and a declared content of a terabyte is refused without the allocation.
#[test]
fn a_zstd_frame_cannot_ask_for_memory() {
    // Magic; single-segment flag off, 8-byte content size; window descriptor 0xa8 = 2 GiB; size 2^40; empty last block.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0xa8];
    frame.extend_from_slice(&(1_u64 << 40).to_le_bytes());
    frame.extend_from_slice(&[0x01, 0x00, 0x00]);
    assert_eq!(Reducer::new().decompress(Codec::Zstd(1), &frame, &mut vec![0; 4096]), Err(DecodeError));
}
