//! Simulated device with a volatile write cache: a power cut loses any subset of the writes since the last flush,
//! torn at sector boundaries.
//!
//! A flush covers the writes that had *ended* when it was issued. Of writes in flight or issued later, it covers any
//! subset.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use zc_format::{Geometry, JOURNAL_DEVICE};

/// Returns the offset on the simulated device for an offset of the cache device or of its journal device. The journal
/// device lies behind the cache device. A flush covers both, as the driver's does.
pub(crate) fn address(geometry: &Geometry, offset_bytes: u64) -> usize {
    match offset_bytes.checked_sub(JOURNAL_DEVICE) {
        Some(behind) => (geometry.device_bytes + behind) as usize,
        None => offset_bytes as usize,
    }
}

/// Returns the range of the journal ring on the simulated device.
pub(crate) fn journal_range(geometry: &Geometry) -> Range<usize> {
    let start = address(geometry, geometry.journal_offset);
    start..start + geometry.journal_blocks as usize * PAGE
}

/// Returns the length of the simulated device.
pub(crate) fn device_bytes(geometry: &Geometry) -> usize {
    (geometry.device_bytes as usize).max(journal_range(geometry).end)
}

/// Smallest piece that is written atomically, in bytes.
const PIECE: usize = 512;
/// Unit of unreadable data, in bytes.
pub(crate) const PAGE: usize = 4096;

/// Write that no flush has covered.
#[derive(Debug, Clone)]
struct Unflushed {
    at: usize,
    data: Vec<u8>,
    /// Number of the write on this device.
    number: u64,
    /// Operation, numbered in the order of issue; 0 for writes of a start.
    op: u64,
    /// Operation that waits for the write's completion; `None` once it completed.
    owner: Option<u64>,
    /// Completion time, in the disk's own clock.
    ended: u64,
}

