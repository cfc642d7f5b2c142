//! What the cache device keeps of dirty data, copy by copy, and which sectors its damage may take.
//!
//! Job: follow the manager's records (its intent log), so that for each sector of a volume the copies are known that a
//! restart relies on; and follow which commits the device proves. At a crash after the device lied in its slots, only
//! these sectors are forgiven: those of a volume's last commit, if a copy of it is damaged, nothing on the device
//! proves it, and no intent log is left. What is damaged of a proved commit cannot be read, and never shows older
//! bytes: nothing is forgiven for that. A device that was idle for a while has proved the last commit of every volume.
//!
//! What it does not do: judge what is read (`oracle`), or failed requests (`excuses`).

use std::collections::{BTreeMap, VecDeque};

use zc_core::{BufId, OpId, VolumeId, limits};
use zc_format::{Geometry, JournalBlock, Record, Summary, SummaryPlace};

use crate::content::SECTOR;
use crate::disk::{Disk, PAGE};
use crate::oracle::Oracle;

/// An idle device has proved the last commit after so long: 10 ms, two ticks of up to 40 ms, and a commit of others.
const PROVED_MS: u64 = 200;

/// One dirty record.
#[derive(Debug, Clone, Copy)]
struct Copy {
    /// First sector of the volume, and the one after the last.
    start: usize,
    end: usize,
    /// Bytes of the device, unless it is zeros.
    at: Option<(usize, usize)>,
}

/// Knowledge of one volume.
#[derive(Debug, Default, Clone)]
struct Volume {
    dangling: Vec<Copy>,
    /// Committed and not clean, oldest first.
    epochs: VecDeque<(u64, Vec<Copy>)>,
    /// The last epoch that was recorded as durable, and when.
    durable: u64,
    durable_ms: u64,
    /// The last epoch that the device proves.
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

/// Knowledge of all volumes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Kept {
    volumes: BTreeMap<VolumeId, Volume>,
    /// Summaries in units that are being filled: the page, and what it says.
    summaries: BTreeMap<(BufId, u32), Vec<Record>>,
    /// Places of summaries that no durable journal block repeats.
    chain: Vec<usize>,
    /// Journal blocks from the first one that is not durable on.
    unflushed: Vec<Block>,
    /// Flushes in flight, and how many of these blocks each covers.
    flushes: BTreeMap<OpId, usize>,
}

impl Kept {
    /// Returns `true` if a summary that no durable journal block repeats is not what the device acknowledged.
    pub(crate) fn is_chain_tainted(&self, disk: &Disk) -> bool {
        self.chain.iter().any(|page| disk.is_tainted(*page, PAGE))
    }

    /// Sectors of last commits that are not proved, and of which a copy was damaged after it was written, by volume.
    pub(crate) fn doubtful(&self, disk: &Disk, oracles: &[Oracle]) -> Vec<(usize, Vec<usize>)> {
        let mut doubtful = Vec::new();
        for (volume, known) in &self.volumes {
            let last = known.epochs.iter().find(|(epoch, _)| *epoch == known.durable);
            let Some((epoch, copies)) = last else { continue };
            // What was damaged before it was written was no copy of it.
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

    /// A new cache.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The session is over.
    pub(crate) fn session_over(&mut self) {
        self.summaries.clear();
        self.unflushed.clear();
        self.flushes.clear();
    }

    /// A session has begun, durably: all that its start counted is proved, but for the last commits of these volumes.
    pub(crate) fn session_began(&mut self, unproved: &[VolumeId]) {
        for (volume, known) in &mut self.volumes {
            if !unproved.contains(volume) {
                known.proved = known.proved.max(known.durable);
            }
        }
    }

    /// The manager records something. `place` gives the device's bytes of a dirty record.
    fn record(&mut self, record: &Record, copy: Option<Copy>, now_ms: u64) {
        match *record {
            Record::Dirty { key, .. } | Record::DirtyZero { key, .. } => {
                self.volumes.entry(key.volume).or_default().dangling.extend(copy);
            }
            Record::Committed { volume, epoch } => {
                let known = self.volumes.entry(volume).or_default();
                let copies = core::mem::take(&mut known.dangling);
                // A start repeats what the journal lacked, and gives the number of what was in flight again.
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

    /// These records are durable on the device.
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

    /// A summary is put into a unit's memory.
    pub(crate) fn summarized(&mut self, weu: BufId, place: &SummaryPlace, summary: &Summary) {
        self.summaries.insert((weu, place.page), summary.records.clone());
    }

    /// A piece of a unit is durable. It begins at this byte of the device, and of its unit.
    pub(crate) fn part_durable(&mut self, weu: BufId, at: usize, start_bytes: u32, len_bytes: u32) {
        let pages = start_bytes / limits::BLOCK_BYTES..(start_bytes + len_bytes) / limits::BLOCK_BYTES;
        for page in pages.clone() {
            if let Some(records) = self.summaries.remove(&(weu, page)) {
                self.chain.push(at + (page - pages.start) as usize * PAGE);
                self.proves(&records);
            }
        }
    }

    /// A journal block was written, and is `durable` by itself. A restart reaches it if all before it are.
    pub(crate) fn block_written(&mut self, op: OpId, block: &JournalBlock, durable: bool) {
        if durable && self.unflushed.is_empty() {
            self.chain.clear();
            self.proves(&block.records);
        } else {
            let records = block.records.clone();
            self.unflushed.push(Block { op, ended: false, is_durable: durable, records });
        }
    }

    /// A flush is issued: it covers what has ended.
    pub(crate) fn flush_issued(&mut self, op: OpId) {
        let covered = self.unflushed.iter().take_while(|block| block.ended).count();
        self.flushes.insert(op, covered);
    }

    /// An operation ended.
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

    /// The manager records something.
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

    /// A volume whose last commit is not proved after so long, if there is one.
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
