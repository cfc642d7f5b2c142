//! Decodes arbitrary bytes as stored extents: a decoder fills its output or fails, regardless of earlier calls, and
//! compressed output decodes to the input.
//!
//! The first input byte selects the codec and the size of the extent; the rest is the stored data.

use zc_core::Codec;
use zc_reduce::{Reducer, useful_stored_bytes_max};

pub(crate) fn run(data: &[u8]) {
    let [choice, stored @ ..] = data else { return };
    let codec = match choice & 3 {
        0 => Codec::Raw,
        1 => Codec::Lz4,
        2 => Codec::Zlib(6),
        _ => Codec::Zstd(3),
    };
    let extent_bytes = 4096_usize << (choice >> 2 & 3);
    let mut reducer = Reducer::new();
    let mut out = vec![0xa5; extent_bytes];
    let mut again = vec![0x5a; extent_bytes];
    let decoded = reducer.decompress(codec, stored, &mut out);
    // Earlier content of the buffer does not show through, and a failure leaves no state behind.
    assert_eq!(reducer.decompress(codec, stored, &mut again), decoded);
    if decoded.is_ok() {
        assert_eq!(out, again);
    }
    let mut input = stored.to_vec();
    input.resize(extent_bytes, 0);
    let most = useful_stored_bytes_max(u32::try_from(extent_bytes).unwrap_or(0));
    let mut packed = vec![0; zc_core::usize_from_u32(most)];
    if codec != Codec::Raw
        && let Some(len) = reducer.compress(codec, &input, &mut packed)
    {
        assert_eq!(reducer.decompress(codec, &packed[..len], &mut out), Ok(()));
        assert_eq!(out, input);
    }
}
