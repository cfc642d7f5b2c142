//! Every message: encode, decode, the same value; arbitrary bytes: decode or error, with stable decoding.

use core::fmt::Debug;
use proptest::prelude::*;
use zc_nbd::wire::{
    BlockStatus, ChunkHeader, ErrorChunk, ExportNameReply, GoRequest, Greeting, HeaderStyle, HoleChunk,
    InfoReply, MetaContextReply, MetaRequest, OptionHeader, OptionReplyHeader, RequestHeader, ServerEntry,
    SimpleReply, StatusExtent, StatusFilter, WireError,
};

const STYLES: [HeaderStyle; 3] = [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended];

fn round_trip<T: PartialEq + Debug>(
    value: &T,
    encode: impl Fn(&T, &mut Vec<u8>),
    decode: impl Fn(&[u8]) -> Result<T, WireError>,
) {
    let mut bytes = Vec::new();
    encode(value, &mut bytes);
    assert_eq!(decode(&bytes).as_ref(), Ok(value));
    for length in 0..bytes.len().min(40) {
        if let Ok(shorter) = decode(&bytes[..length]) {
            assert_ne!(&shorter, value, "a cut message decodes to the whole one");
        }
    }
}

/// Values decoded from arbitrary bytes must encode and decode to the same value.
fn stable<T: PartialEq + Debug>(
    bytes: &[u8],
    encode: impl Fn(&T, &mut Vec<u8>),
    decode: impl Fn(&[u8]) -> Result<T, WireError>,
) {
    if let Ok(value) = decode(bytes) {
        let mut again = Vec::new();
        encode(&value, &mut again);
        assert_eq!(decode(&again), Ok(value));
    }
}

fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,40}"
}

proptest! {
    #[test]
    fn handshake_messages_round_trip(
        numbers in any::<(u16, u32, u32, u32, u64)>(),
        name in text(),
        other in text(),
        infos in prop::collection::vec(any::<u16>(), 0..20),
        queries in prop::collection::vec(text(), 0..10),
    ) {
        let (short, a, b, c, long) = numbers;
        round_trip(&Greeting { flags: short }, |v, out| v.encode(out), Greeting::decode);
        round_trip(&OptionHeader { option: a, length: b }, |v, out| v.encode(out), OptionHeader::decode);
        let header = OptionReplyHeader { option: a, reply: b, length: c };
        round_trip(&header, |v, out| v.encode(out), OptionReplyHeader::decode);
        let reply = ExportNameReply { size_bytes: long, flags: short };
        round_trip(&reply, |v, out| v.encode(false, out), ExportNameReply::decode);
        round_trip(&GoRequest { export: name.clone(), infos }, GoRequest::encode, GoRequest::decode);
        round_trip(&MetaRequest { export: name.clone(), queries }, MetaRequest::encode, MetaRequest::decode);
        for info in [
            InfoReply::Export { size_bytes: long, flags: short },
            InfoReply::Name(name.clone()),
            InfoReply::Description(other.clone()),
            InfoReply::BlockSize { min: a, preferred: b, max: c },
            InfoReply::Other(short | 4),
        ] {
            round_trip(&info, InfoReply::encode, InfoReply::decode);
        }
        round_trip(&MetaContextReply { id: a, name: other.clone() }, MetaContextReply::encode, MetaContextReply::decode);
        round_trip(&ServerEntry { name, description: other }, ServerEntry::encode, ServerEntry::decode);
    }

    #[test]
    fn transmission_messages_round_trip(
        shorts in any::<(u16, u16)>(),
        longs in any::<(u64, u64, u64)>(),
        error in 1_u32..,
        message in text(),
        offset in any::<Option<u64>>(),
        extents in prop::collection::vec((1_u32.., any::<u32>()), 1..20),
    ) {
        for style in STYLES {
            let extended = style == HeaderStyle::Extended;
            let length = if extended { longs.2 } else { longs.2 >> 32 };
            let request =
                RequestHeader { flags: shorts.0, command: shorts.1, cookie: longs.0, offset: longs.1, length };
            round_trip(&request, |v, out| v.encode(style, out), |bytes| RequestHeader::decode(style, bytes));
            let offset = if extended { longs.1 } else { 0 };
            let chunk = ChunkHeader { flags: shorts.0, kind: shorts.1, cookie: longs.0, offset, length };
            round_trip(&chunk, |v, out| v.encode(style, out), |bytes| ChunkHeader::decode(style, bytes));
            let extents =
                extents.iter().map(|&(length, flags)| StatusExtent { length: length.into(), flags: flags.into() });
            let status = BlockStatus { context: error, extents: extents.collect() };
            round_trip(&status, |v, out| v.encode(style, out), |bytes| BlockStatus::decode(style, bytes));
        }
        round_trip(&SimpleReply { error, cookie: longs.0 }, |v, out| v.encode(out), SimpleReply::decode);
        let contexts = (0..=longs.1 % 16).map(|index| error.wrapping_add(u32::try_from(index).unwrap()));
        let filter = StatusFilter { length: longs.0, contexts: contexts.collect() };
        round_trip(&filter, StatusFilter::encode, StatusFilter::decode);
        let hole = HoleChunk { offset: longs.0, length: error };
        round_trip(&hole, |v, out| v.encode(out), HoleChunk::decode);
        let chunk = ErrorChunk { error, message, offset };
        round_trip(&chunk, ErrorChunk::encode, |bytes| ErrorChunk::decode(offset.is_some(), bytes));
    }

    #[test]
    fn arbitrary_bytes_decode_stably_or_not_at_all(bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..80)) {
        stable(&bytes, GoRequest::encode, GoRequest::decode);
        stable(&bytes, MetaRequest::encode, MetaRequest::decode);
        stable(&bytes, InfoReply::encode, InfoReply::decode);
        stable(&bytes, ServerEntry::encode, ServerEntry::decode);
        stable(&bytes, MetaContextReply::encode, MetaContextReply::decode);
        stable(&bytes, StatusFilter::encode, StatusFilter::decode);
        stable(&bytes, |v: &HoleChunk, out| v.encode(out), HoleChunk::decode);
        for with_offset in [false, true] {
            stable(&bytes, ErrorChunk::encode, |bytes| ErrorChunk::decode(with_offset, bytes));
        }
        for style in STYLES {
            stable(&bytes, |v: &RequestHeader, out| v.encode(style, out), |bytes| RequestHeader::decode(style, bytes));
            stable(&bytes, |v: &ChunkHeader, out| v.encode(style, out), |bytes| ChunkHeader::decode(style, bytes));
            stable(&bytes, |v: &BlockStatus, out| v.encode(style, out), |bytes| BlockStatus::decode(style, bytes));
        }
    }
}

