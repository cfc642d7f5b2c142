//! Checkpoints: the trees go to the device, a superblock names them, segments become free.
//!
//! Job: put all changed pages into the log in one step, wait until they are durable, write the two superblocks.
//! Invariants: the state that a superblock names is that after exactly the records before its place in the log; a segment
//! becomes free only when both copies name a state in which nothing refers to it. What it does not do: wait for changes,
//! or make them wait.

use zc_core::OpId;

use crate::changes::Room;
use crate::ids::{BatchSeq, SegmentNo};
use crate::limits::{self, BLOCK_BYTES};
use crate::log::LogFull;
use crate::media::batch::{Record, SHORT_RECORD_BYTES};
use crate::media::page::{self, PageKey, TableId};
use crate::media::superblock::Superblock;
use crate::seam::{Action, StoreError};
use crate::store::Open;
use crate::trees::Trees;

/// Checkpoints for changes that wait for space. What a checkpoint writes takes the place of what it frees, so there is
/// always something that the next one would free.
#[derive(Debug, Default)]
pub(crate) struct Fruitless {
    /// Checkpoints in a row after which no more segments were free than before.
    count: u32,
    /// Most free segments since changes wait.
    most_free: usize,
}

/// A checkpoint in progress.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Its last batch.
    last: BatchSeq,
    /// Free when it has ended.
    freed: Vec<SegmentNo>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its batches become durable.
    Pages,
    /// A copy of the superblock is written,
    Superblock(u8, OpId),
    /// and flushed.
    Flush(u8, OpId),
}

impl Open {
    /// Puts every changed page into the log.
    pub(crate) fn begin_checkpoint(&mut self) {
        if self.checkpoint.is_some() || self.failed.is_some() {
            return;
        }
        if self.put_trees().is_err() {
            self.fail(StoreError::NoSpace);
        }
    }

    fn put_trees(&mut self) -> Result<(), LogFull> {
        self.close_batch();
        let place = self.log.place();
        self.log.since_checkpoint_bytes = 0;
        self.cleaner.checkpoint_began();
        self.releases.checkpoint_began();
        let map = PageKey { table: TableId::Map, level: 0, index: 0 };
        for key in self.trees.pager.dirty_of(map) {
            self.put_page(key)?;
        }
        self.encode_roots();
        for table in [TableId::Chunks, TableId::Pages, TableId::Catalog] {
            self.put_table(table)?;
        }
        self.encode_segments();
        self.put_table(TableId::Segments)?;
        self.close_batch();
        let last = self.log.last_closed();
        self.flushes.want(last, None);
        let mut freed = self.trees.segments.unreferred(place.seq);
        // Recovery reads the batches of this one from `place` on.
        freed.retain(|segment| *segment != place.place.segment);
        self.superblock = Superblock {
            sequence: self.superblock.sequence + 1,
            log: place,
            chunks_end: self.trees.chunk_numbers.end(),
            pages_end: self.trees.page_numbers.end(),
            epoch: self.trees.epoch,
            tables: self.trees.table_roots(),
            ..self.superblock.clone()
        };
        self.checkpoint = Some(Checkpoint { last, freed, stage: Stage::Pages });
        Ok(())
    }

    /// Levels from the leaves up: each page that gets a place changes the one above it.
    fn put_table(&mut self, table: TableId) -> Result<(), LogFull> {
        let height = self.trees.table(table).map_or(0, |table| table.height());
        for level in 0..height {
            for key in self.trees.pager.dirty_of(PageKey { table, level, index: 0 }) {
                self.put_page(key)?;
            }
        }
        Ok(())
    }

    fn put_page(&mut self, key: PageKey) -> Result<(), LogFull> {
        self.make_room(SHORT_RECORD_BYTES, BLOCK_BYTES)?;
        let place = self.log.page_place();
        let mut block = Box::new(*self.trees.pager.page(key));
        let pointer = page::seal(&mut block, self.superblock.uuid, place);
        self.log.put_record(Record::Page(key, place.offset_bytes));
        self.log.put_page(block);
        self.trees.pager.begin_write(key);
        if key.table == TableId::Map {
            self.trees.put_page_pointer(crate::ids::PageNo(key.index), pointer);
        } else {
            self.trees.place_table_page(key, pointer);
        }
        self.stats.pages_written += 1;
        self.stats.map_pages_written += u64::from(key.table == TableId::Map);
        self.stats.chunk_pages_written += u64::from(key.table == TableId::Chunks);
        Ok(())
    }

