//! Positions of values in the file, so that later checks can report file and line.

use std::collections::BTreeMap;

/// The file, and the line of every value in it.
///
/// Position does not affect equality of configurations: all `KeyLines` compare as equal.
#[derive(Debug, Clone, Default)]
pub struct KeyLines {
    file: String,
    lines: BTreeMap<String, usize>,
}

impl KeyLines {
    pub(crate) fn new(file: &str, lines: impl Iterator<Item = (String, usize)>) -> Self {
        Self { file: file.to_owned(), lines: lines.collect() }
    }

    /// `file:line` of a key such as `cache.path` or `nbd.listen`; the file alone for a default.
    #[must_use]
    pub fn of(&self, key: &str) -> String {
        self.lines.get(key).map_or_else(|| self.file.clone(), |line| format!("{}:{line}", self.file))
    }

    /// `file:line` of a key of the volume with this name; the file alone for a default.
    #[must_use]
    pub fn of_volume(&self, name: &str, key: &str) -> String {
        self.of(&volume_key(name, key))
    }
}

impl PartialEq for KeyLines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KeyLines {}

/// Returns the name of a store's key in messages.
pub(crate) fn store_key(name: &str, key: &str) -> String {
    format!("store \"{name}\": {key}")
}

/// Returns the name of a volume's key in messages.
pub(crate) fn volume_key(name: &str, key: &str) -> String {
    format!("volume \"{name}\": {key}")
}
