//! Locations of landmarks: both ends of the origin and of each partition, and the journals of file systems.
//!
//! The first 128 KiB hold the superblocks of ext4, XFS and btrfs, the labels of LVM, LUKS and md (1.1, 1.2), MBR and
//! GPT; the last 128 KiB the labels of md (0.90, 1.0) and the second GPT. LVM and LUKS have their data after the
//! label: its first 128 KiB count as well. Field offsets are those of the formats' documentation.

use zc_io::IoError;

use super::{MAX_BYTES, MAX_LANDMARKS};

/// Size of each end, journal and log.
const PLACE_BYTES: u64 = 128 << 10;
/// Most partitions that are examined.
const MAX_PARTITIONS: usize = 128;
/// An MBR names four partitions.
const MBR_ENTRIES: usize = 4;
const SECTOR: u64 = 512;

/// Copies of the btrfs superblock, besides the one at 64 KiB.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];
const BTRFS_SUPERBLOCK_BYTES: u64 = 4096;

/// Range of an origin, with its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) len_bytes: u64,
}

/// Reads a count of bytes at an offset.
pub(super) type Read<'a> = &'a mut dyn FnMut(u64, u64) -> Result<Vec<u8>, IoError>;

/// The whole origin, or a partition of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Area {
    /// Number of the partition; 0: the whole origin.
    partition: usize,
    start: u64,
    len_bytes: u64,
}

impl Area {
    /// Returns a part of the area, clipped to it.
    fn part(self, offset: u64, len_bytes: u64) -> Option<(u64, u64)> {
        let left = self.len_bytes.checked_sub(offset).filter(|left| *left > 0)?;
        Some((self.start + offset, len_bytes.min(left)))
    }

    fn name(self, what: &str) -> String {
        match self.partition {
            0 => what.to_owned(),
            number => format!("{what} in partition {number}"),
        }
    }
}

/// Ranges in order of discovery; bounded.
#[derive(Debug, Default)]
struct Places {
    found: Vec<Place>,
    bytes: u64,
}

impl Places {
    fn add(&mut self, area: Area, what: &str, offset: u64, len_bytes: u64) {
        let Some((offset, len_bytes)) = area.part(offset, len_bytes) else { return };
        let is_inside = |place: &Place| {
            place.offset <= offset && offset + len_bytes <= place.offset.saturating_add(place.len_bytes)
        };
        let has_room = self.found.len() < MAX_LANDMARKS && self.bytes + len_bytes <= MAX_BYTES;
        if has_room && !self.found.iter().any(is_inside) {
            self.bytes += len_bytes;
            self.found.push(Place { name: area.name(what), offset, len_bytes });
        }
    }
}

/// Finds the landmarks of an origin with this block size.
pub(super) fn survey(len_bytes: u64, block_bytes: u64, read: Read<'_>) -> Result<Vec<Place>, IoError> {
    let mut places = Places::default();
    let whole = Area { partition: 0, start: 0, len_bytes };
    let head = look(whole, &mut places, read)?;
    for area in partitions(&head, whole, block_bytes, read)? {
        look(area, &mut places, read)?;
    }
    Ok(places.found)
}

