//! The cleaner: finds what no root refers to, and empties segments that are worth it.
//!
//! Job: mark, sweep, then move what is live out of one victim after the other until enough is free. Invariants: it frees
//! nothing itself: it takes records away or changes them, and the log or a checkpoint frees the segments that no record
//! points to; it moves only what was read and passed its check; steps are small, and paced while space is not short. What
//! it does not do: choose when a checkpoint or the log is durable.

use std::collections::{BTreeSet, VecDeque};

use zc_core::{BufId, BufSlice, ErrorKind, OpId};

use crate::gather::{Gathering, Look};
use crate::ids::{BatchSeq, ChunkNo, PageNo, Place, SegmentNo};
use crate::limits::{self, BLOCK_BYTES};
use crate::mark::{Mark, Suspects};
use crate::media::Block;
use crate::media::batch::{BatchHeader, CHUNK_RECORD_BYTES, Record, SHORT_RECORD_BYTES, Stored};
use crate::media::page::{PageKey, TableId};
use crate::pager::Missing;
use crate::seam::{Action, FetchPart, FetchTo};
use crate::segments::State;
use crate::store::Open;
use crate::trees::map_key;

/// Steps after each event: a few hundred microseconds at most.
const STEPS_PER_EVENT: usize = 64;
/// Buffers that the store names itself have this bit set.
const STORE_BUF_BIT: u64 = 1 << 62;

/// A chunk that was read: where it was, and the buffer.
pub(crate) type Move = (ChunkNo, Stored, BufId);

/// The cleaner.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    work: Work,
    /// Something may have become garbage since the last mark began.
    garbage: bool,
    /// Where the log was when the last mark began: younger segments are no victims of the round.
    round_began: BatchSeq,
    /// And how many bytes of log there had been.
    round_log_bytes: u64,
    asked: bool,
    /// What the round is for.
    purpose: Purpose,
    /// Bytes that clients had written when it began.
    round_clients_bytes: u64,
    /// Emptied, but for pages that the next checkpoint writes elsewhere.
    emptied: BTreeSet<SegmentNo>,
    /// What pages that cannot be read may refer to: it stays.
    suspects: Suspects,
    /// Emptied in this round. What a checkpoint does not free then, another try does not free either.
    tried: BTreeSet<SegmentNo>,
    lacks: Option<PageKey>,
    /// The cleaner took as many steps as an event may, and can take more.
    goes_on: bool,
    tried_at: u64,
    /// Bytes that it may read and write now.
    allowance_bytes: u64,
    /// And bytes that it has to, for what clients wrote.
    owed_bytes: u64,
    /// Bytes of clients for which it owes, or did.
    paid_log_bytes: u64,
    last_tick_ms: Option<u64>,
    /// Clients wrote since the last tick, and the last tick at which that was so.
    written: bool,
    written_ms: u64,
}

/// Why a round is made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// What clients write needs room.
    #[default]
    Need,
    /// No client writes: what will be needed is freed ahead.
    Ahead,
    /// An operator asked.
    Order,
}

/// What it is at.
#[derive(Debug, Default)]
pub(crate) enum Work {
    #[default]
    Idle,
    Marking,
    /// Leaves of the page table, then of the chunk table.
    Sweeping {
        pages: bool,
        leaf: u64,
    },
    Choosing,
    Emptying(Victim),
    /// At a window of a volume, whose chunks may lie scattered.
    Looking(Look),
    Gathering(Gathering),
}

#[derive(Debug)]
pub(crate) struct Victim {
    segment: SegmentNo,
    /// The next header.
    offset_bytes: u32,
    seq: Option<BatchSeq>,
    step: VictimStep,
}

#[derive(Debug)]
enum VictimStep {
    /// The header at the offset is needed, or being read.
    Header(Option<OpId>),
    /// Its records are looked at.
    Records { records: VecDeque<Record>, found: Vec<(ChunkNo, Stored)> },
    /// What is live is being read.
    Contents { records: VecDeque<Record>, found: Vec<(ChunkNo, Stored)>, op: OpId, first_buf: u64 },
    /// The contents were read, and go into the log.
    Moving { records: VecDeque<Record>, moves: VecDeque<Move> },
}

