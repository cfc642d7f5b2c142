//! Clean layer: reads, writes and insertions in progress, and copies in memory.
//!
//! Caches the contents of origins in write-through mode. Out of scope: dirty data.
//!
//! | component | contents |
//! |---|---|
//! | `insert` | insertions in progress |
//! | `copies` | copies in memory, and fingerprints of uncached extents |
//! | `read` | client reads, and their origin and device reads |
//! | `write` | writes that bypass the dirty layer |
//! | `keeper` | the walk that reads pinned extents into the cache |

pub(crate) mod copies;
pub(crate) mod ghosts;
pub(crate) mod insert;
mod keeper;
pub(crate) mod order;
pub(crate) mod read;
pub(crate) mod staging;
pub(crate) mod streams;
pub(crate) mod write;

use zc_core::{BufId, ErrorKind, ExtentKey, HashKey, VolumeId, WeuSlot};

use crate::base::port::Ended;
use crate::clean::copies::Copies;
use crate::clean::ghosts::Curve;
use crate::clean::keeper::Keeper;
use crate::clean::order::{Turn, Waiting};
use crate::clean::read::portion::{Portion, Sorted};
use crate::clean::read::reads::{Reads, start_direct_read};
use crate::clean::streams::{InStream, StreamConfig};
use crate::clean::write::writes::Writes;
use crate::config::ManagerConfig;
use crate::device::Core;
use crate::ops::read::Op;
use crate::reduce::ReduceStep;
use crate::seam::{PartResults, Request, RequestKind};

/// Maximum streams detected at a time, for reads and writes each.
const STREAMS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Clean {
    copies: Copies,
    reads: Reads,
    writes: Writes,
    keeper: Keeper,
}

impl Clean {
    pub(crate) fn new(config: &ManagerConfig) -> Self {
        let streams = StreamConfig {
            streams_max: STREAMS_MAX,
            threshold_bytes: u64::from(config.prefetch_threshold_bytes),
            prefetch_max_bytes: u64::from(config.prefetch_max_bytes),
        };
        let key: &HashKey = &config.hash_key;
        Self {
            copies: Copies::new(config),
            reads: Reads::new(streams, key),
            writes: Writes::new(streams),
            keeper: Keeper::default(),
        }
    }

    pub(crate) const fn copies(&self) -> &Copies {
        &self.copies
    }

    pub(crate) const fn copies_mut(&mut self) -> &mut Copies {
        &mut self.copies
    }

    pub(crate) const fn reads(&self) -> &Reads {
        &self.reads
    }

    pub(crate) const fn reads_mut(&mut self) -> &mut Reads {
        &mut self.reads
    }

    pub(crate) const fn reads_and_copies(&mut self) -> (&mut Reads, &mut Copies) {
        (&mut self.reads, &mut self.copies)
    }

    /// Returns `true` if no request and no origin read is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.reads.is_idle() && self.writes.is_empty()
    }

    pub(crate) fn is_quiet(&self, volume: VolumeId) -> bool {
        self.copies.is_quiet(volume) && !self.writes.has_any_of(volume) && !self.reads.has_any_of(volume)
    }

    /// Returns `true` if the keeper has work, so that ticks stay frequent.
    pub(crate) fn is_keeping(&self, core: &Core) -> bool {
        self.keeper.is_keeping(core)
    }

    pub(crate) fn keep(&mut self, core: &mut Core) {
        let Self { copies, reads, writes, keeper } = self;
        keeper.keep(!reads.is_empty() || !writes.is_empty(), reads, copies, core);
    }

    /// Hit-ratio curve over cache sizes.
    pub(crate) fn curve(&self, core: &Core) -> Curve {
        self.copies.curve(core)
    }
}

/// Read operations for the dirty layer and the manager.
impl Clean {
    /// Continues a read whose portions have been classified by source.
    pub(crate) fn read_sorted(
        &mut self,
        read: u64,
        sorted: Sorted,
        stream: Option<InStream>,
        core: &mut Core,
    ) {
        self.reads.read_sorted(read, sorted, stream, &mut self.copies, core);
    }

    /// Determines the source of a portion. Returns `true` if that succeeded.
    pub(crate) fn sort_clean(
        &mut self,
        read: u64,
        portion: Portion,
        sorted: &mut Sorted,
        core: &mut Core,
    ) -> bool {
        self.reads.sort_clean(read, portion, sorted, &mut self.copies, core)
    }

    /// Defers a miss until the headers that may locate its content are loaded. Returns `true` if it is deferred.
    pub(crate) fn wait_for_headers(
        &mut self,
        read: u64,
        portion: Portion,
        stream: Option<InStream>,
        core: &mut Core,
    ) -> bool {
        let is_staged = self.copies.staging().get(&portion.key).is_some();
        let waits = self.copies.recipes_mut().wait_for_headers(read, portion, stream, is_staged, core);
        if waits {
            self.reads.wait(read);
        }
        waits
    }

