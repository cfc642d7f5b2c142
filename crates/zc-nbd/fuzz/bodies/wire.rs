//! Every decoder on arbitrary bytes: a decoded value must encode and decode to the same value.

use zc_nbd::wire::{
    BlockStatus, ChunkHeader, ErrorChunk, ExportNameReply, GoRequest, Greeting, HeaderStyle, HoleChunk,
    InfoReply, MetaContextReply, MetaRequest, OptionHeader, OptionReplyHeader, RequestHeader, ServerEntry,
    SimpleReply, StatusFilter, WireError,
};

pub(crate) fn run(data: &[u8]) {
    stable(data, |value: &Greeting, out| value.encode(out), Greeting::decode);
    stable(data, |value: &OptionHeader, out| value.encode(out), OptionHeader::decode);
    stable(data, |value: &OptionReplyHeader, out| value.encode(out), OptionReplyHeader::decode);
    stable(data, |value: &ExportNameReply, out| value.encode(true, out), ExportNameReply::decode);
    stable(data, GoRequest::encode, GoRequest::decode);
    stable(data, MetaRequest::encode, MetaRequest::decode);
    stable(data, InfoReply::encode, InfoReply::decode);
    stable(data, ServerEntry::encode, ServerEntry::decode);
    stable(data, MetaContextReply::encode, MetaContextReply::decode);
    stable(data, StatusFilter::encode, StatusFilter::decode);
    stable(data, |value: &SimpleReply, out| value.encode(out), SimpleReply::decode);
    stable(data, |value: &HoleChunk, out| value.encode(out), HoleChunk::decode);
    for with_offset in [false, true] {
        stable(data, ErrorChunk::encode, |bytes| ErrorChunk::decode(with_offset, bytes));
    }
    for style in [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended] {
        stable(
            data,
            |value: &RequestHeader, out| value.encode(style, out),
            |bytes| RequestHeader::decode(style, bytes),
        );
        stable(
            data,
            |value: &ChunkHeader, out| value.encode(style, out),
            |bytes| ChunkHeader::decode(style, bytes),
        );
        stable(
            data,
            |value: &BlockStatus, out| value.encode(style, out),
            |bytes| BlockStatus::decode(style, bytes),
        );
    }
}

fn stable<T: PartialEq + core::fmt::Debug>(
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
