//! Which changes of a configuration a running daemon can apply.

use crate::Config;

/// A difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key, with the volume's name where there is one.
    pub key: String,
    /// Whether it applies to a running daemon.
    pub live: bool,
}

/// The differences between two configurations, in the order of the file. Volumes that come or go, and everything about
/// the cache device, need a restart.
#[must_use]
pub fn diff_live(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut note = |differs: bool, key: &str, live: bool| {
        if differs {
            changes.push(Change { key: key.to_owned(), live });
        }
    };
    note(old.cache != new.cache, "cache", false);
    for volume in &new.volumes {
        let name = &volume.name;
        let Some(before) = old.volumes.iter().find(|before| before.name == *name) else {
            note(true, &format!("volume \"{name}\""), false);
            continue;
        };
        let fixed =
            before.origin != volume.origin || before.direct != volume.direct || before.nbd != volume.nbd;
        note(fixed, &format!("volume \"{name}\": origin, direct or nbd"), false);
        note(before.mode != volume.mode, &format!("volume \"{name}\": mode"), true);
        note(before.admission != volume.admission, &format!("volume \"{name}\": admission"), true);
        note(before.dedup != volume.dedup, &format!("volume \"{name}\": dedup"), true);
        let codec =
            (before.compression, before.compression_level) != (volume.compression, volume.compression_level);
        note(codec, &format!("volume \"{name}\": compression"), true);
        note(
            before.index_share_percent != volume.index_share_percent,
            &format!("volume \"{name}\": index_share"),
            true,
        );
    }
    for gone in old.volumes.iter().filter(|old| new.volumes.iter().all(|new| new.name != old.name)) {
        note(true, &format!("volume \"{}\"", gone.name), false);
    }
    note(old.nbd != new.nbd, "nbd", false);
    note(old.control != new.control, "control", false);
    note(old.log != new.log, "log.level", true);
    changes
}
