//! The bytes of `FORMAT.md`, and that no other bytes pass for them.

use zc_core::{Codec, Fingerprint};

use super::batch::{BatchHeader, CatalogChange, CatalogOp, Record, Stored};
use super::page::{self, PageKey, TableId};
use super::superblock::{LogPlace, Superblock, TableRoot};
use super::*;
use crate::ids::{BatchSeq, ChunkNo, Pointer, RootId, SegmentNo};

const UUID: [u8; 16] = [9; 16];

fn place(segment: u32, offset_bytes: u32) -> Place {
    Place { segment: SegmentNo(segment), offset_bytes }
}

fn superblock() -> Superblock {
    let root = |n: u32| TableRoot {
        pointer: Pointer { place: place(n, 4096 * n), crc: 0x1000 + n },
        height: [1, 2, 1, 2][zc_core::usize_from_u32(n) - 1],
    };
    Superblock {
        uuid: UUID,
        sequence: 5,
        session: 3,
        nonce: 0x1122_3344_5566_7788,
        segments: 100,
        segment_bytes: 64 << 10,
        log: LogPlace { seq: BatchSeq(3 << 32 | 7), nonce: 0x99, place: place(8, 8192), next: SegmentNo(17) },
        losses: 2,
        dropped: 6,
        chunks_end: 1000,
        pages_end: 50,
        epoch: 4,
        tables: [root(1), root(2), root(3), root(4)],
    }
}

fn header() -> BatchHeader {
    let stored = Stored {
        place: place(6, 12_288),
        stored_bytes: 777,
        raw_bytes: 4096,
        crc: 0xaabb_ccdd,
        codec: Codec::Lz4,
        print: Some(Fingerprint([0x5a; 32])),
    };
    let change = CatalogChange {
        op: CatalogOp::Clone,
        id: RootId(9),
        source: RootId(2),
        codec: Codec::Zstd(0),
        chunk_shift: 13,
        size_chunks: 1 << 20,
        flags: 1,
        name: "vm 17".to_owned(),
    };
    let key = PageKey { table: TableId::Chunks, level: 1, index: 300 };
    BatchHeader {
        seq: BatchSeq(3 << 32 | 7),
        nonce: 0x99,
        durable: BatchSeq(3 << 32 | 5),
        next: SegmentNo(17),
        payload_bytes: 8192,
        records: vec![
            Record::Chunk(ChunkNo(0x0102_0304), stored),
            Record::Map(RootId(9), 0x1234, ChunkNo(0x0102_0304)),
            Record::Clear(RootId(9), 100, 1 << 30),
            Record::Page(key, 16_384),
            Record::Catalog(change),
            Record::Gone(ChunkNo(0x0506), 0x8000_0000_0000_0005),
        ],
    }
}

#[test]
fn the_superblock_is_as_documented_and_reads_back() {
    let block = superblock().encode(1);
    assert_eq!(&block[4..16], [1, 0, 0, 0, b'z', b'c', b's', b't', b'o', b'r', b'e', 1]);
    assert_eq!([48, 56, 64].map(|at| u64_at(&block[..], at)), [0, 5, 3]);
    assert_eq!((u32_at(&block[..], 80), u32_at(&block[..], 104), u32_at(&block[..], 112)), (100, 8, 17));
    assert_eq!((u32_at(&block[..], 144), u32_at(&block[..], 152), u32_at(&block[..], 204)), (1, 0x1001, 2));
    assert_eq!(zc_core::crc32c(&block[..]), 0x7376_ec62, "the bytes have changed: that needs a new version");
    assert_eq!(Superblock::decode(&block[..], 1), Ok(superblock()));
    assert_eq!(Superblock::decode(&block[..], 0), Err(MediaError::Checksum), "the other copy's place");
}

