//! Superblocks: documented bytes, refusals, corruption.

use super::*;
use proptest::prelude::*;

fn superblock() -> Superblock {
    Superblock {
        uuid: *b"0123456789abcdef",
        sequence: 0x11,
        session: 0x12,
        nonce: 0x13,
        slots: 0x1400,
        slot_bytes: 4 << 20,
        segments_end: 0x1_0016,
        nodes_end: 0x5017,
        log: LogPlace {
            seq: 0x18,
            nonce: 0x19,
            segment: 0x1a,
            slot: 0x1b,
            offset_units: 64 * 0x1c,
            ordinal: 0x1e,
            next_slot: 0x1d,
        },
        losses: 0x1f,
        dropped: 0x20,
        pages: PageTop {
            spot: Some(Spot { segment: 0x21, slot: 0x25, offset_units: 0x22, bytes: 0x23, crc: 0x24 }),
            levels: 2,
        },
        segments: Top { node: 0x26, levels: 1 },
        catalog: Top { node: 0x28, levels: 2 },
        forwards: Top { node: 0x2a, levels: 3 },
    }
}

#[test]
fn the_block_has_the_documented_bytes() {
    let bytes = superblock().encode(1);
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((short(4), &bytes[8..16], &bytes[16..32]), (2, &b"zcstore\x02"[..], &b"0123456789abcdef"[..]));
    assert_eq!([32, 40, 48].map(long), [0x11, 0x12, 0x13]);
    assert_eq!([56, 60].map(short), [0x1400, 4 << 20]);
    assert_eq!([64, 72, 80, 88, 96].map(long), [0x1_0016, 0x5017, 0x18, 0x19, 0x1a]);
    assert_eq!([104, 108, 112, 116, 120, 124].map(short), [0x1b, 64 * 0x1c, 0x1d, 0x1e, 0x1f, 0x20]);
    assert_eq!((long(128), [136, 140, 144, 148].map(short)), (0x21, [0x22, 0x23, 0x24, 2]));
    assert_eq!([152, 160, 168, 176, 184, 192, 200, 208].map(long), [0x26, 1, 0x28, 2, 0x2a, 3, 0x25, 0]);
    assert_eq!(Superblock::decode(&bytes, 1), Ok(superblock()));
    assert_eq!(Superblock::decode(&bytes, 0), Err(NodeError::Checksum), "the other copy");
    assert_eq!(Superblock::decode(&bytes[..4095], 1), Err(NodeError::Truncated));
}

#[test]
fn an_empty_store_has_a_geometry_within_bounds() {
    let format = |device: u64, slot: u32| Superblock::format([1; 16], device, slot, 5);
    let found = format((128 << 10) + 9 * (64 << 10), 64 << 10).unwrap();
    assert_eq!((found.slots, found.slot_offset_bytes(1)), (9, 192 << 10));
    assert_eq!(Superblock::decode(&found.encode(0), 0), Ok(found));
    for (device, slot) in [(0, 64 << 10), (1 << 20, 0), (1 << 30, 60 << 10), (1 << 30, (64 << 10) + 1)] {
        assert_eq!(format(device, slot), None, "{device} {slot}");
    }
    assert_eq!(format((128 << 10) + 7 * (64 << 10), 64 << 10), None, "too few slots");
    assert_eq!(format(1 << 40, (64 << 20) + 4096), None, "offsets beyond the format");
    assert_eq!(format(u64::MAX, 64 << 10).unwrap().slots, u32::MAX, "the rest of the device is not used");
}

#[test]
fn impossible_fields_are_refused_with_a_valid_checksum() {
    let with = |change: &dyn Fn(&mut Superblock)| {
        let mut changed = superblock();
        change(&mut changed);
        Superblock::decode(&changed.encode(0), 0).map(drop)
    };
    assert_eq!(with(&|_| {}), Ok(()));
    type Change = fn(&mut Superblock);
    let log: [Change; 8] = [
        |s| s.log.segment = 0,
        |s| s.log.segment = s.segments_end,
        |s| s.log.slot = s.slots,
        |s| s.log.next_slot = s.slots,
        |s| s.log.next_slot = s.log.slot,
        |s| s.log.offset_units = 65_536 + 64,
        |s| s.log.offset_units = 1,
        |s| s.log.ordinal = (1 << 16) + 1,
    ];
    log.iter().for_each(|change| assert_eq!(with(change), Err(NodeError::Field("log"))));
    let tables: [Change; 7] = [
        |s| s.pages.levels = 0,
        |s| s.pages.levels = LEVELS_MAX + 1,
        |s| s.pages.spot = None,
        |s| s.pages.spot.as_mut().unwrap().slot = s.slots,
        |s| s.pages.spot = Some(Spot { segment: 1, slot: 0, offset_units: 65_535, bytes: 65, crc: 0 }),
        |s| s.catalog.node = s.nodes_end,
        |s| s.forwards.levels = 0,
    ];
    tables.iter().for_each(|change| assert_eq!(with(change), Err(NodeError::Field("table"))));
    let counts: [Change; 4] =
        [|s| s.sequence = 0, |s| s.sequence = COUNT_MAX, |s| s.session = 1 << 28, |s| s.log.seq = COUNT_MAX];
    counts.iter().for_each(|change| assert_eq!(with(change), Err(NodeError::Field("count"))));
    assert_eq!(with(&|s| s.nodes_end = 0), Err(NodeError::Field("end of numbers")));
    assert_eq!(with(&|s| s.segments_end = SEGMENTS_MAX), Err(NodeError::Field("end of numbers")));
    assert_eq!(with(&|s| s.slots = SLOTS_MIN - 1), Err(NodeError::Field("geometry")));
    assert_eq!(with(&|s| s.slot_bytes = 4096), Err(NodeError::Field("geometry")));
}

#[test]
fn a_newer_version_and_an_unknown_feature_are_told_apart_from_corruption() {
    for (at, value) in [(4, 3), (208, 1)] {
        let mut bytes = superblock().encode(0);
        bytes[at] = value;
        assert_eq!(Superblock::decode(&bytes, 0), Err(NodeError::Checksum));
        let crc = checksum(&Superblock::binding(0), &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Superblock::decode(&bytes, 0), Err(NodeError::Version));
    }
    let format1 = crate::Superblock::format([1; 16], 1 << 30, 4 << 20, 1).unwrap().encode(0);
    assert_eq!(Superblock::decode(&format1[..], 0), Err(NodeError::Magic));
}

proptest! {
    #[test]
    fn every_changed_byte_is_refused(at in 0_usize..4096, by in 1_u8..) {
        let mut bytes = superblock().encode(0);
        bytes[at] ^= by;
        prop_assert!(Superblock::decode(&bytes, 0).is_err());
    }
}