/// What a step came to.
pub(crate) enum Step {
    Again,
    Waits,
    Lacks(Missing),
}

impl Cleaner {
    pub(crate) fn new() -> Self {
        Self { garbage: true, ..Self::default() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.work, Work::Idle)
    }

    /// Something was overwritten, discarded or deleted.
    pub(crate) fn garbage_made(&mut self) {
        self.garbage = true;
    }

    /// Segments became free.
    pub(crate) fn freed(&mut self, segments: &[SegmentNo]) {
        self.emptied.retain(|segment| !segments.contains(segment));
    }

    /// A checkpoint has put all changed pages into the log.
    pub(crate) fn checkpoint_began(&mut self) {
        self.emptied.clear();
    }

    pub(crate) fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether it can go on at once, and waits for nothing.
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Whether cleaning may still free something.
    pub(crate) fn can_free(&self) -> bool {
        !self.is_idle() || self.garbage
    }

    pub(crate) fn tried_at(&self) -> Option<u64> {
        self.lacks.map(|_| self.tried_at)
    }

    pub(crate) fn tick(&mut self, now_ms: u64, bytes_per_s: u64) {
        let passed_ms = self.last_tick_ms.map_or(0, |last| now_ms.saturating_sub(last));
        self.last_tick_ms = Some(now_ms);
        let more = bytes_per_s.saturating_mul(passed_ms) / 1000;
        self.allowance_bytes = self.allowance_bytes.saturating_add(more).min(bytes_per_s);
        if core::mem::take(&mut self.written) {
            self.written_ms = now_ms;
        }
    }

    pub(crate) fn spend(&mut self, bytes: u64) {
        let owed_bytes = self.owed_bytes.min(bytes);
        self.owed_bytes -= owed_bytes;
        self.allowance_bytes = self.allowance_bytes.saturating_sub(bytes - owed_bytes);
    }

    /// A client writes.
    pub(crate) fn client_writes(&mut self) {
        self.written = true;
    }

    /// Whether no client has written for so long.
    pub(crate) fn is_quiet(&self, quiet_ms: u64) -> bool {
        let now_ms = self.last_tick_ms.unwrap_or(0);
        quiet_ms == 0 || (!self.written && now_ms - self.written_ms >= quiet_ms)
    }

    pub(crate) fn waits_for_header(&self, op: OpId) -> bool {
        let Work::Emptying(Victim { step: VictimStep::Header(Some(waits)), .. }) = &self.work else {
            return false;
        };
        *waits == op
    }

    pub(crate) fn waits_for_contents(&self, op: OpId) -> bool {
        match &self.work {
            Work::Emptying(Victim { step: VictimStep::Contents { op: waits, .. }, .. }) => *waits == op,
            Work::Gathering(gathering) => gathering.waits_for(op),
            _ => false,
        }
    }

    /// What it is at; it is at nothing then.
    pub(crate) fn take_work(&mut self) -> Work {
        core::mem::take(&mut self.work)
    }

    pub(crate) fn set_work(&mut self, work: Work) {
        self.work = work;
    }
}

