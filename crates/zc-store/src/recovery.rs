//! Recovery: from the superblocks to a store that serves.
//!
//! Job: find the newest superblock, claim the store, load what is always in memory, follow the log, apply its records.
//! Invariants: nothing is written before the claim is durable, and then only to free segments; what is applied is a
//! prefix of the log that holds everything that was ever called durable, or the store is not opened. What it does not do:
//! the checkpoint that ends it (the open store makes it before it serves).

use zc_core::{ErrorKind, OpId};

use crate::catalog::Root;
use crate::checkpoint::Fruitless;
use crate::cleaner::Cleaner;
use crate::config::{Config, Shape};
use crate::discards::Discards;
use crate::fingerprints::Fingerprints;
use crate::flushes::Flushes;
use crate::follow::{Follow, Followed};
use crate::gather::Windows;
use crate::ids::{BatchSeq, ChunkNo, Place, RootId};
use crate::limits;
use crate::loader::Loader;
use crate::log::Log;
use crate::media::Block;
use crate::media::batch::{BatchHeader, Record};
use crate::media::page::{PageKey, TableId};
use crate::media::superblock::{LogPlace, Superblock};
use crate::pager::Missing;
use crate::releases::Releases;
use crate::seam::{Action, Event, FetchPart, FetchTo, StoreError};
use crate::segments::Segment;
use crate::stats::Stats;
use crate::store::Open;
use crate::trees::Trees;

/// A store that is being opened.
#[derive(Debug)]
pub(crate) struct Recovery {
    config: Config,
    nonce: u64,
    stage: Stage,
    next_op: u64,
    /// The operation that a stage waits for.
    op: OpId,
    loader: Loader,
    found: Option<Box<Found>>,
}

/// What was found.
#[derive(Debug)]
struct Found {
    superblock: Superblock,
    trees: Trees,
    /// The last batch of the log that was found.
    end: BatchSeq,
    /// The end of the log is torn.
    torn: bool,
}

#[derive(Debug)]
enum Stage {
    /// A copy of the superblock is being read; the other one may have been.
    Superblocks(u8, Option<Superblock>),
    /// The claim: copy 0, flush, copy 1, flush.
    Claim(u8),
    /// Segment table, then catalog: the next record.
    Segments(u64),
    Catalog(u64),
    /// To the end of the log,
    Follow(Follow),
    /// then again, with what it says.
    Replay(Replay),
    Ended,
}

#[derive(Debug)]
struct Replay {
    at: LogPlace,
    /// The last batch, and the last that is known to be durable.
    end: BatchSeq,
    durable: BatchSeq,
    batch: Option<BatchHeader>,
    /// Record of the batch to be applied next.
    next: usize,
}

type Ended = Option<Result<Box<Open>, StoreError>>;

impl Recovery {
    pub(crate) fn begin(config: Config, nonce: u64, out: &mut Vec<Action>) -> Self {
        let op = OpId(1);
        out.push(Action::ReadBlock { op, offset_bytes: Superblock::offset_bytes(0) });
        let stage = Stage::Superblocks(0, None);
        Self { config, nonce, stage, next_op: 1, op, loader: Loader::default(), found: None }
    }

    /// The superblock, once it was read.
    pub(crate) fn superblock(&self) -> Option<&Superblock> {
        self.found.as_ref().map(|found| &found.superblock)
    }

    /// Handles an event; the open store, or why there is none.
    pub(crate) fn handle(&mut self, event: Event, out: &mut Vec<Action>) -> Ended {
        let outcome = match event {
            Event::BlockRead { op, result } => self.block_read(op, result, out),
            Event::Done { op, result } if op == self.op => match result {
                Ok(()) => self.claim_step(out),
                Err(kind) => Err(StoreError::Device(kind)),
            },
            Event::Fetched { op, results } if op == self.op => self.verified(&results, out),
            Event::Submit(request) => {
                out.push(Action::Reply {
                    req: request.req,
                    result: Err(StoreError::Device(ErrorKind::Unsupported)),
                });
                Ok(())
            }
            _ => Ok(()),
        };
        match outcome {
            Err(error) => Some(Err(error)),
            Ok(()) if matches!(self.stage, Stage::Ended) => Some(self.finish()),
            Ok(()) => None,
        }
    }

