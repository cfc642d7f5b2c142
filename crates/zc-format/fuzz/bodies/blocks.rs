//! Decodes arbitrary bytes as every metadata block: no panic; decoded values encode and decode to the same; a
//! superblock's areas lie on its device.

use zc_core::{Generation, JournalSeq, WeuSlot};
use zc_format::{
    Access, BLOCK, CheckpointHeader, FormatError, ImageDirectory, ImageHead, ImageSlot, JournalBlock,
    JournalLabel, RECORD_BYTES, Record, RegionMap, Salt, Summary, SummaryPlace, Superblock, VolumeTable,
    decode_checkpoint_block, encode_checkpoint_block,
};

/// The largest structure.
const LARGEST: usize = 64 << 10;
/// Blocks of the checkpoint area against which headers are checked.
const AREA_BLOCKS: u64 = 1 << 20;

pub(crate) fn run(data: &[u8]) {
    // Short inputs represent blocks that end in zeros.
    let mut bytes = data.to_vec();
    bytes.resize(LARGEST.max(data.len()), 0);
    for access in [Access::Read, Access::Write] {
        let decode = |bytes: &[u8]| Superblock::decode_for(bytes, 1, access);
        stable(&bytes, |value: &Superblock| value.encode(1), decode);
    }
    if let Ok(superblock) = Superblock::decode_for(&bytes, 1, Access::Read) {
        on_the_device(&superblock);
    }
    stable(&bytes, JournalLabel::encode, JournalLabel::decode);
    stable(
        &bytes,
        |value: &VolumeTable| value.encode(1, Salt::NONE),
        |bytes| VolumeTable::decode(bytes, 1, Salt::NONE),
    );
    stable(
        &bytes,
        |value: &RegionMap| value.encode(1, Salt::NONE),
        |bytes| RegionMap::decode(bytes, 1, Salt::NONE),
    );
    let header = |bytes: &[u8]| CheckpointHeader::decode(bytes, 1, AREA_BLOCKS, Salt::NONE);
    stable(&bytes, |value: &CheckpointHeader| value.encode(1, Salt::NONE), header);
    stable(
        &bytes,
        |records: &Vec<Record>| encode_checkpoint_block(0, 0, records, Salt::NONE),
        |bytes| decode_checkpoint_block(bytes, 0, 0, Salt::NONE),
    );
    let head = |bytes: &[u8]| ImageHead::decode(bytes, 1, AREA_BLOCKS, Salt::NONE);
    stable(&bytes, |value: &ImageHead| value.encode(1, Salt::NONE), head);
    if let Ok(head) = head(&bytes) {
        in_the_area(&head, &bytes);
    }
    let sequence = JournalBlock::peek_sequence(&bytes).unwrap_or(JournalSeq(0));
    stable(
        &bytes,
        |block: &JournalBlock| block.encode(Salt::NONE),
        |bytes| JournalBlock::decode(bytes, sequence, Salt::NONE),
    );
    let next = Summary::peek_next(&bytes).unwrap_or(JournalSeq(0));
    let place = SummaryPlace { uuid: [0; 16], slot: WeuSlot(0), generation: Generation(0), page: u32::MAX };
    let encode = |summary: &Summary| {
        let mut page = vec![0; BLOCK];
        summary.encode_into(&place, &mut page);
        page
    };
    stable(&bytes, encode, |bytes| Summary::decode(bytes, &place, next));
    for record in data.chunks(RECORD_BYTES) {
        stable(record, |value: &Record| value.encode().to_vec(), Record::decode);
    }
    assert_eq!(Superblock::decode(&data[..data.len().min(BLOCK - 1)], 0), Err(FormatError::Truncated));
}

fn on_the_device(superblock: &Superblock) {
    let geometry = &superblock.geometry;
    let last = geometry.slots.checked_sub(1).map(WeuSlot);
    let end = last.and_then(|slot| geometry.slot_offset(slot).checked_add(u64::from(geometry.weu_bytes)));
    assert!(end.is_some_and(|end| end <= geometry.device_bytes), "slots end at {end:?}: {geometry:?}");
    let offsets = Superblock::offsets(geometry.device_bytes);
    assert!(offsets.is_sorted() && offsets[3] < geometry.device_bytes, "copies at {offsets:?}");
}

/// The pieces of an image follow its head contiguously, and the last ends within the area.
fn in_the_area(head: &ImageHead, bytes: &[u8]) {
    let directory = ImageDirectory::decode(head, bytes, AREA_BLOCKS, Salt::NONE).ok();
    let mut next = 1;
    for number in 0..head.pieces() {
        let Some(piece) = head.piece(number) else { panic!("piece {number} of {head:?} is missing") };
        if let Some(directory) = &directory {
            let Some(place) = directory.place(number) else { panic!("{piece:?} of {head:?} has no place") };
            assert_eq!(place.first_block, next, "{piece:?} of {head:?}");
            next = place.blocks_end();
        }
        if let Ok(units) = head.decode_piece(&piece, bytes, Salt::NONE) {
            let _slots: Result<Vec<_>, _> = ImageSlot::decode_all(units).collect();
        }
    }
    assert!(next <= AREA_BLOCKS, "{head:?}");
    assert_eq!(head.piece(head.pieces()), None);
}

fn stable<T: PartialEq + core::fmt::Debug>(
    bytes: &[u8],
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
) {
    if let Ok(value) = decode(bytes) {
        assert_eq!(decode(&encode(&value)), Ok(value));
    }
}
