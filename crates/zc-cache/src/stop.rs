//! A clean stop: drain, place, seal, persist, say so.

use crate::clean::Clean;
use crate::device::Core;
use crate::health::Health;
use crate::manager::CacheManager;
use crate::persist;
use crate::seam::Action;

/// How far a stop is.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// The last flush of the device: whether it has ended.
    pub(crate) flush: Option<bool>,
    /// An origin does not flush: marks stay, and the stop is not a clean one.
    pub(crate) unsettled: bool,
    /// Told to the driver.
    pub(crate) done: bool,
}

impl Clean {
    /// While stopping nothing is evicted any more: what needs a slot is dropped.
    fn drop_unplaceable(&mut self, core: &mut Core) {
        if core.base.health == Health::Good
            && (core.device.units.slots.free_len() > 0 || core.device.units.slots.leaving() > 0)
        {
            return;
        }
        while let Some(jobs) = self.inserts.runs.take_first() {
            self.inserts.runs.first_placed();
            for (_, job) in jobs {
                core.base.stats.insert_dropped += 1;
                self.end_job(job, core);
            }
        }
    }
}

impl CacheManager {
    /// Goes on with stopping: drain, seal, persist, report.
    pub(crate) fn pump_stop(&mut self) {
        if !self.core.base.stopping || self.stop.done {
            return;
        }
        if !(self.clean.reads.is_empty() && self.clean.writes.is_empty() && self.clean.fills.is_empty()) {
            return;
        }
        let ahead: Vec<_> = self.clean.ahead.keys().collect();
        ahead.into_iter().for_each(|key| self.clean.drop_prefetched(key, &mut self.core));
        self.clean.drop_all_staged(&mut self.core);
        self.clean.inserts.runs.age(self.core.base.now_ms, self.core.base.stopping);
        self.clean.pump_placement(&mut self.core);
        self.clean.drop_unplaceable(&mut self.core);
        if self.core.base.health != Health::Good {
            self.dirty.abandon_dirty_jobs(&mut self.core);
        }
        let dirty_busy = if self.core.base.health == Health::Good {
            self.dirty.is_busy()
        } else {
            !self.dirty.jobs.is_empty()
        };
        if !self.clean.inserts.is_idle()
            || self.clean.staging.len() > 0
            || dirty_busy
            || !self.dirty.gathers.is_empty()
            || self.dirty.scrub.is_reading()
        {
            return;
        }
        for buf in self.clean.read_buffer.drain() {
            self.core.base.port.release(buf);
        }
        if self.core.base.health == Health::Good {
            self.core.device.seal(&mut self.core.base);
            self.dirty.seal_dirty_unit(&mut self.core);
            if !self.is_settled() {
                return;
            }
            match self.stop.flush {
                None => {
                    self.stop.flush = Some(false);
                    self.core.base.flush_cache(persist::Op::StopFlush);
                    return;
                }
                Some(false) => return,
                Some(true) => {}
            }
        }
        if self.core.base.port.is_idle() {
            self.stop.done = true;
            self.tell_owed_distrusts();
            let clean = self.core.base.health == Health::Good && !self.stop.unsettled;
            self.core.base.port.emit(Action::Stopped { clean });
        }
    }

    /// Whether everything is on the device and durable, with no region marked.
    fn is_settled(&mut self) -> bool {
        let position = self.core.device.meta.journal.want_all();
        self.pump_persist();
        self.core.device.units.writing.is_empty()
            && self.core.device.recovery.load.is_none()
            && self.core.device.meta.journal.is_durable(position)
            && self.core.device.meta.is_idle()
            && (self.stop.unsettled || self.core.device.is_unmarked(&self.core.base))
    }
}
