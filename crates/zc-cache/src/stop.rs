//! A clean stop: drain, place, seal, persist, say so.

use crate::health::Health;
use crate::manager::CacheManager;
use crate::persist;
use crate::seam::Action;

/// How far a stop is.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// The driver wants it.
    pub(crate) wanted: bool,
    /// The last flush of the device: whether it has ended.
    pub(crate) flush: Option<bool>,
    /// An origin does not flush: marks stay, and the stop is not a clean one.
    pub(crate) unsettled: bool,
    /// Told to the driver.
    pub(crate) done: bool,
}

impl CacheManager {
    /// Goes on with stopping: drain, seal, persist, report.
    pub(crate) fn pump_stop(&mut self) {
        if !self.stop.wanted || self.stop.done {
            return;
        }
        if !(self.reads.is_empty() && self.writes.is_empty() && self.fills.is_empty()) {
            return;
        }
        let ahead: Vec<_> = self.ahead.keys().collect();
        ahead.into_iter().for_each(|key| self.drop_prefetched(key));
        self.drop_all_staged();
        self.inserts.runs.age(self.now_ms, self.stop.wanted);
        self.pump_placement();
        self.drop_unplaceable();
        if self.health != Health::Good {
            self.abandon_dirty_jobs();
        }
        let dirty_busy =
            if self.health == Health::Good { self.wb.is_busy() } else { !self.wb.jobs.is_empty() };
        if !self.inserts.is_idle()
            || self.staging.len() > 0
            || dirty_busy
            || !self.gathers.is_empty()
            || self.wb.scrub.is_reading()
        {
            return;
        }
        for buf in self.read_buffer.drain() {
            self.port.release(buf);
        }
        if self.health == Health::Good {
            self.seal();
            self.seal_dirty_unit();
            if !self.is_settled() {
                return;
            }
            match self.stop.flush {
                None => {
                    self.stop.flush = Some(false);
                    self.flush_cache(persist::Op::StopFlush);
                    return;
                }
                Some(false) => return,
                Some(true) => {}
            }
        }
        if self.port.is_idle() {
            self.stop.done = true;
            self.tell_owed_distrusts();
            let clean = self.health == Health::Good && !self.stop.unsettled;
            self.port.emit(Action::Stopped { clean });
        }
    }

    /// While stopping nothing is evicted any more: what needs a slot is dropped.
    fn drop_unplaceable(&mut self) {
        if self.health == Health::Good && (self.slots.free_len() > 0 || self.slots.leaving() > 0) {
            return;
        }
        while let Some(jobs) = self.inserts.runs.take_first() {
            self.inserts.runs.first_placed();
            for (_, job) in jobs {
                self.stats.insert_dropped += 1;
                self.end_job(job);
            }
        }
    }

    /// Whether everything is on the device and durable, with no region marked.
    fn is_settled(&mut self) -> bool {
        let position = self.meta.journal.want_all();
        self.pump_persist();
        self.writing.is_empty()
            && self.load.is_none()
            && self.meta.journal.is_durable(position)
            && self.meta.is_idle()
            && (self.stop.unsettled || self.is_unmarked())
    }
}