    fn read_block(&mut self, offset_bytes: u64, out: &mut Vec<Action>) {
        self.next_op += 1;
        self.op = OpId(self.next_op);
        out.push(Action::ReadBlock { op: self.op, offset_bytes });
    }

    fn block_read(
        &mut self,
        op: OpId,
        result: Result<Box<Block>, ErrorKind>,
        out: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        if op != self.op {
            let Some(found) = &mut self.found else { return Ok(()) };
            let loaded = self.loader.read(op, result, found.superblock.uuid, &mut found.trees);
            return match loaded.map(|loaded| loaded.result) {
                Some(Ok(())) => self.go_on(out),
                // The log is applied without pages that cannot be read.
                Some(Err(StoreError::Damaged(_))) if matches!(self.stage, Stage::Replay(_)) => {
                    self.go_on(out)
                }
                Some(Err(error)) => Err(error),
                None => Ok(()),
            };
        }
        match &mut self.stage {
            Stage::Superblocks(copy, other) => {
                let (copy, other) = (*copy, other.take());
                self.superblock_read(copy, other, result, out)
            }
            Stage::Follow(_) | Stage::Replay(_) => {
                let block = result.map_err(StoreError::Device)?;
                self.log_block_read(&block, out)
            }
            Stage::Claim(_) | Stage::Segments(_) | Stage::Catalog(_) | Stage::Ended => Ok(()),
        }
    }

    fn superblock_read(
        &mut self,
        copy: u8,
        other: Option<Superblock>,
        result: Result<Box<Block>, ErrorKind>,
        out: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        let this = result.ok().and_then(|block| Superblock::decode(&block[..], copy).ok());
        let newest = match (this, other) {
            (Some(this), Some(other)) if other.sequence > this.sequence => Some(other),
            (this, other) => this.or(other),
        };
        if copy == 0 {
            self.stage = Stage::Superblocks(1, newest);
            self.read_block(Superblock::offset_bytes(1), out);
            return Ok(());
        }
        let mut superblock = newest.ok_or(StoreError::NoSuperblock)?;
        self.config = self.config.clone().bounded(superblock.segment_bytes);
        superblock.sequence += 1;
        superblock.session += 1;
        superblock.nonce = self.nonce;
        let trees = Trees::new(&superblock, &self.config.hash_key);
        self.found = Some(Box::new(Found { end: superblock.log.seq, superblock, trees, torn: false }));
        self.stage = Stage::Claim(0);
        self.write_claim(0, out);
        Ok(())
    }

    fn write_claim(&mut self, copy: u8, out: &mut Vec<Action>) {
        let Some(found) = &self.found else { return };
        self.next_op += 1;
        self.op = OpId(self.next_op);
        let superblock = Box::new(found.superblock.clone());
        out.push(Action::WriteSuperblock { op: self.op, copy, superblock });
    }

    fn claim_step(&mut self, out: &mut Vec<Action>) -> Result<(), StoreError> {
        let Stage::Claim(done) = &mut self.stage else { return Ok(()) };
        *done += 1;
        match *done {
            1 | 3 => {
                self.next_op += 1;
                self.op = OpId(self.next_op);
                out.push(Action::FlushDevice { op: self.op });
                Ok(())
            }
            2 => {
                self.write_claim(1, out);
                Ok(())
            }
            _ => {
                self.stage = Stage::Segments(0);
                self.go_on(out)
            }
        }
    }

    /// Goes on as far as pages are in memory.
    fn go_on(&mut self, out: &mut Vec<Action>) -> Result<(), StoreError> {
        let step = match self.stage {
            Stage::Segments(_) => self.load_segments()?,
            Stage::Catalog(_) => self.load_catalog(out)?,
            Stage::Replay(_) => self.apply(out),
            Stage::Superblocks(..) | Stage::Claim(_) | Stage::Follow(_) | Stage::Ended => Ok(()),
        };
        match step {
            Ok(()) if matches!(self.stage, Stage::Catalog(0)) => self.go_on(out),
            Ok(()) => Ok(()),
            Err(missing) => {
                let Some(found) = &self.found else { return Ok(()) };
                if found.trees.lost.has(&missing) {
                    return Err(StoreError::Damaged(missing.pointer.place));
                }
                self.loader.want(missing, found.superblock.shape(), &mut self.next_op, out)
            }
        }
    }

