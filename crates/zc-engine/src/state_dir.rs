//! The state directory: what must be known about a cache outside the cache device.
//!
//! Job: keep one small file per cache with, for each volume, the stamp that its clean contents must carry to be trusted
//! and what its origin looked like when the daemon last had it. The cache device cannot vouch for itself: an old image
//! of it is as consistent as the newest, and a failed device cannot record that it must not be trusted any more.
//!
//! Invariants: the file is replaced as a whole (written beside, flushed, renamed, directory flushed); after a change
//! returns, it survives a power cut.
//!
//! What it does not do: decide; see `pairing`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// What an origin looked like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OriginMark {
    pub(crate) is_block: bool,
    pub(crate) dev: u64,
    pub(crate) inode: u64,
    pub(crate) len_bytes: u64,
    pub(crate) mtime_ns: u64,
}

/// A volume's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolumeState {
    pub(crate) stamp: u64,
    pub(crate) path: PathBuf,
    pub(crate) origin: OriginMark,
}

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) version: u32,
    /// The newest session on the cache.
    pub(crate) session: u64,
    /// That session ended cleanly.
    pub(crate) clean: bool,
    pub(crate) volumes: BTreeMap<String, VolumeState>,
}

const VERSION: u32 = 1;

/// The state of one cache.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    state: Mutex<State>,
}

/// A cache's identity as text.
pub(crate) fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl StateDir {
    /// Opens the state of a cache; a cache that was never seen has an empty one. Creates the directory.
    pub(crate) fn open(dir: &Path, uuid: &[u8; 16]) -> Result<Self, EngineError> {
        std::fs::create_dir_all(dir).map_err(|source| {
            EngineError::io(format!("cannot create the state directory {}", dir.display()), source)
        })?;
        let path = dir.join(format!("{}.json", hex(uuid)));
        let fail = |source| EngineError::io(format!("cannot read {}", path.display()), source);
        let state = match std::fs::read(&path) {
            Ok(bytes) => parse(&bytes).map_err(|reason| {
                let text =
                    format!("{}: {reason}; remove the file to start with a cold cache", path.display());
                EngineError::Refused(text)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                State { version: VERSION, ..State::default() }
            }
            Err(error) => return Err(fail(error)),
        };
        Ok(Self { path, state: Mutex::new(state) })
    }

    /// Where the cache's intent log is.
    pub(crate) fn intent_path(&self) -> PathBuf {
        self.path.with_extension("intent")
    }

    pub(crate) fn snapshot(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the state, durably. Blocks.
    pub(crate) fn update(&self, change: impl FnOnce(&mut State)) -> Result<(), EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = state.clone();
        change(&mut next);
        next.version = VERSION;
        replace(&self.path, &next)
            .map_err(|source| EngineError::io(format!("cannot write {}", self.path.display()), source))?;
        *state = next;
        Ok(())
    }

    /// Bumps the stamp of a volume, or of all: what the cache device holds for it does not match any more.
    pub(crate) fn distrust(&self, volume: Option<&str>) -> Result<(), EngineError> {
        self.update(|state| {
            for (name, entry) in &mut state.volumes {
                if volume.is_none_or(|wanted| wanted == name) {
                    entry.stamp = entry.stamp.wrapping_add(1);
                }
            }
        })
    }
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
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec_pretty(state)?)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: OriginMark = OriginMark { is_block: false, dev: 1, inode: 2, len_bytes: 3, mtime_ns: 4 };

    #[test]
    fn changes_survive_and_stamps_are_bumped_for_one_or_all() {
        let dir = tempfile::tempdir().unwrap();
        let uuid = [0xab; 16];
        let state = StateDir::open(dir.path(), &uuid).unwrap();
        assert_eq!(state.snapshot().volumes.len(), 0);
        state
            .update(|state| {
                for name in ["a", "b"] {
                    let entry = VolumeState { stamp: 7, path: PathBuf::from(name), origin: MARK };
                    state.volumes.insert(name.to_owned(), entry);
                }
            })
            .unwrap();
        state.distrust(Some("b")).unwrap();
        state.distrust(None).unwrap();
        let again = StateDir::open(dir.path(), &uuid).unwrap().snapshot();
        assert_eq!((again.volumes["a"].stamp, again.volumes["b"].stamp), (8, 9));
        assert_eq!(again.volumes["a"].origin, MARK);
    }

    #[test]
    fn a_damaged_file_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{}.json", hex(&[1; 16])));
        std::fs::write(&path, "{").unwrap();
        let error = StateDir::open(dir.path(), &[1; 16]).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("remove the file"), "{error}");
        std::fs::write(&path, r#"{"version":2,"session":0,"clean":true,"volumes":{}}"#).unwrap();
        assert!(StateDir::open(dir.path(), &[1; 16]).unwrap_err().to_string().contains("version 2"));
    }
}
