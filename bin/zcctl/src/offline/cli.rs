//! The command lines of `zcctl check`, `repair`, `dump` and `format`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, FromArgMatches as _, ValueEnum};
use zc_core::units::ByteSize;

use crate::options::STATE_DIR_DEFAULT;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Cache file or device.
    pub(crate) path: PathBuf,
    /// File or device of the cache's journal, if it has its own.
    #[arg(long, value_name = "PATH")]
    pub(crate) journal: Option<PathBuf>,
    /// Read every stored extent and verify its header and checksum.
    #[arg(long)]
    pub(crate) data: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Cache file or device.
    pub(crate) path: PathBuf,
    /// File or device of the cache's journal, if it has its own.
    #[arg(long, value_name = "PATH")]
    pub(crate) journal: Option<PathBuf>,
    /// Write the repairs.
    #[arg(long)]
    pub(crate) yes: bool,
    /// List the repairs alone, as without --yes.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Structure for `dump`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structure {
    /// Identity, layout and state.
    Superblock,
    /// The volumes and the origins they are paired with.
    Volumes,
    /// The regions marked as being written.
    Regions,
    /// Records of the newest checkpoint.
    Checkpoint,
    /// Records of the journal after the newest checkpoint.
    Journal,
    /// The header of one write-evict unit; needs its slot number.
    Weu,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Structure to print.
    #[arg(value_enum)]
    pub(crate) structure: Structure,
    /// Cache file or device.
    pub(crate) path: PathBuf,
    /// File or device of the cache's journal, if it has its own.
    #[arg(long, value_name = "PATH")]
    pub(crate) journal: Option<PathBuf>,
    /// Slot number, for `weu`.
    #[arg(long, value_name = "N", required_if_eq("structure", "weu"))]
    pub(crate) slot: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Fingerprint functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fingerprint {
    /// 256 bits; equal fingerprints share content.
    Blake3,
    /// 160 bits; bytes are compared before content is shared.
    Sha1,
}

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Cache file or device; a missing file is created with `--size`.
    pub(crate) path: PathBuf,
    /// Bytes to use, such as "10 GiB"; default is the whole device.
    #[arg(long)]
    pub(crate) size: Option<ByteSize>,
    /// Keep the journal in this file or on this device.
    ///
    /// All data there is lost, too.
    #[arg(long, value_name = "PATH")]
    pub(crate) journal: Option<PathBuf>,
    /// Size of a new journal file; default is 1/256 of the cache.
    #[arg(long, requires = "journal")]
    pub(crate) journal_size: Option<ByteSize>,
    /// Size of a write-evict unit, a power of two from 32 KiB to 4 MiB.
    #[arg(long, default_value = "2 MiB")]
    pub(crate) weu_size: ByteSize,
    /// Size of an extent, a power of two from 4 KiB to 128 KiB.
    #[arg(long, default_value = "8 KiB")]
    pub(crate) extent_size: ByteSize,
    /// Start units at multiples of this, such as the erase block.
    ///
    /// The default is the discard granularity of the device.
    #[arg(long)]
    pub(crate) align: Option<ByteSize>,
    /// Fingerprint function.
    #[arg(long, value_enum, default_value = "blake3")]
    pub(crate) fingerprint: Fingerprint,
    /// A name for people, at most 64 bytes.
    #[arg(long, default_value = "")]
    pub(crate) label: String,
    /// Overwrite a cache, or any other data, that is there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Overwrite all of it with zeros first, then discard it.
    ///
    /// Without this the data that the cache held can still be read from
    /// the device. An SSD may keep copies that no write reaches.
    #[arg(long)]
    pub(crate) erase: bool,
    /// Discard dirty data that only this cache has; needs --force.
    #[arg(long, requires = "force")]
    pub(crate) discard_dirty: bool,
    /// State directory of the daemon: it records which data is dirty.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR_DEFAULT)]
    pub(crate) state_dir: PathBuf,
}

impl FormatArgs {
    /// The arguments of `zcctl format --state-dir STATE_DIR PATH`.
    ///
    /// # Errors
    /// A path cannot be an argument, for example because it is empty.
    pub(crate) fn of(path: &Path, state_dir: &Path) -> Result<Self, clap::Error> {
        let words: [OsString; 4] = ["format".into(), "--state-dir".into(), state_dir.into(), path.into()];
        Self::from_arg_matches(&Self::augment_args(clap::Command::new("format")).try_get_matches_from(words)?)
    }
}
