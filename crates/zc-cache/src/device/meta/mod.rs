//! Durable metadata: journal blocks and the order in which all of it becomes durable. The region map is in `region_map`,
//! retirements are in `retire`, checkpoints and the index image in `snapshot`; a failing device is in `failure`.
//!
//! # Why a restart never finds a stale mapping (G2)
//! - An invalidated mapping is recorded in the journal (`BaseInvalid`, `Unmap`). Until that is durable the region of
//!   the write that caused it is marked on media, and marked regions are distrusted after an unclean stop.
//! - A region's mark goes only after a *retirement*: no writer in it, the journal durable to its end as of the
//!   retirement's begin, the origin flushed after the region's last write. The next map that is written names the
//!   last durable journal block; a restart that cannot replay to it distrusts everything. The same holds for mappings
//!   that a start invalidates as untrusted: a clean stop waits for a map that names the journal block with these
//!   records.
//! - A checkpoint is the state as of some time after its `journal_start`; replaying the journal from there on top of
//!   it leads to the state at the end, because each record states a fact about one key or one slot generation.

pub(crate) mod journal;
mod meta_log;
mod region_map;
pub(crate) mod regions;
mod retire;

pub(crate) use crate::ops::meta::Op;
pub(crate) use meta_log::{MetaLog, flush_cache};
