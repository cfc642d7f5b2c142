//! Detects files of a configuration with excessive permissions.
//!
//! Job: report the configuration file, caches, journals, stores and origins whose mode admits every user, and folders
//! in which every user may replace them.
//!
//! It does not check TLS keys (`front/tls`), the state directory (`state`), or access control lists.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use zc_config::Config;

/// The group, or every user, may change it.
const CHANGED_BY_GROUP_OR_OTHERS: u32 = 0o022;
/// Every user may read or change it. A group may: distributions have one for disks.
const USED_BY_OTHERS: u32 = 0o006;
const WRITE: u32 = 0o222;
const READ: u32 = 0o444;
const OTHERS_WRITE: u32 = 0o002;
/// In a folder with this bit a file can be replaced by its owner alone.
const STICKY: u32 = 0o1000;

/// Returns files with excessive permissions; `file` is the configuration file. Files that cannot be inspected are
/// skipped.
#[must_use]
pub fn exposed_files(file: &Path, config: &Config) -> Vec<String> {
    let cache = &config.cache;
    let journal = cache.journal_path.iter().map(|path| ("cache.journal_path".to_owned(), path.as_path()));
    let stores =
        config.stores.iter().map(|store| (format!("store \"{}\": path", store.name), store.path.as_path()));
    let raw = config.volumes.iter().filter(|volume| volume.is_raw());
    let origins = raw.map(|volume| (format!("volume \"{}\": origin", volume.name), volume.origin.as_path()));
    let storage = [("cache.path".to_owned(), cache.path.as_path())].into_iter();
    let storage = storage.chain(journal).chain(stores).chain(origins);
    let mut exposed: Vec<String> =
        exposure("the configuration", file, CHANGED_BY_GROUP_OR_OTHERS).into_iter().collect();
    exposed.extend(storage.filter_map(|(key, path)| exposure(&key, path, USED_BY_OTHERS)));
    exposed
}

fn exposure(key: &str, path: &Path, forbidden: u32) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let place = path.display();
    let open = metadata.mode() & forbidden;
    if open != 0 {
        let (who, remedy) = if open & 0o007 == 0 { ("its group", "g-w") } else { ("every user", "go-rw") };
        let remedy = if forbidden == CHANGED_BY_GROUP_OR_OTHERS { "go-w" } else { remedy };
        let may = match (open & READ != 0, open & WRITE != 0) {
            (true, true) => "read and change",
            (true, false) => "read",
            (false, _) => "change",
        };
        let mode = metadata.mode() & 0o7777;
        return Some(format!(
            "{key}: {place} has mode {mode:04o}, so {who} may {may} it; type `chmod {remedy} {place}`"
        ));
    }
    let folder = path.canonicalize().ok()?.parent()?.to_owned();
    let mode = std::fs::metadata(&folder).ok()?.mode();
    (mode & OTHERS_WRITE != 0 && mode & STICKY == 0).then(|| {
        let folder = folder.display();
        format!("{key}: every user may replace {place}, because {folder} has mode {:04o}; type `chmod o-w {folder}`", mode & 0o7777)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_and_folders_that_every_user_may_use_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = format!(
            "[cache]\npath = \"{0}/cache\"\n[[store]]\nname = \"s\"\npath = \"{0}/pool\"\n[[volume]]\nname = \"v\"\n\
             origin = \"{0}/origin\"\n[[volume]]\nname = \"w\"\norigin = \"store:s/w\"\n",
            dir.path().display()
        );
        let config = Config::parse(&text, "test.toml").unwrap();
        let look = || exposed_files(&path("file"), &config);
        assert_eq!(look(), Vec::<String>::new(), "nothing is there");
        let set = |name: &str, mode| set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
        for name in ["file", "cache", "pool", "origin"] {
            std::fs::write(path(name), "").unwrap();
            set(name, if name == "file" { 0o644 } else { 0o660 });
        }
        assert_eq!(look(), Vec::<String>::new());
        for (name, key) in [
            ("file", "the configuration: "),
            ("cache", "cache.path: "),
            ("pool", "store \"s\": path: "),
            ("origin", "volume \"v\": origin: "),
        ] {
            let said = |mode| {
                set(name, mode);
                let found = look();
                set(name, 0o600);
                assert!(found.len() <= 1 && found.iter().all(|text| text.starts_with(key)), "{found:?}");
                found.concat()
            };
            assert!(said(0o666).contains("every user may"), "{name}");
            assert!(said(0o602).contains("every user may change it"), "{name}");
            assert_eq!(said(0o604).contains("every user may read it"), name != "file");
            assert_eq!(said(0o620).contains("its group may change it"), name == "file");
        }
        set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let found = look();
        assert!(found.len() == 4 && found[0].contains("may replace"), "{found:?}");
        set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(look(), Vec::<String>::new());
    }
}
