//! Flushes of origins that ended, and whom they concern.
//!
//! Clients hear of a loss that they have yet to hear of before anything else. What it does not do: begin flushes.

use zc_core::{ErrorKind, VolumeId};

use crate::base::effects::Effect;
use crate::base::origin::{Flush, FlushWaiter};
use crate::clean::Clean;
use crate::device::Core;
use crate::dirty::DirtyLayer;
use crate::seam::Action;

impl DirtyLayer {
    /// What clients hear whose flush ended: a loss that they have yet to hear of comes first.
    fn result_for_clients(
        &mut self,
        volume: VolumeId,
        flush: &Flush,
        result: Result<(), ErrorKind>,
        core: &mut Core,
    ) -> Result<(), ErrorKind> {
        let fenced = self.fence(volume, core).map(|_| ErrorKind::Io);
        let origin = core.base.origin_mut(volume);
        let answer = origin.take_loss().or(fenced).map_or(result, Err);
        if answer.is_err() {
            origin.loss_is_told_to(flush.covers);
        }
        answer
    }

    /// A flush of an origin ended.
    pub(crate) fn origin_flushed(
        &mut self,
        volume: VolumeId,
        result: Result<(), ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let flush = core.base.origin_mut(volume).flush_ended(result);
        let for_clients =
            if flush.has_client() { self.result_for_clients(volume, &flush, result, core) } else { result };
        if let Err(error) = result {
            clean.unflushed_lost(volume, error, core);
        }
        for waiter in flush.waiters {
            match waiter {
                FlushWaiter::Client(req) if for_clients.is_ok() && self.has_dirty(volume) => {
                    self.request_commit(volume, Some(req), core);
                }
                FlushWaiter::Client(req) => core.base.port.emit(Action::Reply { req, result: for_clients }),
                FlushWaiter::Retire => core.device.catalog.meta_mut().retire_flush_done(volume, result),
                FlushWaiter::Destage => self.destage_flushed(volume, result, core),
                FlushWaiter::Remove => {
                    core.base.announce(Effect::RemovalFlushed(volume, result));
                }
            }
        }
        core.base.pump_origin_flush(volume);
    }
}