    /// The pages of catalog and segment table are always in memory, so nothing is missing.
    fn encode_roots(&mut self) {
        let trees = &mut self.trees;
        for id in core::mem::take(&mut trees.changed_roots) {
            let number = u64::from(id.0);
            let ready = trees.catalog_table.make_writable(&mut trees.pager, number);
            assert!(ready.is_ok(), "the catalog is in memory");
            let record = trees.catalog_table.record_mut(&mut trees.pager, number);
            match trees.roots.get(&id) {
                Some(root) => root.encode(record),
                None => record.fill(0),
            }
        }
    }

    fn encode_segments(&mut self) {
        let trees = &mut self.trees;
        for segment in trees.segments.take_changed() {
            let number = u64::from(segment.0);
            let ready = trees.segment_table.make_writable(&mut trees.pager, number);
            assert!(ready.is_ok(), "the segment table is in memory");
            let record = trees.segment_table.record_mut(&mut trees.pager, number);
            trees.segments.get(segment).encode(record);
        }
    }

    /// Begins a checkpoint when one is due, and takes the next step of the one in progress.
    pub(crate) fn pump_checkpoint(&mut self) {
        if self.checkpoint.is_none() && self.is_checkpoint_due() {
            self.begin_checkpoint();
        }
        let durable = self.flushes.durable();
        if let Some(checkpoint) = &mut self.checkpoint
            && checkpoint.stage == Stage::Pages
            && durable >= checkpoint.last
        {
            self.write_superblock(0);
        }
    }

