//! Flushes of origins, and what one that fails takes along.
//!
//! An origin says once that writes are lost, to whoever flushes first, and not to those who flush beside him. So a
//! volume's flushes go one after the other; who comes meanwhile waits for the next one together with all others, and if
//! the one under way fails, his has failed, too: it would come back as if nothing had happened.
//!
//! A flush that fails may have lost all that was written since the last one. Clients are told, by the next flush if
//! none waited; the cache forgets what it knows of it; a run of epochs that was being destaged is written again.

use core::mem;

use zc_core::{ErrorKind, ExtentKey, RegionKey, ReqId, VolumeId};

use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Keep, SweepCursor};
use crate::manager::CacheManager;
use crate::seam::Action;
use crate::write::Op;

/// Who waits for a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushWaiter {
    /// A client, for his answer.
    Client(ReqId),
    /// Regions whose marks are to go.
    Retire,
    /// A run of epochs that was written.
    Destage,
    /// The removal of the volume.
    Remove,
}

/// The flushes of one origin.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    current: Option<Flush>,
    /// Who waits for the one after it.
    next: Vec<FlushWaiter>,
}

#[derive(Debug)]
struct Flush {
    /// The writes that it covers.
    writes: u64,
    waiters: Vec<FlushWaiter>,
}

impl Flushes {
    /// Whether the origin is being flushed, or will be.
    pub(crate) fn are_under_way(&self) -> bool {
        self.current.is_some() || !self.next.is_empty()
    }
}

impl CacheManager {
    /// Has an origin flushed as soon as the flush under way has ended.
    pub(crate) fn flush_origin(&mut self, volume: VolumeId, waiter: FlushWaiter) {
        self.volumes.get_mut(&volume).expect_held().flushes.next.push(waiter);
        self.issue_flush(volume);
    }

    fn issue_flush(&mut self, volume: VolumeId) {
        let entry = self.volumes.get_mut(&volume).expect_held();
        if entry.flushes.current.is_some() || entry.flushes.next.is_empty() {
            return;
        }
        let waiters = mem::take(&mut entry.flushes.next);
        entry.flushes.current = Some(Flush { writes: entry.writes_ended, waiters });
        let op = self.port.op(Op::Flush(volume));
        self.port.emit(Action::OriginFlush { op, volume });
    }

    pub(crate) fn origin_flushed(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        let entry = self.volumes.get_mut(&volume).expect_held();
        let Flush { writes, mut waiters } = entry.flushes.current.take().expect_held();
        let has_client =
            |waiters: &[FlushWaiter]| waiters.iter().any(|waiter| matches!(waiter, FlushWaiter::Client(_)));
        entry.flush_failed = result.is_err();
        match result {
            Ok(()) => entry.writes_flushed = entry.writes_flushed.max(writes),
            Err(_) => waiters.append(&mut entry.flushes.next),
        }
        let mut for_clients = result;
        if has_client(&waiters) {
            let owed = self.volumes.get_mut(&volume).and_then(|volume| volume.owes_error.take());
            let fenced = self.fence(volume).map(|_| ErrorKind::Io);
            for_clients = owed.or(fenced).map_or(result, Err);
            self.tell_loss(volume, writes, for_clients);
        }
        if let Err(error) = result {
            self.unflushed_lost(volume, error);
        }
        for waiter in waiters {
            match waiter {
                FlushWaiter::Client(req) if for_clients.is_ok() && self.has_dirty(volume) => {
                    self.request_commit(volume, Some(req));
                }
                FlushWaiter::Client(req) => self.port.emit(Action::Reply { req, result: for_clients }),
                FlushWaiter::Retire => self.retire_flush_done(volume, result),
                FlushWaiter::Destage => self.destage_flushed(volume, result),
                FlushWaiter::Remove => self.removal_flushed(volume, result),
            }
        }
        self.issue_flush(volume);
    }

    /// A flush of a client that covers so many writes ends like this. If it fails he knows that they may be lost, and
    /// need not hear of it again when the origin is well: what he writes to mend it is not to fail for that.
    fn tell_loss(&mut self, volume: VolumeId, writes: u64, result: Result<(), ErrorKind>) {
        if result.is_err()
            && let Some(entry) = self.volumes.get_mut(&volume)
        {
            entry.loss_told = entry.loss_told.max(writes);
        }
    }

    /// The origin may have lost what was written since its last flush: the next flush of a client says so, unless they
    /// have heard of all of it.
    pub(crate) fn unflushed_lost(&mut self, volume: VolumeId, error: ErrorKind) {
        if let Some(entry) = self.volumes.get_mut(&volume)
            && entry.direct_good > entry.writes_flushed.max(entry.loss_told)
        {
            entry.owes_error = Some(error);
        }
        self.spoil_run(volume);
        self.forget_unflushed(volume);
    }

    /// A flush failed: the origin may have lost what was written since the last one, and says so only once. What the
    /// cache holds, is about to hold or could find again of it would be read now and revert with the eviction, so it
    /// goes: mappings, learned contents, copies in memory, and what is under way. Regions that were marked when an
    /// earlier session was cut off count, too: nobody has flushed their last writes yet.
    fn forget_unflushed(&mut self, volume: VolumeId) {
        let Some(region_bytes) = self.volumes.get(&volume).map(|volume| volume.cfg.region_bytes) else {
            return;
        };
        let (extent, regions) = (u64::from(self.extent_bytes), &self.regions);
        let is_lost = |key: &ExtentKey| {
            let region = key.extent.0 * extent / region_bytes;
            let region = RegionKey { volume, region };
            key.volume == volume && (regions.is_active(&region) || regions.is_inherited(&region))
        };
        self.tracks.change_all(is_lost);
        self.recipes.remove_all(is_lost);
        let copies: Vec<_> = self.read_buffer.keys().filter(is_lost).collect();
        let ahead: Vec<_> = self.ahead.waiting.keys().copied().filter(is_lost).collect();
        let staged: Vec<_> = self.staging.keys().filter(is_lost).collect();
        let mut mapped = Vec::new();
        let mut cursor = SweepCursor::default();
        self.files.sweep(&mut cursor, usize::MAX, |key, _| {
            if is_lost(&key) {
                mapped.push(key);
            }
            Keep::Yes
        });
        for key in copies {
            if let Some(buf) = self.read_buffer.invalidate(&key) {
                self.port.release(buf);
            }
        }
        ahead.into_iter().for_each(|key| self.drop_prefetched(key));
        for key in staged {
            self.staging.get_mut(&key).expect_held().forget(self.extent_bytes / zc_core::SECTOR_BYTES);
            self.drop_idle_staged(key);
        }
        for key in mapped {
            self.forget(key);
        }
        self.doubt_inherited(volume);
    }
}
