//! Decodes arbitrary bytes as unit headers and stored extents: no panic; accepted positions are in range; decoded
//! values encode and decode to the same.

use zc_core::{Generation, WeuSeq, WeuSlot};
use zc_format::{EXTENT_HEADER_BYTES, ExpectedExtent, ExtentHeader, Salt, WeuHeader};

const WEU_BYTES: u32 = 64 << 10;
const EXTENT_BYTES: u32 = 8 << 10;

pub(crate) fn run(data: &[u8]) {
    header(data);
    extent(data);
}

fn header(data: &[u8]) {
    // A header ends its slot: short inputs represent one that begins with zeros.
    let mut tail = vec![0; (32_usize << 10).saturating_sub(data.len())];
    tail.extend_from_slice(data);
    let slot = tail
        .last_chunk::<64>()
        .map_or(0, |trailer| u32::from_le_bytes([trailer[12], trailer[13], trailer[14], trailer[15]]));
    let Ok(header) = WeuHeader::decode(&tail, WeuSlot(slot), WEU_BYTES, EXTENT_BYTES, Salt::NONE) else {
        return;
    };
    let mut end = 0;
    for entry in &header.entries {
        assert!(entry.offset_bytes >= end);
        end = entry.offset_bytes + EXTENT_HEADER_BYTES + entry.stored_bytes;
    }
    let size = WeuHeader::encoded_bytes(u32::try_from(header.entries.len()).unwrap_or(u32::MAX));
    assert!(end <= WEU_BYTES - size);
    let mut again = vec![0; zc_core::usize_from_u32(size)];
    header.encode_into(&mut again, Salt::NONE);
    assert_eq!(WeuHeader::decode(&again, WeuSlot(slot), WEU_BYTES, EXTENT_BYTES, Salt::NONE), Ok(header));
}

/// Verifies an extent against the expectation that its own header implies.
fn extent(data: &[u8]) {
    let word = |at: usize| data.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let expected = ExpectedExtent {
        salt: Salt::NONE,
        slot: WeuSlot(word(4)),
        generation: Generation(word(8)),
        weu_seq: WeuSeq(u64::from(word(16)) | u64::from(word(20)) << 32),
        offset_bytes: 192,
        raw_bytes: EXTENT_BYTES,
        first_sector: 0,
        key: None,
        print: None,
    };
    if let Ok(extent) = ExtentHeader::verify(data, &expected) {
        let payload = &data[extent.payload.clone()];
        let mut again = vec![0; extent.payload.end];
        extent.header.seal(192, payload, &mut again, Salt::NONE);
        assert_eq!(ExtentHeader::verify(&again, &expected), Ok(extent));
    }
}
