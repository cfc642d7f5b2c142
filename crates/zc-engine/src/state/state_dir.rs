//! The state directory: facts about a cache that must be stored outside of the cache device.
//!
//! Job: keep one small file per cache with, for each volume, the stamp that its clean contents must carry to be
//! trusted and the last state of its origin under the daemon. The cache device cannot prove its own freshness: an old
//! image of it is as consistent as the newest, and a failed device cannot record that it must not be trusted any more.
//! A missing cache cannot report its dirty data either: that is stored here, too ([`remembered_dirty`]).
//!
//! Invariants: the file is replaced as a whole (written beside, flushed, renamed, directory flushed); after a change
//! returns, it survives a power failure. The distrust of a whole cache can be recorded without free space: in the file
//! of `distrust_record`, which applies until the state file has the record.
//!
//! It does not decide; see `session/pair`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use zc_config::SmallFile;
use zc_core::hex;
use zc_format::{OriginIdentity, OriginKind};
use zc_io::{FileKind, Identity};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::STATE_FILE_BYTES_MAX;
use crate::state::distrust_record::DistrustRecord;
use crate::state::private::{create_dir, create_file, is_open_to_others};
use crate::state::reserve;
use crate::state::seen::Seen;

/// Recorded state of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginMark {
    /// Block device instead of a file.
    pub is_block: bool,
    /// Device number: its own, or that of its file system.
    pub dev: u64,
    /// Inode of a file.
    pub inode: u64,
    /// Length.
    pub len_bytes: u64,
    /// Time of the last modification of a file, since 1970.
    pub mtime_ns: u64,
}

impl OriginMark {
    /// The identity as the state directory keeps it.
    pub fn of(identity: &Identity) -> Self {
        Self {
            is_block: identity.kind == FileKind::Block,
            dev: identity.dev,
            inode: identity.inode,
            len_bytes: identity.len_bytes,
            mtime_ns: u64::try_from(identity.mtime_ns).unwrap_or(0),
        }
    }

    /// The identity as the volume table keeps it.
    pub const fn for_media(self) -> OriginIdentity {
        let Self { is_block, dev, inode, len_bytes, mtime_ns } = self;
        let kind = if is_block { OriginKind::Block } else { OriginKind::File };
        OriginIdentity { kind, dev, inode, len_bytes, mtime_ns }
    }
}

/// A volume's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// Number that increases with each session; the volume table has the same.
    pub stamp: u64,
    /// Path of the origin.
    pub path: PathBuf,
    /// The origin, as it was last seen.
    pub origin: OriginMark,
    /// The domain that the volume shared content in; empty: the common one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dedup_domain: String,
    /// The cache may have data of the volume that the origin lacks.
    #[serde(default)]
    pub dirty: bool,
    /// The origin's mark was taken when a session ended in order, and the volume was not served since.
    #[serde(default)]
    pub settled: bool,
    /// Last epoch of the volume that the operator discarded; 0: none, or none that may still be on the cache.
    #[serde(default)]
    pub given_up: u64,
    /// A start could not recover all of the volume's dirty data, and the operator has not accepted that since. The
    /// cache itself has no record of it: its journal continues.
    #[serde(default)]
    pub incomplete: bool,
    /// State of the origin's landmarks at the last clean stop; `None` from the next start on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// The session before may have acknowledged writes that were in its memory alone (`ack = "volatile"`). A file
    /// without this word is from a time when that was not noted.
    #[serde(default = "unnoted")]
    pub volatile: bool,
    /// Acknowledged writes were lost, and no flush has failed for that yet.
    #[serde(default)]
    pub owes_loss: bool,
    /// Cache that served the origin since, as it follows "was served". This cache's contents of the origin must not be
    /// trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_since: Option<String>,
}

const fn unnoted() -> bool {
    true
}

impl VolumeState {
    /// Returns `true` if it is about this origin: the same place or, as devices have none that lasts, the same file.
    fn is_of(&self, path: &Path, mark: Option<&OriginMark>) -> bool {
        let known = &self.origin;
        let is_file = |mark: &OriginMark| !mark.is_block && !known.is_block;
        let same = |mark: &OriginMark| is_file(mark) && (mark.dev, mark.inode) == (known.dev, known.inode);
        self.path == path || mark.is_some_and(same)
    }
}