#[test]
fn long_error_texts_are_cut_at_a_character() {
    let mut bytes = Vec::new();
    ErrorChunk { error: 5, message: "\u{e4}".repeat(3000), offset: None }.encode(&mut bytes);
    assert_eq!(ErrorChunk::decode(false, &bytes).unwrap().message, "\u{e4}".repeat(2048));
}

#[test]
fn an_error_survives_a_text_that_is_no_string() {
    let decoded = ErrorChunk::decode(false, &[0, 0, 0, 5, 0, 2, 0xff, 0]).unwrap();
    assert_eq!(decoded, ErrorChunk { error: 5, message: String::new(), offset: None });
}

#[test]
fn must_19_block_status_lengths_must_fit() {
    let compact = |bytes: &[u8]| BlockStatus::decode(HeaderStyle::Structured, bytes);
    let good = [0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 3];
    assert_eq!(compact(&good).unwrap().extents, [StatusExtent { length: 512, flags: 3 }]);
    for bad in [&good[..4], &good[..11], &[good.as_slice(), &[0; 7]].concat()] {
        compact(bad).unwrap_err();
    }
    let mut many = vec![0, 0, 0, 1];
    many.extend([0, 0, 0, 1, 0, 0, 0, 0].repeat(1 << 20));
    assert_eq!(compact(&many).unwrap().extents.len(), 1 << 20);
    many.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    compact(&many).unwrap_err();
    let mut extended = vec![0, 0, 0, 1, 0, 0, 0, 1];
    extended.extend([0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
    BlockStatus::decode(HeaderStyle::Extended, &extended).unwrap();
    extended[7] = 2;
    BlockStatus::decode(HeaderStyle::Extended, &extended).unwrap_err();
}
