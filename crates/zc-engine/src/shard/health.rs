//! The manager's notes: logged, counted, and recorded in the cache's state.
//!
//! Job: log each note in words, repeated ones exponentially less often; record why the cache is offline, and when its
//! index was complete.
//!
//! It does not act on a note (`dispatch` does, if necessary).

use std::collections::VecDeque;

use zc_cache::CacheManager;
use zc_cache::seam::{Event, Note};
use zc_core::{ErrorKind, ExtentNo, VolumeId};

use crate::registry::Registry;
use crate::shard::base::Base;
use crate::shard::volumes::{Volume, Volumes};

/// State of the whole cache.
#[derive(Debug)]
pub(crate) struct Health {
    /// Reason for being offline.
    fault: Option<String>,
    /// A placeholder replaces the cache device.
    is_missing: bool,
    /// When the index was complete.
    loaded_ms: Option<u64>,
    restart_bytes_read: u64,
}

impl Health {
    /// State after a start that read this much, with the reason for a placeholder of the device, if any.
    pub(crate) const fn new(missing: Option<String>, restart_bytes_read: u64) -> Self {
        let is_missing = missing.is_some();
        Self { fault: missing, is_missing, loaded_ms: None, restart_bytes_read }
    }

    /// Records that the cache works again, after a start that read this much.
    pub(crate) fn is_back(&mut self, restart_bytes_read: u64) {
        (self.fault, self.loaded_ms, self.restart_bytes_read) = (None, None, restart_bytes_read);
    }

    /// The cache is offline, which another than the manager found.
    pub(crate) fn lost(&mut self, why: String, events: &mut VecDeque<Event>) {
        if self.fault.is_none() {
            tracing::error!("{why}; volumes continue without the cache");
            self.fault = Some(why);
            events.push_back(Event::DeviceLost);
        }
    }

    /// Returns `true` if a fault is known.
    pub(crate) const fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// Returns `true` if a placeholder replaces the cache device.
    pub(crate) const fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// When the index was complete, in milliseconds since the start.
    pub(crate) const fn loaded_ms(&self) -> Option<u64> {
        self.loaded_ms
    }

    /// Bytes of superblock, checkpoint and journal that the start read.
    pub(crate) const fn restart_bytes_read(&self) -> u64 {
        self.restart_bytes_read
    }

    /// Returns the fault of the cache device, and its effect on clients while it cannot be recorded.
    pub(crate) fn fault(&self, manager: &CacheManager) -> Option<String> {
        let fault = self.fault.clone()?;
        if manager.is_distrust_pending() && manager.stats().distrust_failures > 0 {
            return Some(format!(
                "{fault}; the state directory cannot record it: writes outside marked regions wait, \
                 and fail after 30 s. Make the state directory writable"
            ));
        }
        Some(fault)
    }

    pub(crate) fn note(&mut self, base: &mut Base, volumes: &mut Volumes, registry: &Registry, note: Note) {
        match note {
            // It was logged when it was detected.
            Note::CacheFailed { .. } if self.fault.is_some() => {}
            Note::CacheFailed { during, error } => {
                let text = format!("the cache device failed while {}: {error}", during.doing());
                tracing::error!("{text}; volumes continue without the cache");
                self.fault = Some(text);
            }
            Note::ExtentDropped { slot, fault } => {
                base.metrics.extents_dropped += 1;
                if base.metrics.extents_dropped.is_power_of_two() {
                    let count = base.metrics.extents_dropped;
                    tracing::warn!(count, "a stored extent in slot {slot} was dropped: {fault}");
                }
            }
            Note::SlotDropped { slot } => tracing::warn!("slot {slot} was retired after an error"),
            Note::OriginDiffers { volume, extent } => note_changed_origin(volumes, registry, volume, extent),
            Note::DistrustUnrecorded { volume } => note_unrecorded(volumes, volume),
            Note::DirtyUnreadable { volume, .. }
            | Note::DirtySkipped { volume, .. }
            | Note::DirtyGivenUp { volume, .. }
            | Note::DestageFailed { volume, .. }
            | Note::Fenced { volume }
            | Note::CommitsDropped { volume, .. } => {
                note_dirty(volumes, volume, note, self.fault.is_some());
            }
            Note::Content { key, digest, stored } => {
                if let Some(tap) = volumes.get_mut(key.volume).and_then(Volume::tap) {
                    tap.learned(key.extent.0, digest, stored);
                }
            }
            // Logged by its handler.
            Note::Removed { .. } => {}
            Note::IndexLoaded { extents, by_image } => {
                let ms = base.clock.now_ms();
                self.loaded_ms = Some(ms);
                let from = if by_image { "the index image" } else { "headers" };
                tracing::info!("index complete: {extents} extents from {from}, {ms} ms after the start");
            }
            Note::ImageRefused { fault } => {
                tracing::warn!("the index image is not used ({fault}); headers are read, which takes longer");
            }
            Note::ImageOmitted { fault } => {
                tracing::info!("no index image is left ({fault}); the next start reads headers");
            }
        }
    }
}