/// An origin as it is found: its absolute path and, if it is there, its mark.
pub type Place = (PathBuf, Option<OriginMark>);

/// Dirty data of a cache, as recorded in the state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedDirty {
    /// The cache's identity as text.
    pub cache: String,
    /// File of the record.
    pub(crate) file: PathBuf,
    /// The volume's name on that cache.
    pub volume: String,
    /// The volume's entry.
    pub(crate) entry: VolumeState,
}

impl RememberedDirty {
    /// Returns `true` if it is this origin's.
    pub fn is_of(&self, path: &Path, mark: Option<&OriginMark>) -> bool {
        self.entry.is_of(path, mark)
    }

    /// Removes the record: that cache's dirty data is discarded.
    pub fn forget(&self) -> Result<(), EngineError> {
        let fail = |source| EngineError::io(format!("cannot write {}", self.file.display()), source);
        let mut state = read_state(&self.file)?;
        if let Some(entry) = state.volumes.get_mut(&self.volume) {
            (entry.dirty, entry.incomplete) = (false, false);
            entry.stamp = entry.stamp.wrapping_add(1);
        }
        replace(&self.file, &state).map_err(fail)
    }
}

/// All dirty data that the caches of a state directory have.
pub fn remembered_dirty(dir: &Path) -> Result<Vec<RememberedDirty>, EngineError> {
    let mut remembered = Vec::new();
    for (cache, file) in files(dir)? {
        for (volume, entry) in read_state(&file)?.volumes {
            if entry.dirty {
                remembered.push(RememberedDirty { cache: cache.clone(), file: file.clone(), volume, entry });
            }
        }
    }
    Ok(remembered)
}

/// The identity of the cache that last served one of these origins, if there was one.
pub fn last_of(dir: &Path, origins: &[Place]) -> Result<Option<[u8; 16]>, EngineError> {
    let mut newest = None;
    for (cache, file) in files(dir)? {
        let state = read_state(&file)?;
        let is_known =
            |entry: &VolumeState| origins.iter().any(|(path, mark)| entry.is_of(path, mark.as_ref()));
        if !state.volumes.values().any(is_known) {
            continue;
        }
        let changed = std::fs::metadata(&file).and_then(|metadata| metadata.modified()).ok();
        let uuid = uuid::Uuid::try_parse(&cache).map(uuid::Uuid::into_bytes).ok();
        newest = newest.max(uuid.map(|uuid| (changed, uuid)));
    }
    Ok(newest.map(|(_, uuid)| uuid))
}

/// Records that other caches' contents of these origins must not be trusted on their return, because the origins are
/// written without them. `by`: the cache that serves them now, as it follows "was served".
pub fn disown(dir: &Path, origins: &[Place], except: Option<&[u8; 16]>, by: &str) -> Result<(), EngineError> {
    let own = except.map(|uuid| hex(uuid));
    for (cache, file) in files(dir)? {
        if own.as_ref() == Some(&cache) {
            continue;
        }
        let mut state = read_state(&file)?;
        let mut any = false;
        for entry in state.volumes.values_mut() {
            let is_concerned = origins.iter().any(|(path, mark)| entry.is_of(path, mark.as_ref()));
            if is_concerned && entry.served_since.as_deref() != Some(by) {
                entry.stamp = entry.stamp.wrapping_add(1);
                entry.served_since = Some(by.to_owned());
                any = true;
            }
        }
        if any {
            replace(&file, &state)
                .map_err(|source| EngineError::io(format!("cannot write {}", file.display()), source))?;
        }
    }
    Ok(())
}

/// Returns `true` if the state directory has a record of this session of a cache, or a later one: then its record of
/// dirty data is current.
pub fn has_seen(dir: &Path, uuid: &[u8; 16], session: u64) -> Result<bool, EngineError> {
    let wanted = hex(uuid);
    for (cache, file) in files(dir)? {
        if cache == wanted {
            return Ok(read_state(&file)?.session >= session);
        }
    }
    Ok(false)
}

