//! Flushes of origins, and what one that fails takes along.
//!
//! A flush that fails may have lost all that was written since the last one. Clients are told, by the next flush if
//! none waited; the cache forgets what it knows of it; a run of epochs that was being destaged is written again.

use zc_core::{ErrorKind, ExtentKey, RegionKey, VolumeId};

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Keep, SweepCursor};
use crate::manager::CacheManager;
use crate::origin::tracker::{Flush, FlushWaiter};
use crate::seam::Action;
use crate::write_back::WriteBack;

impl Base {
    /// Has an origin flushed as soon as the flush under way has ended.
    pub(crate) fn flush_origin(&mut self, volume: VolumeId, waiter: FlushWaiter) {
        let origin = &mut self.volumes.get_mut(&volume).expect_held().origin;
        origin.want_flush(waiter);
        origin.pump_flush(volume, &mut self.port);
    }
}

impl Clean {
    /// A flush failed: the origin may have lost what was written since the last one, and says so only once. What the
    /// cache holds, is about to hold or could find again of it would be read now and revert with the eviction, so it
    /// goes: mappings, learned contents, copies in memory, and what is under way. Regions that were marked when an
    /// earlier session was cut off count, too: nobody has flushed their last writes yet.
    fn forget_unflushed(&mut self, volume: VolumeId, core: &mut Core) {
        let Some(region_bytes) = core.base.volumes.get(&volume).map(|volume| volume.cfg.region_bytes) else {
            return;
        };
        let (extent, regions) = (u64::from(core.base.extent_bytes), &core.device.meta.regions);
        let is_lost = |key: &ExtentKey| {
            let region = key.extent.0 * extent / region_bytes;
            let region = RegionKey { volume, region };
            key.volume == volume && (regions.is_active(&region) || regions.is_inherited(&region))
        };
        core.device.index.tracks.change_all(is_lost);
        self.recipes.remove_all(is_lost);
        let copies: Vec<_> = self.read_buffer.keys().filter(is_lost).collect();
        let ahead: Vec<_> = self.ahead.keys().filter(is_lost).collect();
        let staged: Vec<_> = self.staging.keys().filter(is_lost).collect();
        let mut mapped = Vec::new();
        let mut cursor = SweepCursor::default();
        core.device.index.files.sweep(&mut cursor, usize::MAX, |key, _| {
            if is_lost(&key) {
                mapped.push(key);
            }
            Keep::Yes
        });
        for key in copies {
            if let Some(buf) = self.read_buffer.invalidate(&key) {
                core.base.port.release(buf);
            }
        }
        ahead.into_iter().for_each(|key| self.drop_prefetched(key, core));
        for key in staged {
            self.staging.get_mut(&key).expect_held().forget(core.base.extent_bytes / zc_core::SECTOR_BYTES);
            self.drop_idle_staged(key, core);
        }
        for key in mapped {
            core.device.forget(key, &mut core.base);
        }
        core.device.doubt_inherited(volume);
    }
}

impl WriteBack {
    /// What clients hear whose flush ended: a loss that they have yet to hear of comes first.
    fn result_for_clients(
        &mut self,
        volume: VolumeId,
        flush: &Flush,
        result: Result<(), ErrorKind>,
        core: &mut Core,
    ) -> Result<(), ErrorKind> {
        let fenced = self.fence(volume, core).map(|_| ErrorKind::Io);
        let origin = &mut core.base.volumes.get_mut(&volume).expect_held().origin;
        let told = origin.take_loss().or(fenced).map_or(result, Err);
        if told.is_err() {
            origin.loss_is_told_to(flush.covers);
        }
        told
    }

    /// The origin may have lost what was written since its last flush.
    pub(crate) fn unflushed_lost(
        &mut self,
        volume: VolumeId,
        error: ErrorKind,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        if let Some(entry) = core.base.volumes.get_mut(&volume) {
            entry.origin.unflushed_lost(error);
        }
        self.spoil_run(volume);
        clean.forget_unflushed(volume, core);
    }
}

impl CacheManager {
    pub(crate) fn origin_flushed(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        let flush = self.core.base.volumes.get_mut(&volume).expect_held().origin.flush_ended(result);
        let for_clients = if flush.has_client() {
            self.dirty.result_for_clients(volume, &flush, result, &mut self.core)
        } else {
            result
        };
        if let Err(error) = result {
            self.dirty.unflushed_lost(volume, error, &mut self.core, &mut self.clean);
        }
        for waiter in flush.waiters {
            match waiter {
                FlushWaiter::Client(req) if for_clients.is_ok() && self.dirty.has_dirty(volume) => {
                    self.dirty.request_commit(volume, Some(req), &mut self.core);
                }
                FlushWaiter::Client(req) => {
                    self.core.base.port.emit(Action::Reply { req, result: for_clients })
                }
                FlushWaiter::Retire => self.core.device.retire_flush_done(volume, result),
                FlushWaiter::Destage => self.dirty.destage_flushed(volume, result, &mut self.core),
                FlushWaiter::Remove => self.removal_flushed(volume, result),
            }
        }
        self.core
            .base
            .volumes
            .get_mut(&volume)
            .expect_held()
            .origin
            .pump_flush(volume, &mut self.core.base.port);
    }
}
