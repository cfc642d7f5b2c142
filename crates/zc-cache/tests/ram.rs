//! Bytes of RAM per cached extent: what the indexes hold when they hold ten million extents (`ram_bytes` is the
//! capacity of their vectors), all unique and with half of them duplicates.

use zc_cache::index::{FileIndex, FingerprintIndex, IndexShape, Mapping, Place};
use zc_core::{ExtentKey, ExtentNo, Fingerprint, Generation, VolumeId, WeuSlot};

const EXTENTS: u64 = 10_000_000;
/// Extents in a 2 MiB WEU when each shrinks to a half.
const PER_SLOT: u64 = 500;

fn fingerprint(n: u64) -> Fingerprint {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(x ^ (x >> 31)).to_le_bytes());
    Fingerprint(bytes)
}

/// Fills both indexes; every `unique_every`-th extent has content of its own, the others share it.
/// Returns bytes of both indexes per extent, in thousandths.
fn fill(unique_every: u64) -> u64 {
    let stored = EXTENTS / unique_every;
    let slots = u32::try_from(stored.div_ceil(PER_SLOT)).expect("fits");
    let shape = IndexShape { slots, weu_bytes: 2 << 20, extent_bytes: 8 << 10, generation_bits: 8 };
    let mut files = FileIndex::new(shape, EXTENTS);
    let mut prints = FingerprintIndex::new(shape, stored);
    let mut evicted = 0;
    for n in 0..EXTENTS {
        let content = n / unique_every;
        let place = Place {
            slot: WeuSlot(u32::try_from(content / PER_SLOT).expect("fits")),
            generation: Generation(200),
            offset_units: u16::try_from(content % PER_SLOT * 65).expect("fits"),
            pages: 2,
        };
        let base = n % unique_every == 0;
        let key = ExtentKey { volume: VolumeId(3), extent: ExtentNo(n) };
        evicted += u64::from(
            files.insert(key, if base { Mapping::Base(place) } else { Mapping::Duplicate(place) }).is_some(),
        );
        if base {
            prints.insert(&fingerprint(content), place.slot);
        }
    }
    assert_eq!((evicted, files.len()), (0, EXTENTS), "the nominal capacity fits without an eviction");
    assert_eq!(prints.evictions(), 0);
    let (file, print) = (files.ram_bytes() * 1000 / EXTENTS, prints.ram_bytes() * 1000 / EXTENTS);
    println!(
        "1 of {unique_every} unique: file index {file}, fingerprint index {print} thousandths of a byte per extent"
    );
    file + print
}

#[test]
fn both_indexes_take_less_than_16_bytes_per_extent() {
    assert!(fill(1) < 14_000);
    assert!(fill(2) < 12_000);
}