/// Returns the caches of a state directory: identity as text, and file.
pub fn files(dir: &Path) -> Result<Vec<(String, PathBuf)>, EngineError> {
    let fail = |source| EngineError::io(format!("cannot read {}", dir.display()), source);
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(fail)?.path();
        let cache = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let is_state = file.extension().is_some_and(|extension| extension == "json")
            && cache.len() == 32
            && cache.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_state {
            files.push((cache, file));
        }
    }
    Ok(files)
}

/// Returns the record of a cache; an empty one if it was never seen. Changes nothing.
pub fn peek(dir: &Path, uuid: &[u8; 16]) -> Result<State, EngineError> {
    let wanted = hex(uuid);
    let found = files(dir)?.into_iter().find(|(cache, _)| *cache == wanted);
    found.map_or_else(|| Ok(State::default()), |(_, file)| read_state(&file))
}

/// Reads the record of a cache.
///
/// # Errors
/// When the file cannot be read, or is damaged.
pub fn read_state(path: &Path) -> Result<State, EngineError> {
    let small = SmallFile::read(path, STATE_FILE_BYTES_MAX)
        .map_err(|source| EngineError::io(format!("cannot read {}", path.display()), source))?;
    parse(&small.bytes)
        .map_err(|reason| EngineError::refused(Refusal::StateFile { path: path.to_owned(), reason }))
}

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Version of the file.
    pub version: u32,
    /// The newest session on the cache.
    pub session: u64,
    /// `true` if that session ended cleanly.
    pub clean: bool,
    /// Volumes by name.
    pub volumes: BTreeMap<String, VolumeState>,
}

const VERSION: u32 = 1;

/// The state of one cache.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// Folder for files that need not survive a crash of the machine, if not beside the state.
    run_dir: Option<PathBuf>,
    /// Contents of the file. Locked only briefly, so that readers never wait for a device.
    state: Mutex<State>,
    /// Locked while the file is changed.
    changing: Mutex<Changing>,
    record: DistrustRecord,
}

#[derive(Debug)]
struct Changing {
    /// `true` if the distrust record is newer than the file.
    recorded: bool,
}

impl StateDir {
    /// Opens the state of a cache; empty for one that was never seen. Creates the directory.
    ///
    /// `run_dir`: a folder in memory for what need not outlive the machine.
    pub fn open(dir: &Path, run_dir: Option<&Path>, uuid: &[u8; 16]) -> Result<Self, EngineError> {
        create_dir(dir).map_err(|source| {
            EngineError::io(format!("cannot create the state directory {}", dir.display()), source)
        })?;
        if is_open_to_others(dir) {
            tracing::warn!(
                "every user may change the contents of {}, which decide which data is trusted; type `chmod 0700 {}`",
                dir.display(),
                dir.display()
            );
        }
        if let Err(error) = reserve::keep(dir) {
            tracing::warn!("no space can be kept in the state directory {}: {error}", dir.display());
        }
        let path = dir.join(format!("{}.json", hex(uuid)));
        let there = path
            .try_exists()
            .map_err(|source| EngineError::io(format!("cannot read {}", path.display()), source))?;
        let mut state =
            if there { read_state(&path)? } else { State { version: VERSION, ..State::default() } };
        let beside = path.with_extension("distrust");
        let (record, is_set) = reserve::with_room(dir, || DistrustRecord::open(&beside))
            .map_err(|source| EngineError::io(format!("cannot open {}", beside.display()), source))?;
        if is_set {
            tracing::warn!(
                "the cache failed in an earlier session while {} could not be written; its clean contents are not \
                 used",
                path.display()
            );
            distrust_all(&mut state);
        }
        let changing = Mutex::new(Changing { recorded: is_set });
        let run_dir = run_dir.map(Path::to_owned);
        let dir = Self { path, run_dir, state: Mutex::new(state), changing, record };
        if is_set {
            dir.update(|_| ())?;
        }
        Ok(dir)
    }

    /// Returns the location of the cache's intent log.
    pub fn intent_place(&self) -> Volatile {
        self.volatile("intent")
    }

    /// Returns the location of the cache's risk file.
    pub fn risk_place(&self) -> Volatile {
        self.volatile("risk")
    }