fn note_unrecorded(volumes: &Volumes, volume: Option<VolumeId>) {
    let of = volume.and_then(|id| volumes.get(id)).map(|volume| format!(" of volume \"{}\"", volume.name));
    tracing::error!(
        "the state directory could not record that cached data{} must not be trusted, not at the stop either. Marks \
         on the cache record what was written; if the cache is replaced or rolled back before the next \
         start, start with --cold",
        of.unwrap_or_default()
    );
}

fn note_changed_origin(volumes: &mut Volumes, registry: &Registry, volume: VolumeId, extent: ExtentNo) {
    let name = volumes.used(volume).name.clone();
    let reason = format!(
        "its origin was written while the cache was not serving it: extent {extent} is not what was cached"
    );
    tracing::warn!("volume \"{name}\" starts cold: {reason}");
    if let Some(mut info) = registry.volumes.get_mut(&name) {
        info.cold_reason = Some(reason);
    }
}

/// Returns the name of a device error that operators search for.
const fn named(error: ErrorKind) -> &'static str {
    match error {
        ErrorKind::NoSpace => "no space left on the device, ENOSPC",
        ErrorKind::ReadOnly => "it takes no writes, EROFS or EACCES",
        ErrorKind::TimedOut => "no answer in time, ETIMEDOUT",
        ErrorKind::Unsupported => "not supported, EOPNOTSUPP",
        _ => "I/O error, EIO",
    }
}

/// Logs notes on dirty data. Repeated ones are logged once, then exponentially less often.
fn note_dirty(volumes: &mut Volumes, volume: VolumeId, note: Note, cache_failed: bool) {
    let Some(volume) = volumes.get_mut(volume) else {
        tracing::warn!(
            "volume number {volume} is not in the configuration, but the cache has dirty data of it"
        );
        return;
    };
    let name = &volume.name;
    match note {
        Note::DirtyUnreadable { extent, .. } => {
            volume.unreadable += 1;
            if volume.unreadable.is_power_of_two() {
                let count = volume.unreadable;
                tracing::error!(
                    count,
                    "volume \"{name}\": extent {extent}, which only the cache has, cannot be read from it; reads of \
                     it fail until it can, or it is rewritten"
                );
            }
        }
        Note::DirtyGivenUp { extent, sectors, .. } => tracing::warn!(
            "volume \"{name}\": sectors {} to {} of extent {extent} could not be read from the cache and are \
             discarded, as requested: they are zeros now",
            sectors.first(),
            sectors.last()
        ),
        Note::DirtySkipped { extent, sectors, .. } => tracing::warn!(
            "volume \"{name}\": sectors {} to {} of extent {extent} were corrupt on the cache and have been \
             rewritten since; only the newer ones go to the origin",
            sectors.first(),
            sectors.last()
        ),
        Note::DestageFailed { error, .. } => {
            volume.refused += 1;
            volume.refused_error = Some(named(error));
            if volume.refused.is_power_of_two() {
                let count = volume.refused;
                tracing::error!(
                    count,
                    "volume \"{name}\": its origin refuses dirty data ({error}); the data is kept and retried"
                );
            }
        }
        Note::CommitsDropped { epoch, doubtful: false, .. } => tracing::warn!(
            "volume \"{name}\": commits after epoch {epoch} were in flight when the last session was cut off and \
             do not count; none was acknowledged as durable"
        ),
        Note::CommitsDropped { epoch, .. } => {
            volume.dropped_commits += 1;
            tracing::error!(
                "volume \"{name}\": commits after epoch {epoch} are not complete on the cache and do not count. \
                 They were in flight when the last session was cut off, or the cache device lost them within the \
                 moment after a flush; the volume holds what was flushed before"
            );
        }
        _ if cache_failed => tracing::error!(
            "volume \"{name}\" is fenced: its dirty data is on the cache device, which does not answer. Bring \
             the device back, then `zcctl reattach`: no flushed byte is lost then. If it cannot be brought back, \
             `zcached --drop-dirty {name}` discards the dirty data"
        ),
        _ => tracing::error!(
            "volume \"{name}\" is fenced: the cache has dirty data of it, and either the journal is incomplete or \
             the origin has changed. Restore the cache and the origin that belong together; `zcctl accept-loss \
             {name}` serves the recovered data, `zcctl drop-dirty {name}` discards it"
        ),
    }
}
