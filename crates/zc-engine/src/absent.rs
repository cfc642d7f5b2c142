//! Volumes whose origins a start cannot open.
//!
//! Job: take such volumes out of the configuration that is served, and remember why, for log and status.
//!
//! # Why this is sound
//! To the cache, such a volume is one that the configuration does not name. Its dirty data stays where it is, and its
//! clean contents are not believed when it returns, because its origin may have been written meanwhile.
//!
//! A device that is not found is waited for first: early in a boot the kernel and udev are still finding them.
//!
//! Invariants: an origin that is in use is not absent; the start waits for it. A volume whose dirty data the operator
//! answered for is never left out: the answer needs its origin. If no origin can be opened, the start is refused. No new
//! cache is made in place of one that has dirty data of a volume that is left out.
//!
//! What it does not do: look for the origin again. A restart does; so does a reload for a volume that the cache has
//! never known.

use std::path::{Path, PathBuf};

use zc_config::{Config, VolumeConfig};

use crate::cache_device::Debt;
use crate::engine::EngineOptions;
use crate::error::EngineError;
use crate::origin::Origin;
use crate::places::check_distinct;
use crate::stores::Stores;
use crate::{startup, state_dir};

/// A volume that is not served.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Absent {
    pub(crate) name: String,
    /// Why its origin cannot be opened.
    pub(crate) why: String,
    /// Where its origin is.
    #[serde(skip)]
    pub(crate) origin: PathBuf,
}

/// Where device nodes are. What is missing elsewhere does not come by itself.
const DEVICES: &str = "/dev";

/// Waits until the devices of all origins and stores are there, or for [`zc_config::CacheConfig::wait_max_ms`]. Blocks.
pub(crate) fn wait_for_devices(config: &Config) {
    let raw = config.volumes.iter().filter(|volume| volume.in_store.is_none()).map(|volume| &volume.origin);
    let places = raw.chain(config.stores.iter().map(|store| &store.path));
    let mut missing: Vec<&Path> =
        places.map(PathBuf::as_path).filter(|path| is_missing_device(path)).collect();
    let mut waits = startup::pauses(config.cache.wait_max_ms);
    if let Some(first) = missing.first().filter(|_| waits > 0) {
        tracing::warn!(
            "{} is not there ({} such devices); waiting up to {} ms",
            first.display(),
            missing.len(),
            config.cache.wait_max_ms
        );
    }
    while !missing.is_empty() && waits > 0 {
        startup::pause();
        waits -= 1;
        missing.retain(|path| is_missing_device(path));
    }
}

fn is_missing_device(path: &Path) -> bool {
    path.starts_with(DEVICES) && path.try_exists().is_ok_and(|is_there| !is_there)
}

/// Why the origin of a volume cannot be opened; `None` if it can, or if it is in use.
pub(crate) fn reason(volume: &VolumeConfig, stores: &Stores) -> Option<EngineError> {
    let opened = Origin::open_existing(volume, stores);
    let size = opened.and_then(|origin| startup::volume_size(volume, origin.as_ref()));
    size.err().filter(|error| !error.is_in_use())
}

/// What caches have of such volumes, as far as their paths tell.
pub(crate) fn debts(config: &Config, absent: &[Absent]) -> Result<Vec<Debt>, EngineError> {
    let mut debts = Vec::new();
    for owed in state_dir::owed(&config.cache.state_dir)? {
        let is_owner = |volume: &&Absent| owed.is_of(&volume.origin, None);
        let owners = absent.iter().filter(is_owner).map(|volume| volume.name.clone());
        debts.extend(owners.map(|volume| Debt {
            volume,
            cache: owed.cache.clone(),
            known_as: owed.volume.clone(),
        }));
    }
    Ok(debts)
}

/// The configuration without the volumes whose origins cannot be opened, and those volumes.
pub(crate) fn leave_out(
    config: &Config,
    options: &EngineOptions,
    stores: &Stores,
) -> Result<(Config, Vec<Absent>), EngineError> {
    // Of all volumes: two names for one file are a mistake, whether the others are there or not.
    check_distinct(config)?;
    let is_answered_for = |volume: &VolumeConfig| {
        [&options.trust_dirty, &options.drop_dirty].iter().any(|names| names.contains(&volume.name))
    };
    let mut served = config.clone();
    served.volumes.clear();
    let mut absent = Vec::new();
    for volume in &config.volumes {
        let Some(error) = reason(volume, stores) else {
            served.volumes.push(volume.clone());
            continue;
        };
        if is_answered_for(volume) {
            return Err(EngineError::Refused(format!(
                "{error}; --trust-dirty and --drop-dirty need the origin of volume \"{0}\": bring it back, or start \
                 without the option, and the other volumes are served",
                volume.name
            )));
        }
        if config.volumes.len() == 1 {
            return Err(error);
        }
        let (name, origin) = (volume.name.clone(), state_dir::place_of(volume));
        absent.push(Absent { name, why: error.to_string(), origin });
    }
    if served.volumes.is_empty() {
        let whys: Vec<&str> = absent.iter().map(|volume| volume.why.as_str()).collect();
        return Err(EngineError::Refused(format!("no origin can be opened: {}", whys.join("; "))));
    }
    for Absent { name, why, .. } in &absent {
        tracing::error!(
            "volume \"{name}\" is not served: {why}; the other volumes are, and its dirty data, if any, is kept. When \
             the origin is back, restart the daemon"
        );
    }
    Ok((served, absent))
}