    fn volatile(&self, extension: &str) -> Volatile {
        let beside = self.path.with_extension(extension);
        match (&self.run_dir, beside.file_name()) {
            (Some(dir), Some(name)) => Volatile { path: dir.join(name), other: Some(beside) },
            _ => Volatile { path: beside, other: None },
        }
    }

    /// Returns a copy of the state.
    pub fn snapshot(&self) -> State {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_change(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, durably. Blocks.
    pub fn update(&self, change: impl FnOnce(&mut State)) -> Result<(), EngineError> {
        self.change(&mut self.begin_change(), change)
    }

    fn change(&self, changing: &mut Changing, change: impl FnOnce(&mut State)) -> Result<(), EngineError> {
        let mut next = self.snapshot();
        change(&mut next);
        next.version = VERSION;
        replace(&self.path, &next)
            .map_err(|source| EngineError::io(format!("cannot write {}", self.path.display()), source))?;
        *self.lock() = next;
        if core::mem::take(&mut changing.recorded)
            && let Err(error) = self.record.clear()
        {
            // The next start distrusts once more than it has to.
            tracing::warn!("cannot reset the distrust record beside {}: {error}", self.path.display());
            changing.recorded = true;
        }
        Ok(())
    }

    /// Records that a volume's epochs up to this one are discarded, and that nothing of it is dirty: when the cache
    /// returns they must not overwrite newer data on the origin. Does nothing if another session has begun on the
    /// cache, which may have dirty data again. Blocks.
    pub(crate) fn give_up(&self, session: u64, name: &str, epoch: u64) -> Result<(), EngineError> {
        let mut changing = self.begin_change();
        if self.lock().session != session {
            return Ok(());
        }
        self.change(&mut changing, |state| {
            if let Some(entry) = state.volumes.get_mut(name) {
                entry.given_up = entry.given_up.max(epoch);
                entry.dirty = false;
            }
        })
    }

    /// Records that the cache lacks some dirty data of every volume that may be dirty. Blocks.
    pub fn doubt_dirty(&self) -> Result<(), EngineError> {
        self.update(|state| {
            for entry in state.volumes.values_mut() {
                entry.incomplete |= entry.dirty;
            }
        })
    }

    /// Increments the stamp of a volume: cached contents no longer match it. The origin differs, so dirty data is not
    /// for it until an operator decides so. Blocks.
    pub(crate) fn distrust(&self, volume: &str) -> Result<(), EngineError> {
        self.update(|state| {
            if let Some(entry) = state.volumes.get_mut(volume) {
                entry.stamp = entry.stamp.wrapping_add(1);
                entry.incomplete |= entry.dirty;
            }
        })
    }

    /// Bumps the stamps of all volumes, in the state file or, where that cannot be written, by the distrust record.
    /// Blocks.
    pub(crate) fn distrust_all(&self) -> Result<(), EngineError> {
        let mut changing = self.begin_change();
        let Err(error) = self.change(&mut changing, distrust_all) else { return Ok(()) };
        self.record.set().map_err(|source| {
            tracing::error!("cannot record that the cache is not to be trusted any more: {error}");
            EngineError::io(format!("nor write the distrust record beside {}", self.path.display()), source)
        })?;
        distrust_all(&mut self.lock());
        changing.recorded = true;
        Ok(())
    }
}

/// Location of a file that need not outlive the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volatile {
    /// Path of the origin.
    pub path: PathBuf,
    /// Location used by an earlier daemon.
    other: Option<PathBuf>,
}

impl Volatile {
    /// Returns `true` if operations on the file may wait for an unresponsive device.
    pub const fn may_hang(&self) -> bool {
        self.other.is_none()
    }

