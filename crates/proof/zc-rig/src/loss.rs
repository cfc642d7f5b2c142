//! Disks that lose unflushed data.
//!
//! Job: QEMU logs every write to a disk, in the format of the kernel's dm-log-writes; from the log and the disk at
//! power-on, this builds a possible state after a power failure: all writes up to the last flush, and any, all, none,
//! or pieces of later writes.
//!
//! Invariants: a flushed write is in the log before the machine receives the completion. The disk state that QEMU
//! itself kept is ignored.
//!
//! Why not dm-log-writes in the machine: it would log the requests of the machine's kernel while that runs, and the
//! machine that loses its power would have to store the log. QEMU's log is stored by a host that stays up, and has the
//! requests of the disk itself, with the flushes in order, for the cache and the origin alike.
//!
//! It does not reorder flushed writes, or corrupt sectors that were not being written.
//!
//! Source of the format: the kernel's `drivers/md/dm-log-writes.c` and
//! `Documentation/admin-guide/device-mapper/log-writes.rst`.

use anyhow::{Context, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use zc_core::usize_from_u64;

use crate::chance::Chance;

const MAGIC: u64 = 0x6a_7366_7773_6872;
/// Sector size of the log, its unit of positions and lengths. QEMU receives it as an option.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Capacity of the log of one boot; the file is sparse.
pub(crate) const LOG_BYTES: u64 = 8 << 30;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const KNOWN: u64 = FLUSH | FUA | DISCARD;
const HEAD_BYTES: usize = 32;

/// One request as the disk took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The bytes are in the log, at `at`.
    Write {
        offset: u64,
        bytes: u64,
        at: u64,
        is_durable: bool,
    },
    Discard {
        offset: u64,
        bytes: u64,
    },
    Flush,
}

/// Statistics of the writes since the last flush.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) kept: u64,
    pub(crate) lost: u64,
}

/// Treatment of a disk's volatile cache at a power failure.
#[derive(Debug, Clone, Copy)]
enum Temper {
    KeepsAll,
    LosesAll,
    LosesRequests,
    LosesPieces,
}

/// Turns `disk`, as at power-on, into the state after the cut. Writes are torn at multiples of `piece_bytes`.
///
/// # Errors
/// When a file cannot be read or written, or the log is invalid.
pub(crate) fn cut(disk: &Path, log: &Path, piece_bytes: u64, chance: &mut Chance) -> anyhow::Result<Loss> {
    let source = File::open(log).with_context(|| format!("cannot open {}", log.display()))?;
    let entries = read_log(&source).with_context(|| format!("in {}", log.display()))?;
    let target = File::options().write(true).open(disk);
    let target = target.with_context(|| format!("cannot open {}", disk.display()))?;
    let covered = entries.iter().rposition(|entry| *entry == Entry::Flush).unwrap_or(0);
    let temper = match chance.below(4) {
        0 => Temper::KeepsAll,
        1 => Temper::LosesAll,
        2 => Temper::LosesRequests,
        _ => Temper::LosesPieces,
    };
    let mut loss = Loss::default();
    for (index, entry) in entries.iter().enumerate() {
        for part in surviving(*entry, index < covered, temper, piece_bytes, chance, &mut loss) {
            apply(part, &source, &target).with_context(|| format!("cannot write {}", disk.display()))?;
        }
    }
    Ok(loss)
}

/// The parts of a request that are found afterwards.
fn surviving(
    entry: Entry,
    is_covered: bool,
    temper: Temper,
    piece_bytes: u64,
    chance: &mut Chance,
    loss: &mut Loss,
) -> Vec<Entry> {
    let is_safe = is_covered || matches!(entry, Entry::Write { is_durable: true, .. });
    if is_safe || entry == Entry::Flush {
        return vec![entry];
    }
    let pieces = match temper {
        Temper::LosesPieces => pieces(entry, piece_bytes),
        _ => vec![entry],
    };
    let is_kept = |_: &Entry| match temper {
        Temper::KeepsAll => true,
        Temper::LosesAll => false,
        Temper::LosesRequests | Temper::LosesPieces => chance.below(2) == 0,
    };
    let (kept, lost): (Vec<_>, Vec<_>) = pieces.into_iter().partition(is_kept);
    loss.kept += zc_core::u64_from_usize(kept.len());
    loss.lost += zc_core::u64_from_usize(lost.len());
    kept
}

