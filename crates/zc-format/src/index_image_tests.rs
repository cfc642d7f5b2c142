//! Index images: positions of pieces, and their validity in their own place and image only.

use proptest::prelude::*;

use super::*;
use crate::samples_tests as samples;

fn table(buckets: u64, bucket_bytes: u32) -> ImageTable {
    ImageTable { buckets, entries: 0, bucket_bytes, key_bits: 48 }
}

fn head(slots: u32, files: ImageTable, prints: ImageTable) -> ImageHead {
    ImageHead { slots, files, prints, ..samples::image_head() }
}

fn pieces(head: &ImageHead) -> Vec<ImagePiece> {
    (0..head.pieces()).map(|number| head.piece(number).unwrap()).collect()
}

#[test]
fn an_image_takes_what_is_in_use_and_a_byte_for_each_bucket() {
    // 16 GiB in extents of 8 KiB, and capacity for four times as many.
    let entries = 1 << 21;
    let head = head(
        8192,
        ImageTable { entries, ..table(551_883, 160) },
        ImageTable { entries, ..table(551_883, 64) },
    );
    let blocks = head.blocks_max();
    let units = 8192 * 16 + 2 * 551_883 + entries * 14;
    let bytes = blocks * u64::from(limits::BLOCK_BYTES);
    assert!((units..units + units / 10).contains(&bytes), "{bytes} for {units}");
    assert!(head.fits(blocks) && !head.fits(blocks - 1));
    // A directory of this many pieces does not fit one piece.
    let large = ImageHead { files: table(BUCKETS_MAX, 256), ..head };
    assert!(!large.fits(u64::MAX));
}

#[test]
fn a_head_whose_directory_does_not_fit_is_refused() {
    let head = samples::image_head();
    let bytes = head.encode(0, samples::salt());
    assert_eq!(ImageHead::decode(&bytes, 0, 2, samples::salt()), Ok(head));
    assert_eq!(ImageHead::decode(&bytes, 0, 1, samples::salt()), Err(FormatError::Field("image blocks")));
    assert_eq!(ImageHead::decode(&bytes, 1, 2, samples::salt()), Err(FormatError::Checksum), "another area");
    let decode = |files| {
        let bytes = ImageHead { files, ..head }.encode(0, samples::salt());
        ImageHead::decode(&bytes, 0, u64::MAX, samples::salt())
    };
    assert_eq!(decode(table(BUCKETS_MAX + 1, 1)), Err(FormatError::Field("index buckets")));
    assert_eq!(decode(table(BUCKETS_MAX, 256)), Err(FormatError::Field("image blocks")));
    assert!(ImageHead::is_head(&bytes) && !ImageHead::is_head(&samples::image_piece()));
}

#[test]
fn a_directory_that_names_what_cannot_be_is_refused() {
    let head = samples::image_head();
    let piece = head.piece(0).unwrap();
    let decode = |units: [u8; 3], area_blocks| {
        let bytes = head.encode_piece(&piece, &units, samples::salt());
        ImageDirectory::decode(&head, &bytes, area_blocks, samples::salt())
            .map(|directory| directory.blocks())
    };
    let refused = Err(FormatError::Field("image blocks"));
    assert_eq!((decode([1, 64, 3], 70), decode([1, 64, 3], 69)), (Ok(70), refused));
    assert_eq!((decode([1, 65, 1], 1000), decode([1, 0, 1], 1000)), (refused, refused));
    let bytes = samples::image_directory().encode(&head, samples::salt());
    let later = ImageHead { session: head.session + 1, ..head };
    let refused = ImageDirectory::decode(&later, &bytes, 70, samples::salt());
    assert_eq!(refused, Err(FormatError::Checksum), "of another stop");
}

#[test]
fn a_piece_counts_in_its_place_of_its_image_alone() {
    let head = samples::image_head();
    let (first, second) = (head.piece(1).unwrap(), head.piece(2).unwrap());
    let bytes = samples::image_piece();
    head.decode_piece(&first, &bytes, samples::salt()).unwrap();
    let refused = |head: &ImageHead, piece, salt| head.decode_piece(piece, &bytes, salt);
    assert_eq!(refused(&head, &second, samples::salt()), Err(FormatError::Checksum));
    let later = ImageHead { session: head.session + 1, ..head };
    assert_eq!(refused(&later, &first, samples::salt()), Err(FormatError::Checksum), "of another stop");
    assert_eq!(refused(&head, &first, Salt::of(&[1; 16])), Err(FormatError::Checksum));
    let other = ImagePiece { count: 1, ..first };
    assert_eq!(refused(&head, &other, samples::salt()), Err(FormatError::Field("image piece")));
}

