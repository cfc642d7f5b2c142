//! Volumes that a start cannot serve.
//!
//! Job: remove such volumes from the served configuration, and record the reason, for log and status.
//!
//! # Soundness
//! For the cache, such a volume is missing in the configuration. Its dirty data stays in place, and its clean contents
//! are distrusted when it returns, because its origin may have been written in the meantime.
//!
//! A missing device is waited for first: early in a boot the kernel and udev are still detecting devices.
//!
//! Invariants: an origin that is in use is not absent; the start waits for it. A volume with an operator's decision on
//! its dirty data is never left out, because the decision needs its origin. If no volume can be served, the start is
//! refused. No new cache is made in place of one that has dirty data of a volume that is left out.
//!
//! It does not check for the origin again (`returning` does).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zc_config::{Config, VolumeConfig};

use crate::program::StartOptions;
use crate::session::cache_device::DirtyRecord;
use crate::session::distinct::check_distinct;
use crate::session::looks::{self, OriginPath};
use crate::session::pair;
use crate::session::patience;
use zc_engine::error::EngineError;
use zc_engine::error::refusal::Refusal;
use zc_engine::origin::stores::Stores;
use zc_engine::state::state_dir;

/// A volume that is not served.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Absent {
    pub(crate) name: String,
    /// Reason why it is not served.
    pub(crate) why: String,
    #[serde(skip)]
    pub(crate) remedy: Remedy,
    #[serde(skip)]
    pub(crate) volume: VolumeConfig,
}

impl Absent {
    fn new(volume: &VolumeConfig, why: &EngineError) -> Self {
        let remedy = Remedy::of(why);
        Self { name: volume.name.clone(), why: why.to_string(), remedy, volume: volume.clone() }
    }
}

/// Kind of action that serves an absent volume again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Destage its dirty data in a mode that writes to the origin.
    Destage,
    /// Restore cache and origin, or decide on dirty data that may not be the newest.
    DecideOnDirty,
    /// Restore the cache, or discard dirty data that is not here.
    DropDirty,
    /// Serve the snapshot as read-only.
    ReadOnly,
    CreateVolume,
    /// Give the origin a size.
    Extend,
    /// Let the daemon's user open the origin.
    Permit,
    /// Check the server or device behind the origin.
    CheckServer,
    RestoreOrigin,
}

impl Remedy {
    pub(crate) fn of(error: &EngineError) -> Self {
        match error {
            EngineError::Refused(refusal) => match &**refusal {
                Refusal::DirtyReadOnly { .. } => Self::Destage,
                Refusal::DirtyInDoubt { .. } => Self::DecideOnDirty,
                Refusal::DirtyElsewhere { .. }
                | Refusal::DirtyNotHere { .. }
                | Refusal::DirtyInOtherDomain { .. } => Self::DropDirty,
                Refusal::DirtyWithoutCache { refusal, .. } => Self::of(refusal),
                Refusal::Snapshot { .. } => Self::ReadOnly,
                Refusal::NoStoreVolume { .. } => Self::CreateVolume,
                Refusal::EmptyOrigin { .. } => Self::Extend,
                Refusal::RemoteOrigin { .. } => Self::CheckServer,
                _ => Self::RestoreOrigin,
            },
            EngineError::NoAnswer { .. } => Self::CheckServer,
            EngineError::Io { source, .. } => Self::of_source(Some(source)),
            EngineError::File(error) => {
                let source = std::error::Error::source(error);
                Self::of_source(source.and_then(|source| source.downcast_ref()))
            }
            _ => Self::RestoreOrigin,
        }
    }

    fn of_source(source: Option<&io::Error>) -> Self {
        let is_denied = source.is_some_and(|source| source.kind() == io::ErrorKind::PermissionDenied);
        if is_denied { Self::Permit } else { Self::RestoreOrigin }
    }
}

/// Folder of device nodes. Missing files in other folders do not appear without an operator.
const DEVICES: &str = "/dev";

/// Waits until the devices of all origins and stores are there, or for [`zc_config::CacheConfig::wait_max_ms`]. Blocks.
pub(crate) fn wait_for_devices(config: &Config) {
    let raw = config.volumes.iter().filter(|volume| volume.is_raw()).map(|volume| &volume.origin);
    let places = raw.chain(config.stores.iter().map(|store| &store.path));
    let mut missing: Vec<&Path> =
        places.map(PathBuf::as_path).filter(|path| is_missing_device(path)).collect();
    let mut waits = patience::pauses(config.cache.wait_max_ms);
    if let Some(first) = missing.first().filter(|_| waits > 0) {
        tracing::warn!(
            "{} is missing ({} such devices); waiting up to {} ms",
            first.display(),
            missing.len(),
            config.cache.wait_max_ms
        );
    }
    while !missing.is_empty() && waits > 0 {
        patience::pause();
        waits -= 1;
        missing.retain(|path| is_missing_device(path));
    }
}

fn is_missing_device(path: &Path) -> bool {
    path.starts_with(DEVICES) && path.try_exists().is_ok_and(|is_there| !is_there)
}