    fn write_superblock(&mut self, copy: u8) {
        self.next_op += 1;
        let op = OpId(self.next_op);
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.stage = Stage::Superblock(copy, op);
        }
        let superblock = Box::new(self.superblock.clone());
        self.out.push(Action::WriteSuperblock { op, copy, superblock });
    }

    /// A write or flush of the checkpoint ended.
    pub(crate) fn checkpoint_done(&mut self, op: OpId) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        match checkpoint.stage {
            Stage::Superblock(copy, write) if write == op => {
                self.next_op += 1;
                let op = OpId(self.next_op);
                checkpoint.stage = Stage::Flush(copy, op);
                self.out.push(Action::FlushDevice { op });
            }
            Stage::Flush(0, flush) if flush == op => self.write_superblock(1),
            Stage::Flush(_, flush) if flush == op => self.end_checkpoint(),
            Stage::Superblock(..) | Stage::Flush(..) | Stage::Pages => {}
        }
    }

    fn end_checkpoint(&mut self) {
        let Some(checkpoint) = self.checkpoint.take() else { return };
        self.trees.pager.end_writes();
        self.log.checkpointed(self.superblock.log.seq);
        self.trees.segments.release(&checkpoint.freed);
        self.stats.segments_freed += zc_core::u64_from_usize(checkpoint.freed.len());
        self.stats.checkpoints += 1;
        self.count_fruitless();
        if !self.opened {
            self.opened = true;
            self.out.push(Action::Opened { result: Ok(()) });
        }
    }

    fn is_checkpoint_due(&self) -> bool {
        let dirty = self.trees.pager.dirty_pages() >= self.config.dirty_pages_max;
        let long = self.log.since_checkpoint_bytes >= self.checkpoint_log_bytes();
        dirty || long || self.frees_enough()
    }

    /// Whether a checkpoint is worth what it alone frees. Several segments share its pages: one for each would write more
    /// than a segment that is half full gives.
    fn frees_enough(&self) -> bool {
        let frees = self.waiting_for_checkpoint();
        if frees == 0 || !self.is_space_low() {
            return false;
        }
        let is_needed = !self.is_space_short() || self.is_space_waited_for();
        frees >= self.emptied_max() || (self.cleaner.is_idle() && is_needed)
    }

    /// A checkpoint ended: says whether it brought changes that wait for space nearer to it.
    fn count_fruitless(&mut self) {
        if !self.is_space_waited_for() {
            self.fruitless = Fruitless::default();
            return;
        }
        let free = self.trees.segments.free_segments();
        let Fruitless { count, most_free } = &mut self.fruitless;
        *count = if free > *most_free { 0 } else { count.saturating_add(1) };
        *most_free = free.max(*most_free);
    }

    /// Segments that the cleaner empties before a checkpoint.
    pub(crate) fn emptied_max(&self) -> usize {
        if self.is_space_waited_for() { limits::EMPTIED_SHORT } else { limits::EMPTIED_MAX }
    }

    /// Whether a change waits for room.
    pub(crate) fn is_space_waited_for(&self) -> bool {
        self.trees.segments.free_segments() <= self.reserve() && !self.changes.is_empty()
    }

    /// Changes wait while too much is changed that the device does not have.
    pub(crate) fn must_wait_for_checkpoint(&self) -> bool {
        self.trees.pager.dirty_pages() >= self.config.dirty_pages_max
    }

    /// Bytes of log after which a checkpoint begins. No segment becomes free in which that log lies.
    fn checkpoint_log_bytes(&self) -> u64 {
        let size = u64::from(self.superblock.segment_bytes);
        let part = u64::from(self.superblock.segments) * size / limits::CHECKPOINT_LOG_PART;
        self.config.checkpoint_log_bytes.min(part.max(limits::CHECKPOINT_LOG_BYTES_MIN))
    }

    /// Segments that a checkpoint made now would free.
    pub(crate) fn would_free(&self) -> usize {
        let pending = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.freed.len());
        self.trees.segments.unreferred_count().saturating_sub(pending)
    }

    /// Whether the cleaner has to free segments for what clients write.
    pub(crate) fn is_space_short(&self) -> bool {
        self.trees.segments.free_segments() < self.kept_segments() + self.round_segments()
    }

    /// Whether space is short, or the cleaner has time to work ahead.
    pub(crate) fn is_space_low(&self) -> bool {
        let ahead = self.segments_of(self.config.clean_below_percent);
        // Gathering ends at the same number: so it waits for the cleaner, and the cleaner works for it.
        self.is_space_short()
            || (self.cleaner.is_quiet(self.config.quiet_ms) && self.trees.segments.free_segments() <= ahead)
    }

    /// Segments that cleaning is to keep free, while it moves what its victims hold: so that no change waits for them.
    pub(crate) fn kept_segments(&self) -> usize {
        let part = zc_core::usize_from_u32(self.trees.segments.count() / limits::MOVING_PART);
        self.reserve() + limits::URGENT_SEGMENTS + limits::MOVING_SEGMENTS.min(part)
    }

    /// Segments that a round frees above that while clients write.
    pub(crate) fn round_segments(&self) -> usize {
        let part = self.trees.segments.count() / limits::ROUND_PART;
        zc_core::usize_from_u32(part).max(limits::ROUND_SEGMENTS_MIN)
    }

    pub(crate) fn segments_of(&self, percent: u8) -> usize {
        zc_core::usize_from_u32(self.trees.segments.count()) * usize::from(percent) / 100
    }

    /// Whether contents may be added.
    pub(crate) fn room_for_writes(&mut self) -> Room {
        if self.is_cleaner_behind() { Room::Soon } else { self.room_above(self.reserve()) }
    }

    /// Returns `true` if contents may come in place of others.
    pub(crate) fn room_for_overwrites(&mut self) -> Room {
        self.room_above(self.config.reserve_segments(self.shape()))
    }

    /// Returns `true` if numbers are left for what a change needs. If not, a mark finds those that nothing refers to.
    pub(crate) fn numbers_for_changes(&mut self) -> Room {
        let chunks = zc_core::usize_from_u32(limits::REQUEST_CHUNKS_MAX);
        let Trees { chunk_numbers, page_numbers, .. } = &self.trees;
        if chunk_numbers.has(chunks) && page_numbers.has(limits::CHANGE_PAGES_MAX) {
            return Room::Yes;
        }
        if self.cleaner.is_idle() && self.stats.marks > 0 {
            return Room::No;
        }
        if self.cleaner.is_idle() {
            self.cleaner.ask();
        }
        Room::Soon
    }

    /// Whether a change that frees may be made: it uses the reserve.
    pub(crate) fn room_for_less(&mut self) -> Room {
        self.room_above(self.config.cleaning_segments(self.shape()))
    }

    /// Whether a volume or snapshot may be deleted: it changes no page but the catalog's, and frees.
    pub(crate) fn room_for_delete(&mut self) -> Room {
        self.room_above(self.config.checkpoints_segments(self.shape()))
    }

    fn room_above(&mut self, segments: usize) -> Room {
        if self.trees.segments.free_segments() > segments {
            return Room::Yes;
        }
        let may_free = self.checkpoint.is_some() || self.would_free() > 0;
        if self.cleaner.can_free() || (may_free && self.fruitless.count < limits::FRUITLESS_MAX) {
            return Room::Soon;
        }
        Room::No
    }
}
