//! The command line of `zcctl store`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use zc_core::units::ByteSize;
use zc_pool_io::VolumeCodec;

use crate::confirm::Consent;
use crate::options::Daemon;

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Make an empty store on a file or device.
    Create {
        #[command(flatten)]
        pool: Pool,
        /// Size of the file to make.
        #[arg(long)]
        size: Option<ByteSize>,
        /// Overwrite existing contents.
        #[arg(long)]
        force: bool,
    },
    /// Show what a store holds and has free.
    Status(Pool),
    /// Show volumes: used, shared and unique bytes.
    Volumes(Pool),
    /// Show snapshots: used, shared and unique bytes.
    Snapshots(Pool),
    /// Make an empty volume.
    CreateVolume {
        #[command(flatten)]
        new: Named,
        /// Size as clients see it; it may exceed the store's.
        size: ByteSize,
        /// Bytes of a chunk, a power of two up to 128 KiB.
        #[arg(long, default_value = "8 KiB")]
        chunk: ByteSize,
        /// Codec that compresses the chunks.
        #[arg(long, value_enum, default_value_t = CodecName::Lz4)]
        codec: CodecName,
        /// Store equal chunks more than once.
        #[arg(long)]
        no_dedup: bool,
    },
    /// Take a snapshot of a volume.
    Snapshot {
        #[command(flatten)]
        from: Named,
        /// Name of the snapshot.
        snapshot: String,
    },
    /// Make a volume that begins as a volume or snapshot.
    Clone {
        #[command(flatten)]
        from: Named,
        /// Name of the clone.
        clone: String,
    },
    /// Revert a volume to one of its snapshots; newer data is lost.
    ///
    /// A snapshot of another volume is refused; `clone` makes a volume of it. Without --yes the command prompts at a
    /// terminal, and refuses otherwise.
    Rollback {
        #[command(flatten)]
        volume: Named,
        /// The snapshot.
        snapshot: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Make a volume larger.
    Grow {
        #[command(flatten)]
        volume: Named,
        /// The new size.
        size: ByteSize,
    },
    /// Delete a volume and its contents.
    ///
    /// Without --yes the command prompts at a terminal, and refuses otherwise.
    DeleteVolume(Deleted),
    /// Delete a snapshot.
    ///
    /// Without --yes the command prompts at a terminal, and refuses otherwise.
    DeleteSnapshot(Deleted),
    /// Read and verify all stored data.
    ///
    /// Exit status: 0 sound, 1 damaged, 2 not possible.
    Scrub(Pool),
    /// Open a store whose device lost a part of its log.
    ///
    /// The store reverts to the state before the lost part. The command shows the volumes of that state. Without --yes
    /// it prompts at a terminal, and refuses otherwise. It also acknowledges that the last changes were dropped when
    /// the store was opened: no flush fails for that any more.
    ///
    /// Exit status: 0 done, or nothing is lost; 2 not done.
    AcceptLoss {
        #[command(flatten)]
        pool: Pool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Free space that no volume or snapshot uses.
    Clean(Pool),
    /// Store an image file as a new volume; holes take no space.
    Import {
        #[command(flatten)]
        volume: Named,
        /// The image.
        image: PathBuf,
    },
    /// Write a volume or snapshot to a new sparse file.
    ///
    /// Exit status: 0 done; 1 written, but the store was opened without its last changes; 2 not done.
    Export {
        #[command(flatten)]
        volume: Named,
        /// The file.
        image: PathBuf,
    },
}

/// Codec that compresses the chunks.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum CodecName {
    /// No compression.
    Raw,
    /// LZ4: fast.
    Lz4,
    /// The format zlib.
    Zlib,
    /// Zstandard: small.
    Zstd,
}

impl From<CodecName> for VolumeCodec {
    fn from(name: CodecName) -> Self {
        match name {
            CodecName::Raw => Self::Raw,
            CodecName::Lz4 => Self::Lz4,
            CodecName::Zlib => Self::Zlib,
            CodecName::Zstd => Self::Zstd,
        }
    }
}

/// A store.
#[derive(Debug, Args)]
pub(crate) struct Pool {
    /// File or device, or the name of a store of a running daemon.
    pub(super) pool: PathBuf,
    #[command(flatten)]
    pub(super) daemon: Daemon,
}

/// A volume or snapshot of a store.
#[derive(Debug, Args)]
pub(crate) struct Named {
    #[command(flatten)]
    pub(super) pool: Pool,
    /// Name of the volume or snapshot.
    pub(super) name: String,
}

/// Something to be deleted.
#[derive(Debug, Args)]
pub(crate) struct Deleted {
    #[command(flatten)]
    pub(super) at: Named,
    #[command(flatten)]
    pub(super) consent: Consent,
}
