//! A simulated device with a volatile write cache: what was written since the last flush may be lost, in any subset and
//! torn at sector borders, when the power goes.
//!
//! A flush covers the writes that had *ended* when it was issued. Of those that were in flight then, or came later, it
//! covers any.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use zc_format::{Geometry, JOURNAL_DEVICE};

/// Where a place of the cache device, or of its journal device, is on the simulated one: the journal device lies behind
/// the other. A flush is of both, as the driver's is.
pub(crate) fn address(geometry: &Geometry, offset_bytes: u64) -> usize {
    match offset_bytes.checked_sub(JOURNAL_DEVICE) {
        Some(behind) => (geometry.device_bytes + behind) as usize,
        None => offset_bytes as usize,
    }
}

/// Where the ring of the journal begins and ends on the simulated device.
pub(crate) fn journal_range(geometry: &Geometry) -> Range<usize> {
    let start = address(geometry, geometry.journal_offset);
    start..start + geometry.journal_blocks as usize * PAGE
}

/// Bytes of the simulated device.
pub(crate) fn device_bytes(geometry: &Geometry) -> usize {
    (geometry.device_bytes as usize).max(journal_range(geometry).end)
}

/// Smallest piece that is written whole.
const PIECE: usize = 512;
/// What becomes unreadable at once.
pub(crate) const PAGE: usize = 4096;

/// A write that no flush has covered.
#[derive(Debug, Clone)]
struct Unflushed {
    at: usize,
    data: Vec<u8>,
    /// Which write of the device it is.
    number: u64,
    /// The operation, in the order of issue; 0 for those of a start.
    op: u64,
    /// The operation that waits for the write's end; taken when it ended.
    owner: Option<u64>,
    /// When it ended, in the disk's own time.
    ended: u64,
}

impl Unflushed {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.data.len()
    }
}

/// The device.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    /// What a read sees.
    pub(crate) seen: Vec<u8>,
    durable: Vec<u8>,
    log: Vec<Unflushed>,
    clock: u64,
    /// Writes that took effect.
    pub(crate) written: u64,
    unreadable: BTreeSet<usize>,
    /// Pages that do not hold what the device acknowledged, as a read sees them, with the last write before that,
    tainted: BTreeMap<usize, u64>,
    /// and as a power cut leaves them.
    tainted_durably: BTreeMap<usize, u64>,
    /// When each page was tainted last, in the world's time; some have been written since.
    tainted_at: BTreeMap<usize, u64>,
    /// The world's time.
    pub(crate) now: u64,
}

/// Pages that so many bytes from there fill.
fn filled(at: usize, len: usize) -> Range<usize> {
    let first = at.div_ceil(PAGE);
    first..((at + len) / PAGE).max(first)
}

