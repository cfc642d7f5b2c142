//! Opens the cache: its file or device, a separate journal device, its superblock.
//!
//! Job: open and lock both, find the cache on them or create one on empty files, and refuse mismatched parts or parts
//! of other programs, in one sentence.
//!
//! Invariants: only a blank regular file is formatted, or used as a journal, without a command: a disk whose start is
//! zero may still have data.
//!
//! It does not start a session (`open` does).

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use zc_cache::config::ManagerConfig;
use zc_cache::startup as cache_startup;
use zc_config::Config;
use zc_config::manager::{Memory, Shortfall};
use zc_core::units::{ByteSize, SizeOrShare};
use zc_core::{ErrorKind, FingerprintKind, hex, limits::BLOCK_BYTES};
use zc_format::{BLOCK, Geometry, JournalLabel, PlanOptions, Superblock};
use zc_io::{BlockFile, FileKind, OpenOptions};

use crate::session::machine::machine_bytes;
use zc_engine::clock::unix_s;
use zc_engine::error::EngineError;
use zc_engine::error::refusal::{Refusal, Room};
use zc_engine::front::settings;
use zc_engine::state::media::FileMedia;

#[derive(Debug)]
pub(crate) struct CacheDevice {
    pub(crate) file: Arc<BlockFile>,
    /// The journal's device, if not in `file`.
    pub(crate) journal: Option<Arc<BlockFile>>,
    pub(crate) superblock: Superblock,
    /// The journal device is new, and the records of the lost one are missing.
    pub(crate) journal_lost: bool,
    /// Files created by this start.
    pub(crate) new_files: NewFiles,
}

/// Files created by a start. They are removed if it is refused before the session begins: the next start would
/// otherwise find files made for an outdated configuration.
#[derive(Debug, Default)]
pub(crate) struct NewFiles {
    paths: Mutex<Vec<PathBuf>>,
}

impl NewFiles {
    fn add(&self, file: &BlockFile) {
        if file.is_created() {
            self.paths.lock().unwrap_or_else(PoisonError::into_inner).push(file.path().to_owned());
        }
    }

    /// The cache is in use: they stay.
    pub(crate) fn keep(&self) {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in self.paths.get_mut().unwrap_or_else(PoisonError::into_inner) {
            match std::fs::remove_file(&*path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!("cannot remove {}, which this start made: {error}", path.display());
                }
                _ => {}
            }
        }
    }
}

/// Dirty data of a configured volume in a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirtyRecord {
    pub(crate) volume: String,
    /// The cache's identity as text.
    pub(crate) cache: String,
    /// The volume's name on that cache.
    pub(crate) known_as: String,
}

/// All that caches have and origins lack.
#[derive(Debug, Default)]
pub(crate) struct DirtyElsewhere {
    /// To volumes that are to be served: none of them is without its cache.
    pub(crate) served: Vec<DirtyRecord>,
    /// To volumes whose origins cannot be opened: others are served, but no new cache is made in place of theirs.
    pub(crate) absent: Vec<DirtyRecord>,
}

/// Refuses to continue without the caches that have dirty data. `found`: the identity of the present cache.
pub(crate) fn check_dirty_elsewhere(
    config: &Config,
    dirty_elsewhere: &[DirtyRecord],
    found: Option<&[u8; 16]>,
) -> Result<(), EngineError> {
    let here = found.map(|uuid| hex(uuid));
    let paid = |dirty_record: &&DirtyRecord| {
        here.as_ref() == Some(&dirty_record.cache) && dirty_record.known_as == dirty_record.volume
    };
    let Some(dirty_record) = dirty_elsewhere.iter().find(|dirty_record| !paid(dirty_record)) else {
        return Ok(());
    };
    let place = config.cache.path.display();
    let what = match &here {
        None => format!("{place} does not hold it"),
        Some(here) if *here == dirty_record.cache => {
            format!("that is {place}, where it is called \"{}\"", dirty_record.known_as)
        }
        Some(here) => format!("{place} is the cache {here}"),
    };
    let (volume, cache) = (dirty_record.volume.clone(), dirty_record.cache.clone());
    Err(EngineError::refused(Refusal::DirtyElsewhere { volume, cache, what }))
}

impl CacheDevice {
    /// Returns the manager's configuration.
    pub(crate) fn manager_config(&self, config: &Config) -> Result<ManagerConfig, EngineError> {
        let Superblock { geometry, fingerprint_kind, .. } = &self.superblock;
        let is_block = self.file.kind() == FileKind::Block;
        zc_config::manager::manager_config(
            &config.cache,
            geometry,
            *fingerprint_kind,
            is_block,
            machine_bytes(),
        )
        .map(|manager| ManagerConfig { hash_key: settings::hash_key(), ..manager })
        .map_err(|error| EngineError::refused(Refusal::TooLittleRam(error)))
    }

