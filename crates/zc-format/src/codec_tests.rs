//! Codecs under corruption: round trips, single bits, wrong places, truncated and hostile input.

use proptest::collection::vec;
use proptest::prelude::*;
use zc_core::{
    Codec, ExtentKey, ExtentNo, Fingerprint, FingerprintKind, Generation, JournalSeq, RegionKey, SectorSpan,
    VolumeId, WeuSeq, WeuSlot, limits, usize_from_u32,
};

use crate::crc::{Binding, BlockType, Salt};
use crate::samples_tests as samples;
use crate::{
    Access, BLOCK, CheckpointHeader, ExpectedExtent, ExtentError, ExtentHeader, FormatError, GrowingUnit,
    ImageDirectory, ImageHead, JournalBlock, OriginIdentity, OriginKind, RECORDS_PER_BLOCK, Record,
    RegionMap, Superblock, VOLUMES_PER_TABLE, VolumeRecord, VolumeTable, WeuEntry, WeuHeader,
    decode_checkpoint_block, encode_checkpoint_block,
};

fn weu(bytes: &[u8], slot: u32) -> Result<WeuHeader, FormatError> {
    WeuHeader::decode(bytes, WeuSlot(slot), samples::WEU_BYTES, samples::EXTENT_BYTES, samples::salt())
}

fn extent(bytes: &[u8], slot: u32, offset_bytes: u32) -> bool {
    ExtentHeader::verify(bytes, &samples::expected(&samples::extent_header(slot, 100), offset_bytes)).is_ok()
}

/// Name of a structure, its bytes, and a function that validates bytes in its place.
type Case = (&'static str, Vec<u8>, fn(&[u8]) -> bool);

fn cases() -> Vec<Case> {
    vec![
        ("superblock", samples::superblock().encode(1), |b| Superblock::decode(b, 1).is_ok()),
        ("volume table", samples::volume_table().encode(1, samples::salt()), |b| {
            VolumeTable::decode(b, 1, samples::salt()).is_ok()
        }),
        ("region map", samples::region_map().encode(1, samples::salt()), |b| {
            RegionMap::decode(b, 1, samples::salt()).is_ok()
        }),
        ("checkpoint header", samples::checkpoint_header().encode(1, samples::salt()), |b| {
            CheckpointHeader::decode(b, 1, 8, samples::salt()).is_ok()
        }),
        ("checkpoint block", encode_checkpoint_block(9, 3, &samples::records(), samples::salt()), |b| {
            decode_checkpoint_block(b, 9, 3, samples::salt()).is_ok()
        }),
        ("journal block", samples::journal_block(17).encode(samples::salt()), |b| {
            JournalBlock::decode(b, JournalSeq(17), samples::salt()).is_ok()
        }),
        ("WEU header", samples::encode_weu(&samples::weu_header(5)), |b| weu(b, 5).is_ok()),
        ("image head", samples::image_head().encode(1, samples::salt()), |b| {
            ImageHead::decode(b, 1, 8, samples::salt()).is_ok()
        }),
        ("image piece", samples::image_piece(), |b| {
            let head = samples::image_head();
            head.decode_piece(&head.piece(1).unwrap(), b, samples::salt()).is_ok()
        }),
        (
            "image directory",
            samples::image_directory().encode(&samples::image_head(), samples::salt()),
            |b| ImageDirectory::decode(&samples::image_head(), b, 8, samples::salt()).is_ok(),
        ),
        ("extent", samples::sealed_extent(5, 192)[..164].to_vec(), |b| extent(b, 5, 192)),
    ]
}

#[test]
fn every_single_bit_flip_is_detected() {
    for (name, mut bytes, valid) in cases() {
        assert!(valid(&bytes), "{name}");
        let bits = bytes.len() * 8;
        // All bits of structures up to 16 KiB; of larger ones the head and a sample of the rest.
        let step = |bit: usize| if bits > 1 << 17 && bit > 1 << 14 { 97 } else { 1 };
        let mut bit = 0;
        while bit < bits {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!valid(&bytes), "{name}: bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
            bit += step(bit);
        }
    }
}

#[test]
fn cut_off_input_is_an_error() {
    for (name, bytes, valid) in cases() {
        for len in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
            assert!(!valid(&bytes[..len]), "{name}: {len} bytes");
        }
    }
}

