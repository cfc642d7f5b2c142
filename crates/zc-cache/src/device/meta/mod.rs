//! Durable metadata: journal blocks, and the order in which metadata becomes durable. See also `region_map`, `retire`,
//! `snapshot` (checkpoints and the index image) and `failure`.
//!
//! # Why a restart never finds a stale mapping (G2)
//! - An invalidated mapping is recorded in the journal (`BaseInvalid`, `Unmap`). Until that is durable the region of
//!   the write that caused it is marked on media, and marked regions are distrusted after an unclean stop.
//! - A region's mark is removed only by a *retirement*: no write to it is in flight, the journal is durable up to its
//!   end at the retirement's beginning, and the origin was flushed after the region's last write. Each map names the
//!   last durable journal block; a restart that cannot replay up to it distrusts everything. The same holds for
//!   mappings that a start invalidates as untrusted: a clean stop waits for a map that names the journal block with
//!   these records.
//! - A checkpoint is the state at some time after its `journal_start`; replaying the journal from there on top of it
//!   yields the state at the end, because each record states a fact about one key or one slot generation.

pub(crate) mod journal;
mod meta_log;
mod region_map;
pub(crate) mod regions;
mod retire;

pub(crate) use crate::ops::meta::Op;
pub(crate) use meta_log::{MetaLog, flush_cache};