    /// Warns of surprising settings: a size that an existing cache does not have, indexes for fewer extents than the
    /// device holds without reduction, and reserves that exceed the device.
    pub(crate) fn warn_of_settings(&self, config: &Config) {
        let len_bytes = self.file.len_bytes();
        if let Some(SizeOrShare::Bytes(wanted)) = config.cache.size
            && wanted != len_bytes
        {
            tracing::warn!(
                "the cache {} keeps its size, {}; cache.size, {}, counts only when a cache is made. To make one of \
                 that size: `zcctl stop --flush`, then `zcctl format --force`",
                self.file.path().display(),
                ByteSize(len_bytes),
                ByteSize(wanted)
            );
        }
        let Geometry { device_bytes, slots, weu_bytes, .. } = self.superblock.geometry;
        let more_bytes = len_bytes.saturating_sub(device_bytes);
        if more_bytes >= u64::from(weu_bytes) {
            tracing::warn!(
                "{} has {} that the cache does not use: it has grown since the cache was made. `zcctl cache resize` \
                 makes the cache as large, and empty",
                self.file.path().display(),
                ByteSize(more_bytes)
            );
        }
        let room_bytes = u64::from(slots) * u64::from(weu_bytes);
        if let Some(short) = shortfall(config, &self.superblock.geometry) {
            tracing::warn!("{short}. The rest of the cache stays unused: {}", short.command());
        }
        if let Some(mistake) = config.reserves_mistake(room_bytes) {
            tracing::warn!("{mistake}. Each reserve is cut in proportion until they fit");
        }
        if let Some(mistake) = config.pins_mistake(room_bytes, |_| None) {
            tracing::warn!("{mistake}. What is beyond that is not kept, and reserves are cut");
        }
    }

    /// Checks that the cache of a configuration exists, or may be created: its size is given, and no missing one has
    /// dirty data.
    ///
    /// # Errors
    /// [`EngineError::CacheMissing`].
    pub(crate) fn check_place(config: &Config, dirty_elsewhere: &DirtyElsewhere) -> Result<(), EngineError> {
        let cache = &config.cache;
        let is_dirty = !(dirty_elsewhere.served.is_empty() && dirty_elsewhere.absent.is_empty());
        if !cache.path.exists() && (cache.size.is_none() || is_dirty) {
            return Err(EngineError::CacheMissing {
                why: format!("the cache {} does not exist", cache.path.display()),
            });
        }
        Ok(())
    }

    /// Opens the cache of a configuration, or creates it where [`Self::check_place`] allows that; `volumes_bytes` is
    /// the base of a size in per cent.
    pub(crate) fn open(
        config: &Config,
        volumes_bytes: u64,
        dirty_elsewhere: &DirtyElsewhere,
    ) -> Result<Self, EngineError> {
        let new_files = NewFiles::default();
        let file = open_cache(config, volumes_bytes)?;
        new_files.add(&file);
        let journal = open_journal(config, file.len_bytes())?;
        journal.iter().for_each(|journal| new_files.add(journal));
        let superblock = find_or_format(config, &file, journal.as_ref(), dirty_elsewhere)?;
        check_dirty_elsewhere(config, &dirty_elsewhere.served, Some(&superblock.uuid))?;
        check_fixed(config, &superblock)?;
        let own = journal.as_ref().map_or(Ok(true), |journal| is_own_journal(journal, &superblock))?;
        let (file, journal) = (Arc::new(file), journal.map(Arc::new));
        Ok(Self { file, journal, superblock, journal_lost: !own, new_files })
    }

