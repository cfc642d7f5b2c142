//! Last steps of a clean stop: records for the next start.

use std::sync::Arc;

use zc_cache::{CacheManager, startup as cache_startup};
use zc_core::JournalSeq;
use zc_io::BlockFile;

use crate::error::EngineError;
use crate::limits::{CLOSE_WAIT_MS, VOID_WAIT_MS};
use crate::shard::device::CacheDevice;
use crate::shard::volumes::{Volume, Volumes};
use crate::state::boot::boot_id;
use crate::state::intent::IntentLog;
use crate::state::keeper::{Keeper, NoAnswer};
use crate::state::ledger::Ledger;
use crate::state::media::FileMedia;
use crate::state::risk::RiskFile;
use crate::state::seen::Seen;
use crate::state::state_dir::{OriginMark, VolumeState};

/// Resources for marking a session as cleanly ended.
#[derive(Debug)]
pub struct Closer {
    /// Records of the volumes with dirty data.
    pub ledger: Arc<Ledger>,
}

impl Closer {
    /// Ends a session with an offline cache device, given the volumes without dirty data and their newest epochs. They
    /// do not depend on that device: the next start serves them without it. If it returns, its data of their epochs is
    /// not destaged, because the origin has all of that and possibly newer writes.
    ///
    /// # Errors
    /// When the state directory does not respond in time.
    pub(crate) fn settle(&self, settled: Vec<(String, u64)>) -> Result<(), EngineError> {
        in_time(Arc::clone(&self.ledger), move |ledger| {
            for (name, newest_epoch) in settled {
                if let Err(error) = ledger.give_up(&name, newest_epoch) {
                    tracing::warn!(
                        "volume \"{name}\": the next start will wait for the cache, although the origin has all \
                         data: {error}"
                    );
                }
            }
            Ok(())
        })
    }

    /// Records that the next start must ignore the intent log or the risk file of this session, because one of them
    /// could not be removed. If that cannot be recorded for the log, the session must not execute further actions: it
    /// ends, and the log matches the executed ones.
    ///
    /// # Errors
    /// When it cannot be recorded for the log.
    pub(crate) fn void_files(
        &self,
        intent: &mut IntentLog,
        risk: &mut RiskFile,
        cache_works: bool,
    ) -> Result<(), EngineError> {
        let needed = intent.is_stuck();
        if needed || cache_works {
            match self.said_void() {
                Ok(()) => tracing::warn!(
                    "the cache device records that intent log and risk file are invalid; a killed daemon restarts \
                     as after a power cut"
                ),
                Err(error) if needed => return Err(error),
                Err(error) => tracing::error!("the risk file cannot be removed: {error}"),
            }
        }
        intent.is_void();
        risk.is_void();
        Ok(())
    }

    /// Records it, or fails in time.
    fn said_void(&self) -> Result<(), EngineError> {
        let mut ledger = Keeper::on_thread(Arc::clone(&self.ledger), VOID_WAIT_MS)?;
        let said = ledger.change(|ledger| ledger.void_intents());
        said.unwrap_or_else(|NoAnswer| {
            let place =
                "neither the state directory nor the cache device, which was to record that the intent log \
                is invalid,"
                    .to_owned();
            Err(EngineError::NoAnswer { place })
        })
    }

    /// Records the volumes without dirty data, the present state of the origins, and then the clean end of the
    /// session, on the device first. If a destination does not respond in time, the end counts as a kill.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub(crate) fn close(
        self,
        volumes: &Volumes,
        manager: &CacheManager,
        device: &CacheDevice,
        was_distrusted: bool,
    ) -> Result<(), EngineError> {
        let mut ending = Ending {
            clean: Vec::new(),
            lefts: Vec::new(),
            was_distrusted,
            journal_next: manager.journal_next(),
            index_image: manager.index_image(),
            cache: Arc::clone(device.file()),
            journal: device.journal().cloned(),
            ledger: self.ledger,
        };
        for (id, volume) in volumes.iter() {
            let dirty = manager.dirty(id).unwrap_or_default();
            if dirty.bytes > 0 {
                tracing::info!(
                    "volume \"{}\": {} bytes of dirty data stay on the cache until the next start",
                    volume.name,
                    dirty.bytes
                );
            }
            // A fenced volume may have dirty data beyond the counters.
            if dirty.bytes == 0 && !dirty.fenced {
                ending.clean.push(volume.name.clone());
            }
            ending.lefts.push((volume.name.clone(), OriginAtClose::of(volume, manager.owes_loss(id))?));
        }
        in_time(ending, Ending::record)
    }
}