#[test]
fn a_store_without_gone_records_is_read_and_one_with_unknown_features_is_not() {
    for (at, feature, outcome) in
        [(48, 0, Ok(superblock())), (48, 4, Err(MediaError::Version)), (40, 1, Err(MediaError::Version))]
    {
        let mut block = superblock().encode(1);
        put_u64(&mut block[..], at, feature);
        Binding::superblock(1).seal(&mut block);
        assert_eq!(Superblock::decode(&block[..], 1), outcome, "{feature} at {at}");
    }
}

#[test]
fn a_batch_header_is_as_documented_and_reads_back() {
    let here = place(6, 8192);
    let block = header().encode(UUID, here);
    assert_eq!((&block[4..8], u32_at(&block[..], 40)), (&b"zcSb"[..], 64 + 4 * 24 + 96));
    assert_eq!((block[64], block[128], block[152], block[176], block[200]), (1, 2, 3, 4, 5));
    assert_eq!((block[296], u64_at(&block[..], 304), block[312]), (6, 0x0506, 5));
    assert_eq!((u64_at(&block[..], 80), u32_at(&block[..], 88)), (0x0102_0304, 12_288));
    assert_eq!(zc_core::crc32c(&block[..]), 0x6e34_9461, "the bytes have changed: that needs a new version");
    assert_eq!(BatchHeader::decode(&block[..], UUID, here, 64 << 10), Ok(header()));
    for (uuid, elsewhere) in [(UUID, place(6, 12_288)), (UUID, place(7, 8192)), ([8; 16], here)] {
        let read = BatchHeader::decode(&block[..], uuid, elsewhere, 64 << 10);
        assert_eq!(read, Err(MediaError::Checksum));
    }
    let beyond = BatchHeader::decode(&block[..], UUID, here, 16 << 10);
    assert_eq!(beyond, Err(MediaError::Field("payload_bytes")));
}

#[test]
fn a_page_is_believed_in_its_place_under_its_name_and_with_its_crc_alone() {
    let key = PageKey { table: TableId::Pages, level: 1, index: 7 };
    let mut block = page::new_page(key, 1, 3);
    let pointer = page::seal(&mut block, UUID, place(5, 4096));
    assert_eq!((&block[4..8], block[8], block[9], u64_at(&block[..], 16)), (&b"zcSp"[..], 2, 1, 7));
    assert_eq!(page::verify(&block, UUID, key, pointer), Ok(()));
    let older = Pointer { crc: pointer.crc ^ 1, ..pointer };
    assert_eq!(page::verify(&block, UUID, key, older), Err(MediaError::Checksum));
    let elsewhere = Pointer { place: place(5, 8192), ..pointer };
    assert_eq!(page::verify(&block, UUID, key, elsewhere), Err(MediaError::Checksum));
    let other = PageKey { index: 8, ..key };
    assert_eq!(page::verify(&block, UUID, other, pointer), Err(MediaError::Field("page name")));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let here = place(6, 8192);
    let (batch, first) = (header().encode(UUID, here), superblock().encode(0));
    for bit in (0..8 * BLOCK).step_by(13) {
        let (mut batch, mut first) = (batch.clone(), first.clone());
        batch[bit / 8] ^= 1 << (bit % 8);
        first[bit / 8] ^= 1 << (bit % 8);
        BatchHeader::decode(&batch[..], UUID, here, 64 << 10).unwrap_err();
        Superblock::decode(&first[..], 0).unwrap_err();
    }
}

#[test]
fn records_that_make_no_sense_are_errors() {
    let here = place(6, 8192);
    for (at, byte) in [(64, 0), (64, 7), (65, 9), (40, 255), (177, 7), (201, 0), (201, 7), (206, 9)] {
        let mut block = header().encode(UUID, here);
        block[at] = byte;
        Binding::batch(UUID, here).seal(&mut block);
        let read = BatchHeader::decode(&block[..], UUID, here, 64 << 10);
        assert!(matches!(read, Err(MediaError::Field(_))), "byte {at} = {byte}: {read:?}");
    }
}
