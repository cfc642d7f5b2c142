//! Keys that refer to one file by different names: links, bind mounts, a device and its alias.
//!
//! Job: compare the files, not their spellings (those were compared when the configuration was parsed). The caller
//! identifies the files, so that this module needs no I/O.

use std::path::{Path, PathBuf};

use crate::Config;
use crate::key_lines::{store_key, volume_key};

/// Two keys that refer to the same file, or to files with common bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {key}: {} {how} {other_key}, {}", .path.display(), .other_path.display())]
pub struct Conflict {
    /// `file:line` of the later key.
    pub place: String,
    /// The later key.
    pub key: String,
    /// Its path.
    pub path: PathBuf,
    /// Relation of the two, in words: "is the same file as".
    pub how: &'static str,
    /// The earlier key.
    pub other_key: String,
    /// Its path.
    pub other_path: PathBuf,
}

/// Returns the keys whose paths conflict, by the `relate` text for their identities: "is the same file as". `identify`
/// returns `None` for a missing file.
pub fn canonical_conflicts<I>(
    config: &Config,
    mut identify: impl FnMut(&Path) -> Option<I>,
    relate: impl Fn(&I, &I) -> Option<&'static str>,
) -> Vec<Conflict> {
    let mut seen: Vec<(I, String, &Path)> = Vec::new();
    let mut conflicts = Vec::new();
    for (key, path) in named_files(config) {
        let Some(identity) = identify(path) else { continue };
        let mut related =
            seen.iter().filter_map(|(other, key, path)| Some((relate(other, &identity)?, key, path)));
        match related.next() {
            Some((how, other_key, other_path)) => conflicts.push(Conflict {
                place: config.key_lines.of(&key),
                key,
                path: path.to_owned(),
                how,
                other_key: other_key.clone(),
                other_path: (*other_path).to_owned(),
            }),
            None => seen.push((identity, key, path)),
        }
    }
    conflicts
}

/// Returns every file in the configuration, with its key.
fn named_files(config: &Config) -> Vec<(String, &Path)> {
    let mut files = vec![
        ("cache.path".to_owned(), config.cache.path.as_path()),
        ("cache.state_dir".to_owned(), config.cache.state_dir.as_path()),
    ];
    files.extend(config.cache.journal_path.as_deref().map(|path| ("cache.journal_path".to_owned(), path)));
    files.extend(config.stores.iter().map(|s| (store_key(&s.name, "path"), s.path.as_path())));
    let raw = config.volumes.iter().filter(|volume| volume.is_raw());
    files.extend(raw.map(|v| (volume_key(&v.name, "origin"), v.origin.as_path())));
    files.extend(config.nbd.unix.iter().map(|socket| ("nbd.unix".to_owned(), socket.as_path())));
    files.push(("control.socket".to_owned(), config.control.socket.as_path()));
    files
}