    /// Inspects the cache of a configuration without changes; `None` if it would be created.
    pub(crate) fn examine(
        config: &Config,
        dirty_elsewhere: &DirtyElsewhere,
    ) -> Result<Option<Self>, EngineError> {
        let options = OpenOptions { direct: config.cache.direct, write: true, create_len: None };
        let open = |path: &Path| BlockFile::open(path, options).map_err(EngineError::of_cache_device);
        let file = open(&config.cache.path)?;
        let place = config.cache.journal_path.as_ref().filter(|path| path.exists());
        let journal = place.map(|path| open(path)).transpose()?;
        let media = &mut FileMedia { cache: &file, journal: journal.as_ref() };
        let superblock = match cache_startup::read_superblock(media) {
            Ok(superblock) => superblock,
            Err(cache_startup::StartError::NotACache) if is_blank(&file)? => {
                check_dirty_elsewhere(config, &dirty_elsewhere.served, None)?;
                check_new(config, &planned(config, &file, journal.as_ref())?)?;
                return Ok(None);
            }
            Err(cache_startup::StartError::NotACache) => return Err(no_cache(&file)),
            Err(error) => return Err(EngineError::of_cache(file.path(), error)),
        };
        check_dirty_elsewhere(config, &dirty_elsewhere.served, Some(&superblock.uuid))?;
        check_fixed(config, &superblock)?;
        let own = journal.as_ref().map_or(Ok(true), |journal| is_own_journal(journal, &superblock))?;
        let (file, journal) = (Arc::new(file), journal.map(Arc::new));
        Ok(Some(Self { file, journal, superblock, journal_lost: !own, new_files: NewFiles::default() }))
    }

    /// Opens the cache again after a failure. A file or device that is still open is reused, so that its lock stays.
    /// Nothing is created, formatted or written.
    pub(crate) fn again(
        config: &Config,
        uuid: &[u8; 16],
        cache: &Arc<BlockFile>,
        journal: Option<&Arc<BlockFile>>,
    ) -> Result<Self, EngineError> {
        let file = same_or_opened(config, &config.cache.path, cache)?;
        let journal = match (&config.cache.journal_path, journal) {
            (Some(path), Some(journal)) => Some(same_or_opened(config, path, journal)?),
            _ => None,
        };
        let media = &mut FileMedia { cache: &file, journal: journal.as_deref() };
        let superblock = cache_startup::read_superblock(media)
            .map_err(|error| EngineError::of_cache(file.path(), error))?;
        if superblock.uuid != *uuid {
            return Err(EngineError::refused(Refusal::OtherCache {
                place: file.path().to_owned(),
                found: hex(&superblock.uuid),
                wanted: hex(uuid),
            }));
        }
        check_fixed(config, &superblock)?;
        let own = journal.as_ref().map_or(Ok(true), |journal| is_own_journal(journal, &superblock))?;
        Ok(Self { file, journal, superblock, journal_lost: !own, new_files: NewFiles::default() })
    }

    pub(crate) fn media(&self) -> FileMedia<'_> {
        FileMedia { cache: &self.file, journal: self.journal.as_deref() }
    }
}

/// Returns the file that a path refers to now: the open one, or another, which is opened.
fn same_or_opened(
    config: &Config,
    path: &Path,
    open: &Arc<BlockFile>,
) -> Result<Arc<BlockFile>, EngineError> {
    let known = open.identity()?;
    let is_same = std::fs::metadata(path).is_ok_and(|now| match known.kind {
        FileKind::Block => now.file_type().is_block_device() && now.rdev() == known.dev,
        FileKind::Regular => (now.dev(), now.ino()) == (known.dev, known.inode),
    });
    if is_same {
        return Ok(Arc::clone(open));
    }
    let options = OpenOptions { direct: config.cache.direct, write: true, create_len: None };
    Ok(Arc::new(BlockFile::open(path, options)?))
}

fn open_cache(config: &Config, volumes_bytes: u64) -> Result<BlockFile, EngineError> {
    let cache = &config.cache;
    let create_len = cache.size.map(|size| size.of(volumes_bytes));
    let options = OpenOptions { direct: cache.direct, write: true, create_len };
    let file = BlockFile::open(&cache.path, options).map_err(EngineError::of_cache_device)?;
    reserve(&file)?;
    Ok(file)
}

/// Reserves the space of a new file: a full file system later would look like a failed cache device. A file that does
/// not fit is removed again.
fn reserve(file: &BlockFile) -> Result<(), EngineError> {
    if !file.is_created() {
        return Ok(());
    }
    let Err(error) = file.preallocate() else { return Ok(()) };
    if error.kind() != ErrorKind::NoSpace {
        tracing::warn!(
            "{error}, so its file system may run out of space; the cache then fails as if its device had failed"
        );
        return Ok(());
    }
    let removed = std::fs::remove_file(file.path());
    Err(EngineError::refused(Refusal::NoRoom {
        path: file.path().to_owned(),
        bytes: file.len_bytes(),
        room: Room::Tried(removed),
    }))
}