#[test]
fn torn_structures_are_detected() {
    for (name, bytes, valid) in cases() {
        for sector in (512..bytes.len()).step_by(512) {
            let mut torn = bytes.clone();
            torn[sector..].fill(0x5a);
            assert!(!valid(&torn), "{name}: torn at {sector}");
            let mut torn = bytes.clone();
            torn[..sector].fill(0);
            assert!(!valid(&torn), "{name}: begins at {sector}");
        }
    }
}

#[test]
fn another_place_is_detected() {
    assert_eq!(Superblock::decode(&samples::superblock().encode(1), 0), Err(FormatError::Checksum));
    assert_eq!(
        VolumeTable::decode(&samples::volume_table().encode(1, samples::salt()), 0, samples::salt()),
        Err(FormatError::Checksum)
    );
    assert_eq!(
        RegionMap::decode(&samples::region_map().encode(1, samples::salt()), 0, samples::salt()),
        Err(FormatError::Checksum)
    );
    assert_eq!(
        CheckpointHeader::decode(
            &samples::checkpoint_header().encode(1, samples::salt()),
            0,
            8,
            samples::salt()
        ),
        Err(FormatError::Checksum)
    );
    let block = encode_checkpoint_block(9, 3, &samples::records(), samples::salt());
    assert_eq!(
        decode_checkpoint_block(&block, 9, 2, samples::salt()),
        Err(FormatError::Field("checkpoint block number"))
    );
    assert_eq!(
        decode_checkpoint_block(&block, 8, 3, samples::salt()),
        Err(FormatError::Field("checkpoint block number"))
    );
    let older = JournalBlock::decode(
        &samples::journal_block(17).encode(samples::salt()),
        JournalSeq(25),
        samples::salt(),
    );
    assert_eq!(older, Err(FormatError::Field("journal sequence")));
    assert_eq!(weu(&samples::encode_weu(&samples::weu_header(5)), 6), Err(FormatError::Field("slot")));
}

