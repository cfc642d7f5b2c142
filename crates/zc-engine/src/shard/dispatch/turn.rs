//! A turn: turns the completions of one I/O thread's ring into events, and these into operations.
//!
//! Invariants: an event is handled completely before the next. Intents are written before the replies that depend on
//! them: no ring receives operations before the turn has ended.

use std::time::Duration;

use zc_cache::CacheManager;
use zc_cache::seam::{Action, Event};
use zc_io::{Completion, Gather, Operation, PollStats, Waker};

use crate::error::EngineError;
use crate::limits::{
    DRAIN_MS, GATHER_MAX, GATHER_OPS_MIN, GATHER_TIME_US, TICK_BUSY_MS, TICK_IDLE_MS, TICK_JOBS_MS,
};
use crate::shard::dispatch::Shard;
use crate::shard::io::Entry;
use crate::shard::metrics::Path;
use crate::shard::pending::{Pending, RingId};
use crate::shard::reduce_pool::Job;
use crate::shard::settled::needs_no_cache;
use crate::shard::stop::Stopping;
use crate::shard::warm::WarmEnd;
use crate::state::state_thread::Requester;

/// Counts of reads by how they were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadCounts {
    hits: u64,
    misses: u64,
    partial: u64,
}

impl ReadCounts {
    fn of(manager: &CacheManager) -> Self {
        let stats = manager.stats();
        Self { hits: stats.read_hits, misses: stats.read_misses, partial: stats.read_partial }
    }

