//! The last steps of an orderly end: what the next start will believe.

use std::sync::Arc;

use zc_cache::startup as cache_startup;

use crate::custody::Custody;
use crate::error::EngineError;
use crate::media::FileMedia;
use crate::pairing;
use crate::seen::Seen;
use crate::shard::{Shard, Volume};
use crate::startup;

/// What is needed to mark a session as ended cleanly.
#[derive(Debug)]
pub(crate) struct Closer {
    pub(crate) custody: Arc<Custody>,
}

impl Closer {
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
        let mut marks = Vec::new();
        for volume in shard.volumes.values() {
            // First: flushing may change the time of the last change.
            let seen = seen_of(volume);
            marks.push((volume.name.clone(), pairing::mark(&volume.origin.identity()?), seen));
        }
        let was_distrusted = shard.metrics.distrusts > 0;
        let stamps = self.custody.stamps();
        self.custody.state().update(|state| {
            for (name, mark, seen) in marks {
                if let Some(entry) = state.volumes.get_mut(&name) {
                    entry.origin = mark;
                    entry.seen = seen;
                    entry.settled = true;
                }
            }
            for (name, stamp) in stamps {
                if let Some(entry) = state.volumes.get_mut(&name).filter(|_| !was_distrusted) {
                    entry.stamp = stamp;
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
        Ok(())
    }
}

/// What the next start compares; nothing if the origin fails.
fn seen_of(volume: &Volume) -> Option<Seen> {
    let seen = Seen::of(&volume.origin, &startup::boot_id());
    let warn = |error: &EngineError| {
        tracing::warn!(
            "volume \"{}\": the next start cannot tell whether another program writes the origin until then: {error}",
            volume.name
        );
    };
    seen.inspect_err(warn).ok()
}
