//! The last steps of an orderly end: what the next start will believe.

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

/// What is needed to mark a session as ended cleanly.
#[derive(Debug)]
pub(crate) struct Closer {
    pub(crate) ledger: Arc<Ledger>,
}

impl Closer {
    /// Ends a session whose cache device is out of reach, with volumes of which nothing is dirty and their newest epochs.
    /// Those do not wait for that device: the next start serves them without it. Should it return, what it has of their
    /// epochs is not destaged, because the origin has all of that and perhaps newer writes.
    ///
    /// # Errors
    /// When the state directory does not answer in time.
    pub(crate) fn settle(&self, settled: Vec<(String, u64)>) -> Result<(), EngineError> {
        in_time(Arc::clone(&self.ledger), move |ledger| {
            for (name, newest_epoch) in settled {
                if let Err(error) = ledger.give_up(&name, newest_epoch) {
                    tracing::warn!(
                        "volume \"{name}\": the next start will wait for the cache, although the origin has all data: \
                         {error}"
                    );
                }
            }
            Ok(())
        })
    }

    /// A start must not believe the intent log or the risk file of this session, one of which could not be withdrawn. If
    /// that cannot be said of the log, what the session was about to do may not be done: it ends, and the log is right
    /// about what was done.
    ///
    /// # Errors
    /// When that cannot be said of the log.
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
                    "the cache device says that intent log and risk file are void; a killed daemon restarts as after a \
                     power cut"
                ),
                Err(error) if needed => return Err(error),
                Err(error) => tracing::error!("the risk file cannot be withdrawn: {error}"),
            }
        }
        intent.is_void();
        risk.is_void();
        Ok(())
    }

    /// Says it, or fails in time.
    fn said_void(&self) -> Result<(), EngineError> {
        let mut ledger = Keeper::on_thread(Arc::clone(&self.ledger), VOID_WAIT_MS)?;
        let said = ledger.change(|ledger| ledger.void_intents());
        said.unwrap_or_else(|NoAnswer| {
            let place = "neither the state directory nor the cache device, which was to say that the intent log is void,"
                .to_owned();
            Err(EngineError::NoAnswer { place })
        })
    }

    /// Records which volumes have no dirty data, what the origins look like now, then that the session ended cleanly, on
    /// the device first. Where a place does not answer in time, the end counts as a kill.
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
            // What is fenced may have more than can be told.
            if dirty.bytes == 0 && !dirty.fenced {
                ending.clean.push(volume.name.clone());
            }
            ending.lefts.push((volume.name.clone(), Left::of(volume, manager.owes_loss(id))?));
        }
        in_time(ending, Ending::record)
    }
}

/// Does what may hang, or fails in time.
pub(crate) fn in_time<T: Send + 'static>(
    of: T,
    work: impl FnOnce(&mut T) -> Result<(), EngineError> + Send + 'static,
) -> Result<(), EngineError> {
    Keeper::on_thread(of, CLOSE_WAIT_MS)?.change(work).unwrap_or_else(|NoAnswer| {
        tracing::error!(
            "the state directory or the cache device does not answer, so the end of this session is not recorded; the \
             next start treats it as a kill"
        );
        let place = "the state directory or the cache device, which records the end of a session,".to_owned();
        Err(EngineError::NoAnswer { place })
    })
}

/// What is recorded of a session that ends in order.
#[derive(Debug)]
struct Ending {
    /// Volumes without dirty data.
    clean: Vec<String>,
    lefts: Vec<(String, Left)>,
    /// `true` if a part of the cache was not to be trusted meanwhile.
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
        // Last: whoever is cut off before finds a session that ended in order, or one that did not, but never a device
        // that lags behind what is remembered of it.
        self.ledger.state().update(|state| {
            state.clean = true;
            state.volumes.values_mut().filter(|entry| entry.settled).for_each(|entry| entry.given_up = 0);
        })
    }
}

/// How a session leaves an origin.
#[derive(Debug)]
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
        let seen = Seen::of(&volume.origin, &boot_id());
        let seen = seen.inspect_err(|error| {
            tracing::warn!(
                "volume \"{}\": the next start cannot tell whether another program writes the origin until then: {error}",
                volume.name
            );
        });
        // After the flush, which may change the time of the last change.
        let mark = OriginMark::of(&volume.origin.identity()?);
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