impl Open {
    /// Begins when space is low, and takes some steps.
    pub(crate) fn pump_cleaner(&mut self) {
        self.pay_cleaner();
        self.cleaner.goes_on = false;
        if self.cleaner.is_idle() && self.is_round_due() {
            self.begin_mark();
        } else if self.cleaner.is_idle() && self.may_gather() {
            let work = self.next_window().unwrap_or_default();
            self.cleaner.set_work(work);
        }
        if self.cleaner.lacks.is_some_and(|key| !self.trees.pager.has(key)) {
            return;
        }
        self.cleaner.lacks = None;
        self.cleaner.tried_at = self.trees.pager.now();
        for _ in 0..STEPS_PER_EVENT {
            let is_paced = self.cleaner.owed_bytes.saturating_add(self.cleaner.allowance_bytes)
                < u64::from(BLOCK_BYTES)
                && !self.is_cleaning_urgent();
            if self.cleaner.is_idle() || is_paced || self.must_wait_for_checkpoint() || self.failed.is_some()
            {
                return;
            }
            match self.clean_step() {
                Step::Again => {}
                Step::Waits => return,
                Step::Lacks(missing) => {
                    self.cleaner.lacks = Some(missing.key);
                    if self.want(missing).is_err() {
                        self.cleaner_lacks(missing.key);
                    }
                    return;
                }
            }
        }
        self.cleaner.goes_on = true;
    }

    /// Bytes of contents that clients brought.
    fn clients_bytes(&self) -> u64 {
        self.stats.chunk_bytes_stored
    }

    /// The cleaner owes work for what clients write: more when fewer segments are left of those that it is to free.
    /// Clients wait a little now instead of long in the end.
    fn pay_cleaner(&mut self) {
        let more_bytes = self.clients_bytes().saturating_sub(self.cleaner.paid_log_bytes);
        self.cleaner.paid_log_bytes += more_bytes;
        if self.cleaner.is_idle() {
            self.cleaner.owed_bytes = 0;
            return;
        }
        let all = 2 * self.round_segments();
        let soon_free =
            self.trees.segments.free_segments() + self.would_free().max(self.cleaner.emptied.len());
        let left = soon_free.saturating_sub(self.kept_segments()).min(all);
        let [least, most] = limits::PACE_SHIFTS;
        let shift = least + (most - least) * (all - left) / all;
        let owed_bytes = self.cleaner.owed_bytes.saturating_add(more_bytes << shift);
        let [in_time, late] = limits::OWED_BYTES_LIMITS;
        self.cleaner.owed_bytes = owed_bytes.min(if left > 0 { in_time } else { late });
    }

    /// Whether clients have to wait for the cleaner, so that they do not have to wait longer for it later. While a
    /// checkpoint frees what it has emptied there is nothing that it could do.
    pub(crate) fn is_cleaner_behind(&self) -> bool {
        let is_at_work = !matches!(self.cleaner.work, Work::Idle | Work::Choosing);
        is_at_work && self.is_space_short() && self.cleaner.owed_bytes > limits::OWED_BYTES_MAX
    }

    fn is_cleaning_urgent(&self) -> bool {
        self.trees.segments.free_segments() <= self.reserve() + limits::URGENT_SEGMENTS
    }

    /// A round costs a walk over all maps: while space is not short it waits until enough has been written since the
    /// last.
    fn is_round_due(&self) -> bool {
        let written = self.log.total_bytes() - self.cleaner.round_log_bytes;
        let share = self.round_segments() * zc_core::usize_from_u32(self.superblock.segment_bytes);
        let is_worth = written >= zc_core::u64_from_usize(share) || self.is_space_short();
        // At a stop, what is in line may still wait for space.
        let may_begin = self.opened && (!self.stopping || !self.changes.is_empty());
        may_begin && (self.cleaner.asked || (self.cleaner.garbage && is_worth && self.is_space_low()))
    }

    fn begin_mark(&mut self) {
        self.cleaner.purpose = match (self.cleaner.asked, self.is_space_short()) {
            (true, _) => Purpose::Order,
            (false, true) => Purpose::Need,
            (false, false) => Purpose::Ahead,
        };
        self.cleaner.round_clients_bytes = self.clients_bytes();
        if self.cleaner.purpose == Purpose::Order {
            self.trees.segments.try_damaged_again();
        }
        self.cleaner.garbage = false;
        self.cleaner.asked = false;
        self.cleaner.tried.clear();
        self.cleaner.round_began = self.last_batch();
        self.cleaner.round_log_bytes = self.log.total_bytes();
        let mut mark = Mark::default();
        self.trees.roots.values().for_each(|root| mark.page(root.page));
        self.survey.iter().flat_map(|survey| survey.pages()).for_each(|page| mark.page(page));
        self.trees.mark = Some(mark);
        self.cleaner.work = Work::Marking;
    }