/// A write cut at multiples of `piece_bytes` of the disk.
fn pieces(entry: Entry, piece_bytes: u64) -> Vec<Entry> {
    let Entry::Write { offset, bytes, at, is_durable } = entry else { return vec![entry] };
    let end = offset + bytes;
    let mut parts = Vec::new();
    let mut start = offset;
    while start < end {
        let stop = end.min((start / piece_bytes + 1) * piece_bytes);
        parts.push(Entry::Write {
            offset: start,
            bytes: stop - start,
            at: at + (start - offset),
            is_durable,
        });
        start = stop;
    }
    parts
}

fn apply(entry: Entry, log: &File, disk: &File) -> std::io::Result<()> {
    match entry {
        Entry::Flush => Ok(()),
        Entry::Discard { offset, bytes } => disk.write_all_at(&vec![0; usize_from_u64(bytes)], offset),
        Entry::Write { offset, bytes, at, .. } => {
            let mut buffer = vec![0; usize_from_u64(bytes)];
            log.read_exact_at(&mut buffer, at)?;
            disk.write_all_at(&buffer, offset)
        }
    }
}

/// Every entry, up to the first place where none was written.
fn read_log(log: &File) -> anyhow::Result<Vec<Entry>> {
    let mut head = [0; HEAD_BYTES];
    log.read_exact_at(&mut head, 0).context("cannot read the log of a disk")?;
    // The head of the log is written with the first flush.
    let is_begun = head != [0; HEAD_BYTES];
    ensure!(!is_begun || word(&head, 0) == MAGIC, "this is no log of a disk");
    let end = log.metadata().context("cannot tell the length of the log of a disk")?.len();
    let announced = word(&head, 2);
    let mut logged = 0_u64;
    let mut entries = Vec::new();
    let mut place = SECTOR_BYTES;
    while place < end {
        log.read_exact_at(&mut head, place).context("cannot read the log of a disk")?;
        let [sector, sectors, flags] = [0, 1, 2].map(|index| word(&head, index));
        if sectors == 0 && flags == 0 {
            break;
        }
        ensure!(
            flags & !KNOWN == 0,
            "an entry at byte {place} has flags {flags:#x}, which mean nothing here"
        );
        logged += 1;
        place += SECTOR_BYTES;
        let in_bytes =
            |sectors: u64| sectors.checked_mul(SECTOR_BYTES).context("an entry beyond any disk's end");
        let (offset, bytes) = (in_bytes(sector)?, in_bytes(sectors)?);
        if flags & DISCARD != 0 {
            entries.push(Entry::Discard { offset, bytes });
        } else if sectors > 0 {
            entries.push(Entry::Write { offset, bytes, at: place, is_durable: flags & FUA != 0 });
            place += bytes;
        }
        if flags & FLUSH != 0 {
            entries.push(Entry::Flush);
        }
    }
    // The number is updated with every flush. A lower count would mean that a request failed, and left a gap.
    ensure!(logged >= announced, "only {logged} of {announced} requests are in the log of a disk");
    Ok(entries)
}