impl Unflushed {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.data.len()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Disk {
    /// Contents as reads return them.
    pub(crate) seen: Vec<u8>,
    durable: Vec<u8>,
    log: Vec<Unflushed>,
    clock: u64,
    /// Number of writes that took effect.
    pub(crate) written: u64,
    unreadable: BTreeSet<usize>,
    /// Pages that differ from the acknowledged contents as reads return them, with the last write before the damage.
    tainted: BTreeMap<usize, u64>,
    /// Pages that differ from the acknowledged contents after a power cut.
    tainted_durably: BTreeMap<usize, u64>,
    /// Time at which each page was last tainted, in the world's clock; some have been written since.
    tainted_at: BTreeMap<usize, u64>,
    /// Time in the world's clock.
    pub(crate) now: u64,
}

/// Returns the pages that the byte range covers completely.
fn filled(at: usize, len: usize) -> Range<usize> {
    let first = at.div_ceil(PAGE);
    first..((at + len) / PAGE).max(first)
}

/// Clears the taint of pages that a durable write covers completely, unless they were tainted after it.
fn wash(tainted: &mut BTreeMap<usize, u64>, at: usize, len: usize, number: u64) {
    for page in filled(at, len) {
        if tainted.get(&page).is_some_and(|since| *since < number) {
            tainted.remove(&page);
        }
    }
}

impl Disk {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            seen: vec![0; len],
            durable: vec![0; len],
            log: Vec::new(),
            clock: 1,
            written: 0,
            unreadable: BTreeSet::new(),
            tainted: BTreeMap::new(),
            tainted_durably: BTreeMap::new(),
            tainted_at: BTreeMap::new(),
            now: 0,
        }
    }

    /// Changes the length. Contents beyond the new end are lost; new space reads as zeros.
    pub(crate) fn resize(&mut self, len: usize) {
        self.settle();
        self.seen.resize(len, 0);
        self.durable.resize(len, 0);
        let pages = len / PAGE;
        self.unreadable.retain(|page| *page < pages);
        for tainted in [&mut self.tainted, &mut self.tainted_durably, &mut self.tainted_at] {
            tainted.retain(|page, _| *page < pages);
        }
    }

    /// Appends bytes, which are durable.
    pub(crate) fn grow(&mut self, rest: &[u8]) {
        self.seen.extend_from_slice(rest);
        self.durable.extend_from_slice(rest);
    }

    /// Executes a write of operation `owner`; [`Disk::ended`] records its completion.
    pub(crate) fn write(&mut self, at: usize, data: &[u8], owner: u64) {
        self.put(at, data);
        let data = data.to_vec();
        let number = self.written;
        self.log.push(Unflushed { at, data, number, op: owner, owner: Some(owner), ended: u64::MAX });
    }

    /// Executes a write that completes at once.
    pub(crate) fn write_now(&mut self, at: usize, data: &[u8]) {
        self.put(at, data);
        self.clock += 1;
        let number = self.written;
        self.log.push(Unflushed { at, data: data.to_vec(), number, op: 0, owner: None, ended: self.clock });
    }

    /// Returns the operations of the writes that no flush has covered, in execution order.
    pub(crate) fn unflushed(&self) -> impl Iterator<Item = u64> + '_ {
        self.log.iter().map(|write| write.op)
    }

    /// Cuts the power, keeping the unflushed writes that `keeps` selects by index.
    pub(crate) fn cut_to(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        let log = core::mem::take(&mut self.log);
        for (index, write) in log.iter().enumerate() {
            if keeps(index) {
                self.durable[write.range()].copy_from_slice(&write.data);
                wash(&mut self.tainted_durably, write.at, write.data.len(), write.number);
            }
        }
        self.go_back(&log);
        self.tainted.clone_from(&self.tainted_durably);
    }

    /// Reverts reads to the durable contents. Only these writes were not durable.
    fn go_back(&mut self, log: &[Unflushed]) {
        for write in log {
            self.seen[write.range()].copy_from_slice(&self.durable[write.range()]);
        }
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        self.written += 1;
        self.seen[at..at + data.len()].copy_from_slice(data);
        for page in at / PAGE..(at + data.len()).div_ceil(PAGE) {
            self.unreadable.remove(&page);
        }
        filled(at, data.len()).for_each(|page| _ = self.tainted.remove(&page));
    }

    /// Marks bytes as differing from the acknowledged contents, now and after a power cut.
    pub(crate) fn taint(&mut self, at: usize, len: usize) {
        let pages = at / PAGE..(at + len).div_ceil(PAGE);
        self.tainted.extend(pages.clone().map(|page| (page, self.written)));
        self.tainted_durably.extend(pages.clone().map(|page| (page, self.written)));
        self.tainted_at.extend(pages.map(|page| (page, self.now)));
    }

    /// Returns the time at which the latest of the tainted bytes in the range was tainted.
    pub(crate) fn tainted_since(&self, at: usize, len: usize) -> Option<u64> {
        let tainted = self.tainted.range(at / PAGE..(at + len).div_ceil(PAGE));
        tainted.map(|(page, _)| self.tainted_at.get(page).copied().unwrap_or(0)).max()
    }

    /// Returns `true` if some of these bytes differ from the acknowledged contents.
    pub(crate) fn is_tainted(&self, at: usize, len: usize) -> bool {
        self.tainted.range(at / PAGE..(at + len).div_ceil(PAGE)).next().is_some()
    }

    /// Records that the operation's writes completed.
    pub(crate) fn ended(&mut self, owner: u64) {
        self.clock += 1;
        for write in self.log.iter_mut().filter(|write| write.owner == Some(owner)) {
            write.owner = None;
            write.ended = self.clock;
        }
    }

    /// Completes all executed writes, because no client waits any more.
    pub(crate) fn all_ended(&mut self) {
        self.clock += 1;
        for write in self.log.iter_mut().filter(|write| write.owner.is_some()) {
            write.owner = None;
            write.ended = self.clock;
        }
    }

    /// Returns the issue time of a flush, which must cover all writes completed before.
    pub(crate) fn flush_issued(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Executes the flush that was issued at `issued`.
    pub(crate) fn flush(&mut self, issued: u64, rng: &mut Pcg64Mcg) {
        self.cover(|write| write.ended < issued || rng.random_bool(0.5));
    }

    /// Makes the operation's writes durable (FUA), and no others except those that they overwrote.
    pub(crate) fn persist(&mut self, owner: u64) {
        self.cover(|write| write.owner == Some(owner));
    }

    /// Makes the selected writes durable, with the writes that those overwrite.
    fn cover(&mut self, mut chooses: impl FnMut(&Unflushed) -> bool) {
        let mut covered = vec![false; self.seen.len().div_ceil(PIECE)];
        let mut chosen = vec![false; self.log.len()];
        for (index, write) in self.log.iter().enumerate().rev() {
            let pieces = write.at / PIECE..(write.at + write.data.len()).div_ceil(PIECE);
            chosen[index] = chooses(write) || covered[pieces.clone()].contains(&true);
            if chosen[index] {
                covered[pieces].fill(true);
            }
        }
        let mut chosen = chosen.into_iter();
        let (durable, tainted) = (&mut self.durable, &mut self.tainted_durably);
        self.log.retain(|write| {
            let covered = chosen.next() == Some(true);
            if covered {
                durable[write.at..write.at + write.data.len()].copy_from_slice(&write.data);
                wash(tainted, write.at, write.data.len(), write.number);
            }
            !covered
        });
    }

    /// Returns, for each piece, the contents that a power cut may leave.
    pub(crate) fn possible(&self) -> Vec<Vec<&[u8]>> {
        let mut possible: Vec<Vec<&[u8]>> = self.durable.chunks(PIECE).map(|piece| vec![piece]).collect();
        for write in &self.log {
            for (index, piece) in write.data.chunks(PIECE).enumerate() {
                possible[write.at / PIECE + index].push(piece);
            }
        }
        possible
    }

    /// Fails a flush: pieces of completed writes for which `may_lose` holds may be lost for good.
    pub(crate) fn lose_unflushed(&mut self, rng: &mut Pcg64Mcg, may_lose: impl Fn(usize) -> bool) {
        let keep = [0.0, 0.5, 0.9][rng.random_range(0..3)];
        let log = core::mem::take(&mut self.log);
        self.go_back(&log);
        for write in log {
            if write.owner.is_some() {
                self.log.push(write);
                continue;
            }
            for (index, piece) in write.data.chunks(PIECE).enumerate() {
                let at = write.at + index * PIECE;
                if rng.random_bool(keep) || !may_lose(at / PIECE) {
                    let data = piece.to_vec();
                    self.log.push(Unflushed { at, data, ..write });
                }
            }
        }
        for write in &self.log {
            self.seen[write.range()].copy_from_slice(&write.data);
        }
    }

    /// Makes everything durable.
    pub(crate) fn settle(&mut self) {
        for write in core::mem::take(&mut self.log) {
            self.durable[write.range()].copy_from_slice(&self.seen[write.range()]);
        }
        self.tainted_durably.clone_from(&self.tainted);
    }

    /// Damages bytes, both as read and as durable, without a write.
    pub(crate) fn damage(&mut self, at: usize, data: &[u8]) {
        self.seen[at..at + data.len()].copy_from_slice(data);
        self.durable[at..at + data.len()].copy_from_slice(data);
        self.taint(at, data.len());
    }

    /// Makes a page unreadable until it is rewritten.
    pub(crate) fn make_unreadable(&mut self, at: usize) {
        self.unreadable.insert(at / PAGE);
    }

    /// Makes all pages readable again.
    pub(crate) fn mend(&mut self) {
        self.unreadable.clear();
    }

    /// Returns `true` if a read of the range would fail.
    pub(crate) fn is_unreadable(&self, at: usize, len: usize) -> bool {
        self.unreadable.range(at / PAGE..(at + len).div_ceil(PAGE)).next().is_some()
    }

    /// Replaces the contents of the whole device.
    pub(crate) fn restore(&mut self, image: &[u8]) {
        self.seen.copy_from_slice(image);
        self.durable.copy_from_slice(image);
        self.tainted.clear();
        self.settle();
        self.unreadable.clear();
    }

    /// Cuts the power: each piece of each unflushed write is kept or lost.
    pub(crate) fn power_cut(&mut self, rng: &mut Pcg64Mcg) {
        let keep = [0.0, 0.5, 0.9, 1.0][rng.random_range(0..4)];
        let piece = if rng.random_bool(0.5) { PIECE } else { PAGE };
        let log = core::mem::take(&mut self.log);
        for write in &log {
            for (index, chunk) in write.data.chunks(piece).enumerate() {
                if rng.random_bool(keep) {
                    let at = write.at + index * piece;
                    self.durable[at..at + chunk.len()].copy_from_slice(chunk);
                    wash(&mut self.tainted_durably, at, chunk.len(), write.number);
                }
            }
        }
        self.go_back(&log);
        self.tainted.clone_from(&self.tainted_durably);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn lose_all(disk: &Disk) -> Vec<u8> {
        disk.durable.clone()
    }

    #[test]
    fn a_flush_covers_what_ended_before_it_was_issued_and_anything_of_the_rest() {
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut disk = Disk::new(4 * PIECE);
            disk.write(0, &[1; PIECE], 7);
            disk.ended(7);
            disk.write(PIECE, &[2; PIECE], 8);
            let issued = disk.flush_issued();
            disk.ended(8);
            disk.write(2 * PIECE, &[3; PIECE], 9);
            disk.flush(issued, &mut rng);
            let durable = lose_all(&disk);
            assert_eq!(durable[0], 1);
            seen.insert((durable[PIECE], durable[2 * PIECE]));
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn of_two_writes_of_one_place_the_later_is_never_durable_without_the_earlier() {
        for seed in 0..64 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut disk = Disk::new(PIECE);
            disk.write(0, &[1; PIECE], 1);
            disk.write(0, &[2; PIECE], 2);
            disk.ended(2);
            let issued = disk.flush_issued();
            disk.flush(issued, &mut rng);
            let issued = disk.flush_issued();
            disk.flush(issued, &mut rng);
            assert_eq!(lose_all(&disk)[0], 2);
        }
    }

    #[test]
    fn a_write_with_fua_makes_itself_durable_and_nothing_else() {
        let mut disk = Disk::new(4 * PIECE);
        disk.write(PIECE, &[1; PIECE], 1);
        disk.ended(1);
        disk.write(0, &[2; PIECE], 2);
        disk.persist(2);
        assert_eq!((disk.durable[0], disk.durable[PIECE]), (2, 0));
    }

    #[test]
    fn a_page_is_tainted_until_it_is_written_whole_and_a_power_cut_takes_that_back() {
        let mut disk = Disk::new(4 * PAGE);
        disk.damage(PAGE + 5, &[9]);
        assert!(disk.is_tainted(0, 2 * PAGE) && !disk.is_tainted(0, PAGE));
        disk.write_now(PAGE, &[1; PIECE]);
        assert!(disk.is_tainted(PAGE, 1), "the rest of it is as it was");
        disk.write(PAGE, &[2; PAGE], 1);
        assert!(!disk.is_tainted(0, 4 * PAGE));
        disk.cut_to(|_| false);
        assert!(disk.is_tainted(PAGE, 1));
        disk.write(PAGE, &[3; PAGE], 2);
        disk.persist(2);
        disk.cut_to(|_| false);
        assert!(!disk.is_tainted(0, 4 * PAGE));
    }

    #[test]
    fn a_write_that_was_under_way_before_a_page_was_tainted_does_not_wash_it() {
        let mut disk = Disk::new(4 * PAGE);
        // A lost write is acknowledged, and a write before it becomes durable.
        disk.write(PAGE, &[1; PAGE], 1);
        disk.taint(PAGE, PAGE);
        // The target of a misdirected write contains wrong data itself.
        disk.write(2 * PAGE, &[2; PAGE], 2);
        disk.taint(2 * PAGE, PAGE);
        disk.persist(1);
        disk.persist(2);
        disk.cut_to(|_| false);
        assert!(disk.is_tainted(PAGE, 1) && disk.is_tainted(2 * PAGE, 1));
    }

    #[test]
    fn an_unreadable_page_heals_when_it_is_written() {
        let mut disk = Disk::new(4 * PAGE);
        disk.make_unreadable(PAGE + 5);
        assert!(disk.is_unreadable(0, 2 * PAGE) && !disk.is_unreadable(0, PAGE));
        disk.write_now(PAGE, &[1; PIECE]);
        assert!(!disk.is_unreadable(0, 4 * PAGE));
    }
}
