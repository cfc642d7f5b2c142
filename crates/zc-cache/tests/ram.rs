//! Bytes of RAM per cached extent: what the indexes hold when they are filled to their nominal capacity without an
//! eviction (`ram_bytes` is the capacity of their vectors), all extents unique, and with half of them duplicates.

#[cfg(test)]
mod ram {
    use zc_cache::index::{FileIndex, FingerprintIndex, IndexShape, Mapping, Place};
    use zc_core::{ExtentKey, ExtentNo, Fingerprint, Generation, VolumeId, WeuSlot};

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

    /// Fills both indexes with `extents`; every `unique_every`-th has content of its own, the others share it.
    /// Returns bytes of both indexes per extent, in thousandths.
    fn fill(extents: u64, unique_every: u64) -> u64 {
        let stored = extents / unique_every;
        let slots = u32::try_from(stored.div_ceil(PER_SLOT)).expect("fits");
        let shape = IndexShape { slots, weu_bytes: 2 << 20, extent_bytes: 8 << 10, generation_bits: 8 };
        let mut files = FileIndex::new(shape, extents);
        let mut prints = FingerprintIndex::new(shape, stored);
        for n in 0..extents {
            let content = n / unique_every;
            let place = Place {
                slot: WeuSlot(u32::try_from(content / PER_SLOT).expect("fits")),
                generation: Generation(200),
                offset_units: u16::try_from(content % PER_SLOT * 65).expect("fits"),
                pages: 2,
            };
            let base = n.is_multiple_of(unique_every);
            let key = ExtentKey { volume: VolumeId(3), extent: ExtentNo(n) };
            let mapping = if base { Mapping::Base(place) } else { Mapping::Duplicate(place) };
            assert_eq!(files.insert(key, mapping), None, "no eviction below the nominal capacity");
            if base {
                prints.insert(&fingerprint(content), place.slot);
            }
        }
        assert_eq!((files.len(), prints.evictions()), (extents, 0));
        let (file, print) = (files.ram_bytes() * 1000 / extents, prints.ram_bytes() * 1000 / extents);
        println!(
            "1 of {unique_every} unique: file index {file}, fingerprint index {print} thousandths of a byte per extent"
        );
        file + print
    }

    #[test]
    fn ten_million_unique_extents_take_less_than_14_bytes_each() {
        assert!(fill(10_000_000, 1) < 14_000);
    }

    #[test]
    fn a_million_extents_of_which_half_are_duplicates_take_less_than_12_bytes_each() {
        assert!(fill(1_000_000, 2) < 12_000);
    }
}
