//! Decodes arbitrary bytes as batches and frames of the log: no panic; decoded values encode and decode to the
//! same, and lie within their segment.

use zc_store::format2::batch::{BatchHeader, Record};
use zc_store::format2::frame::{FrameHeader, HEADER_BYTES};
use zc_store::format2::{BLOCK_BYTES, FRAME_BLOCKS_MAX, Name, UNIT_BYTES, UNITS_MAX};

const UUID: [u8; 16] = [7; 16];

pub(crate) fn run(data: &[u8]) {
    batch(data);
    frame(data);
}

fn batch(data: &[u8]) {
    let Ok((header, records)) = BatchHeader::decode(&UUID, data) else { return };
    let bytes = header.encode(&UUID, &records);
    assert_eq!(BatchHeader::decode(&UUID, &bytes), Ok((header, records.clone())));
    let end = u64::from(header.offset_units) * u64::from(UNIT_BYTES)
        + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let end = end + u64::from(header.payload_bytes);
    assert!(end <= u64::from(UNITS_MAX) * u64::from(UNIT_BYTES), "the batch ends at {end}: {header:?}");
    let units: u64 = records
        .iter()
        .map(|record| match record {
            Record::Frame(frame) => u64::from(frame.units()),
            _ => 0,
        })
        .sum();
    assert!(units * u64::from(UNIT_BYTES) <= u64::from(header.payload_bytes), "{units} units: {header:?}");
}

/// The name is what the bytes hold, so that the fields behind it are reached.
fn frame(data: &[u8]) {
    let Some([n0, n1, n2, n3, n4, o0, o1]) = data.get(8..15).and_then(|name| name.first_chunk()) else {
        return;
    };
    let segment = u64::from_le_bytes([*n0, *n1, *n2, *n3, *n4, 0, 0, 0]);
    let name = Name { pool: 0, segment, ordinal: u16::from_le_bytes([*o0, *o1]) };
    let Ok((header, payload)) = FrameHeader::open(&UUID, name, data) else { return };
    assert!((1..=FRAME_BLOCKS_MAX).contains(&header.blocks), "{header:?}");
    assert!(header.stored_bytes <= u32::from(header.blocks) * BLOCK_BYTES, "{header:?}");
    assert!(payload.end <= data.len(), "{payload:?} of {} bytes", data.len());
    assert_eq!(u64::from(header.stored_bytes) + u64::from(HEADER_BYTES), header.frame_bytes());
    let mut copy = data[..payload.end].to_vec();
    header.seal(&UUID, &mut copy);
    assert_eq!(FrameHeader::open(&UUID, name, &copy), Ok((header, payload)));
}
