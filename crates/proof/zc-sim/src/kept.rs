//! Dirty data copies on the cache device, and the sectors that their damage may lose.
//!
//! Job: follow the manager's records (its intent log) to determine, for each sector of a volume, the copies that a
//! restart relies on, and the commits that the device proves. After a crash of a device that lied in its slots, only
//! sectors of a volume's last commit are forgiven. The commit must have a damaged copy, no proof on the device, and
//! no intent log. Damage to a proved commit makes it unreadable and never exposes older bytes, so it is not forgiven.
//! A device that was idle for a while has proved the last commit of every volume.
//!
//! It does not check reads (`oracle`) or failed requests (`excuses`).

use std::collections::{BTreeMap, VecDeque};

use zc_core::{BufId, OpId, VolumeId, limits};
use zc_format::{Geometry, JournalBlock, Record, Summary, SummaryPlace};

use crate::content::SECTOR;
use crate::disk::{Disk, PAGE};
use crate::oracle::Oracle;

/// Time after which an idle device has proved the last commit: 10 ms, two ticks of up to 40 ms, and a commit of
/// others.
const PROVED_MS: u64 = 200;

/// Copy of one dirty record.
#[derive(Debug, Clone, Copy)]
struct Copy {
    /// First sector of the volume, and the one after the last.
    start: usize,
    end: usize,
    /// Bytes of the device; `None` for zeros.
    at: Option<(usize, usize)>,
}

/// State of one volume.
#[derive(Debug, Default, Clone)]
struct Volume {
    dangling: Vec<Copy>,
    /// Committed epochs that are not clean, oldest first.
    epochs: VecDeque<(u64, Vec<Copy>)>,
    /// Last epoch recorded as durable, and the time of that record.
    durable: u64,
    durable_ms: u64,
    /// Last epoch that the device proves.
    proved: u64,
}

/// Journal block that a restart may not reach.
#[derive(Debug, Clone)]
struct Block {
    op: OpId,
    ended: bool,
    /// Durable by itself: reached once all blocks before it are durable.
    is_durable: bool,
    records: Vec<Record>,
}

/// State of all volumes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Kept {
    volumes: BTreeMap<VolumeId, Volume>,
    /// Summaries in units that are being filled, by buffer and page.
    summaries: BTreeMap<(BufId, u32), Vec<Record>>,
    /// Pages of summaries that no durable journal block repeats.
    chain: Vec<usize>,
    /// Journal blocks, starting with the first that is not durable.
    unflushed: Vec<Block>,
    /// Flushes in flight, with the number of these blocks that each covers.
    flushes: BTreeMap<OpId, usize>,
}

impl Kept {
    /// Returns `true` if a summary that no durable journal block repeats differs from the acknowledged contents.
    pub(crate) fn is_chain_tainted(&self, disk: &Disk) -> bool {
        self.chain.iter().any(|page| disk.is_tainted(*page, PAGE))
    }

    /// Returns, by volume, the sectors of unproved last commits of which a copy was damaged after it was written.
    pub(crate) fn doubtful(&self, disk: &Disk, oracles: &[Oracle]) -> Vec<(usize, Vec<usize>)> {
        let mut doubtful = Vec::new();
        for (volume, known) in &self.volumes {
            let last = known.epochs.iter().find(|(epoch, _)| *epoch == known.durable);
            let Some((epoch, copies)) = last else { continue };
            // A place damaged before the write held no copy of it.
            let damaged = |copy: &Copy| {
                let since = copy.at.and_then(|(at, len)| disk.tainted_since(at, len));
                let oracle = &oracles[usize::from(volume.0)];
                since.is_some_and(|since| {
                    (copy.start..copy.end).any(|sector| oracle.written_by(sector, since))
                })
            };
            if *epoch > known.proved && copies.iter().any(damaged) {
                let sectors = copies.iter().flat_map(|copy| copy.start..copy.end);
                doubtful.push((usize::from(volume.0), sectors.collect()));
            }
        }
        doubtful
    }