/// Finds the landmarks of an area; returns its first bytes.
fn look(area: Area, places: &mut Places, read: Read<'_>) -> Result<Vec<u8>, IoError> {
    let Some((start, len)) = area.part(0, PLACE_BYTES) else { return Ok(Vec::new()) };
    let head = read(start, len)?;
    places.add(area, "the first 128 KiB", 0, PLACE_BYTES);
    if let Some(offset) = ext_journal(&head) {
        places.add(area, "the journal of ext4", offset, PLACE_BYTES);
    }
    if let Some(log) = xfs_log(&head) {
        places.add(area, "the log of XFS", log.0, PLACE_BYTES / 2);
        let head = xfs_log_head(area, log, read)?;
        places.add(area, "the head of the log of XFS", head.saturating_sub(PLACE_BYTES / 4), PLACE_BYTES);
    }
    if head.get(0x1_0040..0x1_0048) == Some(b"_BHRfS_M") {
        for copy in BTRFS_COPIES {
            places.add(area, "a superblock of btrfs", copy, BTRFS_SUPERBLOCK_BYTES);
        }
    }
    if let Some(offset) = luks_payload(&head) {
        places.add(area, "the first data of LUKS", offset, PLACE_BYTES);
    }
    if let Some(offset) = lvm_data(&head) {
        places.add(area, "the first data of LVM", offset, PLACE_BYTES);
    }
    places.add(area, "the last 128 KiB", area.len_bytes.saturating_sub(PLACE_BYTES), PLACE_BYTES);
    Ok(head)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn le16(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(|field| u64::from(u16::from_le_bytes(field)))
}

fn le32(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(|field| u64::from(u32::from_le_bytes(field)))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn be32(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(|field| u64::from(u32::from_be_bytes(field)))
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_be_bytes)
}

/// Returns the start of the internal journal of ext3 or ext4: the superblock has a copy of the journal inode's map.
fn ext_journal(head: &[u8]) -> Option<u64> {
    const SUPERBLOCK: usize = 1024;
    const HAS_JOURNAL: u64 = 4;
    const MAP: usize = 0x10c;
    const EXTENT_MAGIC: u64 = 0xf30a;
    let sb = head.get(SUPERBLOCK..)?;
    let is_ext = le16(sb, 0x38)? == 0xef53 && le32(sb, 0x5c)? & HAS_JOURNAL != 0;
    let shift = le32(sb, 0x18)?;
    if !is_ext || shift > 6 || sb.get(0xfd) != Some(&1) {
        return None;
    }
    let block = if le16(sb, MAP)? == EXTENT_MAGIC {
        // Of a journal too fragmented for a map in its inode, the superblock alone is checked.
        let is_leaf = le16(sb, MAP + 6)? == 0 && le16(sb, MAP + 2)? > 0;
        let high = le16(sb, MAP + 12 + 6)?;
        is_leaf.then_some(high << 32 | le32(sb, MAP + 12 + 8)?)?
    } else {
        le32(sb, MAP)?
    };
    block.checked_mul(1024 << shift)
}

/// Returns start and length of the internal log of XFS.
fn xfs_log(head: &[u8]) -> Option<(u64, u64)> {
    if head.get(..4)? != b"XFSB" {
        return None;
    }
    let (block_bytes, start, group_blocks, blocks) =
        (be32(head, 4)?, be64(head, 48)?, be32(head, 84)?, be32(head, 96)?);
    let group_bits = u32::from(*head.get(124)?);
    let group = start.checked_shr(group_bits)?;
    let within = start & 1_u64.checked_shl(group_bits)?.checked_sub(1)?;
    let block = group.checked_mul(group_blocks)?.checked_add(within)?;
    let len_bytes = blocks.checked_mul(block_bytes)?;
    (start != 0 && len_bytes >= SECTOR).then_some((block.checked_mul(block_bytes)?, len_bytes))
}

/// Returns the offset in the area of the log's next record. The log is a ring, and each of its sectors begins with the
/// number of the cycle in which it was written: the number changes at the head.
fn xfs_log_head(area: Area, log: (u64, u64), read: Read<'_>) -> Result<u64, IoError> {
    const RECORD_MAGIC: u64 = 0xfeed_babe;
    let (start, len_bytes) = log;
    let mut round = |sector: u64| {
        let Some((offset, SECTOR)) = area.part(start.saturating_add(sector * SECTOR), SECTOR) else {
            return Ok(None);
        };
        let bytes = read(offset, SECTOR)?;
        let first = be32(&bytes, 0);
        Ok(if first == Some(RECORD_MAGIC) { be32(&bytes, 4) } else { first })
    };
    let first = round(0)?;
    let (mut low, mut high) = (0, len_bytes / SECTOR);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if round(middle)? == first { low = middle } else { high = middle }
    }
    Ok(start.saturating_add(high * SECTOR))
}

/// Returns the start of the encrypted data.
fn luks_payload(head: &[u8]) -> Option<u64> {
    const JSON: usize = 4096;
    if head.get(..6)? != b"LUKS\xba\xbe" {
        return None;
    }
    if head.get(6..8)? == [0, 1] {
        return be32(head, 104)?.checked_mul(SECTOR);
    }
    let text = head.get(JSON..)?.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(text).ok()?;
    let (_, segments) = text.split_once("\"segments\"")?;
    let (_, offset) = segments.split_once("\"offset\":\"")?;
    offset.split_once('"')?.0.parse().ok()
}

/// Returns the start of the first extent of an LVM physical volume.
fn lvm_data(head: &[u8]) -> Option<u64> {
    const FIRST_AREA: usize = 40;
    let sectors = head.chunks(512).take(4);
    let label = sectors.into_iter().find(|sector| sector.starts_with(b"LABELONE"))?;
    let header = usize::try_from(le32(label, 20)?).ok()?;
    le64(label, header.checked_add(FIRST_AREA)?)
}