fn word(head: &[u8; HEAD_BYTES], index: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[index * 8..index * 8 + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 8;

    /// A log of requests: place and value of a block of 4 KiB, or a flush.
    fn log(requests: &[Option<(u64, u8)>]) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        for request in requests {
            let (sector, sectors, flags) =
                request.map_or((0, 0, FLUSH), |(block, _)| (block * BLOCK, BLOCK, 0));
            let mut head = [sector, sectors, flags, 0].map(u64::to_le_bytes).concat();
            head.resize(512, 0);
            bytes.extend(head);
            bytes.extend(request.iter().flat_map(|(_, value)| vec![*value; 4096]));
        }
        bytes.resize(bytes.len() + 4096, 0);
        bytes
    }

    /// The disk that remains of eight empty blocks.
    fn remains(requests: &[Option<(u64, u8)>], seed: u64, piece_bytes: u64) -> (Vec<u8>, Loss) {
        let dir = tempfile::tempdir().unwrap();
        let (disk, journal) = (dir.path().join("disk"), dir.path().join("log"));
        std::fs::write(&disk, vec![0; 8 * 4096]).unwrap();
        std::fs::write(&journal, log(requests)).unwrap();
        let loss = cut(&disk, &journal, piece_bytes, &mut Chance::new(seed)).unwrap();
        (std::fs::read(disk).unwrap(), loss)
    }

    #[test]
    fn what_was_flushed_stays_and_the_rest_may_go_in_every_way() {
        let requests =
            [Some((0, 1)), Some((1, 2)), Some((0, 3)), None, Some((1, 4)), Some((5, 5)), Some((7, 6))];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let (disk, loss) = remains(&requests, seed, 512);
            assert!(disk[..4096].iter().all(|byte| *byte == 3));
            assert!(disk[4096..8192].iter().all(|byte| [2, 4].contains(byte)));
            assert!(disk[5 * 4096..6 * 4096].iter().all(|byte| [0, 5].contains(byte)));
            assert!(disk[2 * 4096..5 * 4096].iter().all(|byte| *byte == 0));
            assert_eq!(disk.len(), 8 * 4096);
            let is_torn = disk[4096..8192].iter().any(|byte| *byte != disk[4096]);
            seen.insert((loss.kept == 0, loss.lost == 0, is_torn));
        }
        let wanted =
            [(true, false, false), (false, true, false), (false, false, false), (false, false, true)];
        assert!(wanted.iter().all(|way| seen.contains(way)), "{seen:?}");
    }

    #[test]
    fn without_a_flush_nothing_is_safe_and_pieces_keep_their_size() {
        let requests = [Some((0, 1)), Some((2, 2))];
        let all: Vec<_> = (0..50).map(|seed| remains(&requests, seed, 4096)).collect();
        assert!(all.iter().any(|(disk, _)| disk.iter().all(|byte| *byte == 0)));
        assert!(
            all.iter()
                .all(|(disk, loss)| loss.kept + loss.lost == 2 && disk[..4096].iter().all(|b| *b == disk[0]))
        );
    }

    #[test]
    fn a_discard_leaves_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, journal) = (dir.path().join("disk"), dir.path().join("log"));
        std::fs::write(&disk, vec![9; 3 * 4096]).unwrap();
        let mut bytes = log(&[]);
        bytes.truncate(512);
        for (sector, sectors, flags) in [(BLOCK, BLOCK, DISCARD), (0, 0, FLUSH)] {
            let mut head = [sector, sectors, flags, 0].map(u64::to_le_bytes).concat();
            head.resize(512, 0);
            bytes.extend(head);
        }
        std::fs::write(&journal, bytes).unwrap();
        cut(&disk, &journal, 512, &mut Chance::new(1)).unwrap();
        let found = std::fs::read(disk).unwrap();
        assert_eq!([found[4095], found[4096], found[8191], found[8192]], [9, 0, 0, 9]);
    }

    #[test]
    fn what_is_no_log_is_refused_and_an_empty_one_is_good() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, journal) = (dir.path().join("disk"), dir.path().join("log"));
        std::fs::write(&disk, "").unwrap();
        std::fs::write(&journal, [0; 4096]).unwrap();
        assert_eq!(cut(&disk, &journal, 512, &mut Chance::new(1)).unwrap(), Loss::default());
        for text in [vec![7; 4096], Vec::new()] {
            std::fs::write(&journal, text).unwrap();
            cut(&disk, &journal, 512, &mut Chance::new(1)).unwrap_err();
        }
        let mut odd = log(&[None]);
        odd[512 + 16] = 0x80;
        std::fs::write(&journal, odd).unwrap();
        assert!(
            format!("{:#}", cut(&disk, &journal, 512, &mut Chance::new(1)).unwrap_err()).contains("0x80")
        );
    }
}