    /// Returns the contents of the file at either location: `read` accepts only that of the previous session.
    pub fn find<T>(&self, read: impl Fn(&Path) -> Option<T>) -> Option<T> {
        read(&self.path).or_else(|| self.other.as_deref().and_then(read))
    }
}

/// Returns the folder of the control socket, if it is in memory and no other user can change its contents. A hung
/// device blocks nothing there, and such files outlive a process only by the kernel's page cache.
pub fn run_dir(config: &zc_config::Config) -> Option<PathBuf> {
    const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
    let dir = config.control.socket.parent()?;
    let kind = rustix::fs::statfs(dir).ok()?.f_type;
    let may_change = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    let is_ours = !is_open_to_others(dir) && may_change.is_ok();
    (IN_MEMORY.contains(&kind) && is_ours).then(|| dir.to_owned())
}

fn distrust_all(state: &mut State) {
    state.volumes.values_mut().for_each(|entry| entry.stamp = entry.stamp.wrapping_add(1));
}

/// A path as the state directory keeps it.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Place of the origin of a volume: an absolute path, the name of a volume of a store, or the URI of an export.
pub fn place_of(volume: &zc_config::VolumeConfig) -> PathBuf {
    if volume.is_raw() { absolute(&volume.origin) } else { volume.origin.clone() }
}

fn parse(bytes: &[u8]) -> Result<State, String> {
    let state: State = serde_json::from_slice(bytes).map_err(|error| format!("damaged ({error})"))?;
    if state.version == VERSION {
        Ok(state)
    } else {
        Err(format!("version {} is not known here", state.version))
    }
}

fn replace(path: &Path, state: &State) -> io::Result<()> {
    let beside = path.with_extension("json-new");
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    let bytes = serde_json::to_vec_pretty(state)?;
    reserve::with_room(dir, || {
        let mut file = create_file(&beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        File::open(dir)?.sync_all()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: OriginMark = OriginMark { is_block: false, dev: 1, inode: 2, len_bytes: 3, mtime_ns: 4 };

    fn entry(path: &str, dirty: bool) -> VolumeState {
        VolumeState {
            stamp: 7,
            path: PathBuf::from(path),
            origin: MARK,
            dedup_domain: String::new(),
            dirty,
            settled: false,
            given_up: 0,
            incomplete: false,
            seen: None,
            volatile: false,
            owes_loss: false,
            served_since: None,
        }
    }

    #[test]
    fn what_origins_lack_is_found_by_place_or_identity_and_can_be_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(remembered_dirty(&dir.path().join("none")).unwrap(), []);
        for (uuid, dirty) in [([1; 16], true), ([2; 16], false)] {
            let state = StateDir::open(dir.path(), None, &uuid).unwrap();
            state
                .update(|state| {
                    state.volumes.insert("a".to_owned(), entry("/srv/a", dirty));
                    state.volumes.insert("b".to_owned(), entry("/srv/b", false));
                })
                .unwrap();
        }
        std::fs::write(dir.path().join("notes.json"), "not ours").unwrap();
        let found = remembered_dirty(dir.path()).unwrap();
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.cache.as_str(), one.volume.as_str()), (hex(&[1; 16]).as_str(), "a"));
        let moved = OriginMark { len_bytes: 9, mtime_ns: 9, ..MARK };
        assert!(one.is_of(Path::new("/srv/a"), None) && one.is_of(Path::new("/elsewhere"), Some(&moved)));
        assert!(!one.is_of(Path::new("/srv/b"), Some(&OriginMark { inode: 77, ..MARK })));
        one.forget().unwrap();
        assert_eq!(remembered_dirty(dir.path()).unwrap(), []);
        assert_eq!(StateDir::open(dir.path(), None, &[1; 16]).unwrap().snapshot().volumes["a"].stamp, 8);
    }

    #[test]
    fn the_last_cache_of_an_origin_is_found_and_all_caches_of_it_are_disowned() {
        let dir = tempfile::tempdir().unwrap();
        let place = |path: &str| vec![(PathBuf::from(path), None)];
        assert_eq!(last_of(&dir.path().join("none"), &place("/srv/a")).unwrap(), None);
        for (uuid, paths) in [([7; 16], ["/srv/a", "/srv/b"]), ([3; 16], ["/srv/a", "/srv/c"])] {
            let state = StateDir::open(dir.path(), None, &uuid).unwrap();
            let entries = paths.map(|path| (path.to_owned(), entry(path, false)));
            state.update(|state| state.volumes.extend(entries)).unwrap();
            // The one that is written first was used last.
            let file = File::options().write(true).open(&state.path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(uuid[0])))
                .unwrap();
        }
        assert_eq!(last_of(dir.path(), &place("/srv/a")).unwrap(), Some([7; 16]));
        assert_eq!(last_of(dir.path(), &place("/srv/c")).unwrap(), Some([3; 16]));
        assert_eq!(last_of(dir.path(), &place("/srv/d")).unwrap(), None);
        // The second call has no effect.
        for _ in 0..2 {
            disown(dir.path(), &place("/srv/a"), None, "without a cache").unwrap();
        }
        let stamps = |uuid| {
            let volumes = StateDir::open(dir.path(), None, &uuid).unwrap().snapshot().volumes;
            volumes.values().map(|entry| entry.stamp).collect::<Vec<_>>()
        };
        assert_eq!((stamps([7; 16]), stamps([3; 16])), (vec![8, 7], vec![8, 7]));
        disown(dir.path(), &place("/srv/a"), Some(&[7; 16]), "with the cache /srv/7").unwrap();
        assert_eq!((stamps([7; 16]), stamps([3; 16])), (vec![8, 7], vec![9, 7]));
        let why = StateDir::open(dir.path(), None, &[3; 16]).unwrap().snapshot().volumes["/srv/a"]
            .served_since
            .clone();
        assert_eq!(why.as_deref(), Some("with the cache /srv/7"));
    }

