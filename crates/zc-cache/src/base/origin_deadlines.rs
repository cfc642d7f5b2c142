//! Time limits of origin operations, and the order behind operations that an origin has kept for too long.
//!
//! Job: stand between the manager's actions on origins and a driver. Each action passes to the driver at once, unless
//! the origin still has an abandoned operation that it must not overtake.
//!
//! # Late operations
//! An operation that is older than `late_ms` makes its origin *late*: this is reported and counted. Older than `fail_ms`
//! it is *abandoned*: the manager receives [`ErrorKind::TimedOut`], while the origin may still execute it. Until the
//! origin returns it,
//! - its memory belongs to the driver: it is neither freed nor used again;
//! - a read or a change of the sectors of an abandoned change waits, so its late effect appears under no newer access;
//! - a flush waits for abandoned changes and flushes. So the flush that the manager takes for proof covers them, and no
//!   region's mark goes while a change may still arrive. An origin reports a loss to one flush. If an abandoned flush
//!   fails in the end, the next one fails, too.
//!
//! Operations that wait behind an abandoned one have limits of their own, and fail without having reached the origin.
//!
//! # The clock
//! Age is counted as for the cache device: one tick adds at most `TICK_STEP_MS`, so a process that was stopped
//! abandons nothing that has completed in the meantime.
//!
//! Invariants: each operation is reported to the manager once. Operations that wait begin in the order in which they
//! came. At most `ABANDONED_MAX` abandoned operations of an origin are added to: then nothing more begins there.
//!
//! Out of scope: ordering accesses that are in flight for the manager (`clean::order`), retries, limits of rate.

use std::collections::{BTreeMap, VecDeque};

use zc_core::{ErrorKind, OpId, VolumeId};

use crate::seam::Action;

/// Most that one tick adds to the age of an operation. Idle drivers tick less often than busy ones.
const TICK_STEP_MS: u64 = 250;
/// Time between two checks of the operations in flight.
const CHECK_MS: u64 = 50;
/// Abandoned operations of an origin from which on nothing more begins there: bounds the memory that it keeps.
const ABANDONED_MAX: usize = 16;

/// Number of an operation, unique for the life of the driver. Operations keep it across an exchange of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Time limits of an origin's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patience {
    /// Age in milliseconds from which on an operation is late; `None`: none is.
    pub late_ms: Option<u64>,
    /// Age in milliseconds at which it fails; `None`: it waits.
    pub fail_ms: Option<u64>,
}

/// State of an origin, for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OriginWait {
    /// Age of the oldest late operation; `None`: none is late.
    pub outage_ms: Option<u64>,
    /// Operations that are late, abandoned ones included.
    pub late: u64,
    /// Operations that failed because of their age, in total.
    pub expired: u64,
    /// Operations that became late, in total.
    pub late_total: u64,
}

/// Next work of the driver.
#[derive(Debug)]
pub enum DeadlineStep {
    /// Execute an action. [`OriginDeadlines::ended`] gets its completion.
    Begin(Ticket, Action),
    /// Report this completion to the manager: the operation is too old. If it `has_begun` and has not reached the
    /// origin, the driver withdraws it ([`OriginDeadlines::withdrawn`]). Otherwise its memory stays leased until the
    /// origin returns it.
    Expire {
        /// Its number.
        ticket: Ticket,
        /// The manager's number.
        op: OpId,
        /// The volume.
        volume: VolumeId,
        /// The error.
        error: ErrorKind,
        /// A request for fingerprints, which has no error: an empty answer completes it.
        is_recipe: bool,
        /// The driver has it.
        has_begun: bool,
    },
    /// The origin of a volume became late (`true`), or has returned all late operations.
    Late(VolumeId, bool),
}

/// Part of an origin that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read { start: u64, end: u64 },
    Change { start: u64, end: u64, durable: bool },
    Flush,
    Recipe,
}

