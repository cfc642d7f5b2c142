//! Time limits of the cache device's operations.
//!
//! # The clock
//! Age is measured by *patience*: the time between ticks, of which one tick counts at most [`TICK_STEP_MS`]. After a
//! process or machine was suspended, many completions are pending; the limit leaves time to process them. Operation
//! numbers increase, so a mark (a number and a time) every [`MARK_STEP_MS`] dates all of them to within that step, at
//! no cost per operation.
//!
//! # Consequences
//! - A read of clean extents that exceeds `slow_read_ms` is abandoned: the extents are read from the origin. It counts
//!   as a failed read, and many in a row take the cache offline.
//! - Any operation that exceeds `device_deadline_ms` takes the cache offline (G4). All operations of the device are
//!   abandoned then, because those queued after a hanging one will hang too.
//!
//! # Late effects of an abandoned operation
//! The driver completes an abandoned operation at once with an error, and drops the device's later result. The bytes
//! of a late read reach the driver's memory and no client. A late write may reach the device at any time. Writes are
//! abandoned only when the cache is offline; this session issues no more of them, and the next one begins when the
//! device has completed all (the driver keeps the device locked until then). For that session it is a write that was
//! in flight at a power failure.
//!
//! Out of scope: time limits of origin operations, discards, and records in the state directory.

use std::collections::VecDeque;

use zc_core::{ErrorKind, OpId};

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::ops::OpKind;
use crate::ops::read::Op as ReadOp;
use crate::seam::Action;

/// Maximum age that one tick adds to an operation.
pub(crate) const TICK_STEP_MS: u64 = 100;
/// Time between marks, and between checks of the operations in flight.
const MARK_STEP_MS: u64 = 100;

/// Ages of operations in flight.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    last_tick_ms: Option<u64>,
    patience_ms: u64,
    /// Marks, oldest first: the next unused number, and the patience at that time.
    marks: VecDeque<(u64, u64)>,
}

impl Deadlines {
    /// Advances time; `next_number` exceeds all operation numbers so far. Returns `true` if a check is due.
    pub(crate) fn tick(&mut self, now_ms: u64, next_number: u64, longest_ms: u64) -> bool {
        let last_ms = self.last_tick_ms.replace(now_ms).unwrap_or(now_ms);
        self.patience_ms += now_ms.saturating_sub(last_ms).min(TICK_STEP_MS);
        if self.marks.back().is_some_and(|mark| self.patience_ms < mark.1 + MARK_STEP_MS) {
            return false;
        }
        self.marks.push_back((next_number, self.patience_ms));
        // Of the marks older than every limit only the newest is needed.
        while self.marks.get(1).is_some_and(|mark| self.patience_ms - mark.1 >= longest_ms) {
            self.marks.pop_front();
        }
        true
    }

    /// Returns the number below which operations have exceeded the limit.
    fn overdue_below(&self, limit_ms: u64) -> u64 {
        let old = self.marks.iter().rev().find(|mark| self.patience_ms - mark.1 >= limit_ms);
        old.map_or(0, |mark| mark.0)
    }
}

fn abandon(mut ops: Vec<OpId>, base: &mut Base) {
    // The table's order differs between runs; a simulation must not depend on it.
    ops.sort_unstable();
    ops.into_iter().for_each(|op| base.port.emit(Action::Abandon { op }));
}

impl Deadlines {
    /// Abandons operations that exceed their limits.
    pub(crate) fn age_device_ops(&mut self, core: &mut Core, clean: &mut Clean) {
        let (slow_ms, deadline_ms) = (core.base.cfg().slow_read_ms, core.base.cfg().device_deadline_ms);
        let next_number = core.base.port.next_number();
        if !self.tick(core.base.now_ms(), next_number, slow_ms.max(deadline_ms)) || core.base.port.is_idle() {
            return;
        }
        if deadline_ms > 0 {
            self.expire_device_ops(deadline_ms, core);
        }
        if slow_ms > 0 {
            self.abandon_slow_hits(slow_ms, core, clean);
        }
    }

    fn expire_device_ops(&mut self, deadline_ms: u64, core: &mut Core) {
        let limit = OpId(self.overdue_below(deadline_ms));
        let oldest = core.base.port.ops().filter(|(op, _)| *op < limit);
        let late = oldest
            .filter_map(|(op, kind)| kind.purpose().map(|purpose| (op, purpose)))
            .min_by_key(|late| late.0);
        let Some((_, during)) = late else { return };
        core.base.fail_device(during, ErrorKind::TimedOut);
        let ops = core.base.port.ops().filter(|(_, kind)| kind.is_at_device()).map(|(op, _)| op);
        let ops: Vec<OpId> = ops.collect();
        abandon(ops, &mut core.base);
    }

    fn abandon_slow_hits(&mut self, slow_ms: u64, core: &mut Core, clean: &mut Clean) {
        let limit = OpId(self.overdue_below(slow_ms));
        let is_slow = |op: OpId, kind: &OpKind| match kind {
            OpKind::Read(ReadOp::Hit(hit)) => op < limit && clean.reads().is_clean_hit(*hit),
            _ => false,
        };
        let ops: Vec<OpId> =
            core.base.port.ops().filter(|(op, kind)| is_slow(*op, kind)).map(|(op, _)| op).collect();
        core.base.stats.slow_hits += zc_core::u64_from_usize(ops.len());
        abandon(ops, &mut core.base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_what_ticks_bring_and_a_stopped_process_loses_no_patience() {
        let mut deadlines = Deadlines::default();
        assert!(deadlines.tick(5_000, 10, 1000));
        assert_eq!(deadlines.overdue_below(1), 0, "nothing has waited yet");
        // Operation 12 begins, and the process is suspended for an hour.
        assert!(deadlines.tick(3_605_000, 20, 1000));
        assert_eq!(deadlines.overdue_below(100), 10, "one step and no more");
        assert_eq!(deadlines.overdue_below(101), 0);
        for step in 1..=9 {
            assert!(deadlines.tick(3_605_000 + step * 100, 20 + step, 1000));
        }
        assert_eq!(deadlines.overdue_below(1000), 10);
        assert_eq!(deadlines.overdue_below(900), 20, "those of the second mark");
        assert!(!deadlines.tick(3_605_950, 40, 1000), "marks have a distance");
    }

    #[test]
    fn marks_are_bounded_by_the_longest_limit() {
        let mut deadlines = Deadlines::default();
        for step in 0..10_000 {
            deadlines.tick(step * 30, step, 2_000);
        }
        assert!(deadlines.marks.len() <= 22, "{}", deadlines.marks.len());
        let old = deadlines.overdue_below(2_000);
        assert!((9_920..=9_934).contains(&old), "{old}");
    }
}