fn open_journal(config: &Config, cache_bytes: u64) -> Result<Option<BlockFile>, EngineError> {
    let Some(path) = &config.cache.journal_path else { return Ok(None) };
    let create_len =
        config.cache.journal_bytes.unwrap_or_else(|| Geometry::journal_device_bytes(cache_bytes));
    let options = OpenOptions { direct: config.cache.direct, write: true, create_len: Some(create_len) };
    let file = BlockFile::open(path, options).map_err(EngineError::of_cache_device)?;
    reserve(&file)?;
    Ok(Some(file))
}

/// The superblock of the cache; of a new one if the file is new or blank.
fn find_or_format(
    config: &Config,
    file: &BlockFile,
    journal: Option<&BlockFile>,
    dirty_elsewhere: &DirtyElsewhere,
) -> Result<Superblock, EngineError> {
    let place = file.path().display();
    match cache_startup::read_superblock(&mut FileMedia { cache: file, journal }) {
        Ok(superblock) => Ok(superblock),
        Err(cache_startup::StartError::NotACache) if is_blank(file)? => {
            check_dirty_elsewhere(config, &dirty_elsewhere.served, None)?;
            if let Some(dirty_record) = dirty_elsewhere.absent.first() {
                let why = format!(
                    "{place} is empty, and the cache {} has dirty data of volume \"{}\", whose origin is missing",
                    dirty_record.cache, dirty_record.volume
                );
                return Err(EngineError::CacheUnusable { why });
            }
            let bytes = file.len_bytes();
            check_new(config, &planned(config, file, journal)?)?;
            tracing::info!("formatting {place} as a cache of {bytes} bytes");
            format(config, file, journal, uuid::Uuid::new_v4().into_bytes())
        }
        Err(cache_startup::StartError::NotACache) => Err(no_cache(file)),
        Err(error) => Err(EngineError::of_cache(file.path(), error)),
    }
}

fn no_cache(file: &BlockFile) -> EngineError {
    let place = file.path().display();
    let why =
        format!("{place} contains no cache but other data, or all copies of its superblock are damaged");
    EngineError::CacheUnusable { why }
}

fn is_blank(file: &BlockFile) -> Result<bool, EngineError> {
    if file.kind() == FileKind::Block {
        // A disk with a blank start may still contain data: only an explicit format overwrites it.
        return Ok(false);
    }
    Ok(file.first_filled().map_err(EngineError::of_cache_device)?.is_none())
}

/// Refuses a journal that is too small for the cache, or another's; false for a blank file in place of a lost one.
fn is_own_journal(journal: &BlockFile, superblock: &Superblock) -> Result<bool, EngineError> {
    let place = journal.path().to_owned();
    let needed = (1 + superblock.geometry.journal_blocks) * u64::from(BLOCK_BYTES);
    if journal.len_bytes() < needed {
        let have = journal.len_bytes();
        return Err(EngineError::refused(Refusal::JournalTruncated { place, have, needed }));
    }
    let label = JournalLabel::decode(&journal.read_blocking(0, BLOCK).map_err(EngineError::of_cache_device)?);
    if label == Ok(JournalLabel::of(superblock)) {
        return Ok(true);
    }
    if label.is_err() && is_blank(journal)? {
        tracing::warn!(
            "the journal {} is empty: clean data that only the lost journal recorded starts cold",
            place.display()
        );
        return Ok(false);
    }
    Err(EngineError::refused(if label.is_ok() {
        Refusal::OtherJournal(place)
    } else {
        Refusal::NoJournal(place)
    }))
}

/// Makes an empty cache with this identity.
pub(crate) fn format(
    config: &Config,
    file: &BlockFile,
    journal: Option<&BlockFile>,
    uuid: [u8; 16],
) -> Result<Superblock, EngineError> {
    format_above(config, file, journal, uuid, 0)
}

/// Makes an empty cache with this identity, whose sessions are above `session`.
pub(crate) fn format_above(
    config: &Config,
    file: &BlockFile,
    journal: Option<&BlockFile>,
    uuid: [u8; 16],
    session: u64,
) -> Result<Superblock, EngineError> {
    if let Some(journal) = journal
        && !is_blank(journal)?
    {
        return Err(EngineError::refused(Refusal::JournalFilled(journal.path().to_owned())));
    }
    let options = cache_startup::FormatOptions {
        geometry: planned(config, file, journal)?,
        uuid,
        fingerprint_kind: zc_config::manager::fingerprint_kind(config.cache.fingerprint),
        label: String::new(),
        // The first session is the time: see `zc-format/FORMAT.md`.
        now_unix_s: unix_s().max(session.saturating_add(1)),
    };
    cache_startup::format(&mut FileMedia { cache: file, journal }, &options)
        .map_err(|error| EngineError::of_cache(file.path(), error))
}

