//! The file as serde reads it: optional values with their place in the text.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use crate::model::{Admission, Compression, Fingerprint, Mode, Policy};
use crate::units::{ByteSize, Millis, Percent, SizeOrShare};

/// An optional value with its place.
pub(crate) type Opt<T> = Option<Spanned<T>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) cache: Spanned<Cache>,
    #[serde(default)]
    pub(crate) volume: Vec<Spanned<Volume>>,
    #[serde(default)]
    pub(crate) nbd: Nbd,
    #[serde(default)]
    pub(crate) control: Control,
    #[serde(default)]
    pub(crate) log: Log,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cache {
    pub(crate) path: Spanned<PathBuf>,
    pub(crate) size: Opt<SizeOrShare>,
    pub(crate) state_dir: Opt<PathBuf>,
    pub(crate) weu_size: Opt<ByteSize>,
    pub(crate) extent_size: Opt<ByteSize>,
    pub(crate) compression: Option<Compression>,
    pub(crate) compression_level: Opt<u8>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) fingerprint_index_ratio: Option<Percent>,
    pub(crate) dedup: Option<bool>,
    pub(crate) discard: Option<bool>,
    pub(crate) direct: Option<bool>,
    pub(crate) journal_path: Opt<PathBuf>,
    pub(crate) max_ram: Opt<ByteSize>,
    pub(crate) reduce_threads: Opt<u16>,
    pub(crate) reduce_cpus: Opt<String>,
    pub(crate) weu_max_age: Option<Millis>,
    pub(crate) prefetch_threshold: Opt<ByteSize>,
    pub(crate) prefetch_max: Opt<ByteSize>,
    pub(crate) read_buffer: Opt<ByteSize>,
    pub(crate) staging: Opt<ByteSize>,
    pub(crate) insert_max: Opt<ByteSize>,
    pub(crate) regions_active_max: Opt<u32>,
    pub(crate) region_size: Opt<String>,
    pub(crate) policy: Option<Policy>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Volume {
    pub(crate) name: Spanned<String>,
    pub(crate) origin: Spanned<PathBuf>,
    pub(crate) create_size: Opt<ByteSize>,
    pub(crate) mode: Option<Mode>,
    pub(crate) admission: Option<Admission>,
    pub(crate) dedup: Option<bool>,
    pub(crate) compression: Option<Compression>,
    pub(crate) compression_level: Opt<u8>,
    pub(crate) index_share: Option<Percent>,
    pub(crate) direct: Option<bool>,
    #[serde(default)]
    pub(crate) nbd: Export,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    pub(crate) export: Option<bool>,
    pub(crate) description: Option<String>,
    pub(crate) read_only: Option<bool>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nbd {
    pub(crate) listen: Option<Vec<Spanned<String>>>,
    pub(crate) unix: Option<Vec<Spanned<PathBuf>>>,
    pub(crate) connections_max: Opt<u32>,
    pub(crate) requests_in_flight_max: Opt<u32>,
    pub(crate) bytes_in_flight_max: Opt<ByteSize>,
    pub(crate) handshake_timeout: Option<Millis>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Control {
    pub(crate) socket: Opt<PathBuf>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) level: Option<String>,
}
