//! Encodings of batches: documented bytes, round trips, refusals.

use super::*;
use crate::format2::leaf::{Cell, Stored};
use proptest::collection::vec;
use proptest::prelude::*;

const UUID: [u8; 16] = *b"0123456789abcdef";

fn header() -> BatchHeader {
    BatchHeader {
        seq: 0x11,
        nonce: 0x22,
        durable: 0x33,
        segment: 0x44,
        offset_units: 0x55,
        next_slot: 0x66,
        first_ordinal: 0x77,
        payload_bytes: 4 * BLOCK_BYTES,
    }
}

fn frame(blocks: u8, stored_bytes: u32, is_moved: bool) -> StoredFrame {
    let name = |ordinal: u8| Name { pool: 1, segment: 0x0102, ordinal: 300 + u16::from(ordinal) };
    StoredFrame {
        codec: 1,
        stored_bytes,
        prints: (0..blocks).map(|block| Fingerprint([block; 32])).collect(),
        moved_from: is_moved.then(|| (0..blocks).map(name).collect()),
    }
}

fn delta() -> Leaf {
    let mut leaf = Leaf::default();
    let name = Name { pool: 0, segment: 0x44, ordinal: 0x77 };
    let stored = Stored { name, offset_units: 0x95, units: 33, blocks: 1, index: 0 };
    leaf.set(9, Some(Cell::Stored(stored)));
    leaf.set(10, Some(Cell::Hole));
    leaf
}

fn records() -> Vec<Record> {
    vec![
        Record::Frame(frame(1, 2000, false)),
        Record::Frame(frame(4, 9000, true)),
        Record::Node(NodePlace { tree: 2, level: 1, index: 700, bytes: 170 }),
        Record::Map(70_000, 3, delta()),
        Record::Clear(70_000, 1 << 40, 12),
        Record::Mark(UUID, 5, 6),
        Record::Catalog(b"change".to_vec()),
    ]
}

#[test]
fn the_header_has_the_documented_bytes() {
    let bytes = header().encode(&UUID, &records());
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(bytes[4..8], *b"zcS2");
    assert_eq!([8, 16, 24, 32].map(long), [0x11, 0x22, 0x33, 0x44]);
    assert_eq!([40, 44, 48, 56, 60].map(short), [0x55, 0x66, 0x77, 16_384, 0]);
    let directory_bytes = short(52);
    // The first frame: kind, blocks, codec, 2000 as two bytes, one fingerprint.
    assert_eq!(bytes[64..70], [1, 1, 1, 0xd0, 0x0f, 0]);
    assert_eq!(bytes.len(), 4096);
    assert!(bytes[64 + usize_from_u32(directory_bytes)..].iter().all(|byte| *byte == 0));
    assert_eq!(BatchHeader::decode(&UUID, &bytes), Ok((header(), records())));
}

#[test]
fn a_padded_directory_takes_the_blocks_and_has_the_same_records() {
    for blocks in 1..4 {
        let bytes = header().encode_padded(&UUID, &records(), blocks);
        assert_eq!(bytes.len(), 4096 * usize_from_u32(blocks));
        let directory_bytes = u32::from_le_bytes(bytes[52..56].try_into().unwrap());
        assert_eq!(BatchHeader::directory_blocks(directory_bytes), blocks);
        assert_eq!(BatchHeader::decode(&UUID, &bytes), Ok((header(), records())));
    }
}

#[test]
fn another_pool_or_a_cut_is_refused() {
    let bytes = header().encode(&UUID, &records());
    assert_eq!(BatchHeader::decode(&[0; 16], &bytes), Err(BatchError::Checksum));
    assert_eq!(BatchHeader::decode(&UUID, &bytes[..100]), Err(BatchError::Truncated));
    assert_eq!(BatchHeader::decode(&UUID, &[0; 4096]), Err(BatchError::Magic));
    assert_eq!(BatchHeader::decode(&UUID, &[]), Err(BatchError::Truncated));
}

/// A batch with a valid checksum whose fields were changed first.
fn sealed(change: impl FnOnce(&mut Vec<u8>)) -> Result<(BatchHeader, Vec<Record>), BatchError> {
    let mut bytes = header().encode(&UUID, &records());
    change(&mut bytes);
    let directory = u32::from_le_bytes(bytes[52..56].try_into().unwrap());
    let end = (64 + usize_from_u32(directory)).min(bytes.len());
    let crc = checksum(&UUID, &bytes[4..end]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    BatchHeader::decode(&UUID, &bytes)
}

#[test]
fn fields_out_of_bounds_are_refused_with_a_valid_checksum() {
    let with = |at: usize, value: u32| {
        sealed(|bytes| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())).map(drop)
    };
    assert_eq!(with(32, 0), Err(BatchError::Field("segment")));
    assert_eq!(with(37, 1), Err(BatchError::Field("segment")), "2^40");
    assert_eq!(with(40, UNITS_MAX - 64), Err(BatchError::Field("offset")));
    assert_eq!(with(48, 1 << 16), Err(BatchError::Field("ordinal")));
    assert_eq!(with(48, (1 << 16) - 4), Err(BatchError::Field("contents")), "five blocks");
    assert_eq!(with(52, DIRECTORY_BYTES_MAX + 1), Err(BatchError::Field("directory")));
    assert_eq!(with(56, 4095), Err(BatchError::Field("payload")));
    assert_eq!(with(56, 2 * BLOCK_BYTES), Err(BatchError::Field("contents")));
    assert_eq!(with(56, PAYLOAD_BYTES_MAX + BLOCK_BYTES), Err(BatchError::Field("payload")));
    assert_eq!(sealed(|bytes| bytes[64] = 9).map(drop), Err(BatchError::Field("record")));
    assert_eq!(sealed(|bytes| bytes[65] = 17).map(drop), Err(BatchError::Field("frame")));
    assert_eq!(sealed(|bytes| bytes[68] = 0x7f).map(drop), Err(BatchError::Field("frame")), "16,336 bytes");
}

fn record() -> impl Strategy<Value = Record> {
    let range = (any::<u32>(), 0_u64..1 << 50, 0_u64..1 << 50);
    prop_oneof![
        (1_u8..=16, any::<bool>()).prop_map(|(blocks, moved)| Record::Frame(frame(blocks, 100, moved))),
        (any::<u8>(), any::<u8>(), any::<u64>(), 1_u32..6000)
            .prop_map(|(tree, level, index, bytes)| Record::Node(NodePlace { tree, level, index, bytes })),
        (any::<u32>(), 0..LEAVES_MAX).prop_map(|(volume, leaf)| Record::Map(volume, leaf, delta())),
        range.prop_map(|(volume, first, count)| Record::Clear(volume, first, count)),
        (any::<[u8; 16]>(), any::<u32>(), any::<u64>())
            .prop_map(|(cache, volume, run)| Record::Mark(cache, volume, run)),
        vec(any::<u8>(), 0..40).prop_map(Record::Catalog),
    ]
}

proptest! {
    #[test]
    fn batches_round_trip(records in vec(record(), 0..20)) {
        let header = BatchHeader { payload_bytes: 64 * BLOCK_BYTES, ..header() };
        let bytes = header.encode(&UUID, &records);
        prop_assert_eq!(BatchHeader::decode(&UUID, &bytes), Ok((header, records)));
    }

    #[test]
    fn changed_directories_never_panic(at in 4_usize..400, to: u8) {
        drop(sealed(|bytes| bytes[at] = to));
    }
}
