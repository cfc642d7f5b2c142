//! Landmarks of media that are constructed here. Real file systems are tested on loop devices.

use super::survey::{Place, survey};
use super::{MAX_BYTES, MAX_LANDMARKS};

const MIB: usize = 1 << 20;
const KIB: u64 = 1 << 10;

fn places(medium: &[u8]) -> Vec<Place> {
    let mut read = |offset: u64, len: u64| {
        let (offset, len) = (usize::try_from(offset).unwrap(), usize::try_from(len).unwrap());
        Ok(medium[offset..offset + len].to_vec())
    };
    survey(u64::try_from(medium.len()).unwrap(), 512, &mut read).unwrap()
}

fn names(medium: &[u8]) -> Vec<(String, u64)> {
    places(medium).into_iter().map(|place| (place.name, place.offset)).collect()
}

fn put(medium: &mut [u8], at: usize, bytes: &[u8]) {
    medium[at..at + bytes.len()].copy_from_slice(bytes);
}

fn named(name: &str, offset: u64) -> (String, u64) {
    (name.to_owned(), offset)
}

/// Writes a superblock of ext4 with blocks of 4 KiB and its journal at `journal_block`.
fn put_ext4(medium: &mut [u8], at: usize, journal_block: u32) {
    let sb = &mut medium[at + 1024..];
    put(sb, 0x38, &0xef53_u16.to_le_bytes());
    put(sb, 0x18, &2_u32.to_le_bytes());
    put(sb, 0x5c, &4_u32.to_le_bytes());
    sb[0xfd] = 1;
    put(sb, 0x10c, &0xf30a_u16.to_le_bytes());
    put(sb, 0x10e, &1_u16.to_le_bytes());
    put(sb, 0x120, &journal_block.to_le_bytes());
}

/// An entry of an MBR, in sectors.
fn put_partition(sector: &mut [u8], index: usize, kind: u8, start: u32, len: u32) {
    let entry = &mut sector[446 + 16 * index..];
    entry[4] = kind;
    put(entry, 8, &start.to_le_bytes());
    put(entry, 12, &len.to_le_bytes());
    put(sector, 510, &[0x55, 0xaa]);
}

#[test]
fn whatever_it_holds_both_ends_count() {
    assert_eq!(names(&[]), []);
    let one = Place { name: "the first 128 KiB".to_owned(), offset: 0, len_bytes: 512 };
    assert_eq!(places(&[0; 512]), [one]);
    let ends = [named("the first 128 KiB", 0), named("the last 128 KiB", 896 * KIB)];
    assert_eq!(names(&vec![0; MIB]), ends);
}

#[test]
fn the_journal_of_ext4_is_found_by_the_copy_of_its_map() {
    let mut medium = vec![0; 4 * MIB];
    put_ext4(&mut medium, 0, 512);
    assert_eq!(names(&medium)[1], named("the journal of ext4", 2 << 20));
    put_ext4(&mut medium, 0, u32::MAX);
    assert_eq!(names(&medium).len(), 2, "a journal behind the end");
}

#[test]
fn the_log_of_xfs_is_found_and_its_head_searched() {
    let mut medium = vec![0; 8 * MIB];
    put(&mut medium, 0, b"XFSB");
    put(&mut medium, 4, &4096_u32.to_be_bytes());
    // Group 1, block 8; a group has 1000 blocks and its numbers 10 bits.
    put(&mut medium, 48, &(1 << 10 | 8_u64).to_be_bytes());
    put(&mut medium, 84, &1000_u32.to_be_bytes());
    put(&mut medium, 96, &512_u32.to_be_bytes());
    medium[124] = 10;
    let log = 1008 * 4096;
    for sector in 0..1000 {
        put(&mut medium, log + sector * 512, &7_u32.to_be_bytes());
    }
    for sector in 1000..4096 {
        put(&mut medium, log + sector * 512, &6_u32.to_be_bytes());
    }
    // A record's header has the cycle after the magic number.
    put(&mut medium, log + 999 * 512, &[0xfe, 0xed, 0xba, 0xbe, 0, 0, 0, 7]);
    let (log, head) = (1008 * 4096, 1008 * 4096 + 1000 * 512 - 32 * KIB);
    let expected = [named("the log of XFS", log), named("the head of the log of XFS", head)];
    assert_eq!(names(&medium)[1..3], expected);
}

