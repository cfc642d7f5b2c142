//! The last steps of an orderly end: what the next start will believe.

use std::sync::Arc;

use zc_cache::startup as cache_startup;
use zc_format::Superblock;

use crate::error::EngineError;
use crate::media::FileMedia;
use crate::pairing;
use crate::shard::Shard;
use crate::state_dir::StateDir;

/// What is needed to mark a session as ended cleanly.
#[derive(Debug)]
pub(crate) struct Closer {
    pub(crate) superblock: Superblock,
    /// Each volume's stamp on media.
    pub(crate) stamps: Vec<(String, u64)>,
    pub(crate) state: Arc<StateDir>,
}

impl Closer {
    /// Records what the origins look like now, then that the session ended cleanly; the intent log goes last.
    pub(crate) fn close(self, shard: Shard) -> Result<(), EngineError> {
        let mut marks = Vec::new();
        for volume in shard.volumes.values() {
            marks.push((volume.name.clone(), pairing::mark(&volume.origin.identity()?)));
        }
        let was_distrusted = shard.metrics.distrusts > 0;
        self.state.update(|state| {
            state.clean = true;
            for (name, mark) in marks {
                if let Some(entry) = state.volumes.get_mut(&name) {
                    entry.origin = mark;
                }
            }
            for (name, stamp) in &self.stamps {
                if let Some(entry) = state.volumes.get_mut(name).filter(|_| !was_distrusted) {
                    entry.stamp = *stamp;
                }
            }
        })?;
        let place = shard.device.file.path().display();
        let mut media = FileMedia { cache: &shard.device.file, journal: shard.device.journal.as_ref() };
        cache_startup::mark_clean(&mut media, &self.superblock)
            .map_err(|error| EngineError::Refused(format!("{place}: {error}")))?;
        shard.intent.remove();
        Ok(())
    }
}