/// The binding alone distinguishes places, even if no field does.
#[test]
fn every_part_of_the_binding_counts() {
    let base =
        Binding { salt: samples::salt(), kind: BlockType::Extent, place: 1, sequence: 2, generation: 3 };
    let crc = base.crc(b"bytes");
    assert_ne!(crc, Binding { salt: samples::salt(), kind: BlockType::WeuHeader, ..base }.crc(b"bytes"));
    assert_ne!(crc, Binding { place: 2, ..base }.crc(b"bytes"));
    assert_ne!(crc, Binding { sequence: 3, ..base }.crc(b"bytes"));
    assert_ne!(crc, Binding { generation: 2, ..base }.crc(b"bytes"));
    assert_eq!(crc, base.crc(b"bytes"));
    // CRC-32C of "123456789" is e3069283 (RFC 3720, B.4 gives the polynomial; the value is the usual check).
    assert_eq!(zc_core::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn an_extent_is_verified_against_all_that_is_expected() {
    let bytes = samples::sealed_extent(5, 192);
    let good = samples::expected(&samples::extent_header(5, 100), 192);
    let fault = |expected: ExpectedExtent| ExtentHeader::verify(&bytes, &expected).err();
    assert_eq!(fault(good), None);
    assert_eq!(fault(ExpectedExtent { key: None, ..good }), None);
    assert_eq!(fault(ExpectedExtent { slot: WeuSlot(6), ..good }), Some(ExtentError::Place));
    assert_eq!(fault(ExpectedExtent { generation: Generation(1), ..good }), Some(ExtentError::Place));
    assert_eq!(fault(ExpectedExtent { weu_seq: WeuSeq(1), ..good }), Some(ExtentError::Place));
    assert_eq!(fault(ExpectedExtent { offset_bytes: 256, ..good }), Some(ExtentError::Checksum));
    assert_eq!(fault(ExpectedExtent { raw_bytes: 8192, ..good }), Some(ExtentError::Header));
    let other = ExtentKey { volume: VolumeId(1), extent: ExtentNo(1) };
    assert_eq!(fault(ExpectedExtent { key: Some(other), ..good }), Some(ExtentError::Identity));
    let small = ExtentHeader { raw_bytes: 99, ..samples::extent_header(5, 100) };
    let mut larger_stored_than_raw = vec![0; 164];
    small.seal(192, &samples::payload(), &mut larger_stored_than_raw, samples::salt());
    let expected = samples::expected(&small, 192);
    assert_eq!(ExtentHeader::verify(&larger_stored_than_raw, &expected), Err(ExtentError::Header));
    assert_eq!(ExtentHeader::verify(&bytes[..163], &good), Err(ExtentError::Truncated));
    assert_eq!(ExtentHeader::verify(&bytes[..63], &good), Err(ExtentError::Truncated));
}

/// Blocks that an older cache left on the device, with the same numbers, at the same place.
#[test]
fn another_cache_s_blocks_are_refused() {
    let (own, other) = (Salt::of(&[1; 16]), Salt::of(&[2; 16]));
    assert_ne!(own, other);
    let ok = |own: bool| if own { Ok(()) } else { Err(FormatError::Checksum) };
    for (writer, reader) in [(own, own), (other, own), (Salt::NONE, own), (other, Salt::NONE)] {
        let same = writer == reader;
        let table = samples::volume_table().encode(1, writer);
        assert_eq!(VolumeTable::decode(&table, 1, reader).map(drop), ok(same));
        let map = samples::region_map().encode(1, writer);
        assert_eq!(RegionMap::decode(&map, 1, reader).map(drop), ok(same));
        let header = samples::checkpoint_header().encode(1, writer);
        assert_eq!(CheckpointHeader::decode(&header, 1, 8, reader).map(drop), ok(same));
        let block = encode_checkpoint_block(9, 3, &samples::records(), writer);
        assert_eq!(decode_checkpoint_block(&block, 9, 3, reader).map(drop), ok(same));
        let block = samples::journal_block(17).encode(writer);
        assert_eq!(JournalBlock::decode(&block, JournalSeq(17), reader).map(drop), ok(same));
        let weu = samples::weu_header(5);
        let mut tail = samples::encode_weu(&weu);
        weu.encode_into(&mut tail, writer);
        let read = WeuHeader::decode(&tail, WeuSlot(5), samples::WEU_BYTES, samples::EXTENT_BYTES, reader);
        assert_eq!(read.map(drop), ok(same));
        let header = samples::extent_header(5, 100);
        let mut sealed = vec![0; 164];
        header.seal(192, &samples::payload(), &mut sealed, writer);
        let expected = ExpectedExtent { salt: reader, ..samples::expected(&header, 192) };
        let verified = ExtentHeader::verify(&sealed, &expected).map(drop);
        assert_eq!(verified, if same { Ok(()) } else { Err(ExtentError::Checksum) });
    }
}

#[test]
fn a_checksum_covers_the_uuid_then_the_binding_then_the_bytes() {
    let uuid = *b"0123456789abcdef";
    let block = samples::journal_block(17).encode(Salt::of(&uuid));
    let mut covered = uuid.to_vec();
    for number in [0x7a63_0006_u64, 0, 17, 0] {
        covered.extend(number.to_le_bytes());
    }
    covered.extend(&block[4..]);
    assert_eq!(block[..4], zc_core::crc32c(&covered).to_le_bytes());
}

#[test]
fn unknown_features_and_versions_are_refused_as_documented() {
    let with = |compat, ro_compat, incompat| {
        let mut superblock = samples::superblock();
        superblock.features = crate::Features { compat, ro_compat, incompat };
        superblock.encode(0)
    };
    assert_eq!(Superblock::decode(&with(u64::MAX, 0, 0), 0).unwrap().features.compat, u64::MAX);
    assert_eq!(Superblock::decode(&with(0, 1, 0), 0), Err(FormatError::ReadOnly));
    assert_eq!(Superblock::decode_for(&with(0, 1, 0), 0, Access::Read).unwrap().features.ro_compat, 1);
    assert_eq!(Superblock::decode_for(&with(0, 0, 16), 0, Access::Read), Err(FormatError::Version));
    // A known feature that the layout contradicts.
    let contradiction = with(0, 0, crate::Features::EXTERNAL_JOURNAL);
    assert_eq!(Superblock::decode(&contradiction, 0), Err(FormatError::Field("journal_offset")));
    let mut newer = with(0, 0, 0);
    for version in [0, 1, 3] {
        newer[4] = version;
        Binding::copy(BlockType::Superblock, 0, Salt::NONE).seal(&mut newer);
        assert_eq!(Superblock::decode_for(&newer, 0, Access::Read), Err(FormatError::Version));
    }
}

#[test]
fn a_journal_label_is_read_back_and_damage_is_seen() {
    let label = crate::JournalLabel::of(&samples::superblock());
    let mut block = label.encode();
    assert_eq!(crate::JournalLabel::decode(&block), Ok(label));
    assert_eq!(crate::JournalLabel::decode(&[0; BLOCK]), Err(FormatError::Magic));
    block[9] ^= 1;
    assert_eq!(crate::JournalLabel::decode(&block), Err(FormatError::Checksum));
}

#[test]
fn a_long_label_is_cut_between_characters() {
    let mut superblock = samples::superblock();
    superblock.label = format!("{}\u{e9}", "x".repeat(63));
    let read = Superblock::decode(&superblock.encode(3), 3).unwrap();
    assert_eq!(read.label, "x".repeat(63));
}

#[test]
fn a_weu_header_that_contradicts_itself_is_refused() {
    type Spoil = fn(&mut WeuHeader);
    let spoils: [Spoil; 7] = [
        |h| h.entries.swap(0, 1),
        |h| h.entries[1].offset_bytes = 128,
        |h| h.entries[1].offset_bytes = 200,
        |h| h.entries[1].offset_bytes = samples::WEU_BYTES - 4096 - 128,
        |h| h.entries[1].stored_bytes = samples::EXTENT_BYTES + 1,
        |h| h.entries[1].key.volume.0 = limits::VOLUMES_MAX,
        |h| h.entries[1].key.extent.0 = limits::EXTENTS_PER_VOLUME_MAX,
    ];
    for (i, spoil) in spoils.iter().enumerate() {
        let mut header = samples::weu_header(5);
        spoil(&mut header);
        assert_eq!(weu(&samples::encode_weu(&header), 5), Err(FormatError::Field("WEU entry")), "spoil {i}");
    }
    // At the upper bound: inline header and payload end where the unit header begins.
    let mut header = samples::weu_header(5);
    header.entries[1].offset_bytes = samples::WEU_BYTES - 4096 - 192;
    header.entries[1].stored_bytes = 128;
    assert_eq!(weu(&samples::encode_weu(&header), 5), Ok(header));
}

#[test]
fn the_size_of_a_weu_header_is_peeked_from_its_last_block() {
    let mut header = samples::weu_header(5);
    header.entries =
        (0..200).map(|i| WeuEntry { offset_bytes: i * 64, stored_bytes: 0, ..header.entries[0] }).collect();
    let tail = samples::encode_weu(&header);
    assert_eq!(tail.len(), 3 * BLOCK);
    assert_eq!(WeuHeader::peek_len(&tail[2 * BLOCK..], samples::WEU_BYTES), Ok(12288));
    assert_eq!(weu(&tail, 5).as_ref(), Ok(&header));
    assert_eq!(weu(&[vec![0; 4096], tail.clone()].concat(), 5), Ok(header));
    assert_eq!(weu(&tail[BLOCK..], 5), Err(FormatError::Truncated));
    // More than half of the slot is refused, and so is an impossible count.
    assert_eq!(WeuHeader::peek_len(&tail, 16 << 10), Err(FormatError::Field("header size")));
    let mut last = tail[2 * BLOCK..].to_vec();
    last[BLOCK - 56..BLOCK - 52].fill(0xff);
    assert_eq!(WeuHeader::peek_len(&last, samples::WEU_BYTES), Err(FormatError::Field("header size")));
    assert_eq!(WeuHeader::encoded_bytes(u32::MAX), limits::WEU_BYTES_MAX);
    last[BLOCK - 60..BLOCK - 56].copy_from_slice(&limits::WEU_BYTES_MAX.to_le_bytes());
    assert_eq!(WeuHeader::peek_len(&last, u32::MAX), Err(FormatError::Field("header size")));
}

/// Changes a structure at an offset and seals it again.
fn resealed(bytes: &[u8], binding: Binding, at: usize, change: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + change.len()].copy_from_slice(change);
    binding.seal(&mut bytes);
    bytes
}

#[test]
fn impossible_fields_under_a_right_checksum_are_refused() {
    let field = |name| Err(FormatError::Field(name));
    let binding = Binding {
        salt: samples::salt(),
        kind: BlockType::JournalBlock,
        place: 0,
        sequence: 17,
        generation: 0,
    };
    let block = |at, change: &[u8]| {
        let bytes = resealed(&samples::journal_block(17).encode(samples::salt()), binding, at, change);
        JournalBlock::decode(&bytes, JournalSeq(17), samples::salt()).map(|_| ())
    };
    assert_eq!(block(32, &[168]), field("record kind"));
    assert_eq!(block(32, &[169]), field("record count"));
    assert_eq!(block(64, &[14]), field("record kind"));
    assert_eq!(block(64 + 16 + 6, &[9, 8]), Ok(()), "only dirty records have sectors");
    assert_eq!(block(112, &[8]), Ok(()), "a duplicate's fields are a dirty piece's");
    let sectors =
        resealed(&samples::dirty_journal_block(17).encode(samples::salt()), binding, 88 + 22, &[9, 8]);
    assert_eq!(JournalBlock::decode(&sectors, JournalSeq(17), samples::salt()).map(|_| ()), field("sectors"));
    assert_eq!(block(68, &limits::SLOTS_MAX.to_le_bytes()), field("record"));
    assert_eq!(block(112 + 2, &limits::VOLUMES_MAX.to_le_bytes()), field("record"));
    assert_eq!(block(112 + 8, &limits::EXTENTS_PER_VOLUME_MAX.to_le_bytes()), field("record"));

    let map = |at, change: &[u8]| {
        let binding = Binding::copy(BlockType::RegionMap, 1, samples::salt());
        RegionMap::decode(
            &resealed(&samples::region_map().encode(1, samples::salt()), binding, at, change),
            1,
            samples::salt(),
        )
        .map(|_| ())
    };
    assert_eq!(map(32, &(limits::ACTIVE_REGIONS_MAX + 1).to_le_bytes()), field("region count"));
    assert_eq!(map(54, &limits::VOLUMES_MAX.to_le_bytes()), field("region"));

    let table = |at, change: &[u8]| {
        let binding = Binding::copy(BlockType::VolumeTable, 1, samples::salt());
        VolumeTable::decode(
            &resealed(&samples::volume_table().encode(1, samples::salt()), binding, at, change),
            1,
            samples::salt(),
        )
        .map(|_| ())
    };
    assert_eq!(table(16, &[0, 1]), field("volume count"));
    assert_eq!(table(256, &limits::VOLUMES_MAX.to_le_bytes()), field("volume"));
    assert_eq!(table(256 + 80, &[0; 8]), field("volume"));
    assert_eq!(table(256 + 2, &[65]), field("volume name"));
    assert_eq!(table(256 + 8, &[0xff]), field("volume name"));
}

#[test]
fn impossible_headers_under_a_right_checksum_are_refused() {
    let field = |name| Err(FormatError::Field(name));
    let header = |at, change: &[u8]| {
        let binding = Binding::copy(BlockType::CheckpointHeader, 1, samples::salt());
        let bytes = resealed(&samples::checkpoint_header().encode(1, samples::salt()), binding, at, change);
        CheckpointHeader::decode(&bytes, 1, 8, samples::salt()).map(|_| ())
    };
    assert_eq!(header(32, &[7]), Ok(()));
    assert_eq!(header(32, &[8]), field("checkpoint blocks"));
    assert_eq!(header(40, &[168]), Ok(()));
    assert_eq!(header(40, &[169]), field("checkpoint blocks"));

    let superblock = |at, change: &[u8]| {
        let binding = Binding::copy(BlockType::Superblock, 1, Salt::NONE);
        Superblock::decode(&resealed(&samples::superblock().encode(1), binding, at, change), 1).map(|_| ())
    };
    assert_eq!(superblock(97, &[3]), field("fingerprint kind"));
    assert_eq!(superblock(104 + 8, &[1]), field("geometry"));
    assert_eq!(superblock(232, &[0xff]), field("label"));
}

fn key() -> impl Strategy<Value = ExtentKey> {
    (0..limits::VOLUMES_MAX, 0..limits::EXTENTS_PER_VOLUME_MAX)
        .prop_map(|(volume, extent)| ExtentKey { volume: VolumeId(volume), extent: ExtentNo(extent) })
}

fn record() -> impl Strategy<Value = Record> {
    let place = (0..limits::SLOTS_MAX, any::<u32>())
        .prop_map(|(slot, generation)| (WeuSlot(slot), Generation(generation)));
    (0..13, key(), place, any::<u64>(), any::<u16>(), any::<u8>(), span()).prop_map(
        |(kind, key, (slot, generation), wide, offset_units, pages, span)| match kind {
            0 => Record::SlotSealed {
                slot,
                generation,
                weu_seq: WeuSeq(wide),
                header_bytes: u32::from(offset_units) * limits::BLOCK_BYTES,
            },
            1 => Record::SlotRetired { slot, generation },
            2 => Record::Duplicate { key, slot, generation, offset_units, pages },
            3 => Record::Zero { key },
            4 => Record::Unmap { key },
            5 => Record::BaseInvalid { key, slot, generation, offset_units },
            6 => Record::SlotDirty { slot, generation, weu_seq: WeuSeq(wide) },
            7 => Record::Dirty { key, span, slot, generation, offset_units, pages },
            8 => Record::DirtyZero { key, span, no_hole: pages % 2 == 1 },
            9 => Record::Committed { volume: key.volume, epoch: wide },
            10 => Record::Clean { volume: key.volume, epoch: wide },
            11 => Record::DirtyReset { volume: key.volume, epoch: wide },
            _ => Record::Durable { volume: key.volume, epoch: wide },
        },
    )
}

fn span() -> impl Strategy<Value = SectorSpan> {
    any::<[u8; 2]>().prop_map(|[a, b]| SectorSpan::from_ends(a.min(b), a.max(b)).unwrap())
}

fn volume() -> impl Strategy<Value = VolumeRecord> {
    let flags = any::<[bool; 2]>();
    (0..limits::VOLUMES_MAX, "[a-z\u{e9}]{0,32}", any::<[u64; 6]>(), 1..u64::MAX, flags).prop_map(
        |(id, name, numbers, region_bytes, [file, may_be_dirty])| {
            let [size_bytes, dev, inode, len_bytes, mtime_ns, stamp] = numbers;
            VolumeRecord {
                id: VolumeId(id),
                name,
                size_bytes,
                region_bytes,
                origin: OriginIdentity {
                    kind: if file { OriginKind::File } else { OriginKind::Block },
                    dev,
                    inode,
                    len_bytes,
                    mtime_ns,
                },
                stamp,
                may_be_dirty,
            }
        },
    )
}

fn codec() -> impl Strategy<Value = Codec> {
    (0_u8..4).prop_map(|code| Codec::from_media_code(code).unwrap())
}

fn weu_header_strategy() -> impl Strategy<Value = WeuHeader> {
    let dirty =
        prop_oneof![Just(None), span().prop_map(|s| SectorSpan::from_ends(s.first() % 4, 4 + s.last() % 4))];
    let entry = (key(), 1_u32..2000, 0_u32..4, codec(), any::<[u8; 32]>(), dirty);
    (vec(entry, 0..12), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
        |(parts, generation, seq, session)| {
            let mut next = 0;
            let mut entries = Vec::new();
            for (key, stored_bytes, gap, codec, print, dirty) in parts {
                let stored_bytes = stored_bytes.min(dirty.map_or(2000, SectorSpan::len_bytes));
                let offset_bytes = next + gap * 64;
                next = (offset_bytes + 64 + stored_bytes).next_multiple_of(64);
                entries.push(WeuEntry {
                    key,
                    offset_bytes,
                    stored_bytes,
                    codec,
                    fingerprint: Fingerprint(print),
                    dirty,
                });
            }
            WeuHeader {
                slot: WeuSlot(3),
                generation: Generation(generation),
                weu_seq: WeuSeq(seq),
                session,
                entries,
            }
        },
    )
}

/// Every decoder over the same bytes; none may panic.
fn decode_all(bytes: &[u8]) {
    for copy in 0..4 {
        Superblock::decode_for(bytes, copy, Access::Read).ok();
        VolumeTable::decode(bytes, copy, samples::salt()).ok();
        RegionMap::decode(bytes, copy, samples::salt()).ok();
        CheckpointHeader::decode(bytes, copy, u64::MAX, samples::salt()).ok();
    }
    decode_checkpoint_block(bytes, 9, 3, samples::salt()).ok();
    JournalBlock::decode(bytes, JournalSeq(17), samples::salt()).ok();
    assert!(JournalBlock::peek_sequence(bytes).is_none() || bytes.len() > 36, "a sequence out of nothing");
    Record::decode(bytes).ok();
    for weu_bytes in [0, samples::WEU_BYTES, limits::WEU_BYTES_MAX, u32::MAX] {
        WeuHeader::peek_len(bytes, weu_bytes).ok();
        WeuHeader::decode(bytes, WeuSlot(5), weu_bytes, u32::MAX, samples::salt()).ok();
    }
    let header = samples::extent_header(5, 100);
    ExtentHeader::verify(bytes, &samples::expected(&header, u32::MAX)).ok();
}

/// Hostile bytes with a valid checksum: from an attacker, or a bug of ours.
fn seal_as_any(case: usize, bytes: &mut [u8]) {
    let binding = match case {
        0 => Binding::copy(BlockType::Superblock, 1, Salt::NONE),
        1 => Binding::copy(BlockType::VolumeTable, 1, samples::salt()),
        2 => Binding::copy(BlockType::RegionMap, 1, samples::salt()),
        3 => Binding::copy(BlockType::CheckpointHeader, 1, samples::salt()),
        4 => Binding {
            salt: samples::salt(),
            kind: BlockType::CheckpointBlock,
            place: 3,
            sequence: 9,
            generation: 0,
        },
        5 => Binding {
            salt: samples::salt(),
            kind: BlockType::JournalBlock,
            place: 0,
            sequence: 17,
            generation: 0,
        },
        6 => {
            let (covered, crc) = bytes.split_last_chunk_mut::<4>().unwrap();
            let field = |at| u32::from_le_bytes(*covered[covered.len() - at..].first_chunk().unwrap());
            let sequence = u64::from_le_bytes(*covered[covered.len() - 36..].first_chunk().unwrap());
            let generation = u64::from(field(44));
            let binding =
                Binding { salt: samples::salt(), kind: BlockType::WeuHeader, place: 5, sequence, generation };
            *crc = binding.crc(covered).to_le_bytes();
            return;
        }
        _ => {
            let header = samples::extent_header(5, 100);
            let place = 5 << 32 | u64::from(u32::MAX);
            let generation = u64::from(header.generation.0);
            Binding {
                salt: samples::salt(),
                kind: BlockType::Extent,
                place,
                sequence: header.weu_seq.0,
                generation,
            }
        }
    };
    binding.seal(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn superblocks_round_trip(
        uuid: [u8; 16], boot_id: [u8; 16], numbers: [u64; 5], clean: bool, sha: bool, label in "[ -~\u{e9}]{0,32}",
        copy in 0_usize..4,
    ) {
        let [compat, sequence, session, created_unix_s, journal_next] = numbers;
        let superblock = Superblock {
            uuid,
            features: crate::Features { compat, ro_compat: 0, incompat: 0 },
            geometry: crate::Geometry { salt: Salt::of(&uuid), ..samples::geometry() },
            fingerprint_kind: if sha { FingerprintKind::Sha1 } else { FingerprintKind::Blake3 },
            sequence,
            session,
            clean,
            boot_id,
            created_unix_s,
            journal_next: JournalSeq(journal_next),
            checkpoint: journal_next ^ 5,
            index_image: journal_next ^ 9,
            label,
            ..samples::superblock()
        };
        prop_assert_eq!(Superblock::decode(&superblock.encode(copy), copy), Ok(superblock));
    }

    #[test]
    fn volume_tables_round_trip(sequence: u64, records in vec(volume(), 0..=VOLUMES_PER_TABLE)) {
        let table = VolumeTable { sequence, records };
        prop_assert_eq!(VolumeTable::decode(&table.encode(0, samples::salt()), 0, samples::salt()), Ok(table));
    }

    #[test]
    fn region_maps_round_trip(
        numbers: [u64; 3],
        keys in vec((0..limits::VOLUMES_MAX, 0_u64..1 << 48), 0..=usize_from_u32(limits::ACTIVE_REGIONS_MAX)),
    ) {
        let [sequence, session, required] = numbers;
        let regions = keys.into_iter().map(|(volume, region)| RegionKey { volume: VolumeId(volume), region }).collect();
        let map = RegionMap { sequence, session, journal_required: JournalSeq(required), regions };
        prop_assert_eq!(RegionMap::decode(&map.encode(1, samples::salt()), 1, samples::salt()), Ok(map));
    }

    #[test]
    fn blocks_of_records_round_trip(
        numbers: [u64; 3], unit: [u32; 3], records in vec(record(), 0..=RECORDS_PER_BLOCK),
    ) {
        let [sequence, session, region_map_sequence] = numbers;
        let [slot, generation, page] = unit;
        let growing = GrowingUnit { slot: WeuSlot(slot), generation: Generation(generation), page };
        let growing = (generation > 0).then_some(growing);
        let bytes = encode_checkpoint_block(sequence, session, &records, samples::salt());
        prop_assert_eq!(decode_checkpoint_block(&bytes, sequence, session, samples::salt()), Ok(records.clone()));
        let block = JournalBlock {
            sequence: JournalSeq(sequence),
            session,
            region_map_sequence,
            proved: JournalSeq(session ^ 5),
            growing,
            records,
        };
        prop_assert_eq!(JournalBlock::decode(&block.encode(samples::salt()), block.sequence, samples::salt()), Ok(block));
    }

    #[test]
    fn weu_headers_round_trip(header in weu_header_strategy()) {
        prop_assert_eq!(weu(&samples::encode_weu(&header), 3), Ok(header));
    }

    #[test]
    fn extents_round_trip(
        slot in 0..limits::SLOTS_MAX, generation: u32, seq: u64, units: u16, key in key(), codec in codec(),
        print: [u8; 32], payload in vec(any::<u8>(), 0..5000), spare in 0_usize..100,
    ) {
        let header = ExtentHeader {
            slot: WeuSlot(slot),
            generation: Generation(generation),
            weu_seq: WeuSeq(seq),
            stored_bytes: u32::try_from(payload.len()).unwrap(),
            raw_bytes: 8192,
            first_sector: print[0],
            key,
            codec,
            fingerprint: Fingerprint(print),
        };
        let offset_bytes = u32::from(units) * limits::PLACE_ALIGN_BYTES;
        let mut bytes = vec![0x77; 64 + payload.len() + spare];
        header.seal(offset_bytes, &payload, &mut bytes, samples::salt());
        let found = ExtentHeader::verify(&bytes, &samples::expected(&header, offset_bytes)).unwrap();
        prop_assert_eq!(&bytes[found.payload], &payload[..]);
        prop_assert_eq!(found.codec, codec);
        prop_assert!(bytes[64 + payload.len()..].iter().all(|byte| *byte == 0x77));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..9000)) {
        decode_all(&bytes);
    }

    #[test]
    fn hostile_blocks_with_right_checksums_never_panic(
        case in 0_usize..8,
        noise in vec((any::<prop::sample::Index>(), prop_oneof![Just(0_u8), Just(0xff_u8), any::<u8>()]), 1..40),
    ) {
        let (_, mut bytes, valid) = cases().swap_remove(case);
        // Corruption of the fields: the first 512 bytes, or the last 64 of a unit header.
        let len = bytes.len();
        for (at, byte) in noise {
            let at = if case == 6 && byte & 1 == 1 { len - 1 - at.index(64) } else { at.index(len.min(512)) };
            bytes[at] = byte;
        }
        seal_as_any(case, &mut bytes);
        valid(&bytes);
        decode_all(&bytes);
    }
}
