//! Origins of the engine: raw files and devices, volumes of stores, and exports of NBD servers.
//!
//! Job: one type for the origin of a volume, of any kind. Requests to raw origins take steps on the shard's
//! ring (`shard/origins`). Volumes of stores (`store_volume`) and exports (`remote`) have threads that answer.
//!
//! Out of scope: ordering requests (the cache manager does), and retries.

pub(crate) mod answers;
pub(crate) mod map;
pub(crate) mod queue;
pub mod remote;
pub(crate) mod remotes;
mod requests;
pub mod store_looks;
pub(crate) mod store_volume;
pub mod stores;

use std::path::Path;

use zc_core::Mode;
use zc_io::{Identity, SharedFd};
use zc_origin::{Landmark, LengthProbe, OriginOptions};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::origin::remote::RemoteVolume;
use crate::origin::store_volume::StoreVolume;
use crate::origin::stores::Stores;

/// Origin of a volume.
#[derive(Debug)]
pub enum Origin {
    /// A file or block device, byte for byte.
    Raw(zc_origin::Origin),
    /// A volume or snapshot of a store.
    Store(StoreVolume),
    /// An export of a server.
    Remote(RemoteVolume),
}

impl Origin {
    /// Opens the origin of a volume. `None`: it is to be created. Blocks.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_existing(
        volume: &zc_config::VolumeConfig,
        stores: &Stores,
    ) -> Result<Option<Self>, EngineError> {
        if let Some(origin) = &volume.in_store {
            let pool = stores.open(&origin.store)?;
            let found = StoreVolume::find(pool, origin, volume.mode)?;
            if found.is_none() && volume.create_bytes.is_none() {
                return Err(EngineError::refused(Refusal::NoStoreVolume {
                    store: origin.store.clone(),
                    volume: origin.volume.clone(),
                }));
            }
            return Ok(found.map(Self::Store));
        }
        if let Some(uri) = &volume.remote {
            let open = stores.remotes().open(uri, volume)?;
            return Ok(Some(Self::Remote(RemoteVolume::new(open, volume))));
        }
        if volume.create_bytes.is_some() && !volume.origin.exists() {
            return Ok(None);
        }
        Self::open(&volume.origin, options(volume, None)).map(Some)
    }

    /// Creates the origin of a volume, which was not there. Blocks.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(volume: &zc_config::VolumeConfig, stores: &Stores) -> Result<Self, EngineError> {
        let Some(origin) = &volume.in_store else {
            let options = OriginOptions { write: true, ..options(volume, volume.create_bytes) };
            return Self::open(&volume.origin, options);
        };
        let pool = stores.open(&origin.store)?;
        StoreVolume::create(pool, origin, volume.create_bytes.unwrap_or(0)).map(Self::Store)
    }

    /// Opens a file or block device.
    pub(crate) fn open(path: &Path, options: OriginOptions) -> Result<Self, EngineError> {
        Ok(Self::Raw(zc_origin::Origin::open(path, options)?))
    }

    /// Length in bytes, whole sectors.
    pub const fn len_bytes(&self) -> u64 {
        match self {
            Self::Raw(raw) => raw.len_bytes(),
            Self::Store(volume) => volume.len_bytes(),
            Self::Remote(remote) => remote.len_bytes(),
        }
    }

    /// The unit of its own requests.
    pub fn block_bytes(&self) -> u32 {
        match self {
            Self::Raw(raw) => raw.block_bytes(),
            Self::Store(_) | Self::Remote(_) => zc_core::SECTOR_BYTES,
        }
    }

    /// Zero writes that may leave holes are fast.
    pub(crate) fn can_punch(&self) -> bool {
        match self {
            Self::Raw(raw) => raw.caps().can_punch,
            Self::Store(_) => true,
            Self::Remote(remote) => remote.zeroes_fast(),
        }
    }

    /// Returns `true` if the origin was opened for writing.
    pub(crate) const fn is_writable(&self) -> bool {
        match self {
            Self::Raw(raw) => raw.caps().writable,
            Self::Store(volume) => volume.is_writable(),
            Self::Remote(remote) => remote.is_writable(),
        }
    }

    /// Returns `true` if it was flushed when it was opened, and not changed since.
    pub fn is_flushed(&self) -> bool {
        match self {
            Self::Raw(_) | Self::Store(_) => false,
            Self::Remote(remote) => remote.is_flushed(),
        }
    }

    /// Descriptor that uses the page cache, for the holes of the file; `None` for other origins.
    pub(crate) const fn fd(&self) -> Option<&SharedFd> {
        match self {
            Self::Raw(raw) => Some(raw.fd()),
            Self::Store(_) | Self::Remote(_) => None,
        }
    }

    /// Returns its identity, by which a replaced or changed origin is detected. Blocks.
    ///
    /// # Errors
    /// If the origin is gone.
    pub fn identity(&self) -> Result<Identity, EngineError> {
        match self {
            Self::Raw(raw) => Ok(raw.identity()?),
            Self::Store(volume) => volume.identity(),
            Self::Remote(remote) => Ok(remote.identity()),
        }
    }

    /// Number of recoveries of its store that dropped commits, since a client's flush last reported them. Blocks.
    pub fn dropped_commits(&self) -> u32 {
        match self {
            Self::Store(volume) => volume.dropped_commits(),
            Self::Raw(_) | Self::Remote(_) => 0,
        }
    }

    /// Length now; first makes it at least as long as asked for. Blocks.
    ///
    /// # Errors
    /// When it is gone, or is to be made longer and cannot.
    pub(crate) fn measure(&self, at_least_bytes: Option<u64>) -> Result<u64, EngineError> {
        match self {
            Self::Raw(raw) => Ok(raw.measure(at_least_bytes)?),
            Self::Store(volume) => volume.measure(at_least_bytes),
            Self::Remote(remote) => remote.measure(at_least_bytes),
        }
    }

    /// Measures it on another thread. `None`: its store or its connection notices another length.
    pub(crate) fn length_probe(&self) -> Option<LengthProbe> {
        match self {
            Self::Raw(raw) => Some(raw.length_probe()),
            Self::Store(_) | Self::Remote(_) => None,
        }
    }

    /// Lets every later request fail. For raw origins: the others have no length probe.
    pub(crate) const fn withdraw(&mut self) {
        match self {
            Self::Raw(raw) => raw.withdraw(),
            Self::Store(_) | Self::Remote(_) => {}
        }
    }

    /// Requests may go as far as this from now on. It never becomes less.
    pub(crate) fn take_up_length(&mut self, len_bytes: u64) {
        match self {
            Self::Raw(raw) => raw.take_up_length(len_bytes),
            Self::Store(volume) => volume.take_up_length(len_bytes),
            Self::Remote(remote) => remote.take_up_length(len_bytes),
        }
    }

    /// Sectors that all programs have written to the device, where the kernel counts them.
    pub(crate) fn sectors_written(&self) -> Option<u64> {
        match self {
            Self::Raw(raw) => raw.sectors_written(),
            Self::Store(_) | Self::Remote(_) => None,
        }
    }

    /// Makes writes durable. Blocks.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn sync_blocking(&self) -> Result<(), EngineError> {
        match self {
            Self::Raw(raw) => Ok(raw.sync_blocking()?),
            Self::Store(volume) => volume.sync_blocking(),
            Self::Remote(remote) => remote.sync_blocking(),
        }
    }

    /// Places that a mount changes, as they are now. Blocks. A volume of a store has none: only its store writes it, and
    /// counts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn landmarks(&self) -> Result<Vec<Landmark>, EngineError> {
        match self {
            Self::Raw(raw) => Ok(raw.landmarks()?),
            Self::Store(_) => Ok(Vec::new()),
            Self::Remote(remote) => remote.landmarks(),
        }
    }

    /// The first of these landmarks that is not as it was. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn changed_landmark<'a>(
        &self,
        landmarks: &'a [Landmark],
    ) -> Result<Option<&'a Landmark>, EngineError> {
        match self {
            Self::Raw(raw) => Ok(raw.changed_landmark(landmarks)?),
            Self::Store(_) => Ok(None),
            Self::Remote(remote) => remote.changed_landmark(landmarks),
        }
    }
}

fn options(volume: &zc_config::VolumeConfig, create_len: Option<u64>) -> OriginOptions {
    OriginOptions { write: volume.mode != Mode::ReadOnly, direct: volume.direct, create_len }
}

/// An origin that is open.
#[derive(Debug, Clone, Copy)]
pub struct OriginStat {
    /// File or device.
    pub identity: Identity,
    /// Its length.
    pub len_bytes: u64,
}

impl OriginStat {
    /// Inspects an origin.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn of(origin: &Origin) -> Result<Self, EngineError> {
        Ok(Self { identity: origin.identity()?, len_bytes: origin.len_bytes() })
    }
}
