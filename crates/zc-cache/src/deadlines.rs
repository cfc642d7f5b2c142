//! Time limits of the cache device's operations, and the consequences when they pass.
//!
//! # The clock
//! Age is counted in *patience*: time as ticks bring it, of which one tick brings at most [`TICK_STEP_MS`]. A process
//! that was stopped, or a machine that was, has many completions to process when it resumes; they get the time for
//! that. Operations have rising numbers, so that a mark (a number and a time) every [`MARK_STEP_MS`] dates all of
//! them to within that step. Nothing is done for each operation.
//!
//! # Consequences
//! - A read of clean extents that takes longer than `slow_read_ms` is abandoned: the extents come from the origin. It
//!   counts as a failed read, and many in a row put the cache out of service.
//! - Any operation that takes longer than `device_deadline_ms` puts the cache out of service (G4). All operations
//!   that the device has are abandoned then, because those behind the one that hangs will hang too.
//!
//! # Late effects of an abandoned operation
//! The driver reports its completion at once, as an error, and drops the device's later result. A read that ends late
//! reaches no client: the driver's own memory takes its bytes. A write may reach the device at any later time. Writes
//! are abandoned only when the cache is out of service; this session writes nothing more to it, and the next one
//! begins when the device has answered all (the driver keeps the device locked until then). To that session it is a
//! write that was in flight when the power went.
//!
//! Out of scope: timing operations of origins, discards, or records in the state directory.

use std::collections::VecDeque;

use zc_core::{ErrorKind, OpId};

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::ops::OpKind;
use crate::ops::read::Op as ReadOp;
use crate::seam::Action;

/// Most that one tick adds to the age of an operation.
pub(crate) const TICK_STEP_MS: u64 = 100;
/// Time between two marks, and between two checks of the operations in flight.
const MARK_STEP_MS: u64 = 100;

/// The ages of operations.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    last_tick_ms: Option<u64>,
    patience_ms: u64,
    /// (First number that was not given out yet, patience then), oldest first.
    marks: VecDeque<(u64, u64)>,
}

impl Deadlines {
    /// Advances time; `next_number` is larger than the number of each operation so far. Returns `true` if a check is
    /// due.
    pub(crate) fn tick(&mut self, now_ms: u64, next_number: u64, longest_ms: u64) -> bool {
        let last_ms = self.last_tick_ms.replace(now_ms).unwrap_or(now_ms);
        self.patience_ms += now_ms.saturating_sub(last_ms).min(TICK_STEP_MS);
        if self.marks.back().is_some_and(|mark| self.patience_ms < mark.1 + MARK_STEP_MS) {
            return false;
        }
        self.marks.push_back((next_number, self.patience_ms));
        // Of the marks that are old enough for every limit the newest suffices.
        while self.marks.get(1).is_some_and(|mark| self.patience_ms - mark.1 >= longest_ms) {
            self.marks.pop_front();
        }
        true
    }

    /// Operations with a lower number have taken at least this long.
    fn overdue_below(&self, limit_ms: u64) -> u64 {
        let old = self.marks.iter().rev().find(|mark| self.patience_ms - mark.1 >= limit_ms);
        old.map_or(0, |mark| mark.0)
    }
}

fn abandon(mut ops: Vec<OpId>, base: &mut Base) {
    // The table has no order of its own that a simulation could repeat.
    ops.sort_unstable();
    ops.into_iter().for_each(|op| base.port.emit(Action::Abandon { op }));
}

impl Deadlines {
    /// Abandons operations that the device has had for too long.
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
        // An operation with number 12 begins, and the process is stopped for an hour.
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
