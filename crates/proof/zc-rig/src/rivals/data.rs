//! Contents of the slow disk before the first read.
//!
//! Job: images whose contents are derived from a seed. One is 2:1 compressible and holds every other extent a second
//! time somewhere, the other is irreducible.
//!
//! Invariants: the same image each time. Half of every 512 bytes is noise, so that every unit from 512 bytes
//! compresses alike; slightly less than half, so that two compressed blocks and their headers fit into one.
//!
//! It does not resemble real files.

use anyhow::Context;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use crate::chance::Chance;

const EXTENT_BYTES: usize = 8192;
const SECTOR_BYTES: usize = zc_core::usize_from_u32(zc_core::SECTOR_BYTES);
/// Noise at the beginning of each sector of reducible data.
const NOISE_BYTES: usize = 240;
const FILLER: u8 = b'.';
/// The base image of clones: a sixteenth of a working set of 512 MiB, and where its ids begin.
const BASE_EXTENTS: u64 = 4096;
const BASE_ID: u64 = 1 << 32;

/// Reducibility of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 2:1 by compression, 2:1 by deduplication.
    Reducible,
    /// As `Reducible`, but every other extent is one of a small base image, as with eight machines made from one.
    Clones,
    /// Not at all.
    Unique,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reducible => "reducible",
            Self::Clones => "clones",
            Self::Unique => "unique",
        }
    }

    fn noise_bytes(self) -> usize {
        match self {
            Self::Reducible | Self::Clones => NOISE_BYTES,
            Self::Unique => SECTOR_BYTES,
        }
    }
}

/// Makes an image of `disk_mib`, the first `filled_mib` of which are full, if it is not there.
///
/// # Errors
/// It cannot be written.
pub(crate) fn ensure(path: &Path, kind: Kind, filled_mib: u64, disk_mib: u64) -> anyhow::Result<()> {
    if path.is_file() {
        return Ok(());
    }
    // Half made is not made.
    let part = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&part)?);
        let mut ids = Ids { kind, chance: Chance::new(1), unique: 0 };
        for _ in 0..(filled_mib << 20) / zc_core::u64_from_usize(EXTENT_BYTES) {
            file.write_all(&extent(kind, ids.next_id()))?;
        }
        file.into_inner()?.set_len(disk_mib << 20)?;
        std::fs::rename(&part, path)
    };
    write().with_context(|| format!("cannot make {}", path.display()))
}

/// Content number of each extent.
struct Ids {
    kind: Kind,
    chance: Chance,
    unique: u64,
}

impl Ids {
    fn next_id(&mut self) -> u64 {
        let is_copy = self.kind != Kind::Unique && self.chance.below(2) == 0;
        match self.kind {
            Kind::Clones if is_copy => return BASE_ID + self.chance.below(BASE_EXTENTS),
            Kind::Reducible if is_copy && self.unique > 0 => return self.chance.below(self.unique),
            _ => {}
        }
        self.unique += 1;
        self.unique - 1
    }
}

fn extent(kind: Kind, id: u64) -> Vec<u8> {
    let mut noise = Chance::new((id + 1) << 8);
    let mut bytes = vec![FILLER; EXTENT_BYTES];
    for sector in bytes.chunks_exact_mut(SECTOR_BYTES) {
        for word in sector[..kind.noise_bytes()].chunks_exact_mut(8) {
            word.copy_from_slice(&noise.below(u64::MAX).to_le_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn half_of_reducible_extents_are_copies_and_half_of_each_is_noise() {
        let mut ids = Ids { kind: Kind::Reducible, chance: Chance::new(1), unique: 0 };
        let all: Vec<u64> = (0..10_000).map(|_| ids.next_id()).collect();
        let unique = all.iter().collect::<BTreeSet<_>>().len();
        assert!((4_800..5_200).contains(&unique), "{unique}");
        let bytes = extent(Kind::Reducible, 7);
        let filler = bytes.iter().filter(|byte| **byte == FILLER).count();
        assert!((EXTENT_BYTES / 2..EXTENT_BYTES * 6 / 10).contains(&filler), "{filler}");
        assert_eq!(bytes, extent(Kind::Reducible, 7));
        assert_ne!(bytes, extent(Kind::Reducible, 8));
    }

    #[test]
    fn clones_share_one_base_image() {
        let mut ids = Ids { kind: Kind::Clones, chance: Chance::new(1), unique: 0 };
        let all: Vec<u64> = (0..65_536).map(|_| ids.next_id()).collect();
        let (base, own): (Vec<u64>, Vec<u64>) = all.iter().partition(|id| **id >= BASE_ID);
        assert!((32_000..33_500).contains(&base.len()), "{}", base.len());
        assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), own.len());
        assert!(base.iter().collect::<BTreeSet<_>>().len() <= 4096);
    }

    #[test]
    fn unique_extents_all_differ_and_are_noise() {
        let mut ids = Ids { kind: Kind::Unique, chance: Chance::new(1), unique: 0 };
        assert_eq!((0..100).map(|_| ids.next_id()).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        let bytes = extent(Kind::Unique, 7);
        assert!(bytes.iter().filter(|byte| **byte == FILLER).count() < EXTENT_BYTES / 100);
    }

    #[test]
    fn an_image_is_made_once_and_has_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        ensure(&path, Kind::Reducible, 1, 3).unwrap();
        let first = std::fs::read(&path).unwrap();
        assert_eq!(first.len(), 3 << 20);
        assert!(
            first[(1 << 20) - 512..1 << 20].contains(&FILLER) && first[1 << 20..].iter().all(|b| *b == 0)
        );
        std::fs::write(&path, "kept").unwrap();
        ensure(&path, Kind::Reducible, 1, 3).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
