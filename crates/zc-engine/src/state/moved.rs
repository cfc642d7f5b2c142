//! Present location of the cache, if an operator moved it while the daemon ran and the configuration is not updated
//! yet.
//!
//! Job: keep `moved.json` in the state directory: the former paths of the cache, and the present one. `zcctl cache
//! replace` writes the configuration file itself, after the daemon. A daemon that is killed between the two finds its
//! cache by this record, and so does one whose configuration file another program writes.
//!
//! Invariants: the file is replaced as a whole, and durable before the old device is released. It applies to former
//! paths of the cache, and to no others. A configuration with the new path needs no record.
//!
//! It does not describe the contents of the device.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zc_config::{Config, SmallFile};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::STATE_FILE_BYTES_MAX;
use crate::state::private::{create_dir, create_file};
use crate::state::reserve;

const NAME: &str = "moved.json";
const VERSION: u32 = 1;

/// The record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    version: u32,
    from: Vec<PathBuf>,
    to: PathBuf,
}

impl Moved {
    /// The record of a state directory, if there is one.
    pub fn read(dir: &Path) -> Result<Option<Self>, EngineError> {
        let path = dir.join(NAME);
        let bytes = match SmallFile::read(&path, STATE_FILE_BYTES_MAX) {
            Ok(small) => small.bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(EngineError::io(format!("cannot read {}", path.display()), error)),
        };
        let moved: Result<Self, _> = serde_json::from_slice(&bytes);
        match moved {
            Ok(moved) if moved.version == VERSION => Ok(Some(moved)),
            Ok(moved) => Err(damaged(path, format!("version {} is not known here", moved.version))),
            Err(error) => Err(damaged(path, format!("damaged ({error})"))),
        }
    }

    /// The record after one more move.
    pub fn after(before: Option<&Self>, from: &Path, to: &Path) -> Self {
        let (from, to) = (absolute(from), absolute(to));
        let mut paths = vec![from.clone()];
        paths.extend(
            before.filter(|before| before.to == from).into_iter().flat_map(|before| before.from.clone()),
        );
        paths.retain(|path| *path != to);
        Self { version: VERSION, from: paths, to }
    }

    /// Writes or removes the record of a state directory. Durable when it returns.
    pub fn write(moved: Option<&Self>, dir: &Path) -> Result<(), EngineError> {
        let path = dir.join(NAME);
        replace(moved, dir, &path)
            .map_err(|error| EngineError::io(format!("cannot write {}", path.display()), error))
    }
}

fn replace(moved: Option<&Moved>, dir: &Path, path: &Path) -> io::Result<()> {
    match moved {
        None => match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        },
        Some(moved) => {
            create_dir(dir)?;
            let (beside, bytes) = (path.with_extension("json-new"), serde_json::to_vec_pretty(moved)?);
            reserve::with_room(dir, || {
                let mut file = create_file(&beside)?;
                file.write_all(&bytes)?;
                file.sync_all()?;
                std::fs::rename(&beside, path)
            })?;
        }
    }
    File::open(dir)?.sync_all()
}

fn damaged(path: PathBuf, reason: String) -> EngineError {
    EngineError::refused(Refusal::MovedRecord { path, reason })
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Redirects a configuration to the device to which `zcctl cache replace` moved its cache; returns a warning in that
/// case. `at_start`: a record that the configuration has caught up with is removed.
///
/// # Errors
/// When the record cannot be read.
pub fn follow_moved_cache(config: &mut Config, at_start: bool) -> Result<Option<String>, EngineError> {
    let dir = &config.cache.state_dir;
    let Some(moved) = Moved::read(dir)? else { return Ok(None) };
    let named = absolute(&config.cache.path);
    if named == moved.to && at_start {
        Moved::write(None, dir)?;
    }
    if !moved.from.contains(&named) {
        return Ok(None);
    }
    let note = format!(
        "the cache is {}: `zcctl cache replace` moved it there from {}, which the configuration names. Write the new path \
         as cache.path; to go back, remove {} first",
        moved.to.display(),
        named.display(),
        dir.join(NAME).display()
    );
    config.cache.path = moved.to;
    Ok(Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path, path: &str) -> Config {
        let text = format!(
            "[cache]\npath = \"{path}\"\nstate_dir = \"{}\"\n[[volume]]\nname = \"v\"\norigin = \
             \"/srv/v\"\n",
            dir.display()
        );
        Config::parse(&text, "zcached.toml").unwrap()
    }

    #[test]
    fn a_configuration_that_names_an_old_path_is_led_to_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let follow = |path: &str, at_start| {
            let mut config = config(dir.path(), path);
            let note = follow_moved_cache(&mut config, at_start).unwrap();
            (config.cache.path.display().to_string(), note.is_some())
        };
        assert_eq!(follow("/dev/a", true), ("/dev/a".to_owned(), false), "there is no record");
        let first = Moved::after(None, Path::new("/dev/a"), Path::new("/dev/b"));
        let second = Moved::after(Some(&first), Path::new("/dev/b"), Path::new("/dev/c"));
        Moved::write(Some(&second), dir.path()).unwrap();
        for old in ["/dev/a", "/dev/b"] {
            assert_eq!(follow(old, true), ("/dev/c".to_owned(), true), "{old}");
        }
        assert_eq!(follow("/dev/other", true), ("/dev/other".to_owned(), false));
        assert_eq!(follow("/dev/c", false), ("/dev/c".to_owned(), false));
        assert_eq!(follow("/dev/a", false).0, "/dev/c", "a look removes nothing");
        assert_eq!(follow("/dev/c", true), ("/dev/c".to_owned(), false));
        assert_eq!(follow("/dev/a", true).0, "/dev/a", "the configuration has caught up");
    }

    #[test]
    fn a_cache_that_comes_back_is_where_the_configuration_says() {
        let first = Moved::after(None, Path::new("/dev/a"), Path::new("/dev/b"));
        let back = Moved::after(Some(&first), Path::new("/dev/b"), Path::new("/dev/a"));
        assert_eq!((back.from, back.to), (vec![PathBuf::from("/dev/b")], PathBuf::from("/dev/a")));
        // A record of another move does not apply to this one.
        let other = Moved::after(Some(&first), Path::new("/dev/x"), Path::new("/dev/y"));
        assert_eq!(other.from, [PathBuf::from("/dev/x")]);
    }

    #[test]
    fn a_damaged_record_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["{", "{\"version\":2,\"from\":[],\"to\":\"/dev/a\"}"] {
            std::fs::write(dir.path().join(NAME), text).unwrap();
            let error = follow_moved_cache(&mut config(dir.path(), "/dev/a"), true).unwrap_err();
            assert!(error.is_refusal() && error.to_string().contains("moved.json"), "{error}");
        }
    }
}