/// Runs a call that may hang, or fails in time.
pub fn in_time<T: Send + 'static>(
    of: T,
    work: impl FnOnce(&mut T) -> Result<(), EngineError> + Send + 'static,
) -> Result<(), EngineError> {
    Keeper::on_thread(of, CLOSE_WAIT_MS)?.change(work).unwrap_or_else(|NoAnswer| {
        tracing::error!(
            "the state directory or the cache device does not answer, so the end of this session is not recorded; \
             the next start treats it as a kill"
        );
        let place = "the state directory or the cache device, which records the end of a session,".to_owned();
        Err(EngineError::NoAnswer { place })
    })
}

/// Records of a session that ends cleanly.
#[derive(Debug)]
struct Ending {
    /// Volumes without dirty data.
    clean: Vec<String>,
    lefts: Vec<(String, OriginAtClose)>,
    /// `true` if a part of the cache was distrusted during the session.
    was_distrusted: bool,
    journal_next: JournalSeq,
    index_image: u64,
    cache: Arc<BlockFile>,
    journal: Option<Arc<BlockFile>>,
    ledger: Arc<Ledger>,
}

impl Ending {
    fn record(&mut self) -> Result<(), EngineError> {
        self.ledger.is_clean(&self.clean)?;
        let stamps = self.ledger.stamps();
        let lefts = std::mem::take(&mut self.lefts);
        self.ledger.state().update(|state| {
            for (name, stamp) in stamps {
                if let Some(entry) = state.volumes.get_mut(&name).filter(|_| !self.was_distrusted) {
                    entry.stamp = stamp;
                }
            }
            for (name, left) in lefts {
                if let Some(entry) = state.volumes.get_mut(&name) {
                    left.note(&name, entry);
                }
            }
        })?;
        let mut media = FileMedia { cache: &self.cache, journal: self.journal.as_deref() };
        cache_startup::mark_clean(&mut media, &self.ledger.superblock(), self.journal_next, self.index_image)
            .map_err(|error| EngineError::of_cache(self.cache.path(), error))?;
        // Last step: an interruption before it leaves a session recorded as ended cleanly or not, but never a device
        // that is older than its record.
        self.ledger.state().update(|state| {
            state.clean = true;
            state.volumes.values_mut().filter(|entry| entry.settled).for_each(|entry| entry.given_up = 0);
        })
    }
}

/// Final state of an origin in a session.
#[derive(Debug)]
struct OriginAtClose {
    mark: OriginMark,
    /// Data for the comparison at the next start; `None` if the origin fails.
    seen: Option<Seen>,
    /// The origin was truncated while it was served, and may be as long again.
    was_truncated: bool,
    /// `true` if clients have not been notified of a loss yet.
    owes_loss: bool,
}

impl OriginAtClose {
    fn of(volume: &Volume, owes_loss: bool) -> Result<Self, EngineError> {
        let seen = Seen::of(&volume.origin, &boot_id());
        let seen = seen.inspect_err(|error| {
            tracing::warn!(
                "volume \"{}\": the next start cannot tell whether another program writes the origin until then: \
                 {error}",
                volume.name
            );
        });
        // After the flush, which may change the time of the last change.
        let mark = OriginMark::of(&volume.origin.identity()?);
        let was_truncated = volume.is_withdrawn || mark.len_bytes < volume.config.size_bytes;
        Ok(Self { mark, seen: seen.ok(), was_truncated, owes_loss })
    }

    /// Records the expected length of a truncated origin. Data beyond its end no longer matches the cache, even if it
    /// is extended again: clean contents must be distrusted.
    fn note(self, name: &str, entry: &mut VolumeState) {
        entry.owes_loss = self.owes_loss;
        let before = std::mem::replace(&mut entry.origin, self.mark).len_bytes;
        if self.was_truncated && self.mark.len_bytes < before {
            tracing::error!(
                "volume \"{name}\": {origin} was truncated from {before} to {now} bytes while it was served; make \
                 it {before} bytes long again before the next start (`truncate --size={before}` for a file), or the \
                 volume starts with {now} bytes, and not at all while it has dirty data",
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
