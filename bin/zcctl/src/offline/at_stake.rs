//! Dirty data that a format would destroy.
//!
//! Job: consult all sources: the superblock (was the cache ever used in write-back), the volume table (volumes that
//! may be dirty), checkpoint and journal (amounts), the state directory (volumes that may be dirty, even if the cache
//! is unreadable).
//!
//! Invariants: nothing is written. Unreadable parts count as dirty, unless the state directory proves otherwise: it
//! has a record of this cache, of its last session or a later one, and no volume in it is dirty.
//!
//! It does not read dirty data (`check --data` does), or find dirty data of other caches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use zc_core::{VolumeId, hex};
use zc_daemon::{RememberedCache, RememberedVolume, remembered};
use zc_format::{BLOCK, Features, JournalLabel, VolumeTable};
use zc_io::BlockFile;

use super::dirty::Dirty;
use super::image::{Image, newest, was_a_cache};
use crate::text;
use crate::units::{duration, size};

/// Dirty data of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Volume {
    name: String,
    /// Origin in the state directory.
    origin: Option<PathBuf>,
    /// Dirty bytes in checkpoint and journal; `None` if unreadable.
    known_bytes: Option<u64>,
}

/// Data that a format would destroy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AtStake {
    volumes: Vec<Volume>,
    /// Reason why unnamed dirty data may exist.
    unknown: Option<String>,
    /// When the dirty data was written, for people.
    age: Option<String>,
}

/// Contents of a state directory; an error counts as doubt.
struct Memory {
    dir: PathBuf,
    caches: Result<Vec<RememberedCache>, String>,
}

impl Memory {
    fn of(dir: &Path) -> Self {
        let caches = remembered(dir).map_err(|error| error.to_string());
        Self { dir: dir.to_owned(), caches }
    }

    fn cache(&self, uuid: &str) -> Option<&RememberedCache> {
        self.caches.as_ref().ok()?.iter().find(|cache| cache.uuid == uuid)
    }

    /// Explains why the state directory proves nothing about an unknown cache.
    fn silence(&self) -> String {
        match &self.caches {
            Err(error) => error.clone(),
            Ok(_) => format!("the state directory {} has no record of the cache", self.dir.display()),
        }
    }
}

impl AtStake {
    /// Examines a cache file or device that is not blank, and a journal that would be overwritten.
    pub(crate) fn find(cache: &Arc<BlockFile>, journal: Option<&Arc<BlockFile>>, state_dir: &Path) -> Self {
        let memory = Memory::of(state_dir);
        let image =
            Image::of(Arc::clone(cache), journal.cloned()).or_else(|_| Image::of(Arc::clone(cache), None));
        let mut found = match &image {
            Ok(image) => of_image(image, &memory),
            Err(why) => of_unreadable(cache, &format!("{why:#}"), &memory),
        };
        if let Some(journal) = journal {
            let own = image.as_ref().ok().map(|image| image.superblock.uuid);
            found.volumes.extend(of_foreign_journal(journal, own, &memory));
        }
        found
    }

    pub(crate) const fn is_nothing(&self) -> bool {
        self.volumes.is_empty() && self.unknown.is_none()
    }

    /// Describes the loss in a sentence without a full stop.
    pub(crate) fn describe(&self) -> String {
        let volume = |volume: &Volume| {
            let amount = match volume.known_bytes {
                None => "an unknown amount of".to_owned(),
                Some(0) => "possibly some".to_owned(),
                Some(bytes) => size(bytes),
            };
            let origin = volume.origin.as_ref().map(|origin| format!(" (origin {})", origin.display()));
            format!("{amount} dirty data of volume \"{}\"{}", volume.name, origin.unwrap_or_default())
        };
        let mut parts: Vec<String> = self.volumes.iter().map(volume).collect();
        parts.extend(self.unknown.clone());
        let mut line = parts.join(" and ");
        if let Some(age) = &self.age {
            line = format!("{line}, {age}");
        }
        text::clean(&line)
    }

    /// The volumes that would lose data, by name.
    pub(crate) fn names(&self) -> Vec<String> {
        self.volumes.iter().map(|volume| text::clean(&volume.name)).collect()
    }
}

/// Examines a cache with a readable superblock.
fn of_image(image: &Image, memory: &Memory) -> AtStake {
    let superblock = &image.superblock;
    if superblock.features.incompat & Features::WRITE_BACK == 0 {
        // Set durably before the first dirty byte.
        return AtStake::default();
    }
    let known = memory.cache(&hex(&superblock.uuid));
    // A record of the cache's last session or a later one is as recent as the cache itself.
    let proof = known.filter(|known| known.session >= superblock.session);
    let tables = image.volume_tables();
    let table = newest(&tables, |table| table.sequence).map(|(table, _)| table);
    let is_dirty = |name: &str, on_media: bool| {
        let entry = |cache: &&RememberedCache| {
            cache.volumes.iter().find(|volume| volume.name == name).map(|volume| volume.may_be_dirty)
        };
        match (proof.as_ref().and_then(entry), known.as_ref().and_then(entry)) {
            (Some(proved), _) => proved,
            (None, other) => on_media || other == Some(true),
        }
    };
    let amounts = amounts(image);
    let origin = |name: &str| {
        let volumes = known.map(|known| known.volumes.iter()).into_iter().flatten();
        volumes.into_iter().find(|volume| volume.name == name).map(|volume| volume.origin.clone())
    };
    let named = named(table, known);
    let volumes: Vec<Volume> = named
        .into_iter()
        .filter(|(name, (_, on_media))| is_dirty(name, *on_media))
        .map(|(name, (id, _))| {
            let known_bytes =
                amounts.as_ref().map(|amounts| id.and_then(|id| amounts.get(&id)).copied().unwrap_or(0));
            Volume { origin: origin(&name), name, known_bytes: known_bytes.filter(|_| id.is_some()) }
        })
        .collect();
    let unknown = (table.is_none() && proof.is_none()).then(|| {
        format!(
            "an unknown amount of dirty data: both copies of the volume table are damaged, and {}",
            memory.silence()
        )
    });
    let age = age(image.path(), known, superblock.clean);
    AtStake { volumes, unknown, age }
}

