//! Operations in progress: not executed yet, or executed and not reported to the manager. Operations of one zone may
//! hang.

use zc_cache::seam::{Action, Event};
use zc_core::OpId;

use crate::zone::Zone;

/// Logical time for which flushes hang behind pieces that hung.
const BEHIND: u64 = 60;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Operations that have not been executed, with the time of issue for flushes and state directory changes.
    pending: Vec<(Action, u64)>,
    /// Completions not reported to the manager.
    unheard: Vec<Event>,
    /// Zone whose operations are stalled, and the time until which they are.
    stalled: Option<(Zone, u64)>,
}

impl Queue {
    pub(crate) fn push(&mut self, action: Action, issued: u64) {
        self.pending.push((action, issued));
    }

    /// Queues a completion, which is reported to the manager later.
    pub(crate) fn hear(&mut self, event: Event) {
        self.unheard.push(event);
    }

    pub(crate) fn pending(&self) -> &[(Action, u64)] {
        &self.pending
    }

    pub(crate) fn unheard(&self) -> &[Event] {
        &self.unheard
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.unheard.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.unheard.len()
    }

    pub(crate) fn take(&mut self, index: usize) -> (Action, u64) {
        self.pending.swap_remove(index)
    }

    pub(crate) fn take_unheard(&mut self, index: usize) -> Event {
        self.unheard.swap_remove(index)
    }

    /// Takes all operations that have not been executed when the process ends.
    pub(crate) fn take_pending(&mut self) -> Vec<(Action, u64)> {
        core::mem::take(&mut self.pending)
    }

    /// Takes an unexecuted operation of the cache device, if it is in the queue.
    pub(crate) fn take_op(&mut self, op: OpId) -> Option<(Action, u64)> {
        let index = self.pending.iter().position(|(action, _)| action.device_op() == Some(op))?;
        Some(self.pending.swap_remove(index))
    }

    /// Takes an unexecuted operation of an origin, if it is in the queue.
    pub(crate) fn take_origin_op(&mut self, op: OpId) -> Option<(Action, u64)> {
        let is_it = |action: &Action| match action {
            Action::OriginRead { op: of, .. }
            | Action::OriginWrite { op: of, .. }
            | Action::OriginFlush { op: of, .. }
            | Action::OriginTrim { op: of, .. }
            | Action::OriginZero { op: of, .. }
            | Action::WantRecipe { op: of, .. } => *of == op,
            _ => false,
        };
        let index = self.pending.iter().position(|(action, _)| is_it(action))?;
        Some(self.pending.swap_remove(index))
    }

    /// Takes the unreported completion of an origin's operation.
    pub(crate) fn take_unheard_op(&mut self, op: OpId) -> Option<Event> {
        let is_it = |event: &Event| match event {
            Event::OriginDone { op: of, .. } | Event::RecipeArrived { op: of, .. } => *of == op,
            _ => false,
        };
        let index = self.unheard.iter().position(is_it)?;
        Some(self.unheard.swap_remove(index))
    }

    /// Takes the first operation that `chooses` selects.
    pub(crate) fn take_if(&mut self, chooses: impl Fn(&Action, u64) -> bool) -> Option<Action> {
        let index = self.pending.iter().position(|(action, issued)| chooses(action, *issued))?;
        Some(self.pending.swap_remove(index).0)
    }

    pub(crate) fn session_over(&mut self) {
        self.unheard.clear();
        self.stalled = None;
    }

    /// Stalls operations of the zone; a previously stalled zone resumes.
    pub(crate) const fn stall(&mut self, zone: Zone, until: u64) {
        self.stalled = Some((zone, until));
    }

    pub(crate) const fn resume(&mut self) {
        self.stalled = None;
    }

    pub(crate) const fn is_stalling(&self) -> bool {
        self.stalled.is_some()
    }

    /// Returns `true` if the operation hangs. `hangs`: the zone that hangs most often in this seed.
    pub(crate) fn is_stalled(&self, index: usize, now: u64, hangs: Option<Zone>) -> bool {
        let Some((zone, until)) = self.stalled else { return false };
        let of = Zone::of(&self.pending[index].0);
        // After pieces hang, flushes hang behind them for a while: the writes are executed, but not durable.
        let behind = zone == Zone::DirtyWrite && hangs == Some(zone) && of == Zone::Flush;
        (now < until && of == zone) || (behind && (until..until.saturating_add(BEHIND)).contains(&now))
    }
}