/// Returns the partitions of the whole origin, from a GPT or else an MBR.
fn partitions(head: &[u8], whole: Area, block_bytes: u64, read: Read<'_>) -> Result<Vec<Area>, IoError> {
    let mut areas = Vec::new();
    let gpt = [SECTOR, 4096].into_iter().find_map(|unit| Some((unit, gpt_table(head, unit)?)));
    if let Some((unit, (offset, entry_bytes, entries))) = gpt {
        let Some((offset, len)) = whole.part(offset, entry_bytes * entries) else { return Ok(areas) };
        let table = read(offset, len)?;
        for (entry, number) in table.chunks_exact(usize_of(entry_bytes)).zip(1..) {
            let bounds = (le64(entry, 32).unwrap_or(0), le64(entry, 40).unwrap_or(0));
            areas.extend(area(whole, number, bounds.0, (bounds.1 + 1).saturating_sub(bounds.0), unit));
        }
        return Ok(areas);
    }
    for (entry, number) in mbr(head).zip(1..) {
        if !entry.is_extended {
            areas.extend(area(whole, number, entry.start, entry.len, block_bytes));
            continue;
        }
        logical(whole, entry.start, block_bytes, &mut areas, read)?;
    }
    areas.truncate(MAX_PARTITIONS);
    Ok(areas)
}

fn usize_of(value: u64) -> usize {
    zc_core::usize_from_u64(value)
}

/// Returns the area of a partition if it is not empty and lies within the origin.
fn area(whole: Area, partition: usize, start: u64, len: u64, unit: u64) -> Option<Area> {
    let (start, len_bytes) = (start.checked_mul(unit)?, len.checked_mul(unit)?);
    let (start, len_bytes) = whole.part(start, len_bytes).filter(|(start, len)| *start > 0 && *len > 0)?;
    Some(Area { partition, start, len_bytes })
}

/// Returns offset, size and number of the entries.
fn gpt_table(head: &[u8], unit: u64) -> Option<(u64, u64, u64)> {
    let header = head.get(usize_of(unit)..)?;
    let offset = le64(header, 72)?.checked_mul(unit)?;
    let (entries, entry_bytes) = (le32(header, 80)?, le32(header, 84)?);
    let is_sound = header.starts_with(b"EFI PART") && (128..=4096).contains(&entry_bytes) && entries > 0;
    is_sound.then_some((offset, entry_bytes, entries.min(128)))
}

#[derive(Debug, Clone, Copy)]
struct MbrEntry {
    is_extended: bool,
    start: u64,
    len: u64,
}

/// Returns the entries of an MBR, or of the sector before a logical partition. A boot sector of FAT has the same
/// signature, but code instead of entries.
fn mbr(sector: &[u8]) -> impl Iterator<Item = MbrEntry> {
    let entry = |index: usize| {
        let entry = sector.get(446 + index * 16..)?;
        let (status, kind) = (*entry.first()?, *entry.get(4)?);
        let is_extended = matches!(kind, 0x05 | 0x0f | 0x85);
        let entry = MbrEntry { is_extended, start: le32(entry, 8)?, len: le32(entry, 12)? };
        matches!(status, 0 | 0x80).then_some(entry)
    };
    let is_signed = sector.get(510..512) == Some(&[0x55, 0xaa]);
    let entries: Option<Vec<_>> = (0..MBR_ENTRIES).map(entry).collect();
    entries.filter(|_| is_signed).unwrap_or_default().into_iter()
}

/// Returns logical partitions: a chain of sectors, each with a partition (relative to the sector) and the next sector
/// (relative to the first).
fn logical(
    whole: Area,
    extended: u64,
    unit: u64,
    areas: &mut Vec<Area>,
    read: Read<'_>,
) -> Result<(), IoError> {
    let mut at = extended;
    for number in 5..MAX_PARTITIONS {
        let Some((offset, SECTOR)) = at.checked_mul(unit).and_then(|offset| whole.part(offset, SECTOR))
        else {
            break;
        };
        let sector = read(offset, SECTOR)?;
        let mut entries = mbr(&sector);
        let (Some(data), Some(next)) = (entries.next(), entries.next()) else { break };
        areas.extend(area(whole, number, at + data.start, data.len, unit));
        if next.start == 0 {
            break;
        }
        at = extended + next.start;
    }
    Ok(())
}