    #[test]
    fn no_other_user_may_use_the_directory_and_its_files_whatever_the_umask() {
        use rustix::fs::Mode;
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("above/state");
        let before = rustix::process::umask(Mode::empty());
        let opened = StateDir::open(&state, None, &[5; 16]).unwrap();
        opened.update(|state| state.session = 1).unwrap();
        rustix::process::umask(before);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&state), mode(&opened.path)), (0o700, 0o600));
        assert!(!is_open_to_others(&state));
    }

    #[test]
    fn changes_survive_and_stamps_are_bumped_for_one_or_all() {
        let dir = tempfile::tempdir().unwrap();
        let uuid = [0xab; 16];
        let state = StateDir::open(dir.path(), None, &uuid).unwrap();
        assert_eq!(state.snapshot().volumes.len(), 0);
        state
            .update(|state| {
                for name in ["a", "b"] {
                    state.volumes.insert(name.to_owned(), entry(name, true));
                }
            })
            .unwrap();
        state.distrust("b").unwrap();
        state.distrust_all().unwrap();
        let again = StateDir::open(dir.path(), None, &uuid).unwrap().snapshot();
        assert_eq!((again.volumes["a"].stamp, again.volumes["b"].stamp), (8, 9));
        assert_eq!((again.volumes["a"].incomplete, again.volumes["b"].incomplete), (false, true));
        assert_eq!(again.volumes["a"].origin, MARK);
    }

    #[test]
    fn a_damaged_file_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{}.json", hex(&[1; 16])));
        std::fs::write(&path, "{").unwrap();
        let error = StateDir::open(dir.path(), None, &[1; 16]).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("remove the file"), "{error}");
        std::fs::write(&path, r#"{"version":2,"session":0,"clean":true,"volumes":{}}"#).unwrap();
        assert!(StateDir::open(dir.path(), None, &[1; 16]).unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn a_distrust_that_the_state_file_cannot_take_is_recorded_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let uuid = [0xcd; 16];
        let state = StateDir::open(dir.path(), None, &uuid).unwrap();
        state.update(|state| drop(state.volumes.insert("a".to_owned(), entry("/srv/a", false)))).unwrap();
        let stamp = |state: &StateDir| state.snapshot().volumes["a"].stamp;
        // With a directory in the way, no file can be written beside the old one.
        let beside = state.path.with_extension("json-new");
        std::fs::create_dir(&beside).unwrap();
        assert!(state.distrust("a").is_err());
        state.distrust_all().unwrap();
        assert_eq!(stamp(&state), 8, "this session knows");
        assert!(
            StateDir::open(dir.path(), None, &uuid).is_err(),
            "the stamps must be durable before they are relied on"
        );
        std::fs::remove_dir(&beside).unwrap();
        assert_eq!(stamp(&StateDir::open(dir.path(), None, &uuid).unwrap()), 8);
        assert_eq!(stamp(&StateDir::open(dir.path(), None, &uuid).unwrap()), 8, "the record was taken back");
    }
}