    fn load_segments(&mut self) -> Result<Result<(), Missing>, StoreError> {
        let (Stage::Segments(next), Some(found)) = (&mut self.stage, &mut self.found) else {
            return Ok(Ok(()));
        };
        let trees = &mut found.trees;
        while *next < u64::from(found.superblock.segments) {
            match trees.segment_table.read(&mut trees.pager, *next) {
                Err(missing) => return Ok(Err(missing)),
                Ok(None) => {}
                Ok(Some(record)) => {
                    let number = u32::try_from(*next).unwrap_or(u32::MAX);
                    let segment = Segment::decode(record);
                    // Batches behind the checkpoint's place are its own.
                    if segment.first_seq.0 > found.superblock.log.seq.0 + limits::SESSION_GAP {
                        return Err(StoreError::Damaged(Place::default()));
                    }
                    trees.segments.load(crate::ids::SegmentNo(number), segment);
                }
            }
            *next += 1;
        }
        let Shape { segments, segment_bytes } = found.superblock.shape();
        let (height, mut pages) = (trees.segment_table.height(), trees.segment_table.leaves());
        for level in 0..height {
            for index in 0..pages {
                let key = PageKey { table: TableId::Segments, level, index };
                let pointer = match trees.segment_table.pointer(&mut trees.pager, key) {
                    Ok(pointer) => pointer,
                    Err(missing) => return Ok(Err(missing)),
                };
                if pointer.is_inside(segments, segment_bytes) {
                    trees.segments.refer_own(pointer.place);
                } else if pointer.is_some() {
                    return Err(StoreError::Damaged(pointer.place));
                }
            }
            pages = pages.div_ceil(crate::table::FANOUT);
        }
        self.stage = Stage::Catalog(0);
        Ok(Ok(()))
    }

    fn load_catalog(&mut self, out: &mut Vec<Action>) -> Result<Result<(), Missing>, StoreError> {
        let (Stage::Catalog(next), Some(found)) = (&mut self.stage, &mut self.found) else {
            return Ok(Ok(()));
        };
        let trees = &mut found.trees;
        while *next < u64::from(limits::ROOTS_MAX) {
            let id = RootId(u16::try_from(*next).unwrap_or(u16::MAX));
            match trees.catalog_table.read(&mut trees.pager, *next) {
                Err(missing) => return Ok(Err(missing)),
                Ok(None) => {}
                Ok(Some(record)) => {
                    let root = Root::decode(record).map_err(|_| StoreError::Damaged(Place::default()))?;
                    if root.as_ref().is_some_and(|root| root.page.0 >= trees.page_numbers.end()) {
                        return Err(StoreError::Damaged(Place::default()));
                    }
                    trees.roots.extend(root.map(|root| (id, root)));
                }
            }
            *next += 1;
        }
        let log = found.superblock.log;
        if log.place.offset_bytes == 0 {
            trees.segments.open(log.place.segment, log.seq);
        }
        let follow = Follow::new(log, found.superblock.uuid, found.superblock.segment_bytes);
        let place = follow.wants();
        self.stage = Stage::Follow(follow);
        self.read_place(place, out);
        Ok(Ok(()))
    }

    fn read_place(&mut self, place: Place, out: &mut Vec<Action>) {
        if let Some(found) = &self.found {
            let offset_bytes = Superblock::device_offset(place, found.superblock.segment_bytes);
            self.read_block(offset_bytes, out);
        }
    }