#[test]
fn copies_of_btrfs_and_data_behind_labels_are_found() {
    let mut btrfs = vec![0; 65 * MIB];
    put(&mut btrfs, 0x1_0040, b"_BHRfS_M");
    assert_eq!(names(&btrfs)[1], named("a superblock of btrfs", 64 << 20));
    let mut luks1 = vec![0; 4 * MIB];
    put(&mut luks1, 0, b"LUKS\xba\xbe\x00\x01");
    put(&mut luks1, 104, &4096_u32.to_be_bytes());
    assert_eq!(names(&luks1)[1], named("the first data of LUKS", 2 << 20));
    let mut luks2 = vec![0; 32 * MIB];
    put(&mut luks2, 0, b"LUKS\xba\xbe\x00\x02");
    put(&mut luks2, 4096, br#"{"keyslots":{},"segments":{"0":{"type":"crypt","offset":"16777216","x":1}}}"#);
    assert_eq!(names(&luks2)[1], named("the first data of LUKS", 16 << 20));
    let mut lvm = vec![0; 4 * MIB];
    put(&mut lvm, 512, b"LABELONE");
    put(&mut lvm, 512 + 20, &32_u32.to_le_bytes());
    put(&mut lvm, 512 + 32 + 40, &(1_u64 << 20).to_le_bytes());
    assert_eq!(names(&lvm)[1], named("the first data of LVM", 1 << 20));
}

#[test]
fn each_partition_of_a_gpt_is_looked_into() {
    let mut medium = vec![0; 8 * MIB];
    put_partition(&mut medium, 0, 0xee, 1, u32::MAX);
    put(&mut medium, 512, b"EFI PART");
    put(&mut medium, 512 + 72, &2_u64.to_le_bytes());
    put(&mut medium, 512 + 80, &128_u32.to_le_bytes());
    put(&mut medium, 512 + 84, &128_u32.to_le_bytes());
    put(&mut medium, 1024 + 128 + 32, &4096_u64.to_le_bytes());
    put(&mut medium, 1024 + 128 + 40, &12_287_u64.to_le_bytes());
    put_ext4(&mut medium, 2 * MIB, 256);
    let expected = [
        named("the first 128 KiB", 0),
        named("the last 128 KiB", 8064 * KIB),
        named("the first 128 KiB in partition 2", 2 << 20),
        named("the journal of ext4 in partition 2", 3 << 20),
        named("the last 128 KiB in partition 2", 6016 * KIB),
    ];
    assert_eq!(names(&medium), expected);
}

#[test]
fn logical_partitions_are_looked_into_and_a_loop_of_them_ends() {
    let mut medium = vec![0; 8 * MIB];
    put_partition(&mut medium, 0, 0x83, 2048, 2048);
    put_partition(&mut medium, 1, 0x05, 4096, 8192);
    put_partition(&mut medium[2 * MIB..], 0, 0x83, 2048, 1024);
    put_partition(&mut medium[2 * MIB..], 1, 0x05, 4096, 4096);
    put_partition(&mut medium[4 * MIB..], 0, 0x83, 2048, 1024);
    let starts: Vec<u64> = places(&medium)
        .into_iter()
        .filter(|place| place.name.starts_with("the first"))
        .map(|p| p.offset)
        .collect();
    assert_eq!(starts, [0, 1 << 20, 3 << 20, 5 << 20]);
    // The second refers to itself as the next.
    put_partition(&mut medium[4 * MIB..], 1, 0x05, 4096, 4096);
    assert!(places(&medium).len() <= MAX_LANDMARKS);
}

proptest::proptest! {
    #[test]
    fn garbage_is_bounded_and_stays_inside(
        seed in proptest::collection::vec(proptest::prelude::any::<u8>(), 4096),
        kind in 0..7_usize,
    ) {
        let mut medium: Vec<u8> = seed.iter().copied().cycle().take(MIB).collect();
        let magics: [(usize, &[u8]); 7] = [
            (0, b""), (0, b"XFSB"), (512, b"EFI PART"), (510, &[0x55, 0xaa]), (512, b"LABELONE"),
            (0, b"LUKS\xba\xbe\x00\x02"), (1024 + 0x38, &[0x53, 0xef]),
        ];
        put(&mut medium, magics[kind].0, magics[kind].1);
        let found = places(&medium);
        proptest::prop_assert!(found.len() <= MAX_LANDMARKS);
        proptest::prop_assert!(found.iter().map(|place| place.len_bytes).sum::<u64>() <= MAX_BYTES);
        let inside = |place: &Place| place.offset + place.len_bytes <= 1 << 20;
        proptest::prop_assert!(found.iter().all(inside));
    }
}
