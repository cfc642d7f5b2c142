//! The start of the manager: records of an earlier session are replayed, then requests may come.

use zc_format::Record;

use crate::manager::CacheManager;
use crate::seam::Action;

impl CacheManager {
    /// Replays a record of the intent log, after those of checkpoint and journal. The journal lacks it, so that it is
    /// recorded again.
    pub fn replay_intent(&mut self, record: &Record) {
        self.core.device.replay_intent(record);
    }

    /// Replays one record of checkpoint, then journal, before [`CacheManager::begin`].
    pub fn replay(&mut self, record: &Record) {
        self.core.device.replay(record);
    }

    /// Ends the replay; requests may come now.
    pub fn begin(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let Self { core, clean, dirty, .. } = self;
        core.base.port.swap_out(actions);
        core.base.begin(now_ms);
        core.device.record_unjournaled(&mut core.base);
        dirty.install_dirty(core);
        core.device.begin(&mut core.base);
        dirty.repeat_summaries(core);
        core.device.pump_load(&mut core.base);
        core.device.pump_probes(&mut core.base);
        dirty.pump_persist(core, clean);
        core.base.port.swap_out(actions);
    }
}
