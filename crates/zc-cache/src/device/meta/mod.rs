//! Durable metadata: journal blocks and the order in which all of it becomes durable. The region map is in `region_map`,
//! retirements are in `retire`, checkpoints in `checkpoint`, the index image in `image`; a failing device is in
//! `failure`.
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
mod image;
pub(crate) mod journal;
mod meta_log;
mod region_map;
pub(crate) mod regions;
mod retire;

pub(crate) use crate::ops::meta::Op;
pub(crate) use meta_log::MetaLog;

use zc_format::{RECORDS_PER_BLOCK, Record};

use crate::base::Base;
use crate::base::health::Health;
use crate::device::Device;
use crate::seam::Action;

/// Journal records waiting at which insertion pauses: 64 blocks.
const PENDING_RECORDS_PRESSED: usize = 64 * RECORDS_PER_BLOCK;

/// Has the device flushed.
pub(crate) fn flush_cache(kind: Op, base: &mut Base) {
    base.stats.device_flushes += 1;
    let op = base.port.op(kind);
    base.port.emit(Action::FlushCache { op });
}

impl Device {
    /// Whether the journal is so far behind that cache work must wait.
    pub(crate) fn journal_is_pressed(&self) -> bool {
        let nearly_full = self.meta.journal.used_blocks() + 2 >= self.meta.journal.ring_blocks();
        self.meta.journal.pending_len() > PENDING_RECORDS_PRESSED
            || (nearly_full && self.meta.checkpoints.is_running())
    }

    /// Appends to journal and intent log.
    pub(crate) fn record(&mut self, record: Record, base: &mut Base) {
        match base.health() {
            Health::Good => self.meta.journal.append(record, base.now_ms()),
            // The journal is gone; a restart after a kill still believes the intent log.
            Health::Failing => {}
            Health::Failed => return,
        }
        base.port.emit(Action::Intent { record });
    }
}
