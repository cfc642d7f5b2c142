//! A write-like request in progress.

use core::ops::RangeInclusive;

use zc_core::{BufId, ReqId, VolumeId};

use crate::clean::streams::InStream;
use crate::seam::RequestKind;

/// Extents of one piece: bounds the work of one event for huge trims.
pub(super) const PIECE_EXTENTS_MAX: u64 = 4096;

/// A write-like request in progress.
#[derive(Debug)]
pub(crate) struct WriteOp {
    /// The request; none for destaged data.
    pub(super) req: Option<ReqId>,
    pub(super) kind: RequestKind,
    pub(crate) volume: VolumeId,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) piece_bytes: u64,
    /// Regions that the piece marked; none while the cache is out of order.
    pub(super) regions: Option<RangeInclusive<u64>>,
    pub(super) stream: Option<InStream>,
    /// The turn of the piece among the accesses of the origin.
    pub(super) turn: u64,
    /// Whole extents of the piece are cleared as a range.
    pub(super) in_range: bool,
}

impl WriteOp {
    pub(super) fn piece_start(&self) -> u64 {
        self.offset_bytes + self.done_bytes
    }

    pub(super) fn buf(&self) -> Option<BufId> {
        match self.kind {
            RequestKind::Write { buf, .. } => Some(buf),
            _ => None,
        }
    }
}