    /// Handles the completion of an operation of a read.
    pub(crate) fn read_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core) {
        let Self { copies, reads, keeper, .. } = self;
        match (op, ended) {
            (Op::Fill(fill), Ended::Origin(result)) => {
                if let Some(bytes) = reads.fill_done(fill, result, copies, core) {
                    keeper.fetched(bytes);
                }
            }
            (Op::Direct { read, turn }, Ended::Origin(result)) => {
                reads.direct_read_done(read, turn, result, copies, core);
            }
            (Op::Hit(hit), Ended::Extents(result)) => reads.hit_done(hit, result, copies, core),
            (Op::Move(id), Ended::Extents(result)) => keeper.moved(id, result, copies.inserts_mut(), core),
            (Op::Recipe(id), Ended::Recipe(prints)) => copies.recipes_mut().arrived(id, &prints, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }

    /// Starts accesses that waited for overlapping accesses, now completed.
    pub(crate) fn pump_origin_order(&mut self, core: &mut Core) {
        for (volume, Waiting { id, bytes, turn }) in self.copies.origin_order_mut().grant() {
            match turn {
                Turn::Read { read, dest } => {
                    start_direct_read(id, read, volume, bytes.start, dest, &mut core.base);
                }
                Turn::Piece(write) => self.writes.issue_piece(write, &mut self.copies, core),
            }
        }
    }
}

/// Write and insertion operations for the dirty layer and the manager.
impl Clean {
    /// Submits a write, trim or zeroing that bypasses the dirty layer; its buffer has been adopted.
    pub(crate) fn write_through(&mut self, request: &Request, core: &mut Core) {
        self.writes.write_through(request, &mut self.copies, core);
    }

    /// Submits an origin write of dirty data, which is handled as any other write.
    pub(crate) fn submit_destage_write(
        &mut self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u32,
        kind: RequestKind,
        core: &mut Core,
    ) {
        self.writes.submit_destage_write(volume, (offset_bytes, len_bytes), kind, &mut self.copies, core);
    }

    /// Completes a piece of a write at the origin. Returns the whole extents of dirty data.
    pub(crate) fn piece_written(
        &mut self,
        id: u64,
        result: Result<(), ErrorKind>,
        core: &mut Core,
    ) -> Vec<ExtentKey> {
        self.writes.piece_written(id, result, &mut self.copies, core)
    }

    /// Continues a write with its next piece, or completes it.
    pub(crate) fn end_piece(&mut self, id: u64, result: Result<(), ErrorKind>, core: &mut Core) {
        self.writes.end_piece(id, result, &mut self.copies, core);
    }

    /// Handles the read of the old copy of a partly written extent.
    pub(crate) fn merge_done(
        &mut self,
        key: ExtentKey,
        slot: WeuSlot,
        into: BufId,
        result: Result<PartResults, ErrorKind>,
        core: &mut Core,
    ) {
        self.copies.merge_done(key, slot, into, result, core);
    }

    /// Continues retirements of region marks. Returns `true` if one began, for which the journal must become durable.
    pub(crate) fn pump_retiring(&mut self, core: &mut Core) -> bool {
        self.writes.pump_retiring(&mut self.copies, core)
    }

    /// Marks regions for waiting writes while capacity is available.
    pub(crate) fn admit_waiting(&mut self, core: &mut Core) {
        self.writes.admit_waiting(&mut self.copies, core);
    }

    /// Starts the pieces of writes whose marks are durable.
    pub(crate) fn start_marked_pieces(&mut self, core: &mut Core) {
        self.writes.start_marked_pieces(&mut self.copies, core);
    }

    /// Fails the writes that wait for a mark, because no further mark becomes durable.
    pub(crate) fn fail_unmarked_writes(&mut self, core: &mut Core) {
        self.writes.fail_unmarked_writes(core);
    }

    /// Handles a device failure: writes continue if they need no mark or their mark is durable.
    pub(crate) fn device_failed(&mut self, core: &mut Core) {
        self.writes.device_failed(&mut self.copies, core);
    }

    pub(crate) fn insert_step_ended(&mut self, id: u64, step: ReduceStep, ended: Ended, core: &mut Core) {
        self.copies.inserts_mut().step_ended(id, step, ended, core);
    }

    /// Resumes a reduction whose unit headers are loaded.
    pub(crate) fn insert_headers_read(&mut self, id: u64, core: &mut Core) {
        self.copies.inserts_mut().headers_read(id, core);
    }
}
