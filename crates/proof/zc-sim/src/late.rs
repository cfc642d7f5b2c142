//! Operations of origins that last too long: the daemon's layer of time limits, and abandoned operations that an origin
//! still has.
//!
//! An abandoned operation is executed at any later time, in full, in part or never, with the bytes that it had when it
//! was abandoned. Judges check that no newer access meets it, that no flush passes it, and that its memory is left alone
//! (`memory`).

use std::collections::{BTreeMap, BTreeSet};

use zc_cache::origin_deadlines::{OriginDeadlines, Patience, Ticket};
use zc_cache::seam::Action;
use zc_core::{BufSlice, ErrorKind, OpId, VolumeId};

/// Share of expired operations that had not reached their origin.
pub(crate) const WITHDRAWN: f64 = 0.2;
/// Share of abandoned operations that fail in the end.
pub(crate) const FAILS: f64 = 0.3;

/// Operation that the manager waits for.
pub(crate) struct Asked {
    /// `None`: it has expired.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) action: Action,
}

/// Abandoned operation that an origin has.
pub(crate) struct Kept {
    pub(crate) op: OpId,
    pub(crate) ticket: Ticket,
    pub(crate) action: Action,
    pub(crate) issued: u64,
    /// Bytes of a write.
    pub(crate) data: Vec<u8>,
    /// Result, if it was executed before it was abandoned.
    pub(crate) done: Option<Result<(), ErrorKind>>,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Late {
    pub(crate) layer: OriginDeadlines,
    pub(crate) asked: BTreeMap<OpId, Asked>,
    pub(crate) kept: Vec<Kept>,
    /// Flushes that fail for a loss, which takes effect when they are reported.
    pub(crate) losing: BTreeSet<OpId>,
    pub(crate) patience: Patience,
}

impl Late {
    /// Operations of origins have these limits.
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Sets the limits of all volumes at the start of a session.
    pub(crate) fn serve(&mut self, volumes: usize) {
        (0..volumes).for_each(|volume| self.layer.set(VolumeId(volume as u16), self.patience));
    }

    /// Lifts all limits: everything ends by itself.
    pub(crate) fn mend(&mut self, volumes: usize) {
        self.patience = Patience::default();
        self.serve(volumes);
    }

    /// Begins a stop, which no origin holds up.
    pub(crate) fn begin_stop(&mut self) {
        if let Some(fail_ms) = self.patience.fail_ms {
            self.layer.begin_stop(fail_ms);
        }
    }

    /// The process ends.
    pub(crate) fn is_over(&mut self) -> Vec<Kept> {
        let kept = core::mem::take(&mut self.kept);
        *self = Self::new(self.patience);
        kept
    }
}

/// Returns a copy of an action on an origin.
pub(crate) fn copy_of(action: &Action) -> Option<(OpId, Action)> {
    Some(match *action {
        Action::OriginRead { op, volume, offset_bytes, dest } => {
            (op, Action::OriginRead { op, volume, offset_bytes, dest })
        }
        Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
            (op, Action::OriginWrite { op, volume, offset_bytes, src, fua })
        }
        Action::OriginFlush { op, volume } => (op, Action::OriginFlush { op, volume }),
        Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua } => {
            (op, Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua })
        }
        Action::OriginZero { op, volume, offset_bytes, len_bytes, no_hole, fua } => {
            (op, Action::OriginZero { op, volume, offset_bytes, len_bytes, no_hole, fua })
        }
        Action::WantRecipe { op, volume, first, count, domain } => {
            (op, Action::WantRecipe { op, volume, first, count, domain })
        }
        _ => return None,
    })
}

/// Returns the volume and bytes of an operation, and `true` if it changes them.
fn extent_of(action: &Action) -> Option<(VolumeId, u64, u64, bool)> {
    match action {
        Action::OriginRead { volume, offset_bytes, dest, .. } => {
            Some((*volume, *offset_bytes, offset_bytes + u64::from(dest.len_bytes), false))
        }
        Action::OriginWrite { volume, offset_bytes, src, .. } => {
            Some((*volume, *offset_bytes, offset_bytes + u64::from(src.len_bytes), true))
        }
        Action::OriginTrim { volume, offset_bytes, len_bytes, .. }
        | Action::OriginZero { volume, offset_bytes, len_bytes, .. } => {
            Some((*volume, *offset_bytes, offset_bytes + len_bytes, true))
        }
        _ => None,
    }
}

/// Returns `true` if `action` must not begin while the origin has `kept`.
pub(crate) fn meets(action: &Action, kept: &Action) -> bool {
    if let Action::OriginFlush { volume, .. } = action {
        let is_flush = matches!(kept, Action::OriginFlush { volume: of, .. } if of == volume);
        return is_flush || extent_of(kept).is_some_and(|(of, _, _, changes)| changes && of == *volume);
    }
    match (extent_of(action), extent_of(kept)) {
        (Some((volume, start, end, _)), Some((of, from, to, true))) => {
            volume == of && start < to && from < end
        }
        _ => false,
    }
}

/// Returns the memory of an operation.
pub(crate) fn memory_of(action: &Action) -> Option<BufSlice> {
    match action {
        Action::OriginRead { dest, .. } => Some(*dest),
        Action::OriginWrite { src, .. } => Some(*src),
        _ => None,
    }
}