impl Access {
    /// Returns the access of an action on an origin, with operation and volume; `None` for other actions.
    fn of(action: &Action) -> Option<(OpId, VolumeId, Self)> {
        Some(match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                let (start, end) = (*offset_bytes, offset_bytes.saturating_add(dest.len_bytes.into()));
                (*op, *volume, Self::Read { start, end })
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                let (start, end) = (*offset_bytes, offset_bytes.saturating_add(src.len_bytes.into()));
                (*op, *volume, Self::Change { start, end, durable: *fua })
            }
            Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua }
            | Action::OriginZero { op, volume, offset_bytes, len_bytes, fua, .. } => {
                let (start, end) = (*offset_bytes, offset_bytes.saturating_add(*len_bytes));
                (*op, *volume, Self::Change { start, end, durable: *fua })
            }
            Action::OriginFlush { op, volume } => (*op, *volume, Self::Flush),
            Action::WantRecipe { op, volume, .. } => (*op, *volume, Self::Recipe),
            _ => return None,
        })
    }

    /// Returns `true` if it must not begin while `earlier` is abandoned.
    const fn waits_for(self, earlier: Self) -> bool {
        match (self, earlier) {
            (Self::Flush, Self::Change { .. } | Self::Flush) => true,
            (
                Self::Read { start, end } | Self::Change { start, end, .. },
                Self::Change { start: from, end: to, .. },
            ) => start < to && from < end,
            _ => false,
        }
    }

    /// Returns `true` if an error of it may stand for a loss of other writes.
    const fn reports_loss(self) -> bool {
        matches!(self, Self::Flush | Self::Change { durable: true, .. })
    }
}

/// Progress of an operation.
#[derive(Debug)]
enum Progress {
    /// Held back behind abandoned operations.
    Waiting(Action),
    /// With the driver.
    Begun,
    /// Reported to the manager as failed; the origin may still have it.
    Abandoned,
}

#[derive(Debug)]
struct Entry {
    op: OpId,
    /// `None`: the volume was removed.
    volume: Option<VolumeId>,
    began_ms: u64,
    access: Access,
    progress: Progress,
    is_late: bool,
}

#[derive(Debug, Default)]
struct Origin {
    patience: Patience,
    abandoned: usize,
    waiting: usize,
    /// Late operations.
    late: usize,
    late_total: u64,
    expired: u64,
    /// Error of an abandoned operation that may stand for a loss, for the next flush.
    loss: Option<ErrorKind>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct OriginDeadlines {
    last_tick_ms: Option<u64>,
    patience_ms: u64,
    checked_ms: u64,
    last_ticket: u64,
    /// Oldest first, as tickets rise.
    entries: BTreeMap<Ticket, Entry>,
    origins: BTreeMap<VolumeId, Origin>,
    steps: VecDeque<DeadlineStep>,
    /// Limit of all origins while the driver stops.
    stop_ms: Option<u64>,
}

impl OriginDeadlines {
    /// Sets the limits of a volume's origin. Without limits an operation waits as long as its origin does.
    pub fn set(&mut self, volume: VolumeId, patience: Patience) {
        self.origins.entry(volume).or_default().patience = patience;
    }

    /// Forgets a removed volume. Its number may be used again for another origin.
    pub fn forget(&mut self, volume: VolumeId) {
        self.origins.remove(&volume);
        for entry in self.entries.values_mut().filter(|entry| entry.volume == Some(volume)) {
            entry.volume = None;
        }
    }

    /// Bounds all operations for a stop, and lets an origin with an abandoned operation have no further ones.
    pub const fn begin_stop(&mut self, stop_ms: u64) {
        self.stop_ms = Some(stop_ms);
    }

    /// Returns `true` if no operation is in flight for the manager.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.steps.is_empty()
            && self.entries.values().all(|entry| matches!(entry.progress, Progress::Abandoned))
    }

    /// Returns `true` if an operation was abandoned and not returned.
    #[must_use]
    pub fn has_abandoned(&self) -> bool {
        self.entries.values().any(|entry| matches!(entry.progress, Progress::Abandoned))
    }

    /// Returns the state of a volume's origin.
    #[must_use]
    pub fn state(&self, volume: VolumeId) -> OriginWait {
        let Some(origin) = self.origins.get(&volume) else { return OriginWait::default() };
        let oldest = || self.entries.values().find(|entry| entry.volume == Some(volume) && entry.is_late);
        OriginWait {
            outage_ms: (origin.late > 0).then(oldest).flatten().map(|entry| self.age_ms(entry)),
            late: zc_core::u64_from_usize(origin.late),
            expired: origin.expired,
            late_total: origin.late_total,
        }
    }