    fn log_block_read(&mut self, block: &Block, out: &mut Vec<Action>) -> Result<(), StoreError> {
        let Some(found) = &mut self.found else { return Ok(()) };
        match &mut self.stage {
            Stage::Follow(follow) => match follow.read(block, &mut found.trees.segments) {
                Followed::More(place) => self.read_place(place, out),
                Followed::Ended { end, durable, lost, torn } => {
                    if lost && !self.config.accept_loss {
                        return Err(StoreError::LogLost);
                    }
                    found.superblock.losses = found.superblock.losses.saturating_add(u32::from(lost));
                    found.torn = torn;
                    found.end = end;
                    let at = found.superblock.log;
                    self.stage = Stage::Replay(Replay { at, end, durable, batch: None, next: 0 });
                    self.next_batch(out);
                }
            },
            Stage::Replay(replay) => {
                let place = replay.at.place;
                let (uuid, size) = (found.superblock.uuid, found.superblock.segment_bytes);
                let header = BatchHeader::decode(&block[..], uuid, place, size);
                let expected = header.ok().filter(|header| header.seq == replay.at.seq);
                match expected {
                    Some(header) => return self.batch_read(header, out),
                    // It was the first of the next segment.
                    None if place.offset_bytes != 0 => {
                        replay.at.place = Place { segment: replay.at.next, offset_bytes: 0 };
                        let place = replay.at.place;
                        self.read_place(place, out);
                    }
                    None => return Err(StoreError::Damaged(place)),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The header of the next batch, or the end.
    fn next_batch(&mut self, out: &mut Vec<Action>) {
        let (Stage::Replay(replay), Some(found)) = (&mut self.stage, &self.found) else { return };
        if replay.at.seq > replay.end {
            self.stage = Stage::Ended;
            return;
        }
        if replay.at.place.offset_bytes + limits::BLOCK_BYTES > found.superblock.segment_bytes {
            replay.at.place = Place { segment: replay.at.next, offset_bytes: 0 };
        }
        let place = replay.at.place;
        self.read_place(place, out);
    }

    /// Contents of a batch that may not have been durable are checked before anything of it counts.
    fn batch_read(&mut self, header: BatchHeader, out: &mut Vec<Action>) -> Result<(), StoreError> {
        let Stage::Replay(replay) = &mut self.stage else { return Ok(()) };
        let mut parts = Vec::new();
        if header.seq > replay.durable {
            for record in &header.records {
                if let Record::Chunk(_, stored) = record {
                    parts.push(FetchPart { stored: *stored, memory: None, dest_offset_bytes: 0 });
                }
            }
        }
        replay.next = 0;
        replay.batch = Some(header);
        if parts.is_empty() {
            return self.go_on(out);
        }
        self.next_op += 1;
        self.op = OpId(self.next_op);
        out.push(Action::Fetch { op: self.op, parts, to: FetchTo::Nowhere, urgent: true });
        Ok(())
    }

    fn verified(
        &mut self,
        results: &[Result<(), ErrorKind>],
        out: &mut Vec<Action>,
    ) -> Result<(), StoreError> {
        if results.contains(&Err(ErrorKind::Corrupt)) {
            // Torn: the log ends before it.
            if let Some(found) = &mut self.found {
                found.torn = true;
            }
            self.stage = Stage::Ended;
            return Ok(());
        }
        match results.iter().find_map(|result| result.err()) {
            Some(kind) => Err(StoreError::Device(kind)),
            None => self.go_on(out),
        }
    }

    /// Applies the records of a batch.
    fn apply(&mut self, out: &mut Vec<Action>) -> Result<(), Missing> {
        let (Stage::Replay(replay), Some(found)) = (&mut self.stage, &mut self.found) else { return Ok(()) };
        let Some(batch) = &replay.batch else { return Ok(()) };
        while let Some(record) = batch.records.get(replay.next) {
            replay_record(&mut found.trees, record)?;
            replay.next += 1;
        }
        replay.at.place.offset_bytes += batch.bytes();
        replay.at.next = batch.next;
        replay.at.seq.0 += 1;
        replay.batch = None;
        self.next_batch(out);
        Ok(())
    }

    /// The store goes on in a fresh segment, with batch numbers of its own session.
    fn finish(&mut self) -> Result<Box<Open>, StoreError> {
        let found = self.found.take().ok_or(StoreError::NoSuperblock)?;
        let Found { mut superblock, mut trees, end, torn } = *found;
        superblock.dropped = superblock.dropped.saturating_add(u32::from(torn));
        let segments = &mut trees.segments;
        segments.find_free(superblock.log);
        let (Some(segment), Some(next)) = (segments.take(), segments.take()) else {
            return Err(StoreError::NoSpace);
        };
        // A session may have had more batches than its successor's number leaves it.
        let seq = BatchSeq((superblock.session << 32).max(end.0 + limits::SESSION_GAP) + 1);
        if seq.0 >= limits::COUNT_MAX {
            return Err(StoreError::Limit);
        }
        segments.open(segment, seq);
        let place = Place { segment, offset_bytes: 0 };
        let at = LogPlace { seq, nonce: self.nonce, place, next };
        Ok(Box::new(Open {
            log: Log::new(superblock.uuid, at, self.config.batch_bytes_max),
            flushes: Flushes::new(BatchSeq(seq.0 - 1)),
            prints: Fingerprints::new(
                self.config.fingerprints_max,
                trees.chunks.per_leaf(),
                &self.config.hash_key,
            ),
            config: self.config.clone(),
            superblock,
            trees,
            loader: Loader::default(),
            damaged: std::collections::BTreeSet::new(),
            changes: std::collections::VecDeque::new(),
            reads: std::collections::BTreeMap::new(),
            reads_waiting: std::collections::BTreeMap::new(),
            fetching: zc_core::Map::default(),
            encoding: zc_core::Map::default(),
            checkpoint: None,
            releases: Releases::default(),
            discards: Discards::default(),
            fruitless: Fruitless::default(),
            cleaner: Cleaner::new(),
            windows: Windows::default(),
            survey: None,
            resting: None,
            is_report_new: false,
            failed: None,
            opened: false,
            stopping: false,
            stopped: false,
            next_op: self.next_op,
            next_buf: 0,
            stats: Stats { torn, ..Stats::default() },
            out: Vec::new(),
        }))
    }
}

/// Applies a record, without that of a chunk whose page of the table cannot be read: a read of the chunk fails.
fn replay_record(trees: &mut Trees, record: &Record) -> Result<(), Missing> {
    match apply_record(trees, record) {
        Err(missing) if missing.key.table == TableId::Chunks && trees.lost.has(&missing) => Ok(()),
        applied => applied,
    }
}

/// What a record says, done again. May be broken off for a page and begun anew.
fn apply_record(trees: &mut Trees, record: &Record) -> Result<(), Missing> {
    match record {
        // No number is given from the bound on: a record that says so is none that was written.
        Record::Chunk(number, _) if !trees.chunk_numbers.may_be(number.0) => {}
        Record::Chunk(number, stored) => {
            trees.chunk_numbers.given(number.0);
            trees.make_chunk_writable(*number)?;
            trees.put_chunk(*number, Some(*stored));
        }
        Record::Map(root, address, number) => {
            if is_inside(trees, *root, *address, *number) {
                trees.make_address_writable(*root, *address)?;
                trees.put_address(*root, *address, *number);
            }
        }
        Record::Clear(root, first, count) => {
            trees.clear(*root, *first, *count, false)?;
            trees.clear(*root, *first, *count, true)?;
        }
        Record::Catalog(change) => {
            if trees.check_catalog(change).is_ok() {
                trees.change_catalog(change)?;
            }
        }
        Record::Gone(first, numbers) => {
            for number in gone_numbers(*first, *numbers) {
                if trees.stored(number)?.is_some() {
                    trees.make_chunk_writable(number)?;
                    trees.put_chunk(number, None);
                }
            }
        }
        Record::Page(..) => {}
    }
    Ok(())
}

/// Chunks that a record says are gone.
fn gone_numbers(first: ChunkNo, numbers: u64) -> impl Iterator<Item = ChunkNo> {
    let is_gone = move |bit: &u64| numbers >> bit & 1 == 1;
    (0..64).filter(is_gone).filter_map(move |bit| first.0.checked_add(bit).map(ChunkNo))
}

fn is_inside(trees: &Trees, root: RootId, address: u64, number: ChunkNo) -> bool {
    let fits = trees.root(root).is_some_and(|root| address < root.size_chunks);
    fits && number.0 < trees.chunk_numbers.end()
}