/// Volumes that the cache or the state directory names, with their number on the cache and its record.
fn named(
    table: Option<&VolumeTable>,
    known: Option<&RememberedCache>,
) -> BTreeMap<String, (Option<VolumeId>, bool)> {
    let remembered = known.into_iter().flat_map(|known| &known.volumes);
    let mut named: BTreeMap<_, _> = remembered.map(|volume| (volume.name.clone(), (None, false))).collect();
    let records = table.into_iter().flat_map(|table| &table.records);
    named.extend(records.map(|record| (record.name.clone(), (Some(record.id), record.may_be_dirty))));
    named
}

/// Returns dirty bytes by volume from checkpoint and journal; `None` if incomplete.
fn amounts(image: &Image) -> Option<BTreeMap<VolumeId, u64>> {
    let checkpoints = image.checkpoints();
    let (header, area) = newest(&checkpoints, |header| header.sequence)?;
    let records = image.checkpoint_records(header, area);
    let journal = image.journal(Some(header)).ok()?;
    if !records.bad_blocks.is_empty() || journal.beyond.is_some() || journal.unreadable.is_some() {
        return None;
    }
    let mut dirty = Dirty::default();
    dirty.replay(&records.records);
    dirty.replay(journal.records());
    Some(dirty.bytes_by_volume())
}

/// Returns the age of the dirty data, if the times of files show it.
fn age(cache: &Path, known: Option<&RememberedCache>, is_clean: bool) -> Option<String> {
    let metadata = std::fs::metadata(cache).ok()?;
    let written = metadata.is_file().then(|| metadata.modified().ok()).flatten();
    let changed = known.and_then(|known| known.changed);
    let ago = |time: SystemTime| {
        let ms = now().duration_since(time).map_or(0, |since| since.as_millis());
        duration(u64::try_from(ms).unwrap_or(u64::MAX))
    };
    // An orderly stop, and every write into a file, leave their time; a session that was cut off only that of its start.
    match (written, changed) {
        (Some(written), _) => Some(format!("the newest of it written {} ago", ago(written))),
        (None, Some(changed)) if is_clean => Some(format!("written {} ago or earlier", ago(changed))),
        (None, Some(changed)) => {
            Some(format!("of a session that began {} ago and was cut off", ago(changed)))
        }
        (None, None) => None,
    }
}

#[expect(clippy::disallowed_methods, reason = "an age is told by the machine's clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Examines a device without a valid superblock: a corrupt cache, or none.
fn of_unreadable(cache: &BlockFile, why: &str, memory: &Memory) -> AtStake {
    let mut volumes = Vec::new();
    let mut unknown = None;
    let mut owing: Option<&RememberedCache> = None;
    match &memory.caches {
        Err(_) if !was_a_cache(cache) => {}
        Err(error) => unknown = Some(format!("an unknown amount of dirty data ({why}), and {error}")),
        Ok(caches) if caches.is_empty() && was_a_cache(cache) => {
            unknown = Some(format!("an unknown amount of dirty data ({why}), and {}", memory.silence()));
        }
        Ok(caches) => {
            // Which of them is here cannot be read.
            for known in caches {
                let dirty = dirty_of(known);
                if !dirty.is_empty() {
                    owing = owing.into_iter().chain([known]).max_by_key(|known| known.changed);
                }
                volumes.extend(dirty);
            }
        }
    }
    let age = (!volumes.is_empty()).then(|| age(cache.path(), owing, false)).flatten();
    AtStake { volumes, unknown, age }
}

/// Volumes with possible dirty data on a cache according to the state directory alone.
fn dirty_of(known: &RememberedCache) -> Vec<Volume> {
    let dirty = known.volumes.iter().filter(|volume| volume.may_be_dirty);
    let volume = |volume: &RememberedVolume| Volume {
        name: volume.name.clone(),
        origin: Some(volume.origin.clone()),
        known_bytes: None,
    };
    dirty.map(volume).collect()
}

/// Returns the volumes of another cache whose journal would be overwritten, which would make their dirty data
/// unidentifiable.
fn of_foreign_journal(journal: &BlockFile, own: Option<[u8; 16]>, memory: &Memory) -> Vec<Volume> {
    let label = journal.read_blocking(0, BLOCK).ok().and_then(|bytes| JournalLabel::decode(&bytes).ok());
    let Some(label) = label.filter(|label| Some(label.uuid) != own) else { return Vec::new() };
    memory.cache(&hex(&label.uuid)).map(dirty_of).unwrap_or_default()
}
