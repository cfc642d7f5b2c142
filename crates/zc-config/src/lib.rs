//! The daemon's configuration: one TOML file, every key with a default except the paths.
//!
//! Job: parse, check as much as possible without access to the system, and report every mistake in one sentence with
//! file, line and key, all at once.
//!
//! Invariants: unknown keys are errors; a [`Config`] is consistent and within its bounds (`limits.rs`); arbitrary
//! bytes yield a configuration or an error, in bounded time and memory. `configs/zcached.toml` documents every key
//! with its default.
//!
//! [`manager`] translates it into settings of the cache manager, for the daemon and for replay alike.
//!
//! It does not access devices or files, which is for `zc-engine`; [`Config::key_lines`] and [`canonical_conflicts`]
//! let the engine report file and line as well.
#![forbid(unsafe_code)]

mod address;
mod cache;
mod conflicts;
mod key_lines;
mod limits;
mod listening;
mod live;
pub mod manager;
mod model;
mod notes;
mod pins;
mod remote;
mod resolve;
mod section;
mod service;
mod shares;
mod show;
mod small_file;
mod store;
mod volume;
mod window;

pub use address::{AddressRange, NotARange};
pub use conflicts::{Conflict, canonical_conflicts};
pub use key_lines::KeyLines;
pub use limits::SOCKET_PATH_BYTES_MAX;
pub use live::{Change, LIVE, diff_live, volume_settings};
pub use model::{
    Admission, CacheConfig, Compression, Config, Confine, ControlConfig, Fingerprint, LogConfig, MaxRam,
    MetricsConfig, NbdConfig, OnCacheLoss, OriginReach, OriginTls, Packer, Policy, RegionSize, SandboxConfig,
    StoreConfig, StoreOrigin, Tls, UblkCopy, VolumeConfig, VolumeLimits, VolumeNbd, VolumeUblk,
};
pub use remote::SYSTEM_AUTHORITIES;
pub use small_file::SmallFile;
pub use window::{DestageWindow, NotAWindow};
pub use zc_nbd::uri::{Endpoint, NbdUri};

use std::io;
use std::path::Path;

use toml::de::DeTable;
use zc_core::units::ByteSize;

/// Mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {text}")]
pub struct Mistake {
    /// The file's name as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// Description, beginning with the key.
    pub text: String,
}

/// Reason why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The file's name as given.
        file: String,
        /// Cause.
        source: io::Error,
    },
    /// The file is too large for a configuration.
    #[error("{file}: this is not a configuration: it exceeds {limit}", limit = ByteSize(limits::FILE_BYTES_MAX))]
    TooLarge {
        /// The file's name as given.
        file: String,
    },
    /// The file has mistakes: one line each, in the order of the file, at most 50.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// When the file cannot be read, is no regular file, or has mistakes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let read = || {
            let bytes = SmallFile::read(path, limits::FILE_BYTES_MAX)?.bytes;
            String::from_utf8(bytes)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
        };
        let text = read().map_err(|source| match source.kind() {
            io::ErrorKind::FileTooLarge => ConfigError::TooLarge { file: file.clone() },
            _ => ConfigError::Read { file: file.clone(), source },
        })?;
        Self::parse(&text, &file)
    }

    /// Reads a configuration from text; `file` is for messages.
    ///
    /// # Errors
    /// When the text has mistakes.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        if zc_core::u64_from_usize(text.len()) > limits::FILE_BYTES_MAX {
            return Err(ConfigError::TooLarge { file: file.to_owned() });
        }
        let lines = Lines::of(text);
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut found: Vec<(usize, String)> = errors
            .iter()
            .map(|error| {
                let at = error.span().map_or(0, |span| span.start);
                (at, error.message().replace('\n', "; "))
            })
            .collect();
        let mut resolved = None;
        // The contents of a file with broken syntax are uncertain, so they are not checked.
        if found.is_empty() {
            let (config, sheet) = resolve::resolve(table.get_ref());
            found.extend(sheet.found.into_iter().map(|found| (found.at, found.text)));
            let lines_of_keys = sheet.key_places.into_iter().map(|(key, at)| (key, lines.line(at)));
            resolved = Some(Self { key_lines: KeyLines::new(file, lines_of_keys), ..config });
        }
        found.sort();
        found.truncate(limits::MISTAKES_MAX);
        match resolved {
            Some(config) if found.is_empty() => Ok(config),
            _ => {
                let mistake = |(at, text)| Mistake { file: file.to_owned(), line: lines.line(at), text };
                Err(ConfigError::Mistakes(found.into_iter().map(mistake).collect()))
            }
        }
    }
}

