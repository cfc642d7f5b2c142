//! The origins of a configuration: opening, creation, and sizes of their volumes.
//!
//! It does not wait for unresponsive ones (`looks`), or decide on ownership (`pair`).

use zc_config::Config;

use zc_engine::error::EngineError;
use zc_engine::error::refusal::Refusal;
use zc_engine::origin::Origin;
use zc_engine::origin::stores::Stores;

/// Origins of all volumes, in their order; `None` for those that are to be created.
pub(crate) fn open_existing(config: &Config, stores: &Stores) -> Result<Vec<Option<Origin>>, EngineError> {
    config.volumes.iter().map(|volume| Origin::open_existing(volume, stores)).collect()
}

/// Creates those that are missing.
///
/// # Errors
/// [`EngineError::Unservable`] of those that cannot be created: the others can be served.
pub(crate) fn create(
    config: &Config,
    origins: &mut [Option<Origin>],
    stores: &Stores,
) -> Result<(), EngineError> {
    let mut failed = Vec::new();
    for (volume, origin) in config.volumes.iter().zip(origins) {
        if origin.is_none() {
            match Origin::create(volume, stores) {
                Ok(created) => *origin = Some(created),
                Err(error) => failed.push((volume.name.clone(), error)),
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(EngineError::Unservable(failed)) }
}

/// Sizes of all volumes, in their order.
pub(crate) fn sizes(config: &Config, origins: &[Option<Origin>]) -> Result<Vec<u64>, EngineError> {
    let of = |(volume, origin): (_, &Option<Origin>)| size(volume, origin.as_ref());
    config.volumes.iter().zip(origins).map(of).collect()
}

/// Returns the whole sectors of an origin, or of one to be created.
pub(crate) fn size(volume: &zc_config::VolumeConfig, origin: Option<&Origin>) -> Result<u64, EngineError> {
    let sector = u64::from(zc_core::SECTOR_BYTES);
    let bytes = origin.map_or_else(|| volume.create_bytes.unwrap_or(0), Origin::len_bytes) / sector * sector;
    if bytes > 0 {
        return Ok(bytes);
    }
    let (volume, origin) = (volume.name.clone(), volume.origin.clone());
    Err(EngineError::refused(Refusal::EmptyOrigin { volume, origin }))
}
