//! How long origins are: told, taken up when one has grown, and drawn the consequence when one was truncated.
//!
//! Invariants: an origin that was withdrawn gets no request any more.
//!
//! It does not look at origins by itself (`control/lengths`), or record what is found (`control/resize`).

use zc_cache::config::VolumeConfig;
use zc_core::VolumeId;
use zc_origin::LengthProbe;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::origin::Facing;
use crate::shard::volumes::Volumes;

/// An origin to be measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) volume: VolumeId,
    pub(crate) name: String,
    /// What clients may use of it.
    pub(crate) size_bytes: u64,
    pub(crate) probe: LengthProbe,
}

/// The raw origins that are in use.
pub(crate) fn lengths(volumes: &Volumes) -> Vec<Measured> {
    let in_use = volumes.iter().filter(|(_, volume)| !volume.is_withdrawn);
    in_use
        .filter_map(|(id, volume)| {
            let (name, size_bytes) = (volume.name.clone(), volume.config.size_bytes);
            Some(Measured { volume: id, name, size_bytes, probe: volume.origin.length_probe()? })
        })
        .collect()
}

/// Sends an origin no request any more.
pub(crate) fn withdraw(volumes: &mut Volumes, volume: VolumeId) {
    if let Some(volume) = volumes.get_mut(volume) {
        volume.origin.withdraw();
        volume.is_withdrawn = true;
    }
}

/// How long a volume's origin is now, and what else identifies it.
///
/// # Errors
/// When the volume is not served, or its origin cannot be asked.
pub(crate) fn measure(
    volumes: &Volumes,
    volume: VolumeId,
    at_least_bytes: Option<u64>,
) -> Result<Facing, EngineError> {
    let Some(volume) = volumes.get(volume) else {
        return Err(EngineError::refused(Refusal::NotServed(volume)));
    };
    let len_bytes = volume.origin.measure(at_least_bytes)?;
    Ok(Facing { identity: volume.origin.identity()?, len_bytes })
}

/// A volume becomes larger: its origin has grown. What the manager has to be told, if the volume is served.
pub(crate) fn grow(volumes: &mut Volumes, id: VolumeId, size_bytes: u64) -> Option<VolumeConfig> {
    let volume = volumes.get_mut(id)?;
    volume.origin.take_up_length(size_bytes);
    volume.config = VolumeConfig { size_bytes, ..volume.config.clone() };
    Some(volume.config.clone())
}
