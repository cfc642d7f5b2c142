//! Are the files of a configuration different files?
//!
//! Job: refuse, before anything is opened, a cache or journal that is also an origin, or an origin of two volumes,
//! under whatever names: symbolic links, hard links, several nodes of one device, and loop devices, partitions and
//! device-mapper devices that have bytes of a file or disk in common.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use zc_config::{Config, canonical_conflicts};
use zc_io::Stretch;

use zc_engine::error::EngineError;
use zc_engine::error::refusal::Refusal;

/// Target of a path.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    File {
        dev: u64,
        inode: u64,
    },
    Device {
        rdev: u64,
    },
    /// Does not exist yet: the name in its directory.
    Missing(PathBuf),
}

fn place(path: &Path) -> Place {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => Place::Device { rdev: metadata.rdev() },
        Ok(metadata) => Place::File { dev: metadata.dev(), inode: metadata.ino() },
        Err(_) => {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .unwrap_or_else(|| Path::new("."));
            let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
            Place::Missing(path.file_name().map_or_else(|| parent.clone(), |name| parent.join(name)))
        }
    }
}

/// Relation of two places, each with the devices below it.
fn relation(one: &(Place, Vec<Stretch>), other: &(Place, Vec<Stretch>)) -> Option<&'static str> {
    if one.0 == other.0 {
        return Some("is the same file as");
    }
    let meets = |stretch: &Stretch| other.1.iter().any(|other| stretch.meets(other));
    one.1.iter().any(meets).then_some("overlaps on the underlying file or disk with")
}

/// Checks that all paths refer to distinct files and devices.
pub(crate) fn check_distinct(config: &Config) -> Result<(), EngineError> {
    let identify = |path: &Path| Some((place(path), zc_io::lies_on(path)));
    match canonical_conflicts(config, identify, relation).into_iter().next() {
        Some(conflict) => Err(EngineError::refused(Refusal::SamePlace(conflict))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dir: &Path, cache: &str, origin: &str) -> Result<(), EngineError> {
        let text = format!(
            "[cache]\npath = \"{0}/{cache}\"\nstate_dir = \"{0}/state\"\n[[volume]]\nname = \"v\"\norigin = \
             \"{0}/{origin}\"\n\
             create_size = \"1 MiB\"\n[control]\nsocket = \"{0}/c.sock\"\n",
            dir.display()
        );
        check_distinct(&Config::parse(&text, "test.toml").unwrap())
    }

    #[test]
    fn links_do_not_hide_that_two_names_are_one_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        std::fs::hard_link(dir.path().join("file"), dir.path().join("hard")).unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("soft")).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        for (cache, origin) in [("file", "hard"), ("soft", "hard"), ("new", "sub/../new")] {
            let error = check(dir.path(), cache, origin).unwrap_err();
            let text = error.to_string();
            assert!(error.is_refusal() && text.contains("same file"), "{text}");
            assert!(text.contains("test.toml:6: volume \"v\": origin"), "where: {text}");
        }
        check(dir.path(), "new", "sub/new").unwrap();
        check(dir.path(), "file", "new").unwrap();
    }
}
