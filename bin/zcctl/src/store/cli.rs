//! The command line of `zcctl store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use zc_core::units::ByteSize;

/// What is done with a store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Make an empty store of a file or device.
    Create {
        #[command(flatten)]
        pool: Pool,
        /// Make a file of this size.
        #[arg(long)]
        size: Option<ByteSize>,
        /// Overwrite what is there.
        #[arg(long)]
        force: bool,
    },
    /// Show what a store holds and has free.
    Status(Shown),
    /// Show volumes: used, shared and unique bytes.
    Volumes(Shown),
    /// Show snapshots: used, shared and unique bytes.
    Snapshots(Shown),
    /// Make an empty volume.
    CreateVolume {
        #[command(flatten)]
        new: Named,
        /// Size as clients see it; may exceed the store's.
        size: ByteSize,
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
    /// Set a volume back to a snapshot. What it holds now is lost.
    Rollback {
        #[command(flatten)]
        volume: Named,
        /// The snapshot.
        snapshot: String,
        /// Change nothing; say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Make a volume larger.
    Grow {
        #[command(flatten)]
        volume: Named,
        /// The new size.
        size: ByteSize,
    },
    /// Delete a volume.
    DeleteVolume(Deleted),
    /// Delete a snapshot.
    DeleteSnapshot(Deleted),
    /// Verify all stored data. Exit status: 0 sound, 1 damaged.
    Scrub(Shown),
    /// Free what no volume or snapshot needs.
    Clean(Pool),
    /// Store an image file as a new volume; holes take no space.
    Import {
        #[command(flatten)]
        volume: Named,
        /// The image.
        image: PathBuf,
    },
    /// Write a volume or snapshot to a new sparse file.
    Export {
        #[command(flatten)]
        volume: Named,
        /// The file.
        image: PathBuf,
    },
}

/// A store.
#[derive(Debug, Args)]
pub(crate) struct Pool {
    /// The store's file or device.
    pub(super) pool: PathBuf,
}

/// Something of a store that is shown.
#[derive(Debug, Args)]
pub(crate) struct Shown {
    /// The store's file or device.
    pub(super) pool: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// A volume or snapshot of a store.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The store's file or device.
    pub(super) pool: PathBuf,
    /// Name of the volume or snapshot.
    pub(super) name: String,
}

/// Something to be deleted.
#[derive(Debug, Args)]
pub(crate) struct Deleted {
    #[command(flatten)]
    pub(super) at: Named,
    /// Change nothing; say what would become free.
    #[arg(long)]
    pub(super) dry_run: bool,
}
