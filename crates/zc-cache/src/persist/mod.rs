//! Durable metadata: journal blocks and the order in which all of it becomes durable. The region map is in
//! `region_map`, retirements are in `retire`, checkpoints in `checkpoint`; a failing device is in `failure`.
//!
//! # Why a restart never finds a stale mapping (G2)
//! - A mapping made void is recorded in the journal (`BaseInvalid`, `Unmap`). Until that is durable the region of the
//!   write that caused it is marked on media, and marked regions are distrusted after an unclean stop.
//! - A region's mark goes only after a *retirement*: no writer in it, the journal durable to its end as of the
//!   retirement's begin, the origin flushed after the region's last write. The next map that is written names the
//!   last durable journal block; a restart that cannot replay to it distrusts everything. So it is with what a start
//!   voids because it does not believe it: a clean stop waits for a map that names the journal block that says so.
//! - A checkpoint is the state as of some time after its `journal_start`; replaying the journal from there on top of
//!   it leads to the state at the end, because each record states a fact about one key or one slot generation.

mod checkpoint;
pub(crate) mod journal;
mod meta_log;
mod op;
mod region_map;
pub(crate) mod regions;
mod retire;

pub(crate) use meta_log::MetaLog;
pub(crate) use op::Op;

use zc_core::{ErrorKind, JournalSeq};
use zc_format::{JournalBlock, RECORDS_PER_BLOCK};

use crate::base::Base;
use crate::device::Core;
use crate::device::Device;
use crate::health::Health;
use crate::manager::CacheManager;
use crate::seam::Action;
use crate::write_back::WriteBack;

/// Journal records waiting at which insertion pauses: 64 blocks.
const PENDING_RECORDS_PRESSED: usize = 64 * RECORDS_PER_BLOCK;

impl Base {
    pub(crate) fn flush_cache(&mut self, kind: Op) {
        self.stats.device_flushes += 1;
        let op = self.port.op(kind);
        self.port.emit(Action::FlushCache { op });
    }
}

impl Device {
    /// Whether the journal is so far behind that cache work must wait.
    pub(crate) fn journal_is_pressed(&self) -> bool {
        let nearly_full = self.meta.journal.used_blocks() + 2 >= self.meta.journal.ring_blocks();
        self.meta.journal.pending_len() > PENDING_RECORDS_PRESSED
            || (nearly_full && self.meta.checkpoints.is_running())
    }
}

impl WriteBack {
    fn pump_journal(&mut self, core: &mut Core) {
        if self.summary.is_none()
            && let Some((sequence, records, durable)) = core.device.meta.journal.take_block(
                core.base.now_ms,
                core.base.cfg.journal_delay_ms,
                self.is_told(),
            )
        {
            self.commits_in_block(sequence, core);
            let growing = self.begin_chain(core);
            core.base.stats.journal_bytes_written += u64::from(zc_core::limits::BLOCK_BYTES);
            let block = JournalBlock {
                sequence,
                session: core.base.session.number,
                region_map_sequence: core.device.meta.durable_map(),
                proved: self.commits_proved(core),
                growing,
                records,
            };
            debug_assert!(
                block.proved <= core.device.meta.journal.durable_next(),
                "a block proves what may be lost"
            );
            let op = core.base.port.op(Op::JournalWrite);
            core.base.port.emit(Action::WriteJournal { op, block: Box::new(block), durable });
        }
        let asked = self.commits_want_flush();
        if core.device.meta.journal.take_flush(asked) {
            self.commits_flushing();
            core.base.flush_cache(Op::JournalFlush);
        }
    }
}

impl CacheManager {
    /// The first journal block that is not durable; after a clean stop the journal's end.
    #[must_use]
    pub fn journal_next(&self) -> JournalSeq {
        self.core.device.meta.journal.durable_next()
    }

    pub(crate) fn pump_persist(&mut self) {
        if self.core.base.health != Health::Good {
            return;
        }
        self.dirty.pump_journal(&mut self.core);
        self.pump_map();
        self.pump_retiring();
        self.dirty.pump_checkpoint(&mut self.core);
    }

    /// A metadata operation ended.
    pub(crate) fn persist_done(&mut self, kind: Op, result: Result<(), ErrorKind>) {
        if let Err(error) = result {
            self.core.base.fail_device(kind.purpose(), error);
        }
        if self.core.base.health != Health::Good {
            self.stop.flush = self.stop.flush.map(|_| true);
            return;
        }
        match kind {
            Op::JournalWrite => {
                self.core.device.meta.journal.block_written();
                self.dirty.let_chains_go(&mut self.core);
                let written = self.core.device.meta.journal.written();
                if written > self.core.device.meta.intent_trimmed {
                    self.core.device.meta.intent_trimmed = written;
                    self.core.base.port.emit(Action::IntentTrim { records: written });
                }
            }
            Op::JournalFlush => {
                self.core.device.meta.journal.flushed();
                self.dirty.let_chains_go(&mut self.core);
                self.dirty.commits_flushed(&mut self.core);
            }
            Op::MapWrite => self.core.base.flush_cache(Op::MapFlush),
            Op::MapFlush => self.clean.map_durable(&mut self.core),
            Op::StopFlush => self.stop.flush = Some(true),
            other => self.dirty.checkpoint_step_done(other, &mut self.core),
        }
    }
}