    fn clean_step(&mut self) -> Step {
        self.cleaner.spend(u64::from(BLOCK_BYTES));
        let stepped = match core::mem::take(&mut self.cleaner.work) {
            Work::Idle => Ok(Step::Waits),
            Work::Marking => {
                self.cleaner.work = Work::Marking;
                self.mark_step()
            }
            Work::Sweeping { pages, leaf } => {
                self.cleaner.work = Work::Sweeping { pages, leaf };
                if pages { self.sweep_pages(leaf) } else { self.sweep_chunks(leaf) }
            }
            Work::Choosing => Ok(self.choose()),
            Work::Emptying(victim) => self.empty(victim),
            Work::Looking(look) => self.look_step(look),
            Work::Gathering(gathering) => self.gather_step(gathering),
        };
        stepped.unwrap_or_else(Step::Lacks)
    }

    fn mark_step(&mut self) -> Result<Step, Missing> {
        let Some(page) = self.trees.mark.as_mut().and_then(Mark::next) else {
            let ends = [self.trees.chunk_numbers.end(), self.trees.page_numbers.end()];
            if let Some(mark) = &mut self.trees.mark {
                self.cleaner.suspects.marked(mark, ends);
                mark.sweeping = true;
            }
            self.stats.pages_lost = zc_core::u64_from_usize(self.cleaner.suspects.lost_pages());
            self.cleaner.work = Work::Sweeping { pages: true, leaf: 0 };
            return Ok(Step::Again);
        };
        if let Err(missing) = self.trees.visit_marked_page(page) {
            if let Some(mark) = &mut self.trees.mark {
                mark.waits(page, missing);
            }
            return Err(missing);
        }
        Ok(Step::Again)
    }

    /// Takes map pages that no root refers to out of one leaf of the page table.
    fn sweep_pages(&mut self, leaf: u64) -> Result<Step, Missing> {
        let trees = &mut self.trees;
        let first = leaf * trees.pages.per_leaf();
        let end = (first + trees.pages.per_leaf()).min(trees.page_numbers.end());
        if first >= trees.page_numbers.end() {
            self.cleaner.work = Work::Sweeping { pages: false, leaf: 0 };
            return Ok(Step::Again);
        }
        let mut gone = Vec::new();
        for number in first.max(1)..end {
            let page = PageNo(number);
            let is_marked = trees.mark.as_ref().is_none_or(|mark| mark.pages.has(number));
            if !is_marked && (trees.page_pointer(page)?.is_some() || trees.pager.has(map_key(page))) {
                gone.push(page);
            }
        }
        if let Some(page) = gone.first() {
            trees.pages.make_writable(&mut trees.pager, page.0)?;
        }
        for page in gone {
            if let Some(place) = self.trees.drop_map_page(page) {
                self.releases.hold(place);
            }
            self.stats.pages_freed += 1;
            if self.loader.cancel(map_key(page)) {
                // Readers of a root that is gone: they look again.
                for req in self.reads_waiting.remove(&map_key(page)).unwrap_or_default() {
                    self.try_read(req);
                }
            }
        }
        self.cleaner.work = Work::Sweeping { pages: true, leaf: leaf + 1 };
        Ok(Step::Again)
    }