    /// Returns the limits of a volume's origin.
    #[must_use]
    pub fn patience(&self, volume: VolumeId) -> Patience {
        self.origins.get(&volume).map(|origin| origin.patience).unwrap_or_default()
    }

    /// Takes the next work of the driver.
    pub fn next_step(&mut self) -> Option<DeadlineStep> {
        self.steps.pop_front()
    }

    const fn age_ms(&self, entry: &Entry) -> u64 {
        self.patience_ms - entry.began_ms
    }

    /// Takes an action on an origin; [`Self::next_step`] has what follows.
    ///
    /// # Panics
    /// On an action on anything else.
    pub fn submit(&mut self, action: Action) {
        let Some((op, volume, access)) = Access::of(&action) else {
            panic!("{action:?} is not for an origin")
        };
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let origin = self.origins.entry(volume).or_default();
        let loss = if access == Access::Flush { origin.loss.take() } else { None };
        let refused = self.stop_ms.filter(|_| origin.abandoned > 0).map(|_| ErrorKind::TimedOut);
        if let Some(error) = loss.or(refused) {
            origin.expired += u64::from(loss.is_none());
            let is_recipe = access == Access::Recipe;
            let expire = DeadlineStep::Expire { ticket, op, volume, error, is_recipe, has_begun: false };
            self.steps.push_back(expire);
            return;
        }
        let waits = origin.abandoned > 0 && self.must_wait(volume, access);
        let progress = if waits {
            self.origins.entry(volume).or_default().waiting += 1;
            Progress::Waiting(action)
        } else {
            self.steps.push_back(DeadlineStep::Begin(ticket, action));
            Progress::Begun
        };
        let (volume, began_ms) = (Some(volume), self.patience_ms);
        self.entries.insert(ticket, Entry { op, volume, began_ms, access, progress, is_late: false });
    }

    /// Returns `true` if an access has to wait for abandoned operations of its origin.
    fn must_wait(&self, volume: VolumeId, access: Access) -> bool {
        let abandoned = self
            .entries
            .values()
            .filter(|entry| entry.volume == Some(volume) && matches!(entry.progress, Progress::Abandoned));
        let mut count = 0;
        for entry in abandoned {
            count += 1;
            if count >= ABANDONED_MAX || access.waits_for(entry.access) {
                return true;
            }
        }
        false
    }

    /// Returns the manager's number of an operation that ended, or `None` if it was reported as failed.
    ///
    /// # Panics
    /// If it has ended before.
    pub fn ended(&mut self, ticket: Ticket, result: Result<(), ErrorKind>) -> Option<OpId> {
        let Some(entry) = self.entries.remove(&ticket) else { panic!("{ticket:?} has ended before") };
        let is_abandoned = matches!(entry.progress, Progress::Abandoned);
        if let Some(volume) = entry.volume {
            self.left(volume, &entry);
            if is_abandoned
                && entry.access.reports_loss()
                && let Err(error) = result
                && let Some(origin) = self.origins.get_mut(&volume)
            {
                origin.loss = Some(error);
            }
            if is_abandoned {
                self.begin_waiting(volume);
            }
        }
        (!is_abandoned).then_some(entry.op)
    }

    /// Records that an abandoned operation was withdrawn: it never reaches the origin.
    pub fn withdrawn(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entries.remove(&ticket)
            && let Some(volume) = entry.volume
        {
            self.left(volume, &entry);
            self.begin_waiting(volume);
        }
    }

    /// Updates the counts of an origin for an operation that it no longer has.
    fn left(&mut self, volume: VolumeId, entry: &Entry) {
        let Some(origin) = self.origins.get_mut(&volume) else { return };
        origin.abandoned -= usize::from(matches!(entry.progress, Progress::Abandoned));
        origin.waiting -= usize::from(matches!(entry.progress, Progress::Waiting(_)));
        origin.late -= usize::from(entry.is_late);
        if entry.is_late && origin.late == 0 {
            self.steps.push_back(DeadlineStep::Late(volume, false));
        }
    }