/// Returns the dirty data of such volumes in caches, as far as their paths and names show.
pub(crate) fn dirty_elsewhere(config: &Config, absent: &[Absent]) -> Result<Vec<DirtyRecord>, EngineError> {
    let mut dirty_elsewhere = Vec::new();
    for remembered in state_dir::remembered_dirty(&config.cache.state_dir)? {
        // Its path may have changed, and has no identity to compare. Then its name decides.
        let is_owner = |absent: &&Absent| {
            remembered.volume == absent.name || remembered.is_of(&state_dir::place_of(&absent.volume), None)
        };
        let owners = absent.iter().filter(is_owner).map(|volume| volume.name.clone());
        dirty_elsewhere.extend(owners.map(|volume| DirtyRecord {
            volume,
            cache: remembered.cache.clone(),
            known_as: remembered.volume.clone(),
        }));
    }
    Ok(dirty_elsewhere)
}

/// Volumes whose origins cannot be opened, with the reason.
fn missing<'a>(
    config: &'a Config,
    options: &StartOptions,
    stores: &Arc<Stores>,
) -> Result<Vec<(&'a VolumeConfig, EngineError)>, EngineError> {
    let mut absent = Vec::new();
    for (volume, look) in config.volumes.iter().zip(looks::at_all(config.volumes.iter(), stores)) {
        match look {
            Err(error) if !error.is_in_use() => absent.push((volume, error)),
            Ok(OriginPath::Nothing) if !options.is_cold(&volume.name) && was_served(config, volume)? => {
                absent.push((volume, pair::origin_gone(&volume.name, &volume.origin)));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(absent)
}

/// The configuration without the volumes whose origins cannot be opened, and those volumes.
pub(crate) fn leave_out(
    config: &Config,
    options: &StartOptions,
    stores: &Arc<Stores>,
) -> Result<(Config, Vec<Absent>), EngineError> {
    let absent = missing(config, options, stores)?;
    // Two names for one file are a mistake, even if the others are missing. Of an unresponsive path only the name can
    // be compared.
    let asked = |volume: &VolumeConfig| {
        !absent.iter().any(|(absent, error)| absent.name == volume.name && error.is_silence())
    };
    let volumes = config.volumes.iter().filter(|volume| asked(volume)).cloned().collect();
    check_distinct(&Config { volumes, ..config.clone() })?;
    without(config, options, absent)
}

/// Returns `true` if a cache of this state directory has served that origin.
fn was_served(config: &Config, volume: &VolumeConfig) -> Result<bool, EngineError> {
    let place = (state_dir::place_of(volume), None);
    Ok(state_dir::last_of(&config.cache.state_dir, &[place])?.is_some())
}

/// The configuration without these volumes, which cannot be served for the reasons given, and those volumes.
pub(crate) fn leave_out_unservable(
    config: &Config,
    options: &StartOptions,
    mut unservable: Vec<(String, EngineError)>,
) -> Result<(Config, Vec<Absent>), EngineError> {
    let absent = config.volumes.iter().filter_map(|volume| {
        let at = unservable.iter().position(|(name, _)| *name == volume.name)?;
        Some((volume, unservable.swap_remove(at).1))
    });
    let absent = absent.collect();
    without(config, options, absent)
}

/// Returns the configuration without volumes that cannot be served, and those volumes. Refuses if the remaining
/// configuration cannot be served either.
fn without(
    config: &Config,
    options: &StartOptions,
    mut absent: Vec<(&VolumeConfig, EngineError)>,
) -> Result<(Config, Vec<Absent>), EngineError> {
    let is_answered_for = |volume: &VolumeConfig| {
        [&options.trust_dirty, &options.drop_dirty].iter().any(|names| names.contains(&volume.name))
    };
    if let Some(at) = absent.iter().position(|(volume, _)| is_answered_for(volume)) {
        let (volume, error) = absent.swap_remove(at);
        let (volume, error) = (volume.name.clone(), Box::new(error));
        return Err(EngineError::refused(Refusal::AnswerForAbsent { volume, error }));
    }
    if absent.len() == config.volumes.len() {
        let whys: Vec<String> = absent.iter().map(|(_, error)| error.to_string()).collect();
        return Err(match <[_; 1]>::try_from(absent) {
            Ok([(_, error)]) => error,
            Err(_) => EngineError::refused(Refusal::NoVolume(whys)),
        });
    }
    let absent: Vec<Absent> = absent.iter().map(|(volume, error)| Absent::new(volume, error)).collect();
    for Absent { name, why, .. } in &absent {
        tracing::error!(
            "volume \"{name}\" is not served: {why}. The other volumes are, and its dirty data, if any, is kept. \
             The daemon keeps retrying"
        );
    }
    let is_served = |volume: &&VolumeConfig| !absent.iter().any(|absent| absent.name == volume.name);
    let volumes = config.volumes.iter().filter(is_served).cloned().collect();
    Ok((Config { volumes, ..config.clone() }, absent))
}