    /// Takes chunks that no root refers to out of one leaf of the chunk table.
    fn sweep_chunks(&mut self, leaf: u64) -> Result<Step, Missing> {
        let trees = &mut self.trees;
        let first = leaf * trees.chunks.per_leaf();
        let end = (first + trees.chunks.per_leaf()).min(trees.chunk_numbers.end());
        if first >= trees.chunk_numbers.end() {
            self.end_sweep();
            return Ok(Step::Again);
        }
        let mut gone = Vec::new();
        for number in first.max(1)..end {
            let Some(stored) = trees.stored(ChunkNo(number))? else { continue };
            if trees.mark.as_ref().is_none_or(|mark| mark.chunks.has(number)) {
                stored.print.iter().for_each(|print| self.prints.sample(print, ChunkNo(number)));
            } else {
                gone.push((ChunkNo(number), stored.place));
            }
        }
        if let Some((number, _)) = gone.first() {
            trees.make_chunk_writable(*number)?;
        }
        self.log_gone(&gone);
        for (number, _) in gone {
            self.trees.put_chunk(number, None);
            self.stats.chunks_freed += 1;
        }
        self.cleaner.work = Work::Sweeping { pages: false, leaf: leaf + 1 };
        Ok(Step::Again)
    }

    /// The log says that chunks of a leaf have no record any more. Where room is short it does not: their segments are
    /// free after a checkpoint then.
    fn log_gone(&mut self, gone: &[(ChunkNo, Place)]) {
        let mut records: Vec<(ChunkNo, u64)> = Vec::new();
        for (number, _) in gone {
            match records.last_mut() {
                Some((first, numbers)) if number.0 - first.0 < 64 => *numbers |= 1 << (number.0 - first.0),
                _ => records.push((*number, 1)),
            }
        }
        let has_room = self.trees.segments.free_segments() > self.config.cleaning_segments(self.shape());
        if has_room && self.make_room(SHORT_RECORD_BYTES * records.len(), 0).is_ok() {
            let records = records.into_iter().map(|(first, numbers)| Record::Gone(first, numbers));
            records.for_each(|record| self.log.put_record(record));
        } else {
            gone.iter().for_each(|(_, place)| self.releases.hold(*place));
        }
    }

    /// What is not marked has no record any more: its number may be given again.
    fn end_sweep(&mut self) {
        if let Some(mark) = self.trees.mark.take() {
            self.trees.page_numbers.marked(mark.pages);
            self.trees.chunk_numbers.marked(mark.chunks);
        }
        self.stats.marks += 1;
        self.cleaner.work = Work::Choosing;
    }

    /// Free segments at which the round has given enough.
    fn enough_segments(&self) -> usize {
        let needed = self.kept_segments() + 2 * self.round_segments();
        let ahead = self.segments_of(self.config.clean_until_percent).max(needed);
        match self.cleaner.purpose {
            Purpose::Need => needed,
            Purpose::Order => ahead,
            Purpose::Ahead if self.cleaner.is_quiet(self.config.quiet_ms) => ahead,
            // Clients write again: what they leave as garbage makes better victims.
            Purpose::Ahead => 0,
        }
    }

    /// Whether clients have written so much since the walk over all maps that another one finds better victims: what they
    /// wrote over since is not known to be garbage.
    fn is_round_stale(&mut self) -> bool {
        let share = self.round_segments() * zc_core::usize_from_u32(self.superblock.segment_bytes);
        let written_bytes = self.clients_bytes().saturating_sub(self.cleaner.round_clients_bytes);
        let is_stale =
            self.cleaner.purpose == Purpose::Need && written_bytes >= zc_core::u64_from_usize(share);
        self.cleaner.garbage |= is_stale;
        is_stale
    }

    /// The next victim, or the end.
    fn choose(&mut self) -> Step {
        self.cleaner.work = Work::Choosing;
        let released = self.releasable().count();
        let pending = self.waiting_for_checkpoint();
        let free = self.trees.segments.free_segments();
        let lacks = free + released < self.enough_segments() && !self.is_round_stale();
        // What moving one takes may not come from the floor.
        let may_move = free >= self.config.cleaning_segments(self.shape());
        let victim = if may_move && lacks { self.find_victim() } else { None };
        if self.checkpoint.is_some() || pending >= self.emptied_max() {
            // They must be free before more is moved; then the choice is made anew.
            self.begin_checkpoint();
            return Step::Waits;
        }
        let Some(segment) = victim else {
            if self.begin_release() {
                return Step::Waits;
            }
            if pending > 0 && (lacks || self.cleaner.purpose != Purpose::Need) {
                self.begin_checkpoint();
                return Step::Waits;
            }
            self.cleaner.work = Work::Idle;
            return Step::Again;
        };
        self.trees.segments.pin(segment);
        let seq = Some(self.trees.segments.get(segment).first_seq);
        self.cleaner.work =
            Work::Emptying(Victim { segment, offset_bytes: 0, seq, step: VictimStep::Header(None) });
        Step::Again
    }

