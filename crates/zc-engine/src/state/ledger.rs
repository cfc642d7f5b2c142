//! The ledger: volumes that may have dirty data on this cache.
//!
//! Job: keep, for each volume, the record that it may have dirty data on this cache, in the three places that a later
//! start reads: the superblock's feature `WRITE_BACK`, the flag in the volume table, the entry in the state directory
//! (which is available without the cache, too).
//!
//! Invariants: the record is durable in all three before the manager may accept a dirty byte of the volume; it is
//! cleared only when the manager has none, and the feature stays. Doubtful data counts as dirty. From the beginning of
//! a session to its end no other part writes superblock and volume table.
//!
//! It does not decide on trust at a start (`session/pair`), or determine dirty data (the manager).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zc_cache::startup as cache_startup;
use zc_core::JournalSeq;
use zc_format::{Features, Superblock, VolumeTable};
use zc_io::BlockFile;

use crate::error::EngineError;
use crate::origin::OriginStat;
use crate::state::media::FileMedia;
use crate::state::state_dir::{OriginMark, StateDir};

/// The ledger of a session.
#[derive(Debug)]
pub struct Ledger {
    state: Arc<StateDir>,
    media: Mutex<OnMedia>,
}

/// A cache device as a session has it.
#[derive(Debug)]
pub struct OnMedia {
    /// The cache file or device.
    pub cache: Arc<BlockFile>,
    /// The journal's device, if it has one of its own.
    pub journal: Option<Arc<BlockFile>>,
    /// The superblock, as it was written last.
    pub superblock: Superblock,
    /// The volume table, as it was written last.
    pub table: VolumeTable,
    /// A copy on the device that holds the newest table.
    pub table_copy: usize,
    /// Both do.
    pub table_whole: bool,
    /// Each volume's stamp on media, for the end of the session.
    pub stamps: Vec<(String, u64)>,
}

impl OnMedia {
    fn files(&self) -> FileMedia<'_> {
        FileMedia { cache: &self.cache, journal: self.journal.as_deref() }
    }

    fn fail(&self, error: cache_startup::StartError) -> EngineError {
        EngineError::of_cache(self.cache.path(), error)
    }
}

/// A volume with dirty data that this daemon does not serve.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unserved {
    /// Its name.
    pub name: String,
    /// Its origin.
    pub origin: std::path::PathBuf,
}

impl Ledger {
    /// Creates the ledger of a session that has begun.
    pub fn new(state: Arc<StateDir>, media: OnMedia) -> Self {
        Self { state, media: Mutex::new(media) }
    }

    /// Another session has begun, on the same cache.
    pub fn replace(&self, media: OnMedia) {
        *self.lock() = media;
    }

    /// Replaces the volumes' stamps on media.
    pub fn set_stamps(&self, stamps: Vec<(String, u64)>) {
        self.lock().stamps = stamps;
    }

    /// Adds the stamps of later volumes.
    pub fn add_stamps(&self, stamps: impl Iterator<Item = (String, u64)>) {
        self.lock().stamps.extend(stamps);
    }

    /// Removes the stamp of a removed volume.
    pub fn drop_stamp(&self, name: &str) {
        self.lock().stamps.retain(|(known, _)| known != name);
    }

    pub(crate) fn stamps(&self) -> Vec<(String, u64)> {
        self.lock().stamps.clone()
    }

    fn lock(&self) -> MutexGuard<'_, OnMedia> {
        self.media.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> Superblock {
        self.lock().superblock.clone()
    }

    /// Returns the volume table.
    pub fn table(&self) -> VolumeTable {
        self.lock().table.clone()
    }

    /// Returns the state directory.
    pub const fn state(&self) -> &Arc<StateDir> {
        &self.state
    }

    /// Durably records that the volumes may become dirty. Blocks.
    pub fn may_become_dirty(&self, names: &[String]) -> Result<(), EngineError> {
        if names.is_empty() {
            return Ok(());
        }
        self.set_feature()?;
        self.set_flags(names, true)?;
        self.set_entries(names, true)
    }

    /// Durably records that writes of these volumes may be acknowledged from memory, until the session ends. Blocks.
    pub fn acknowledges_early(&self, names: &[String]) -> Result<(), EngineError> {
        let known = self.state.snapshot();
        if names.iter().all(|name| known.volumes.get(name).is_none_or(|entry| entry.volatile)) {
            return Ok(());
        }
        self.state.update(|state| {
            for name in names {
                if let Some(entry) = state.volumes.get_mut(name) {
                    entry.volatile = true;
                }
            }
        })
    }

    /// Takes the word back for volumes of which the manager has no dirty data and will accept none. Blocks.
    pub(crate) fn is_clean(&self, names: &[String]) -> Result<(), EngineError> {
        if names.is_empty() {
            return Ok(());
        }
        self.set_flags(names, false)?;
        self.set_entries(names, false)
    }

    /// Records that the session ended in order, with nothing dirty: in these volumes, all that are served, and in any
    /// other. Blocks.
    pub fn ends_empty(&self, names: &[String], journal_next: JournalSeq) -> Result<(), EngineError> {
        self.is_clean(names)?;
        {
            let media = self.lock();
            cache_startup::mark_clean(&mut media.files(), &media.superblock, journal_next, 0)
                .map_err(|error| media.fail(error))?;
        }
        self.state.update(|state| {
            state.clean = true;
            state.volumes.values_mut().for_each(|entry| entry.given_up = 0);
        })
    }