#[test]
fn a_piece_of_a_length_that_cannot_be_is_refused() {
    let head = samples::image_head();
    let piece = head.piece(2).unwrap();
    let decode = |len: u32| {
        let mut bytes = head.encode_piece(&piece, &[0; 8], samples::salt());
        bytes[32..36].copy_from_slice(&len.to_le_bytes());
        head.binding(&piece, samples::salt()).seal(&mut bytes);
        head.decode_piece(&piece, &bytes, samples::salt()).map(<[u8]>::len)
    };
    // One bucket of 144 bytes and its count.
    let refused = Err(FormatError::Field("image piece"));
    assert_eq!((decode(1), decode(145)), (Ok(1), Ok(145)));
    assert_eq!((decode(0), decode(146), decode(u32::MAX)), (refused, refused, refused));
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
        slots in 1_u32..40_000, buckets: [u16; 2], bucket_bytes in prop::array::uniform2(0_u32..=BUCKET_BYTES_MAX),
        fill in 0_usize..=16,
    ) {
        let [files, prints] = buckets.map(u64::from);
        let mut head = head(slots, table(files, bucket_bytes[0]), table(prints, bucket_bytes[1]));
        (head.files.entries, head.prints.entries) = (files * fill as u64, prints * fill as u64);
        let mut directory = ImageDirectory::new(&head);
        let mut next = [0; 4];
        let pieces = pieces(&head);
        for piece in &pieces {
            let part = ImagePart::ALL.iter().position(|part| *part == piece.part).unwrap();
            prop_assert!(next[part + 1..].iter().all(|next| *next == 0), "parts are in order");
            prop_assert_eq!(piece.first, next[part]);
            next[part] += u64::from(piece.count);
            let unit = match piece.part {
                ImagePart::Directory => continue,
                ImagePart::Slots => SLOT_BYTES as usize,
                ImagePart::Files => 1 + bucket_bytes[0] as usize * fill / 16,
                ImagePart::Prints => 1 + bucket_bytes[1] as usize * fill / 16,
            };
            let units = vec![0x5a; piece.count as usize * unit];
            let bytes = head.encode_piece(piece, &units, samples::salt());
            prop_assert!(bytes.len() <= PIECE_BYTES_MAX as usize);
            prop_assert_eq!(head.decode_piece(piece, &bytes, samples::salt()), Ok(&units[..]));
            directory.place_next(bytes.len());
        }
        prop_assert_eq!(next, [pieces.len() as u64 - 1, u64::from(slots), files, prints]);
        prop_assert_eq!(head.piece(head.pieces()), None);
        prop_assert!(head.fits(head.blocks_max()) && directory.blocks() <= head.blocks_max());
        let bytes = directory.encode(&head, samples::salt());
        let found = ImageDirectory::decode(&head, &bytes, directory.blocks(), samples::salt());
        prop_assert_eq!(found.as_ref(), Ok(&directory));
        prop_assert_eq!(directory.place(head.pieces()), None);
        let mut block = 1;
        for piece in &pieces {
            let place = directory.place(piece.number).unwrap();
            prop_assert_eq!(place.first_block, block);
            block = place.blocks_end();
        }
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
        // The largest numbers of slots would need a second directory piece, which does not exist.
        let expected = if head.has_directory() { Ok(head) } else { Err(FormatError::Field("image blocks")) };
        prop_assert_eq!(ImageHead::decode(&head.encode(1, samples::salt()), 1, u64::MAX, samples::salt()), expected);
        let [sealed, filling] = flags;
        let (generation, weu_seq) = (Generation(generation), WeuSeq(weu_seq));
        let slot = ImageSlot { generation, weu_seq, owner: owner.map(VolumeId), sealed, filling };
        let mut units = Vec::new();
        slot.encode_into(&mut units);
        prop_assert_eq!(ImageSlot::decode_all(&units).collect::<Vec<_>>(), vec![Ok(slot)]);
    }
}
