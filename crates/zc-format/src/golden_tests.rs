//! The format as bytes: `golden.txt` holds a dump of one sample of every structure. If this test fails, the format has
//! changed: after the first release that requires a new version or a feature flag (`FORMAT.md`, section 3), not a new
//! dump.

use core::fmt::Write as _;

use zc_core::{ExtentKey, ExtentNo, JournalSeq, SectorSpan, VolumeId, WeuSlot};

use crate::samples_tests as samples;
use crate::{
    CheckpointHeader, ExtentHeader, ImageDirectory, ImageHead, ImageSlot, JournalBlock, Record, RegionMap,
    Summary, Superblock, VolumeTable, WeuHeader, decode_checkpoint_block, encode_checkpoint_block,
};

const GOLDEN: &str = include_str!("golden.txt");

/// Rows of 16 bytes; rows of zeros are left out.
fn dump(name: &str, bytes: &[u8]) -> String {
    let mut text = format!("{name} {}\n", bytes.len());
    for (row, chunk) in bytes.chunks(16).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            write!(text, "{:05x}:", row * 16).unwrap();
            for byte in chunk {
                write!(text, " {byte:02x}").unwrap();
            }
            text.push('\n');
        }
    }
    text
}

/// Returns the bytes of a sample from the dump.
fn golden(name: &str) -> Vec<u8> {
    let mut lines = GOLDEN.lines().skip_while(|line| line.split(' ').next() != Some(name));
    let (_, len) = lines.next().unwrap().split_once(' ').unwrap();
    let mut bytes = vec![0; len.parse().unwrap()];
    for line in lines.take_while(|line| line.contains(':')) {
        let (offset, row) = line.split_once(": ").unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (i, byte) in row.split(' ').enumerate() {
            bytes[offset + i] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes
}

#[test]
fn zeros_that_have_to_keep_their_room_differ_in_the_byte_that_was_always_zero() {
    let zeros = |no_hole| {
        let key = ExtentKey { volume: VolumeId(1), extent: ExtentNo(2) };
        Record::DirtyZero { key, span: SectorSpan::from_ends(3, 4).unwrap(), no_hole }
    };
    let (may, must) = (zeros(false).encode(), zeros(true).encode());
    assert_eq!((may[1], must[1]), (0, 1));
    assert_eq!((may[0], &may[2..]), (must[0], &must[2..]));
    assert_eq!((Record::decode(&may), Record::decode(&must)), (Ok(zeros(false)), Ok(zeros(true))));
}

#[test]
fn every_structure_encodes_to_the_golden_bytes() {
    let text = [
        dump("superblock", &samples::superblock().encode(2)),
        dump("volume-table", &samples::volume_table().encode(1, samples::salt())),
        dump("region-map", &samples::region_map().encode(1, samples::salt())),
        dump("checkpoint-header", &samples::checkpoint_header().encode(1, samples::salt())),
        dump("checkpoint-block", &encode_checkpoint_block(9, 3, &samples::records(), samples::salt())),
        dump("journal-block", &samples::journal_block(17).encode(samples::salt())),
        dump("weu-header", &samples::encode_weu(&samples::weu_header(5))),
        dump("extent", &samples::sealed_extent(5, 192)),
        dump("dirty-journal-block", &samples::dirty_journal_block(17).encode(samples::salt())),
        dump("dirty-volume-table", &samples::dirty_volume_table().encode(1, samples::salt())),
        dump("dirty-weu-header", &samples::encode_weu(&samples::dirty_weu_header(5))),
        dump("growing-journal-block", &samples::growing_journal_block(17).encode(samples::salt())),
        dump("summary-page", &samples::summary_page(&samples::summary(), &samples::summary_place())),
        dump("journal-label", &crate::JournalLabel::of(&samples::superblock()).encode()),
        dump("image-head", &samples::image_head().encode(1, samples::salt())),
        dump("image-directory", &samples::image_directory().encode(&samples::image_head(), samples::salt())),
        dump("image-piece", &samples::image_piece()),
    ]
    .concat();
    assert_eq!(text, GOLDEN, "the format has drifted:\n{text}");
}

#[test]
fn the_golden_bytes_decode_to_every_structure() {
    assert_eq!(Superblock::decode(&golden("superblock"), 2), Ok(samples::superblock()));
    assert_eq!(VolumeTable::decode(&golden("volume-table"), 1, samples::salt()), Ok(samples::volume_table()));
    assert_eq!(
        VolumeTable::decode(&golden("dirty-volume-table"), 1, samples::salt()),
        Ok(samples::dirty_volume_table())
    );
    assert_eq!(RegionMap::decode(&golden("region-map"), 1, samples::salt()), Ok(samples::region_map()));
    assert_eq!(
        CheckpointHeader::decode(&golden("checkpoint-header"), 1, 8, samples::salt()),
        Ok(samples::checkpoint_header())
    );
    assert_eq!(
        decode_checkpoint_block(&golden("checkpoint-block"), 9, 3, samples::salt()),
        Ok(samples::records())
    );
    assert_eq!(
        JournalBlock::decode(&golden("journal-block"), JournalSeq(17), samples::salt()),
        Ok(samples::journal_block(17))
    );
    assert_eq!(
        JournalBlock::decode(&golden("growing-journal-block"), JournalSeq(17), samples::salt()),
        Ok(samples::growing_journal_block(17))
    );
    let summary = Summary::decode(&golden("summary-page"), &samples::summary_place(), JournalSeq(18));
    assert_eq!(summary, Ok(samples::summary()));
    let weu = WeuHeader::decode(
        &golden("weu-header"),
        WeuSlot(5),
        samples::WEU_BYTES,
        samples::EXTENT_BYTES,
        samples::salt(),
    );
    assert_eq!(weu, Ok(samples::weu_header(5)));
    let bytes = golden("extent");
    let header = samples::extent_header(5, 100);
    let extent = ExtentHeader::verify(&bytes, &samples::expected(&header, 192)).unwrap();
    assert_eq!(&bytes[extent.payload], samples::payload());
    assert_eq!(extent.codec, header.codec);
    assert_eq!(extent.header.fingerprint.0[..24], header.fingerprint.0[..24]);
    assert_eq!(extent.header.fingerprint.0[24..], [0; 8]);
}

#[test]
fn a_durable_record_is_the_volume_and_the_epoch() {
    let record = Record::Durable { volume: VolumeId(0x0102), epoch: 0x7172_7374_7576_7778 };
    let mut bytes = [0; crate::RECORD_BYTES];
    bytes[..4].copy_from_slice(&[13, 0, 2, 1]);
    bytes[8..16].copy_from_slice(&0x7172_7374_7576_7778_u64.to_le_bytes());
    assert_eq!((record.encode(), Record::decode(&bytes)), (bytes, Ok(record)));
}

#[test]
fn the_golden_bytes_decode_to_an_index_image() {
    let head = ImageHead::decode(&golden("image-head"), 1, 8, samples::salt()).unwrap();
    assert_eq!(head, samples::image_head());
    let directory = ImageDirectory::decode(&head, &golden("image-directory"), 8, samples::salt());
    assert_eq!(directory, Ok(samples::image_directory()));
    let piece = golden("image-piece");
    let units = head.decode_piece(&head.piece(1).unwrap(), &piece, samples::salt()).unwrap();
    let slots: Result<Vec<_>, _> = ImageSlot::decode_all(units).collect();
    assert_eq!(slots, Ok(samples::image_slots().to_vec()));
}