/// A write of so many bytes is durable: the pages that it fills are not tainted, unless they were after it.
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

    /// The device has another length. What lay behind the end is gone, and what is new holds zeros.
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

    /// The device becomes longer by this, which is durable.
    pub(crate) fn grow(&mut self, rest: &[u8]) {
        self.seen.extend_from_slice(rest);
        self.durable.extend_from_slice(rest);
    }

    /// A write of operation `owner` takes effect; [`Disk::ended`] tells when it is over.
    pub(crate) fn write(&mut self, at: usize, data: &[u8], owner: u64) {
        self.put(at, data);
        let data = data.to_vec();
        let number = self.written;
        self.log.push(Unflushed { at, data, number, op: owner, owner: Some(owner), ended: u64::MAX });
    }

    /// A write that is over at once.
    pub(crate) fn write_now(&mut self, at: usize, data: &[u8]) {
        self.put(at, data);
        self.clock += 1;
        let number = self.written;
        self.log.push(Unflushed { at, data: data.to_vec(), number, op: 0, owner: None, ended: self.clock });
    }

    /// The operations of the writes that no flush has covered, in the order in which they took effect.
    pub(crate) fn unflushed(&self) -> impl Iterator<Item = u64> + '_ {
        self.log.iter().map(|write| write.op)
    }

    /// The power goes: of the unflushed writes, in their order, these are kept.
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

    /// A read sees what is durable. Nothing but these writes was not.
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

    /// What was acknowledged for these bytes is not there, now and after a power cut.
    pub(crate) fn taint(&mut self, at: usize, len: usize) {
        let pages = at / PAGE..(at + len).div_ceil(PAGE);
        self.tainted.extend(pages.clone().map(|page| (page, self.written)));
        self.tainted_durably.extend(pages.clone().map(|page| (page, self.written)));
        self.tainted_at.extend(pages.map(|page| (page, self.now)));
    }

    /// When bytes that are not what the device acknowledged became so, the last of them.
    pub(crate) fn tainted_since(&self, at: usize, len: usize) -> Option<u64> {
        let tainted = self.tainted.range(at / PAGE..(at + len).div_ceil(PAGE));
        tainted.map(|(page, _)| self.tainted_at.get(page).copied().unwrap_or(0)).max()
    }

    /// Returns `true` if some of these bytes are not what the device acknowledged.
    pub(crate) fn is_tainted(&self, at: usize, len: usize) -> bool {
        self.tainted.range(at / PAGE..(at + len).div_ceil(PAGE)).next().is_some()
    }

    /// The operation's writes are over.
    pub(crate) fn ended(&mut self, owner: u64) {
        self.clock += 1;
        for write in self.log.iter_mut().filter(|write| write.owner == Some(owner)) {
            write.owner = None;
            write.ended = self.clock;
        }
    }

    /// No client waits any more: whatever took effect is over.
    pub(crate) fn all_ended(&mut self) {
        self.clock += 1;
        for write in self.log.iter_mut().filter(|write| write.owner.is_some()) {
            write.owner = None;
            write.ended = self.clock;
        }
    }

    /// A flush is issued: what ended before this moment it must cover.
    pub(crate) fn flush_issued(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The flush that was issued at `issued` takes effect.
    pub(crate) fn flush(&mut self, issued: u64, rng: &mut Pcg64Mcg) {
        self.cover(|write| write.ended < issued || rng.random_bool(0.5));
    }

    /// The operation's writes become durable (FUA), and no others but what they overwrote.
    pub(crate) fn persist(&mut self, owner: u64) {
        self.cover(|write| write.owner == Some(owner));
    }

    /// Makes writes durable: the chosen ones, and what those overwrite.
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

    /// For each piece, what a power cut may leave there.
    pub(crate) fn possible(&self) -> Vec<Vec<&[u8]>> {
        let mut possible: Vec<Vec<&[u8]>> = self.durable.chunks(PIECE).map(|piece| vec![piece]).collect();
        for write in &self.log {
            for (index, piece) in write.data.chunks(PIECE).enumerate() {
                possible[write.at / PIECE + index].push(piece);
            }
        }
        possible
    }

    /// A flush failed: of what had ended, each piece of these may be lost, now and for good.
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

    /// Everything becomes durable.
    pub(crate) fn settle(&mut self) {
        for write in core::mem::take(&mut self.log) {
            self.durable[write.range()].copy_from_slice(&self.seen[write.range()]);
        }
        self.tainted_durably.clone_from(&self.tainted);
    }

    /// Damage that no write made: it is there now and after a power cut.
    pub(crate) fn damage(&mut self, at: usize, data: &[u8]) {
        self.seen[at..at + data.len()].copy_from_slice(data);
        self.durable[at..at + data.len()].copy_from_slice(data);
        self.taint(at, data.len());
    }

    /// A page cannot be read until it is written again.
    pub(crate) fn make_unreadable(&mut self, at: usize) {
        self.unreadable.insert(at / PAGE);
    }

    /// Pages that could not be read can be.
    pub(crate) fn mend(&mut self) {
        self.unreadable.clear();
    }

    /// Returns `true` if a read would fail.
    pub(crate) fn is_unreadable(&self, at: usize, len: usize) -> bool {
        self.unreadable.range(at / PAGE..(at + len).div_ceil(PAGE)).next().is_some()
    }

    /// The whole device holds something else.
    pub(crate) fn restore(&mut self, image: &[u8]) {
        self.seen.copy_from_slice(image);
        self.durable.copy_from_slice(image);
        self.tainted.clear();
        self.settle();
        self.unreadable.clear();
    }

    /// The power goes: each piece of each unflushed write is kept or lost.
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
        // A write that is lost is acknowledged, and one before it becomes durable.
        disk.write(PAGE, &[1; PAGE], 1);
        disk.taint(PAGE, PAGE);
        // A write that goes to another place is itself what does not belong there.
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
