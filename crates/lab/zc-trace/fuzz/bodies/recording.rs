//! Arbitrary payloads in blocks with good checksums, as a recording of the daemon: no panic, requests within their
//! bounds and in order, pieces that fit together.
//!
//! The input is cut at each 0xfe; the first byte of a part that is odd makes it the payload of the end.

use zc_recording::{ADDRESS_MAX, Header, Share, Writer};
use zc_trace::{Options, Reader};

/// Requests that are read of one input.
const REQUESTS: usize = 10_000;

fn block(number: u32, part: &[u8]) -> Vec<u8> {
    let [choice, payload @ ..] = part else { return Vec::new() };
    let magic = if choice & 1 == 1 { b"ZCRe" } else { b"ZCRb" };
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = [&magic[..], &len.to_le_bytes(), &number.to_le_bytes()].concat();
    let crc = zc_core::crc32c_append(zc_core::crc32c(&bytes), payload);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn run(data: &[u8]) {
    let header = Header { extent_bytes: 8192, volume_bytes: 1 << 30, share: Share::WHOLE, began_s: 0 };
    let mut bytes = Vec::new();
    assert!(Writer::new(&mut bytes, &header).is_ok(), "memory takes everything");
    for (number, part) in (0..).zip(data.split(|byte| *byte == 0xfe)) {
        bytes.extend_from_slice(&block(number, part));
    }
    let Ok(mut reader) = Reader::from_vec(bytes, Options::default()) else { panic!("the header is good") };
    let mut before = None;
    for request in reader.by_ref().take(REQUESTS).flatten() {
        assert!(request.end_bytes() <= ADDRESS_MAX, "{request:?}");
        assert!(request.len_bytes > 0 || !request.op.has_range(), "{request:?}");
        if request.continues {
            assert_eq!(
                before,
                Some((request.op, request.time_ns, request.offset_bytes)),
                "a piece of another request"
            );
        }
        before = Some((request.op, request.time_ns, request.end_bytes()));
    }
}
