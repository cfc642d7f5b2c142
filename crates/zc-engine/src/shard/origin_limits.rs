//! Limits of origins: starts and delays actions on an origin.
//!
//! Job: keep a [`Throttle`] for each volume that limits its origin, and the manager's waiting actions.
//!
//! Invariants: each waiting action starts once, in the order of its kind: reads, or writes. Flushes do not wait: the
//! manager requests one when the writes it covers have completed. Without limits no action waits.
//!
//! It does not execute actions (`origins`), or bound the kernel's queue (`origin/queue`).

use std::collections::BTreeMap;
use std::time::Duration;

use zc_cache::seam::Action;
use zc_config::VolumeLimits;
use zc_core::VolumeId;

use crate::front::throttle::{Cost, Throttle, Waits};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct OriginLimits {
    /// Throttles of volumes that have, or had, limits.
    throttles: BTreeMap<VolumeId, Throttle<Action>>,
    /// `true` if an action of any of them waits.
    are_waiting: bool,
}

impl OriginLimits {
    pub(crate) fn set(&mut self, volume: VolumeId, limits: VolumeLimits, now_ns: u64) {
        let limits = limits.of_origin();
        if let Some(throttle) = self.throttles.get_mut(&volume) {
            throttle.set(limits, now_ns);
        } else if limits != VolumeLimits::default() {
            self.throttles.insert(volume, Throttle::new(limits, now_ns));
        }
    }

    /// No limit holds any more.
    pub(crate) fn lift(&mut self, now_ns: u64) {
        for throttle in self.throttles.values_mut() {
            throttle.set(VolumeLimits::default(), now_ns);
        }
    }

    /// Removes a volume without requests in progress.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.throttles.remove(&volume);
    }

    /// The action, if it may begin now.
    pub(crate) fn passes(&mut self, action: Action, now_ns: impl Fn() -> u64) -> Option<Action> {
        let Some((volume, cost)) = cost(&action) else { return Some(action) };
        let Some(throttle) = self.throttles.get_mut(&volume).filter(|throttle| !throttle.is_off()) else {
            return Some(action);
        };
        let passed = throttle.ask(action, cost, now_ns());
        self.are_waiting |= passed.is_none();
        passed
    }

    /// The next action that waited and may begin now.
    pub(crate) fn next(&mut self, now_ns: impl Fn() -> u64) -> Option<Action> {
        if !self.are_waiting {
            return None;
        }
        let now_ns = now_ns();
        let next = self.throttles.values_mut().find_map(|throttle| throttle.next(now_ns));
        if next.is_none() {
            self.are_waiting = self.throttles.values().any(Throttle::are_waiting);
        }
        next
    }

    /// Returns the time until the next may start.
    pub(crate) fn due(&mut self, now_ns: impl Fn() -> u64) -> Option<Duration> {
        if !self.are_waiting {
            return None;
        }
        let now_ns = now_ns();
        let due_ns = self.throttles.values_mut().filter_map(|throttle| throttle.due_ns(now_ns)).min();
        due_ns.map(Duration::from_nanos)
    }

    pub(crate) fn waits(&self) -> impl Iterator<Item = (VolumeId, Waits)> {
        self.throttles.iter().map(|(id, throttle)| (*id, throttle.waits()))
    }
}

/// Returns the cost of an action for the origin of its volume; `None`: free.
fn cost(action: &Action) -> Option<(VolumeId, Cost)> {
    Some(match action {
        Action::OriginRead { volume, dest, .. } => (*volume, Cost::of_read(dest.len_bytes.into())),
        Action::OriginWrite { volume, src, .. } => (*volume, Cost::of_write(src.len_bytes.into())),
        Action::OriginTrim { volume, .. } | Action::OriginZero { volume, .. } => (*volume, Cost::of_write(0)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_core::{BufId, BufSlice, OpId};

    const S: u64 = 1_000_000_000;

    fn read(op: u64, volume: u16) -> Action {
        let dest = BufSlice { buf: BufId(0), start_bytes: 0, len_bytes: 4096 };
        Action::OriginRead { op: OpId(op), volume: VolumeId(volume), offset_bytes: 0, dest }
    }

    fn op(action: Option<Action>) -> Option<u64> {
        match action? {
            Action::OriginRead { op, .. } | Action::OriginFlush { op, .. } => Some(op.0),
            other => panic!("{other:?}"),
        }
    }

    fn limited() -> OriginLimits {
        let mut limits = OriginLimits::default();
        limits.set(VolumeId(1), VolumeLimits { origin_iops: 10, iops: 1, ..VolumeLimits::default() }, 0);
        limits
    }

    #[test]
    fn reads_beyond_the_rate_wait_in_order_and_flushes_and_other_volumes_do_not() {
        let mut limits = limited();
        let passed = (1..=3).filter_map(|number| op(limits.passes(read(number, 1), || 0))).count();
        assert_eq!(passed, 1, "the burst of a tenth of a second");
        assert_eq!(op(limits.passes(read(4, 2), || 0)), Some(4));
        let flush = Action::OriginFlush { op: OpId(5), volume: VolumeId(1) };
        assert_eq!(op(limits.passes(flush, || 0)), Some(5));
        assert_eq!(limits.due(|| 0), Some(Duration::from_millis(100)));
        assert_eq!(op(limits.next(|| S / 20)), None);
        assert_eq!(op(limits.next(|| S / 10)), Some(2));
        assert_eq!(op(limits.next(|| S / 10)), None);
        assert_eq!(op(limits.next(|| S / 5)), Some(3));
        assert_eq!((op(limits.next(|| S)), limits.due(|| S)), (None, None));
        let (id, waits) = limits.waits().next().unwrap();
        assert_eq!((id, waits.waited, waits.waiting), (VolumeId(1), 2, 0));
    }

    #[test]
    fn without_limits_all_that_waits_begins() {
        let mut limits = limited();
        (1..=5).for_each(|number| drop(limits.passes(read(number, 1), || 0)));
        limits.lift(0);
        let begun: Vec<_> = std::iter::from_fn(|| op(limits.next(|| 0))).collect();
        assert_eq!(begun, [2, 3, 4, 5]);
        assert_eq!(op(limits.passes(read(6, 1), || 0)), Some(6));
        limits.forget(VolumeId(1));
        assert_eq!(limits.waits().count(), 0);
    }
}
