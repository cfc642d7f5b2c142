//! The daemon's configuration: one TOML file, every key with a default but the paths.
//!
//! Job: read, check what can be checked without touching the system, and say what is wrong in one sentence per
//! mistake with file, line and key. Invariants: unknown keys are errors; a [`Config`] that exists is consistent.
//! What it does not do: look at devices or files; that is for `zc-engine`.
#![forbid(unsafe_code)]

mod check;
mod live;
mod model;
mod raw;
mod show;
mod units;

pub use live::{Change, diff_live};
pub use model::{
    Admission, CacheConfig, Compression, Config, ControlConfig, Fingerprint, LogConfig, Mode, NbdConfig,
    Policy, RegionSize, VolumeConfig, VolumeNbd,
};
pub use units::{ByteSize, Millis, Percent, SizeOrShare};

use std::path::Path;

/// One mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {text}")]
pub struct Mistake {
    /// The file's name as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, beginning with the key.
    pub text: String,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The file's name as given.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file has mistakes.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// When the file cannot be read or has mistakes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { file: file.clone(), source })?;
        Self::parse(&text, &file)
    }

    /// Reads a configuration from text; `file` is for messages.
    ///
    /// # Errors
    /// When the text has mistakes.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        let at = |offset: usize, message: String| Mistake {
            file: file.to_owned(),
            line: text.get(..offset).unwrap_or(text).matches('\n').count() + 1,
            text: message,
        };
        let raw: raw::File = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            ConfigError::Mistakes(vec![at(offset, error.message().replace('\n', "; "))])
        })?;
        let (config, mistakes) = check::resolve(raw);
        if mistakes.is_empty() {
            return Ok(config);
        }
        Err(ConfigError::Mistakes(
            mistakes.into_iter().map(|(offset, message)| at(offset, message)).collect(),
        ))
    }
}