    /// One that the log alone frees, if there is one: not of the segments in which recovery follows the log.
    fn find_victim(&self) -> Option<SegmentNo> {
        let (began, durable) = (self.cleaner.round_began, self.flushes.durable());
        let find =
            |began| self.trees.segments.victim(self.last_batch(), [began, durable], &self.cleaner.tried);
        find(began.min(BatchSeq(self.superblock.log.seq.0 - 1))).or_else(|| find(began))
    }

    /// Segments that are emptied but for pages, which the next checkpoint writes elsewhere.
    pub(crate) fn emptied_with_pages(&self) -> usize {
        let has_pages = |number: &&SegmentNo| self.trees.segments.get(**number).live_bytes() > 0;
        self.cleaner.emptied.iter().filter(has_pages).count()
    }

    fn empty(&mut self, mut victim: Victim) -> Result<Step, Missing> {
        let step = match &mut victim.step {
            VictimStep::Header(None) => self.want_header(&mut victim),
            VictimStep::Header(Some(_)) | VictimStep::Contents { .. } => Ok(Step::Waits),
            VictimStep::Records { .. } => self.look_at_records(&mut victim),
            VictimStep::Moving { .. } => self.move_one(&mut victim),
        };
        if matches!(self.cleaner.work, Work::Idle) {
            self.cleaner.work = Work::Emptying(victim);
        }
        step
    }

    fn want_header(&mut self, victim: &mut Victim) -> Result<Step, Missing> {
        let segment = *self.trees.segments.get(victim.segment);
        if victim.offset_bytes >= segment.end_bytes || segment.state != State::Used {
            self.trees.segments.unpin(victim.segment);
            if segment.state == State::Used {
                self.cleaner.emptied.insert(victim.segment);
            }
            self.cleaner.tried.insert(victim.segment);
            self.stats.segments_cleaned += 1;
            self.cleaner.work = Work::Choosing;
            return Ok(Step::Again);
        }
        self.next_op += 1;
        let op = OpId(self.next_op);
        let place = Place { segment: victim.segment, offset_bytes: victim.offset_bytes };
        let offset_bytes =
            crate::media::superblock::Superblock::device_offset(place, self.superblock.segment_bytes);
        self.out.push(Action::ReadBlock { op, offset_bytes });
        victim.step = VictimStep::Header(Some(op));
        Ok(Step::Waits)
    }

    pub(crate) fn cleaner_header_read(&mut self, result: Result<Box<Block>, ErrorKind>) {
        let Work::Emptying(victim) = &mut self.cleaner.work else { return };
        let place = Place { segment: victim.segment, offset_bytes: victim.offset_bytes };
        let size = self.superblock.segment_bytes;
        let header = result
            .ok()
            .and_then(|block| BatchHeader::decode(&block[..], self.superblock.uuid, place, size).ok());
        match header.filter(|header| Some(header.seq) == victim.seq) {
            Some(header) => {
                victim.offset_bytes += header.bytes();
                victim.seq = Some(header.seq.next());
                victim.step = VictimStep::Records { records: header.records.into(), found: Vec::new() };
            }
            None => self.give_up_victim(),
        }
    }

