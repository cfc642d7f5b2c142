//! A clean stop: drain, place, seal, persist, write the index image, report.

use crate::base::health::Distrusts;
use crate::clean::Clean;
use crate::device::{Core, Device, meta};
use crate::dirty::DirtyLayer;
use crate::seam::Action;

#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// The last flush of the device: `true` once it has completed.
    flush: Option<bool>,
    /// The stop was reported to the driver.
    done: bool,
}

impl Stop {
    /// Records the last flush of the device.
    pub(crate) const fn flushed(&mut self) {
        self.flush = Some(true);
    }

    /// Continues stopping: drain, seal, persist, report.
    pub(crate) fn pump_stop(
        &mut self,
        core: &mut Core,
        clean: &mut Clean,
        dirty: &mut DirtyLayer,
        distrusts: &mut Distrusts,
    ) {
        if !core.base.is_stopping() || self.done {
            return;
        }
        if !clean.is_idle() {
            return;
        }
        clean.copies_mut().wind_down(core);
        dirty.wind_down(core);
        if !clean.copies().is_wound_down() || !dirty.is_wound_down(core) {
            return;
        }
        clean.copies_mut().drop_copies(core);
        if core.base.is_good() {
            core.device.units.clean_mut().seal_all(&mut core.device.catalog, &mut core.base);
            core.device.units.dirty_mut().seal(&mut core.device.catalog, &mut core.base);
            if !self.is_all_durable(core, clean, dirty) {
                return;
            }
            match self.flush {
                None => {
                    let Device { catalog, checkpoints, image, .. } = &mut core.device;
                    if !image.pump(dirty.keeps_dirty(), catalog, checkpoints, &mut core.base) {
                        return;
                    }
                    self.flush = Some(false);
                    core.device.catalog.meta_mut().close();
                    meta::flush_cache(meta::Op::StopFlush, &mut core.base);
                    return;
                }
                Some(false) => return,
                Some(true) => {}
            }
        }
        if core.base.port.is_idle() {
            self.done = true;
            distrusts.tell_pending_distrusts(core);
            let clean = core.base.is_good() && !core.device.catalog.meta().do_marks_stay();
            core.base.port.emit(Action::Stopped { clean });
        }
    }

    /// Returns `true` if everything is on the device and durable, with no region marked.
    fn is_all_durable(&mut self, core: &mut Core, clean: &mut Clean, dirty: &mut DirtyLayer) -> bool {
        let position = core.device.catalog.meta_mut().journal_mut().want_all();
        dirty.pump_persist(core, clean);
        !core.device.units.are_in_flight()
            && core.base.is_loaded()
            && core.device.catalog.meta().journal().is_durable(position)
            && core.device.catalog.meta().is_idle()
            && (core.device.catalog.meta().do_marks_stay()
                || core.device.catalog.meta().is_unmarked(&core.base))
    }
}
