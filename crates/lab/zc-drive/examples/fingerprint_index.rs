//! A fingerprint index: finds the duplicate extents of a file.
//!
//! `cargo run -p zc-drive --example fingerprint_index FILE` prints the number of extents, and of those whose contents
//! occurred before. The index keeps some bits of each fingerprint, so it is a hint: the full fingerprint decides.

use std::io::{Read, Write as _};

use zc_cache::index::{FingerprintIndex, IndexShape};
use zc_core::{DedupDomain, Fingerprint, FingerprintKind, WeuSlot, usize_from_u32};

/// Size of an extent.
const EXTENT_BYTES: u32 = 8192;
/// Extents of one slot.
const SLOT_EXTENTS: usize = 255;

/// Fingerprints by slot, and the index that names candidate slots for a fingerprint.
struct Store {
    index: FingerprintIndex,
    slots: Vec<Vec<Fingerprint>>,
}

impl Store {
    /// Returns `true` if these contents are stored already; otherwise appends them to the last slot.
    fn insert(&mut self, extent: &[u8]) -> anyhow::Result<bool> {
        let print = zc_reduce::fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, extent);
        for slot in self.index.candidates(&print) {
            if self.slots[usize_from_u32(slot.0)].contains(&print) {
                self.index.touch(&print, slot);
                return Ok(true);
            }
        }
        if self.slots.last().is_none_or(|slot| slot.len() == SLOT_EXTENTS) {
            self.slots.push(Vec::new());
        }
        let last = self.slots.len() - 1;
        self.slots[last].push(print);
        self.index.insert(&print, WeuSlot(u32::try_from(last)?));
        Ok(false)
    }
}

/// Returns the numbers of extents and of duplicates. A last part of an extent is left out.
fn duplicates(mut input: impl Read) -> anyhow::Result<(u64, u64)> {
    let shape =
        IndexShape { slots: 1 << 16, weu_bytes: 2 << 20, extent_bytes: EXTENT_BYTES, generation_bits: 8 };
    let mut store = Store { index: FingerprintIndex::new(shape, 1 << 20), slots: Vec::new() };
    let (mut extents, mut found) = (0, 0);
    let mut extent = vec![0; usize_from_u32(EXTENT_BYTES)];
    while input.read_exact(&mut extent).is_ok() {
        extents += 1;
        found += u64::from(store.insert(&extent)?);
    }
    Ok((extents, found))
}

fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| anyhow::anyhow!("usage: fingerprint_index FILE"))?;
    let (extents, found) = duplicates(std::fs::File::open(path)?)?;
    writeln!(std::io::stdout(), "{extents} extents, {found} duplicates")?;
    Ok(())
}

#[test]
fn repeated_extents_are_found() {
    let bytes: Vec<u8> = [1, 2, 1, 3, 1].iter().flat_map(|&byte| [byte; 8192]).collect();
    assert_eq!(duplicates(bytes.as_slice()).unwrap(), (5, 2));
}