/// Ends of the lines of a text.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// Returns the line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most keys in the operators' part of a table in the shipped file.
    const OPERATORS_KEYS_MAX: usize = 22;

    /// Every key of the parser is in the shipped file, as a default or commented out.
    #[test]
    fn the_shipped_file_documents_every_key_and_no_other() {
        const SHIPPED: &str = include_str!("../../../configs/zcached.toml");
        let table = DeTable::parse(SHIPPED).unwrap();
        let (_, mut sheet) = resolve::resolve(table.get_ref());
        assert_eq!(sheet.found, []);
        let store = DeTable::parse("[[store]]\nname = \"s\"\npath = \"/s\"\n").unwrap();
        sheet
            .asked
            .extend(resolve::resolve(store.get_ref()).1.asked.into_iter().filter(|key| key.0 == "store"));
        assert!(sheet.asked.len() > 40, "the reader asks for {} keys", sheet.asked.len());
        for (section, key) in sheet.asked {
            let (heading, key) = match section {
                "volume" if ["nbd", "ublk", "limits", "origin_tls"].contains(&key) => continue,
                "volume" => ("[[volume]]".to_owned(), key.to_owned()),
                "volume.nbd" => ("[[volume]]".to_owned(), format!("nbd.{key}")),
                "volume.ublk" => ("[[volume]]".to_owned(), format!("ublk.{key}")),
                "volume.limits" => ("[[volume]]".to_owned(), format!("limits.{key}")),
                "volume.origin_tls" => ("[[volume]]".to_owned(), format!("origin_tls.{key}")),
                "store" => ("# [[store]]".to_owned(), key.to_owned()),
                _ => (format!("[{section}]"), key.to_owned()),
            };
            let (_, body) = SHIPPED.split_once(&format!("\n{heading}\n")).expect("the section is there");
            let body = body.split("\n[").next().unwrap();
            let written =
                body.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")));
            assert!(written, "the shipped file lacks {section}.{key}");
        }
    }

    /// Returns the keys before the tuning part of each table in the shipped file, as `[table] key`.
    fn operators_keys(text: &str) -> Vec<String> {
        let (mut table, mut is_tuning) = ("", false);
        let mut found = Vec::new();
        for line in text.lines() {
            let bare = line.trim_start_matches("# ");
            let key = bare.split_once(" = ").map(|(key, _)| key).filter(|key| !key.contains(' '));
            if line.starts_with('[') || bare.starts_with("[[") {
                (table, is_tuning) = (bare, false);
            } else if bare.starts_with("Tuning:") {
                is_tuning = true;
            } else if let Some(key) = key.filter(|_| !is_tuning) {
                found.push(format!("{table} {key}"));
            }
        }
        found
    }

    #[test]
    fn the_shipped_file_begins_each_table_with_the_few_keys_that_operators_set() {
        let keys = operators_keys(include_str!("../../../configs/zcached.toml"));
        for key in ["[cache] path", "[[store]] path", "[[volume]] mode", "[nbd] tls_key", "[log] level"] {
            assert!(keys.iter().any(|found| found == key), "{key} is not in the first part: {keys:?}");
        }
        assert!(keys.len() <= OPERATORS_KEYS_MAX, "{} keys: {keys:?}", keys.len());
        let sample = "[a]\n# Of b = c.\nb = 1\n# c = 2\n# Tuning: rare.\nd = 3\n# [[e]]\n# f = 4\n";
        assert_eq!(operators_keys(sample), ["[a] b", "[a] c", "[[e]] f"]);
    }

    #[test]
    fn lines_count_from_one() {
        let lines = Lines::of("a\nb\n\nc");
        assert_eq!([0, 1, 2, 3, 4, 5].map(|at| lines.line(at)), [1, 1, 2, 2, 3, 4]);
    }
}