    /// What it holds cannot be told: it stays as it is.
    fn give_up_victim(&mut self) {
        if let Work::Emptying(victim) = core::mem::take(&mut self.cleaner.work) {
            if self.trees.segments.get(victim.segment).live_bytes() > 0 {
                self.trees.segments.damage(victim.segment);
                self.stats.damaged += 1;
            }
            self.trees.segments.unpin(victim.segment);
            if let VictimStep::Moving { moves, .. } = victim.step {
                self.out.extend(moves.into_iter().map(|(_, _, buf)| Action::Free { buf }));
            }
            self.cleaner.work = Work::Choosing;
        }
    }

    /// A page that it needs cannot be read.
    pub(crate) fn cleaner_lacks(&mut self, key: PageKey) {
        if self.cleaner.lacks != Some(key) {
            return;
        }
        self.cleaner.lacks = None;
        self.stats.damaged += 1;
        match self.cleaner.work {
            Work::Emptying(_) => self.give_up_victim(),
            Work::Marking => self.trees.mark.iter_mut().for_each(Mark::lose),
            Work::Sweeping { pages, leaf } => self.keep_leaf(pages, leaf),
            Work::Looking(_) | Work::Gathering(_) => self.give_up_window(),
            Work::Choosing | Work::Idle => {}
        }
    }

    /// A leaf of a table that cannot be read stays as it is, and its numbers are not given again.
    fn keep_leaf(&mut self, pages: bool, leaf: u64) {
        let trees = &mut self.trees;
        let per_leaf = (if pages { &trees.pages } else { &trees.chunks }).per_leaf();
        let Some(mark) = &mut trees.mark else { return };
        let kept = if pages { &mut mark.pages } else { &mut mark.chunks };
        kept.fill(leaf * per_leaf..(leaf + 1) * per_leaf);
        self.cleaner.work = Work::Sweeping { pages, leaf: leaf + 1 };
    }

    /// Finds what of a batch is still where it says; pages become changed, so the next checkpoint writes them elsewhere.
    fn look_at_records(&mut self, victim: &mut Victim) -> Result<Step, Missing> {
        let segment = victim.segment;
        let VictimStep::Records { records, found } = &mut victim.step else { return Ok(Step::Again) };
        while let Some(record) = records.front()
            && found.len() < limits::MOVES_MAX
        {
            if self.must_wait_for_checkpoint() {
                // A batch may list 168 pages: no more of them are changed than a checkpoint has room for.
                return Ok(Step::Again);
            }
            match record {
                Record::Chunk(number, stored) => {
                    let now = self.trees.stored(*number)?;
                    found.extend(now.filter(|now| now.place == stored.place).map(|now| (*number, now)));
                }
                Record::Page(key, offset_bytes) => {
                    let place = Place { segment, offset_bytes: *offset_bytes };
                    self.renew_page(*key, place)?;
                }
                Record::Map(..) | Record::Clear(..) | Record::Catalog(_) | Record::Gone(..) => {}
            }
            records.pop_front();
        }
        if found.is_empty() {
            victim.step = VictimStep::Header(None);
            return Ok(Step::Again);
        }
        let (records, found) = (core::mem::take(records), core::mem::take(found));
        let (op, first_buf) = self.fetch_to_move(&found);
        victim.step = VictimStep::Contents { records, found, op, first_buf };
        Ok(Step::Waits)
    }

    /// Reads chunks that are to be moved: the operation, and the first of their buffers.
    pub(crate) fn fetch_to_move(&mut self, found: &[(ChunkNo, Stored)]) -> (OpId, u64) {
        self.next_op += 1;
        let op = OpId(self.next_op);
        let first_buf = STORE_BUF_BIT | self.next_buf;
        self.next_buf += zc_core::u64_from_usize(found.len());
        let part = |(_, stored): &(ChunkNo, Stored)| FetchPart {
            stored: *stored,
            memory: self.log.memory(stored.place),
            dest_offset_bytes: 0,
        };
        let parts = found.iter().map(part).collect();
        self.out.push(Action::Fetch { op, parts, to: FetchTo::Stored(BufId(first_buf)), urgent: false });
        (op, first_buf)
    }