    /// Clears everything for a new cache.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn session_over(&mut self) {
        self.summaries.clear();
        self.unflushed.clear();
        self.flushes.clear();
    }

    /// Records a durable session start: all commits counted by it are proved, except the last ones of these volumes.
    pub(crate) fn session_began(&mut self, unproved: &[VolumeId]) {
        for (volume, known) in &mut self.volumes {
            if !unproved.contains(volume) {
                known.proved = known.proved.max(known.durable);
            }
        }
    }

    /// Applies a record. `copy` is the copy of a dirty record.
    fn record(&mut self, record: &Record, copy: Option<Copy>, now_ms: u64) {
        match *record {
            Record::Dirty { key, .. } | Record::DirtyZero { key, .. } => {
                self.volumes.entry(key.volume).or_default().dangling.extend(copy);
            }
            Record::Committed { volume, epoch } => {
                let known = self.volumes.entry(volume).or_default();
                let copies = core::mem::take(&mut known.dangling);
                // A start repeats records that the journal lacked, and reuses the number of the commit in flight.
                known.epochs.retain(|(number, _)| *number < epoch);
                known.epochs.push_back((epoch, copies));
            }
            Record::Clean { volume, epoch } => {
                let known = self.volumes.entry(volume).or_default();
                known.epochs.retain(|(number, _)| *number > epoch);
            }
            Record::DirtyReset { volume, epoch } => {
                let known = self.volumes.entry(volume).or_default();
                known.dangling.clear();
                known.epochs.retain(|(number, _)| *number <= epoch);
                known.durable = known.durable.min(epoch);
                known.proved = known.proved.min(epoch);
            }
            Record::Durable { volume, epoch } => {
                let known = self.volumes.entry(volume).or_default();
                // A start that was cut off may have counted more, which no client saw.
                if epoch != known.durable {
                    (known.durable, known.durable_ms) = (epoch, now_ms);
                }
            }
            _ => {}
        }
    }

    /// Applies records that are durable on the device.
    fn proves(&mut self, records: &[Record]) {
        for record in records {
            let (volume, epoch) = match *record {
                Record::Durable { volume, epoch } | Record::Clean { volume, epoch } => (volume, epoch),
                Record::Committed { volume, epoch } => (volume, epoch.saturating_sub(1)),
                _ => continue,
            };
            let known = self.volumes.entry(volume).or_default();
            known.proved = known.proved.max(epoch);
        }
    }

    /// Records a summary added to a unit in memory.
    pub(crate) fn summarized(&mut self, weu: BufId, place: &SummaryPlace, summary: &Summary) {
        self.summaries.insert((weu, place.page), summary.records.clone());
    }

    /// Records a durable piece of a unit. It begins at byte `at` of the device and `start_bytes` of its unit.
    pub(crate) fn part_durable(&mut self, weu: BufId, at: usize, start_bytes: u32, len_bytes: u32) {
        let pages = start_bytes / limits::BLOCK_BYTES..(start_bytes + len_bytes) / limits::BLOCK_BYTES;
        for page in pages.clone() {
            if let Some(records) = self.summaries.remove(&(weu, page)) {
                self.chain.push(at + (page - pages.start) as usize * PAGE);
                self.proves(&records);
            }
        }
    }

    /// Records a written journal block, which is `durable` by itself. A restart reaches it if all blocks before it
    /// are durable.
    pub(crate) fn block_written(&mut self, op: OpId, block: &JournalBlock, durable: bool) {
        if durable && self.unflushed.is_empty() {
            self.chain.clear();
            self.proves(&block.records);
        } else {
            let records = block.records.clone();
            self.unflushed.push(Block { op, ended: false, is_durable: durable, records });
        }
    }

    /// Records an issued flush, which covers completed writes.
    pub(crate) fn flush_issued(&mut self, op: OpId) {
        let covered = self.unflushed.iter().take_while(|block| block.ended).count();
        self.flushes.insert(op, covered);
    }

    /// Records the completion of an operation.
    pub(crate) fn ended(&mut self, op: OpId, well: bool) {
        if let Some(block) = self.unflushed.iter_mut().find(|block| block.op == op) {
            block.ended = true;
        }
        let Some(covered) = self.flushes.remove(&op).filter(|_| well) else { return };
        if covered > 0 {
            self.chain.clear();
        }
        let behind = self.unflushed.iter().skip(covered).take_while(|block| block.is_durable).count();
        let reached = covered.saturating_add(behind).min(self.unflushed.len());
        for block in self.unflushed.drain(..reached).collect::<Vec<_>>() {
            self.proves(&block.records);
        }
        self.flushes.values_mut().for_each(|count| *count = count.saturating_sub(reached));
    }

    /// Follows a record of the manager.
    pub(crate) fn follow(&mut self, record: &Record, geometry: &Geometry, now_ms: u64) {
        let sectors = geometry.extent_bytes as usize / SECTOR;
        let sectors_of = |extent: u64, first: u8, last: u8| {
            let base = extent as usize * sectors;
            (base + usize::from(first), base + usize::from(last) + 1)
        };
        let copy = match *record {
            Record::Dirty { key, span, slot, offset_units, pages, .. } => {
                let (start, end) = sectors_of(key.extent.0, span.first(), span.last());
                let offset = usize::from(offset_units) * limits::PLACE_ALIGN_BYTES as usize / PAGE * PAGE;
                let at = geometry.slot_offset(slot) as usize + offset;
                Some(Copy { start, end, at: Some((at, usize::from(pages) * PAGE)) })
            }
            Record::DirtyZero { key, span, .. } => {
                let (start, end) = sectors_of(key.extent.0, span.first(), span.last());
                Some(Copy { start, end, at: None })
            }
            _ => None,
        };
        self.record(record, copy, now_ms);
    }

    /// Describes a volume whose last commit is still not proved after [`PROVED_MS`], if there is one.
    pub(crate) fn late(&self, now_ms: u64) -> Option<String> {
        let late = |known: &&Volume| {
            known.proved < known.durable && now_ms.saturating_sub(known.durable_ms) > PROVED_MS
        };
        self.volumes.iter().find(|(_, known)| late(known)).map(|(volume, known)| {
            format!(
                "{volume:?}: epoch {} was durable at {} ms, nothing on the device proves more than {}, at {now_ms} ms (G5)",
                known.durable, known.durable_ms, known.proved
            )
        })
    }
}
