//! Records of caches in a state directory, for programs that work on a cache without a daemon.
//!
//! Job: read the state directory and return, for each cache, its volumes that may have dirty data.
//!
//! Invariants: nothing is written. A file that is unreadable or invalid is an error: doubtful data counts as dirty,
//! and the caller reports it.
//!
//! It does not decide on consequences. See `state_dir` for the meaning of entries.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::EngineError;
use crate::state::state_dir::{files, read_state};

/// A cache as the state directory remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedCache {
    /// The cache's identity as text: 32 hexadecimal digits.
    pub uuid: String,
    /// The newest session of the cache that the state directory has seen.
    pub session: u64,
    /// Last modification of the entry, if the file system reports it.
    pub changed: Option<SystemTime>,
    /// Its volumes.
    pub volumes: Vec<RememberedVolume>,
}

/// A volume of a cache as the state directory remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedVolume {
    /// Name of the volume on the cache.
    pub name: String,
    /// Its origin.
    pub origin: PathBuf,
    /// The cache may have dirty data of it.
    pub may_be_dirty: bool,
}

/// The caches that a state directory remembers; none if it does not exist.
///
/// # Errors
/// When the directory or a file in it cannot be read, or a file is damaged.
pub fn remembered(dir: &Path) -> Result<Vec<RememberedCache>, EngineError> {
    let mut caches = Vec::new();
    for (uuid, file) in files(dir)? {
        let state = read_state(&file)?;
        let changed = std::fs::metadata(&file).and_then(|metadata| metadata.modified()).ok();
        let volumes = state.volumes.into_iter().map(|(name, entry)| RememberedVolume {
            name,
            origin: entry.path,
            may_be_dirty: entry.dirty,
        });
        caches.push(RememberedCache { uuid, session: state.session, changed, volumes: volumes.collect() });
    }
    Ok(caches)
}