    /// Replaces the volume table, if it differs, or a copy of it does. Blocks.
    pub fn set_table(&self, change: impl FnOnce(&mut VolumeTable)) -> Result<(), EngineError> {
        let mut media = self.lock();
        let mut table = media.table.clone();
        change(&mut table);
        if table.records == media.table.records && media.table_whole {
            return Ok(());
        }
        table.sequence += 1;
        let geometry = &media.superblock.geometry;
        cache_startup::write_volume_table(&mut media.files(), geometry, &table, media.table_copy)
            .map_err(|error| media.fail(error))?;
        (media.table, media.table_whole) = (table, true);
        Ok(())
    }

    /// Durably records that a start must not trust the intent log of this session. Blocks.
    pub(crate) fn void_intents(&self) -> Result<(), EngineError> {
        self.set_features(|features| features.compat |= Features::INTENTS_VOID)
    }

    fn set_feature(&self) -> Result<(), EngineError> {
        self.set_features(|features| features.incompat |= Features::WRITE_BACK)
    }

    /// Rewrites the superblock, if that changes anything.
    fn set_features(&self, change: impl FnOnce(&mut Features)) -> Result<(), EngineError> {
        let mut media = self.lock();
        let mut next = media.superblock.clone();
        change(&mut next.features);
        if next.features == media.superblock.features {
            return Ok(());
        }
        next.sequence += 1;
        cache_startup::write_superblock(&mut media.files(), &next).map_err(|error| media.fail(error))?;
        media.superblock = next;
        Ok(())
    }

    fn set_flags(&self, names: &[String], may_be_dirty: bool) -> Result<(), EngineError> {
        self.set_table(|table| {
            for record in table.records.iter_mut().filter(|record| names.contains(&record.name)) {
                record.may_be_dirty = may_be_dirty;
            }
        })
    }

    fn set_entries(&self, names: &[String], dirty: bool) -> Result<(), EngineError> {
        let known = self.state.snapshot();
        let differs = |name: &String| known.volumes.get(name).is_some_and(|entry| entry.dirty != dirty);
        if !names.iter().any(differs) {
            return Ok(());
        }
        self.state.update(|state| {
            for name in names {
                if let Some(entry) = state.volumes.get_mut(name) {
                    entry.dirty = dirty;
                }
            }
        })
    }

    /// Records in the state directory, while the cache is unreachable, that a volume's epochs up to this one are
    /// discarded. Blocks.
    pub fn give_up(&self, name: &str, epoch: u64) -> Result<(), EngineError> {
        self.state.give_up(self.state.snapshot().session, name, epoch)
    }

    /// Clears the record that a start could not recover all of the volume's dirty data: the recovered data counts as
    /// complete. Blocks.
    pub fn is_complete(&self, name: &str) -> Result<(), EngineError> {
        if !self.state.snapshot().volumes.get(name).is_some_and(|entry| entry.incomplete) {
            return Ok(());
        }
        self.state.update(|state| {
            if let Some(entry) = state.volumes.get_mut(name) {
                entry.incomplete = false;
            }
        })
    }

    /// Durably records that the cached clean contents of a volume no longer match its origin. Blocks.
    pub fn origin_was_cut(&self, name: &str) -> Result<(), EngineError> {
        self.state().update(|state| {
            if let Some(entry) = state.volumes.get_mut(name) {
                entry.stamp = entry.stamp.wrapping_add(1);
            }
        })
    }

    /// Forgets a volume of which the cache holds nothing, so that its number is free. Blocks.
    pub fn forget(&self, name: &str) -> Result<(), EngineError> {
        // First the table: without its entry, the state directory's entry of the name refers to no volume.
        self.set_table(|table| table.records.retain(|record| record.name != name))?;
        self.state().update(|state| drop(state.volumes.remove(name)))?;
        self.drop_stamp(name);
        Ok(())
    }

    /// Durably records that a volume's origin has grown. Blocks.
    pub fn origin_grew(&self, name: &str, origin_stat: &OriginStat) -> Result<(), EngineError> {
        // In the order in which a start reads them.
        self.state().update(|state| {
            if let Some(entry) = state.volumes.get_mut(name) {
                entry.origin = OriginMark::of(&origin_stat.identity);
            }
        })?;
        self.set_table(|table| {
            for record in table.records.iter_mut().filter(|record| record.name == name) {
                record.size_bytes = origin_stat.len_bytes;
                record.origin = OriginMark::of(&origin_stat.identity).for_media();
            }
        })
    }

    /// Volumes with dirty data that are not among those that are served.
    pub fn unserved(&self, served: &[&str]) -> Vec<Unserved> {
        let state = self.state.snapshot();
        let others =
            state.volumes.into_iter().filter(|(name, entry)| entry.dirty && !served.contains(&name.as_str()));
        others.map(|(name, entry)| Unserved { name, origin: entry.path }).collect()
    }
}
