//! Every metadata block on arbitrary bytes: none panics, and what decodes must encode and decode to the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zc_core::JournalSeq;
use zc_format::{
    Access, BLOCK, CheckpointHeader, FormatError, JournalBlock, Record, RegionMap, Superblock, VolumeTable,
    decode_checkpoint_block, encode_checkpoint_block,
};

/// The largest structure.
const LARGEST: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    // Short inputs stand for blocks that end in zeros.
    let mut bytes = data.to_vec();
    bytes.resize(LARGEST.max(data.len()), 0);
    stable(
        &bytes,
        |value: &Superblock| value.encode(1),
        |bytes| Superblock::decode_for(bytes, 1, Access::Read),
    );
    stable(&bytes, |value: &VolumeTable| value.encode(1), |bytes| VolumeTable::decode(bytes, 1));
    stable(&bytes, |value: &RegionMap| value.encode(1), |bytes| RegionMap::decode(bytes, 1));
    stable(
        &bytes,
        |value: &CheckpointHeader| value.encode(1),
        |bytes| CheckpointHeader::decode(bytes, 1, 1 << 20),
    );
    stable(
        &bytes,
        |records: &Vec<Record>| encode_checkpoint_block(0, 0, records),
        |bytes| decode_checkpoint_block(bytes, 0, 0),
    );
    let sequence = JournalBlock::peek_sequence(&bytes).unwrap_or(JournalSeq(0));
    stable(&bytes, JournalBlock::encode, |bytes| JournalBlock::decode(bytes, sequence));
    assert!(Superblock::decode(&data[..data.len().min(BLOCK - 1)], 0).is_err());
});

fn stable<T: PartialEq + core::fmt::Debug>(
    bytes: &[u8],
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
) {
    if let Ok(value) = decode(bytes) {
        assert_eq!(decode(&encode(&value)), Ok(value));
    }
}