    /// Begins operations that waited for abandoned ones.
    fn begin_waiting(&mut self, volume: VolumeId) {
        if self.origins.get(&volume).is_none_or(|origin| origin.waiting == 0) {
            return;
        }
        let waiting = |(ticket, entry): (&Ticket, &Entry)| {
            let waits = entry.volume == Some(volume) && matches!(entry.progress, Progress::Waiting(_));
            waits.then_some((*ticket, entry.access))
        };
        let waiting: Vec<_> = self.entries.iter().filter_map(waiting).collect();
        for (ticket, access) in waiting {
            if self.must_wait(volume, access) {
                continue;
            }
            if access == Access::Flush && self.fail_flush(ticket, volume) {
                continue;
            }
            let Some(entry) = self.entries.get_mut(&ticket) else { continue };
            if let Progress::Waiting(action) = core::mem::replace(&mut entry.progress, Progress::Begun) {
                self.steps.push_back(DeadlineStep::Begin(ticket, action));
            }
            if let Some(origin) = self.origins.get_mut(&volume) {
                origin.waiting -= 1;
            }
        }
    }

    /// Fails a flush that waited behind one that reported a loss. Returns `false` if there is none.
    fn fail_flush(&mut self, ticket: Ticket, volume: VolumeId) -> bool {
        let loss = self.origins.get_mut(&volume).and_then(|origin| origin.loss.take());
        let Some(error) = loss else { return false };
        let Some(entry) = self.entries.remove(&ticket) else { return false };
        self.left(volume, &entry);
        let op = entry.op;
        let expire = DeadlineStep::Expire { ticket, op, volume, error, is_recipe: false, has_begun: false };
        self.steps.push_back(expire);
        true
    }

    /// Advances time, and expires operations.
    pub fn tick(&mut self, now_ms: u64) {
        let last_ms = self.last_tick_ms.replace(now_ms).unwrap_or(now_ms);
        self.patience_ms += now_ms.saturating_sub(last_ms).min(TICK_STEP_MS);
        if self.entries.is_empty() || self.patience_ms < self.checked_ms + CHECK_MS {
            return;
        }
        self.checked_ms = self.patience_ms;
        let mut late = Vec::new();
        let mut expired = Vec::new();
        for (ticket, entry) in &self.entries {
            let Some((volume, origin)) =
                entry.volume.and_then(|volume| Some((volume, self.origins.get(&volume)?)))
            else {
                continue;
            };
            let age_ms = self.patience_ms - entry.began_ms;
            let Patience { late_ms, fail_ms } = origin.patience;
            if !entry.is_late && late_ms.is_some_and(|most| age_ms >= most) {
                late.push((*ticket, volume));
            }
            let fail_ms = [fail_ms, self.stop_ms].into_iter().flatten().min();
            let is_pending = !matches!(entry.progress, Progress::Abandoned);
            if is_pending && fail_ms.is_some_and(|most| age_ms >= most) {
                expired.push((*ticket, volume));
            }
        }
        for (ticket, volume) in late {
            self.becomes_late(ticket, volume);
        }
        for (ticket, volume) in expired {
            self.expire(ticket, volume);
        }
    }

    fn becomes_late(&mut self, ticket: Ticket, volume: VolumeId) {
        let (Some(entry), Some(origin)) = (self.entries.get_mut(&ticket), self.origins.get_mut(&volume))
        else {
            return;
        };
        entry.is_late = true;
        origin.late += 1;
        origin.late_total += 1;
        if origin.late == 1 {
            self.steps.push_back(DeadlineStep::Late(volume, true));
        }
    }

    fn expire(&mut self, ticket: Ticket, volume: VolumeId) {
        let Some(mut entry) = self.entries.remove(&ticket) else { return };
        let (op, is_recipe) = (entry.op, entry.access == Access::Recipe);
        let has_begun = matches!(entry.progress, Progress::Begun);
        if let Some(origin) = self.origins.get_mut(&volume) {
            origin.expired += 1;
            origin.abandoned += usize::from(has_begun);
        }
        let error = ErrorKind::TimedOut;
        self.steps.push_back(DeadlineStep::Expire { ticket, op, volume, error, is_recipe, has_begun });
        if has_begun {
            entry.progress = Progress::Abandoned;
            self.entries.insert(ticket, entry);
        } else {
            self.left(volume, &entry);
        }
    }
}

#[cfg(test)]
#[path = "origin_deadlines_tests.rs"]
mod tests;