/// Refuses the layout of a new cache in a file of that length, with its configured journal. Returns the part that the
/// index cannot cover.
pub(crate) fn check_layout(config: &Config, device_bytes: u64) -> Result<Option<Shortfall>, EngineError> {
    let cache = &config.cache;
    let plan = PlanOptions {
        device_bytes,
        weu_bytes: cache.weu_bytes,
        extent_bytes: cache.extent_bytes,
        align_bytes: 0,
        journal_blocks: None,
    };
    let journal_bytes = cache.journal_bytes.unwrap_or_else(|| Geometry::journal_device_bytes(device_bytes));
    let geometry = match &cache.journal_path {
        Some(_) => Geometry::plan_with_journal_device(&plan, journal_bytes),
        None => Geometry::plan(&plan),
    };
    let refused = |error| EngineError::refused(Refusal::Layout { place: cache.path.clone(), error });
    let geometry = geometry.map_err(refused)?;
    check_new(config, &geometry)?;
    Ok(shortfall(config, &geometry))
}

/// Returns a warning about a new cache of that length if its index covers only a part, with the remedy.
#[must_use]
pub fn memory_warning(config: &Config, device_bytes: u64) -> Option<String> {
    check_layout(config, device_bytes).ok()?.map(|short| short.advice())
}

/// Returns the part of a cache with this layout that the index cannot cover.
pub(crate) fn shortfall(config: &Config, geometry: &Geometry) -> Option<Shortfall> {
    Memory::of(&config.cache, geometry, machine_bytes()).shortfall(&config.cache, geometry)
}

/// Refuses a device that cannot become a cache that is served.
pub(crate) fn check_new_device(config: &Config, file: &BlockFile) -> Result<(), EngineError> {
    check_new(config, &planned(config, file, None)?)
}

/// Refuses a new cache that could not be served, before it is made.
fn check_new(config: &Config, geometry: &Geometry) -> Result<(), EngineError> {
    let kind = zc_config::manager::fingerprint_kind(config.cache.fingerprint);
    let checked = zc_config::manager::manager_config(&config.cache, geometry, kind, false, machine_bytes());
    checked.map(drop).map_err(|error| EngineError::refused(Refusal::TooLittleRam(error)))
}

/// The layout of a new cache.
fn planned(config: &Config, file: &BlockFile, journal: Option<&BlockFile>) -> Result<Geometry, EngineError> {
    let plan = PlanOptions {
        device_bytes: file.len_bytes(),
        weu_bytes: config.cache.weu_bytes,
        extent_bytes: config.cache.extent_bytes,
        align_bytes: file.discard_granularity_bytes().unwrap_or(0),
        journal_blocks: None,
    };
    let geometry = match journal {
        Some(journal) => Geometry::plan_with_journal_device(&plan, journal.len_bytes()),
        None => Geometry::plan(&plan),
    };
    geometry.map_err(|error| {
        if file.is_created() {
            return EngineError::refused(Refusal::Layout { place: file.path().to_owned(), error });
        }
        // It may have been a cache, and was truncated.
        let place = file.path().display();
        EngineError::CacheUnusable { why: format!("{place} is blank, and no cache fits: {error}") }
    })
}

/// Checks settings that are fixed when the cache is formatted.
fn check_fixed(config: &Config, superblock: &Superblock) -> Result<(), EngineError> {
    let (cache, geometry) = (&config.cache, &superblock.geometry);
    let kind = |kind| if kind == FingerprintKind::Sha1 { "sha1" } else { "blake3" };
    let wanted = zc_config::manager::fingerprint_kind(cache.fingerprint);
    let differs = if cache.extent_bytes != geometry.extent_bytes {
        format!("extents of {} bytes, extent_size says {}", geometry.extent_bytes, cache.extent_bytes)
    } else if cache.weu_bytes != geometry.weu_bytes {
        format!("write-evict units of {} bytes, weu_size says {}", geometry.weu_bytes, cache.weu_bytes)
    } else if wanted != superblock.fingerprint_kind {
        format!("{} fingerprints, fingerprint says {}", kind(superblock.fingerprint_kind), kind(wanted))
    } else if geometry.has_journal_device() && cache.journal_path.is_none() {
        "a journal on a device of its own, journal_path does not say which".to_owned()
    } else if !geometry.has_journal_device() && cache.journal_path.is_some() {
        "its journal inside, journal_path names another place".to_owned()
    } else {
        return Ok(());
    };
    let place = cache.path.clone();
    Err(EngineError::refused(Refusal::FormattedOtherwise { place, differs }))
}
