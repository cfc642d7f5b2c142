//! Index images: where the pieces lie, and that each counts in its place of its image alone.

use proptest::prelude::*;

use super::*;
use crate::samples_tests as samples;

fn table(buckets: u64, bucket_bytes: u32) -> ImageTable {
    ImageTable { buckets, entries: 0, bucket_bytes, key_bits: 48 }
}

fn head(slots: u32, files: ImageTable, prints: ImageTable) -> ImageHead {
    ImageHead { slots, files, prints, ..samples::image_head() }
}

/// All pieces of an image.
fn pieces(head: &ImageHead) -> Vec<ImagePiece> {
    (0..head.pieces()).map(|number| head.piece(number).unwrap()).collect()
}

#[test]
fn the_pieces_of_a_large_cache_take_what_its_indexes_hold() {
    // 256 GiB: 131,072 slots, 33.5 million extents.
    let head = head(1 << 17, table(2_207_529, 160), table(2_207_529, 64));
    let bytes = head.blocks() * u64::from(limits::BLOCK_BYTES);
    let units = (1_u64 << 17) * 16 + 2_207_529 * (160 + 64);
    assert!((units..units + units / 50).contains(&bytes), "{bytes} for {units}");
}

#[test]
fn a_head_that_needs_more_blocks_than_the_area_has_is_refused() {
    let head = samples::image_head();
    let bytes = head.encode(0, Salt::NONE);
    assert_eq!(head.blocks(), 4);
    assert_eq!(ImageHead::decode(&bytes, 0, 4, Salt::NONE), Ok(head));
    assert_eq!(ImageHead::decode(&bytes, 0, 3, Salt::NONE), Err(FormatError::Field("image blocks")));
    assert_eq!(ImageHead::decode(&bytes, 1, 4, Salt::NONE), Err(FormatError::Checksum), "another area");
    let large = ImageHead { files: table(BUCKETS_MAX + 1, 1), ..head }.encode(0, Salt::NONE);
    let refused = ImageHead::decode(&large, 0, u64::MAX, Salt::NONE);
    assert_eq!(refused, Err(FormatError::Field("index buckets")));
    assert!(ImageHead::is_head(&bytes) && !ImageHead::is_head(&samples::image_piece()));
}

#[test]
fn a_piece_counts_in_its_place_of_its_image_alone() {
    let head = samples::image_head();
    let (first, second) = (head.piece(0).unwrap(), head.piece(1).unwrap());
    let bytes = samples::image_piece();
    head.decode_piece(&first, &bytes, Salt::NONE).unwrap();
    let refused = |head: &ImageHead, piece, salt| head.decode_piece(piece, &bytes, salt);
    assert_eq!(refused(&head, &second, Salt::NONE), Err(FormatError::Checksum));
    let later = ImageHead { session: head.session + 1, ..head };
    assert_eq!(refused(&later, &first, Salt::NONE), Err(FormatError::Checksum), "of another stop");
    assert_eq!(refused(&head, &first, Salt::of(&[1; 16])), Err(FormatError::Checksum));
    let other = ImagePiece { count: 1, ..first };
    assert_eq!(refused(&head, &other, Salt::NONE), Err(FormatError::Field("image piece")));
}

#[test]
fn a_slot_that_cannot_be_is_refused() {
    let mut units = Vec::new();
    samples::image_slots()[0].encode_into(&mut units);
    let with = |at: usize, byte| {
        let mut units = units.clone();
        units[at] = byte;
        ImageSlot::decode_all(&units).next().unwrap()
    };
    let refused = Err(FormatError::Field("image slot"));
    assert_eq!((with(6, 4), with(5, 0x10)), (refused, refused), "an unknown flag, volume 4098");
    with(5, 2).unwrap();
}

proptest! {
    #[test]
    fn pieces_lie_one_behind_the_other_and_hold_every_unit_once(
        slots in 0_u32..40_000, buckets: [u16; 2], bucket_bytes in prop::array::uniform2(0_u32..=BUCKET_BYTES_MAX),
    ) {
        let [files, prints] = buckets.map(u64::from);
        let head = head(slots, table(files, bucket_bytes[0]), table(prints, bucket_bytes[1]));
        let mut next = [0; 3];
        let mut block = 1;
        for piece in pieces(&head) {
            let part = ImagePart::ALL.iter().position(|part| *part == piece.part).unwrap();
            prop_assert!(next[part + 1..].iter().all(|next| *next == 0), "parts are in order");
            prop_assert_eq!((piece.first, piece.first_block), (next[part], block));
            next[part] += u64::from(piece.count);
            block += u64::from(piece.blocks);
            let units = vec![0x5a; head.run(piece.part).bytes_of(piece.count)];
            let bytes = head.encode_piece(&piece, &units, Salt::NONE);
            prop_assert!(bytes.len() <= PIECE_BYTES_MAX as usize);
            prop_assert_eq!(head.decode_piece(&piece, &bytes, Salt::NONE), Ok(&units[..]));
        }
        prop_assert_eq!((next, block), ([u64::from(slots), files, prints], head.blocks()));
        prop_assert_eq!(head.piece(head.pieces()), None);
    }

    #[test]
    fn heads_and_slots_round_trip(
        numbers: [u64; 4], sizes: [u32; 5], generation: u32, weu_seq: u64, owner in prop::option::of(0..1024_u16), flags: [bool; 2],
    ) {
        let [session, journal_next, checkpoint, region_map_sequence] = numbers;
        let [layout, slots, weu_bytes, extent_bytes, generation_bits] = sizes;
        let head = ImageHead {
            session,
            journal_next: JournalSeq(journal_next),
            checkpoint,
            region_map_sequence,
            layout,
            slots,
            weu_bytes,
            extent_bytes,
            generation_bits,
            ..samples::image_head()
        };
        prop_assert_eq!(ImageHead::decode(&head.encode(1, Salt::NONE), 1, u64::MAX, Salt::NONE), Ok(head));
        let [sealed, filling] = flags;
        let (generation, weu_seq) = (Generation(generation), WeuSeq(weu_seq));
        let slot = ImageSlot { generation, weu_seq, owner: owner.map(VolumeId), sealed, filling };
        let mut units = Vec::new();
        slot.encode_into(&mut units);
        prop_assert_eq!(ImageSlot::decode_all(&units).collect::<Vec<_>>(), vec![Ok(slot)]);
    }
}