    fn renew_page(&mut self, key: PageKey, place: Place) -> Result<(), Missing> {
        let trees = &mut self.trees;
        if key.table == TableId::Map {
            let page = PageNo(key.index);
            if trees.page_pointer(page)?.place == place {
                trees.load_any_map_page(page)?;
                trees.pages.make_writable(&mut trees.pager, page.0)?;
                trees.pager.mark_dirty(map_key(page));
            }
            return Ok(());
        }
        let crate::trees::Trees { pager, chunks, pages, segment_table, catalog_table, .. } = trees;
        let table = match key.table {
            TableId::Chunks => chunks,
            TableId::Pages => pages,
            TableId::Catalog => catalog_table,
            TableId::Segments | TableId::Map => segment_table,
        };
        if table.pointer(pager, key)?.place == place {
            table.make_page_writable(pager, key)?;
        }
        Ok(())
    }

    pub(crate) fn cleaner_fetched(&mut self, results: Vec<Result<(), ErrorKind>>) {
        let work = self.cleaner.take_work();
        let mut victim = match work {
            Work::Emptying(victim) => victim,
            Work::Gathering(gathering) => return self.gather_fetched(gathering, results),
            other => return self.cleaner.set_work(other),
        };
        if let VictimStep::Contents { records, found, first_buf, .. } = &mut victim.step {
            let asked = found.len();
            let (records, found) = (core::mem::take(records), core::mem::take(found));
            let moves = self.moves_of(found, *first_buf, results);
            if moves.len() < asked {
                self.trees.segments.damage(victim.segment);
            }
            victim.step = VictimStep::Moving { records, moves };
        }
        self.cleaner.work = Work::Emptying(victim);
    }

    /// What was read of chunks that are to be moved, without what is damaged.
    pub(crate) fn moves_of(
        &mut self,
        found: Vec<(ChunkNo, Stored)>,
        first_buf: u64,
        results: Vec<Result<(), ErrorKind>>,
    ) -> VecDeque<Move> {
        let mut moves = VecDeque::with_capacity(found.len());
        let asked = found.len();
        for (buf, ((number, stored), result)) in (first_buf..).zip(found.into_iter().zip(results)) {
            self.chunk_tried(number, stored.place, result);
            match result {
                Ok(()) => moves.push_back((number, stored, BufId(buf))),
                Err(_) => self.out.push(Action::Free { buf: BufId(buf) }),
            }
        }
        self.stats.damaged += u64::from(moves.len() < asked);
        moves
    }

    fn move_one(&mut self, victim: &mut Victim) -> Result<Step, Missing> {
        let VictimStep::Moving { records, moves } = &mut victim.step else { return Ok(Step::Again) };
        let Some(next) = moves.front().copied() else {
            let records = core::mem::take(records);
            victim.step = VictimStep::Records { records, found: Vec::new() };
            return Ok(Step::Again);
        };
        self.move_chunk(next)?;
        moves.pop_front();
        Ok(Step::Again)
    }

    /// A chunk that was read goes into the log, if it is still where it was.
    pub(crate) fn move_chunk(&mut self, (number, stored, buf): Move) -> Result<(), Missing> {
        let is_there = self.trees.stored(number)?.is_some_and(|now| now.place == stored.place);
        self.trees.make_chunk_writable(number)?;
        if !is_there || self.make_room(CHUNK_RECORD_BYTES, stored.stored_bytes).is_err() {
            self.out.push(Action::Free { buf });
        } else {
            let bytes = BufSlice { buf, start_bytes: 0, len_bytes: stored.stored_bytes };
            let moved = Stored { place: self.log.put_contents(bytes), ..stored };
            self.log.put_record(Record::Chunk(number, moved));
            self.trees.put_chunk(number, Some(moved));
            self.stats.chunks_moved += 1;
            self.stats.chunk_bytes_moved += u64::from(stored.stored_bytes);
        }
        self.cleaner.spend(u64::from(stored.stored_bytes));
        Ok(())
    }
}