    /// Returns the path of the reads completed since then, for the latency statistics.
    const fn path_since(self, before: Self) -> Path {
        match (self.hits > before.hits, self.misses > before.misses, self.partial > before.partial) {
            (true, false, false) => Path::Hit,
            (false, _, false) => Path::Miss,
            _ => Path::Mixed,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TurnBegun {
    pub(super) ring: RingId,
    /// Outcomes of the ring's waits.
    pub(super) polls: PollStats,
    /// Time at which the thread requested the shard.
    pub(super) asked_ns: u64,
}

/// Buffers that a thread reuses for all its turns.
#[derive(Default)]
pub(super) struct TurnBuffers {
    /// Completions of its ring; empty after the turn.
    pub(super) completions: Vec<Completion>,
    /// Actions of the manager; empty before and after the turn.
    actions: Vec<Action>,
    pub(super) operations: Vec<Entry>,
}

/// Work of a thread after its turn, without the shard lock.
pub(super) struct Turn {
    /// Jobs to run. The next turn receives the results.
    pub(super) jobs: Vec<Job>,
    /// Threads whose rings received operations.
    pub(super) wake: Vec<Waker>,
    /// Wait for completions; `None` when the shard has stopped.
    pub(super) wait: Option<Wait>,
}

/// Condition and duration of a wait.
pub(super) struct Wait {
    /// Sends that complete during submission, and are waited for in addition to one completion.
    pub(super) sends: usize,
    pub(super) gather: Option<Gather>,
    pub(super) timeout: Duration,
}

impl Shard {
    /// Starts serving. The first turn executes the resulting actions.
    pub(super) fn begin(&mut self) {
        let mut actions = Vec::new();
        self.manager.begin(self.base.clock.now_ms(), &mut actions);
        self.carry_out(&mut actions);
        if self.health.is_missing() {
            self.base.tell(Event::DeviceLost);
        }
        self.base.tell(Event::Tick { now_ms: self.base.clock.now_ms() });
        for ring in self.base.io.rings() {
            self.wait_for_wake(ring);
        }
        self.clients.nbd().accept_all(&mut self.base);
    }

    /// Runs one turn of the thread with this ring and these completions.
    ///
    /// # Errors
    /// When the shard cannot continue.
    pub(super) fn turn(
        &mut self,
        begun: TurnBegun,
        turn_buffers: &mut TurnBuffers,
    ) -> Result<Turn, EngineError> {
        let began_ns = self.base.clock.now_ns();
        self.base.io.begin_turn(begun.ring, begun.polls);
        self.workers.begin_turn();
        self.clients.nbd_mut().begin_turn();
        for completion in turn_buffers.completions.drain(..) {
            self.completed(completion);
        }
        if self.workers.has_results() {
            self.workers.take_results(&mut self.base);
        }
        self.tick();
        let (clients, mut shared) = self.clients();
        clients.begin_throttled(&mut shared);
        clients.drop_unbegun(&mut shared);
        let (origins, mut at) = self.origins();
        origins.go_on(&mut at);
        self.handle_events(&mut turn_buffers.actions);
        self.end_turn(&mut turn_buffers.actions);
        if self.intent.is_stuck() || self.risk.is_stuck() {
            let works = !self.health.has_fault();
            self.closer.void_files(&mut self.intent, &mut self.risk, works)?;
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.base.io.take_ready(&mut turn_buffers.operations);
        let had_ns = self.base.clock.now_ns().saturating_sub(began_ns);
        self.base.metrics.turns.count(began_ns.saturating_sub(begun.asked_ns), had_ns);
        Ok(Turn {
            wait: (!self.has_ended()).then(|| self.wait()),
            wake: self.base.io.others_with_work().map(|ring| self.events[ring.index()].waker()).collect(),
            jobs: self.workers.take_after_turn(),
        })
    }

    /// Returns `true` if the shard has stopped.
    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.base.stopping, Stopping::Stopped { .. })
    }

    /// Records the end, once all threads have stopped; the intent log and the risk file come last. Returns `true` if
    /// the cache was left clean.
    ///
    /// # Errors
    /// When the end cannot be recorded.
    pub(super) fn close(self) -> Result<bool, EngineError> {
        let clean = self.base.stopping == Stopping::Stopped { clean: true };
        let closer = self.closer;
        if clean {
            let was_distrusted = self.base.metrics.distrusts > 0;
            closer.close(&self.volumes, &self.manager, &self.device, was_distrusted)?;
            self.intent.remove();
            self.risk.remove();
        } else if self.health.has_fault() {
            let settled = self.volumes.iter().filter_map(|(id, volume)| {
                needs_no_cache(&self.manager, id).map(|epoch| (volume.name.clone(), epoch))
            });
            closer.settle(settled.collect())?;
            tracing::warn!("the cache device could not be closed cleanly");
        } else {
            let failed = self.volumes.iter().filter(|(_, volume)| volume.traffic.origin_errors > 0);
            let names: Vec<String> = failed.map(|(_, volume)| format!("\"{}\"", volume.name)).collect();
            tracing::warn!(
                "the cache works, but not all of what was written to the origin of volume {} is known to be durable \
                 there",
                names.join(", ")
            );
        }
        Ok(clean)
    }

    /// Returns the number of completions to wait for, and the time-out. Small sends complete during submission: waking
    /// up for them alone would cost every request at queue depth 1 a system call. If one does not, because its client
    /// does not read, the turn continues with the second completion or after a tick.
    ///
    /// With many hits in flight the turn waits briefly for several of them: their replies leave in one send and wake
    /// their client once, and its next requests arrive in one receive. Writes and reads of origins are not waited for:
    /// their CPU time per request is lower without.
    fn wait(&mut self) -> Wait {
        let nbd = self.clients.nbd_mut();
        let sends = nbd.take_quick_sends();
        let ms = match (nbd.is_touched(), sends) {
            (true, _) => 0,
            _ if nbd.are_waiting() => 0,
            _ if self.workers.has_results() => 0,
            (false, _) if self.workers.has_fresh() => TICK_JOBS_MS,
            (false, 0) => self.tick_ms(),
            (false, _) => TICK_BUSY_MS,
        };
        let gather = if ms == 0 { None } else { gathered(self.base.io.extent_reads(), sends) };
        let time = Duration::from_millis(ms);
        let clock = &self.base.clock;
        let of_origins = self.origins.limits_mut().due(|| clock.now_ns());
        let due = [self.volumes.throttled_for(clock), of_origins].into_iter().flatten().min();
        Wait { sends, gather, timeout: due.map_or(time, |due| due.min(time)) }
    }

    /// Handles events until there are none, executing the resulting actions.
    pub(super) fn handle_events(&mut self, actions: &mut Vec<Action>) {
        loop {
            while let Some(event) = self.base.events.pop_front() {
                let Some(event) = self.pause.passes(event) else { continue };
                if !matches!(event, Event::Tick { .. }) {
                    self.last_event_ms = self.last_tick_ms;
                }
                self.volumes.note_request(&event, &self.base.clock);
                let before = ReadCounts::of(&self.manager);
                self.manager.handle(event, actions);
                self.read_path = ReadCounts::of(&self.manager).path_since(before);
                self.carry_out(actions);
            }
            if !self.clients.nbd().is_touched() && !self.clients.nbd().can_go_on() {
                return;
            }
            let (clients, mut shared) = self.clients();
            clients.pump(&mut shared);
        }
    }

    /// Executes the steps of a turn's end: intents, replies, housekeeping.
    fn end_turn(&mut self, actions: &mut Vec<Action>) {
        self.pump_stop();
        self.pump_pause();
        self.pump_warm(actions);
        let (requests, warm_ups) = (self.clients.requests(), &self.warm_ups);
        for volume in self.leaving.due(|id| requests.are_of(id) || warm_ups.are_under_way(Some(id))) {
            self.base.tell(Event::Remove { volume });
        }
        self.handle_events(actions);
        self.dirty_asks.answer(&self.manager);
        self.intent.write_out();
        if !self.intent.is_stuck() {
            self.note_risks();
        }
        let hurry = self.clients.requests().are_hurried();
        self.workers.end_turn(hurry, self.base.clock.now_ms());
        let (clients, mut shared) = self.clients();
        if clients.send_replies(&mut shared) {
            self.begin_stop();
        }
        let (clients, mut shared) = self.clients();
        clients.begin_waiting(&mut shared);
    }

    /// Records, before the replies are sent, the acknowledged data that a kill would lose. A report of a loss is
    /// recorded one turn later, when its reply has been sent.
    fn note_risks(&mut self) {
        for (id, volume) in self.volumes.iter_mut() {
            let owes = self.manager.owes_loss(id);
            let at_risk =
                owes || std::mem::replace(&mut volume.owed_loss, owes) || self.manager.has_volatile(id);
            self.risk.set(id, at_risk);
        }
    }

    fn tick_ms(&self) -> u64 {
        let quiet = self.clients.requests().len() == 0
            && self.base.io.device_ops() == 0
            && self.origins.deadlines().is_idle()
            && self.workers.waiting() == 0
            && !self.manager.is_removing()
            && !self.manager.is_keeping()
            && !self.warm_ups.are_running();
        // For a while after the last event there is still work that only time triggers.
        let settled = self.last_tick_ms.saturating_sub(self.last_event_ms) > 2_000;
        if quiet && settled { TICK_IDLE_MS } else { TICK_BUSY_MS }
    }

    fn tick(&mut self) {
        let now_ms = self.base.clock.now_ms();
        if now_ms.saturating_sub(self.last_tick_ms) < TICK_BUSY_MS {
            return;
        }
        self.last_tick_ms = now_ms;
        self.base.tell(Event::Tick { now_ms });
        let (origins, mut at) = self.origins();
        origins.tick(&mut at, now_ms);
        self.take_state_changes();
        self.settle_volumes();
        self.volumes.hand_over_taps(&mut self.manager, &self.base.clock);
        let nbd = self.clients.nbd_mut();
        nbd.look_after(&mut self.base, &mut self.volumes, now_ms);
        self.give_back.give(&self.base.buffers, nbd.len(), nbd.unsent_bytes(), now_ms);
    }

    /// While the cache is offline: records volumes that do not need it in the state directory.
    fn settle_volumes(&mut self) {
        let has_failed = !self.manager.is_healthy() && !self.health.is_missing();
        // In a pause another session may have begun, whose manager is not here yet.
        if has_failed && !self.pause.is_on() && self.base.stopping.is_running() {
            let state = (&self.state, &mut self.state_thread);
            self.settled.tell(&self.volumes, &self.manager, state, self.base.clock.now_ms());
        }
    }

    /// Handles completed changes of the state directory.
    pub(super) fn take_state_changes(&mut self) {
        let now_ms = self.base.clock.now_ms();
        for (requester, result) in self.state_thread.take_ended(now_ms) {
            match requester {
                Requester::Op(op) => self.base.tell(Event::DeviceDone { op, result }),
                Requester::Settled(volume) => self.settled.ended(volume, result, now_ms),
            }
        }
    }

    fn wait_for_wake(&mut self, ring: RingId) {
        let event = self.events[ring.index()].clone();
        self.base.io.submit_on(ring, Operation::Wait { event }, Pending::Wake);
    }

    /// Another thread has something: results of workers, commands, or operations for this thread's ring.
    pub(super) fn woken(&mut self) {
        self.wait_for_wake(self.base.io.current());
        self.workers.take_results(&mut self.base);
        self.take_state_changes();
        let (clients, mut shared) = self.clients();
        clients.take_found(&mut shared);
        let (origins, mut at) = self.origins();
        origins.take_answers(&mut at);
        self.take_commands();
    }

    /// The orderly end begins (see `stop`).
    pub(super) fn begin_stop(&mut self) {
        if !self.base.stopping.is_running() {
            return;
        }
        let (now_ms, now_ns) = (self.base.clock.now_ms(), self.base.clock.now_ns());
        self.base.stopping = Stopping::Draining { until_ms: now_ms + DRAIN_MS };
        let (connections, requests) = (self.clients.nbd().len(), self.clients.requests().len());
        tracing::info!(connections, requests, "stopping");
        self.volumes.lift_limits(now_ns);
        self.origins.begin_stop(now_ns);
        self.warm_ups.end_all(WarmEnd::Stopped, now_ms);
        self.clients.nbd_mut().begin_shutdown();
    }

    /// Advances the stop as far as possible.
    fn pump_stop(&mut self) {
        let Stopping::Draining { until_ms } = self.base.stopping else { return };
        let is_late = self.base.clock.now_ms() >= until_ms;
        let all_closed = self.clients.nbd_mut().drain(&mut self.volumes, is_late);
        // The remaining requests wait for space that no origin provides: the manager refuses them once no operation
        // can free space.
        let is_quiet = self.clients.requests().len() == 0 && !self.warm_ups.are_under_way(None);
        if all_closed && (is_late || is_quiet) {
            self.base.stopping = Stopping::Finishing;
            self.base.tell(Event::Stop);
        }
    }
}

/// Returns the gathering of a wait while the cache device processes reads of extents: half of them, so that the device
/// keeps the other half in its queue.
fn gathered(extent_reads: usize, sends: usize) -> Option<Gather> {
    (extent_reads >= GATHER_OPS_MIN)
        .then(|| Gather { count: sends + (extent_reads / 2).min(GATHER_MAX), time_us: GATHER_TIME_US })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_gathers_a_part_of_many_and_nothing_of_few() {
        assert_eq!(gathered(GATHER_OPS_MIN - 1, 1), None);
        assert_eq!(gathered(32, 1), Some(Gather { count: 17, time_us: GATHER_TIME_US }));
        assert_eq!(gathered(64, 0), Some(Gather { count: 16, time_us: GATHER_TIME_US }));
    }
}
