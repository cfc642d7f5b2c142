//! The last steps of an orderly end: what the next start will believe.

use std::sync::Arc;

use zc_cache::startup as cache_startup;

use crate::custody::Custody;
use crate::error::EngineError;
use crate::keeper::{Keeper, NoAnswer};
use crate::limits::VOID_WAIT_MS;
use crate::media::FileMedia;
use crate::pairing;
use crate::seen::Seen;
use crate::shard::{Shard, Volume};
use crate::startup;
use crate::state_dir::{OriginMark, VolumeState};

/// What is needed to mark a session as ended cleanly.
#[derive(Debug)]
pub(crate) struct Closer {
    pub(crate) custody: Arc<Custody>,
}

impl Closer {
    /// Ends a session whose cache device is out of reach. Volumes of which nothing is dirty do not wait for that device:
    /// the next start serves them without it. Should it return, what it has of their epochs is not destaged, because the
    /// origin has all of that and perhaps newer writes.
    pub(crate) fn settle(&self, shard: &Shard) {
        for (id, volume) in &shard.volumes {
            let Some(newest_epoch) = shard.needs_no_cache(*id) else { continue };
            if let Err(error) = self.custody.give_up(&volume.name, newest_epoch) {
                tracing::warn!(
                    "volume \"{}\": the next start will wait for the cache, although the origin has all data: {error}",
                    volume.name
                );
            }
        }
    }

    /// A start must not believe the intent log or the risk file of this session, one of which could not be withdrawn. If
    /// that cannot be said of the log, what the session was about to do may not be done: it ends, and the log is right
    /// about what was done.
    pub(crate) fn void_files(&self, shard: &mut Shard) -> Result<(), EngineError> {
        let (needed, works) = (shard.intent.is_stuck(), shard.cache_fault.is_none());
        if needed || works {
            match self.said_void() {
                Ok(()) => tracing::warn!(
                    "the cache device says that intent log and risk file are void; a killed daemon restarts as after a \
                     power cut"
                ),
                Err(error) if needed => return Err(error),
                Err(error) => tracing::error!("the risk file cannot be withdrawn: {error}"),
            }
        }
        shard.intent.is_void();
        shard.risk.is_void();
        Ok(())
    }

    /// Says it, or fails in time.
    fn said_void(&self) -> Result<(), EngineError> {
        let mut custody = Keeper::on_thread(Arc::clone(&self.custody), VOID_WAIT_MS)?;
        let said = custody.change(|custody| custody.void_intents());
        said.unwrap_or_else(|NoAnswer| {
            let place = "neither the state directory nor the cache device, which was to say that the intent log is void,"
                .to_owned();
            Err(EngineError::NoAnswer { place })
        })
    }

    /// Records which volumes have no dirty data, what the origins look like now, then that the session ended cleanly, on
    /// the device first; the intent log goes last.
    pub(crate) fn close(self, shard: Shard) -> Result<(), EngineError> {
        let mut clean = Vec::new();
        for (id, volume) in &shard.volumes {
            let dirty = shard.manager.dirty(*id).unwrap_or_default();
            if dirty.bytes > 0 {
                tracing::info!(
                    "volume \"{}\": {} bytes that its origin lacks stay on the cache until the next start",
                    volume.name,
                    dirty.bytes
                );
            }
            // What is fenced may have more than can be told.
            if dirty.bytes == 0 && !dirty.fenced {
                clean.push(volume.name.clone());
            }
        }
        self.custody.is_clean(&clean)?;
        let mut lefts = Vec::new();
        for (id, volume) in &shard.volumes {
            lefts.push((volume.name.clone(), Left::of(volume, shard.manager.owes_loss(*id))?));
        }
        let was_distrusted = shard.metrics.distrusts > 0;
        let stamps = self.custody.stamps();
        self.custody.state().update(|state| {
            for (name, stamp) in stamps {
                if let Some(entry) = state.volumes.get_mut(&name).filter(|_| !was_distrusted) {
                    entry.stamp = stamp;
                }
            }
            for (name, left) in lefts {
                if let Some(entry) = state.volumes.get_mut(&name) {
                    left.note(&name, entry);
                }
            }
        })?;
        let place = shard.device.file.path();
        let mut media = FileMedia { cache: &shard.device.file, journal: shard.device.journal.as_deref() };
        let journal_next = shard.manager.journal_next();
        cache_startup::mark_clean(&mut media, &self.custody.superblock(), journal_next)
            .map_err(|error| EngineError::of_cache(place, error))?;
        // Last: whoever is cut off before finds a session that ended in order, or one that did not, but never a device
        // that lags behind what is remembered of it.
        self.custody.state().update(|state| {
            state.clean = true;
            state.volumes.values_mut().filter(|entry| entry.settled).for_each(|entry| entry.given_up = 0);
        })?;
        shard.intent.remove();
        shard.risk.remove();
        Ok(())
    }
}

/// How a session leaves an origin.
struct Left {
    mark: OriginMark,
    /// What the next start compares; nothing if the origin fails.
    seen: Option<Seen>,
    /// The origin was truncated while it was served, and may be as long again.
    was_truncated: bool,
    /// Clients were not told of a loss yet.
    owes_loss: bool,
}

impl Left {
    fn of(volume: &Volume, owes_loss: bool) -> Result<Self, EngineError> {
        let seen = Seen::of(&volume.origin, &startup::boot_id());
        let seen = seen.inspect_err(|error| {
            tracing::warn!(
                "volume \"{}\": the next start cannot tell whether another program writes the origin until then: {error}",
                volume.name
            );
        });
        // After the flush, which may change the time of the last change.
        let mark = pairing::mark(&volume.origin.identity()?);
        let was_truncated = volume.is_withdrawn || mark.len_bytes < volume.config.size_bytes;
        Ok(Self { mark, seen: seen.ok(), was_truncated, owes_loss })
    }

    /// A truncated origin keeps the length that it is to have. What was behind its end is not what the cache holds of it,
    /// also when it is as long again: clean contents are not to be trusted.
    fn note(self, name: &str, entry: &mut VolumeState) {
        entry.owes_loss = self.owes_loss;
        let before = std::mem::replace(&mut entry.origin, self.mark).len_bytes;
        if self.was_truncated && self.mark.len_bytes < before {
            tracing::error!(
                "volume \"{name}\": {origin} was truncated from {before} to {now} bytes while it was served; make it {before} \
                 bytes long again before the next start (`truncate --size={before}` for a file), or the volume starts with \
                 {now} bytes, and not at all while it has dirty data",
                origin = entry.path.display(),
                now = self.mark.len_bytes,
            );
        }
        if self.was_truncated {
            entry.origin.len_bytes = before;
            entry.stamp = entry.stamp.wrapping_add(1);
            return;
        }
        entry.seen = self.seen;
        entry.settled = true;
    }
}
