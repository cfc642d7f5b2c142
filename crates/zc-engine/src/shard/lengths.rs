//! Tracks origin sizes: reports them, grows volumes, and fences a volume whose origin was truncated.
//!
//! Invariants: a withdrawn origin receives no further requests.
//!
//! It does not measure origins on its own (`control/lengths`), or record results (`control/resize`).

use zc_cache::config::VolumeConfig;
use zc_core::VolumeId;
use zc_origin::LengthProbe;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::origin::OriginStat;
use crate::shard::volumes::Volumes;

/// An origin to be measured.
#[derive(Debug)]
pub struct OriginProbe {
    /// Its volume.
    pub volume: VolumeId,
    /// Name of the volume.
    pub name: String,
    /// Size available to clients.
    pub size_bytes: u64,
    /// Handle that measures it.
    pub probe: LengthProbe,
}

/// The raw origins that are in use.
pub(crate) fn lengths(volumes: &Volumes) -> Vec<OriginProbe> {
    let in_use = volumes.iter().filter(|(_, volume)| !volume.is_withdrawn);
    in_use
        .filter_map(|(id, volume)| {
            let (name, size_bytes) = (volume.name.clone(), volume.config.size_bytes);
            Some(OriginProbe { volume: id, name, size_bytes, probe: volume.origin.length_probe()? })
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

/// Returns the present length of a volume's origin, and the rest of its identity.
///
/// # Errors
/// When the volume is not served, or its origin cannot be queried.
pub(crate) fn measure(
    volumes: &Volumes,
    volume: VolumeId,
    at_least_bytes: Option<u64>,
) -> Result<OriginStat, EngineError> {
    let Some(volume) = volumes.get(volume) else {
        return Err(EngineError::refused(Refusal::NotServed(volume)));
    };
    let len_bytes = volume.origin.measure(at_least_bytes)?;
    Ok(OriginStat { identity: volume.origin.identity()?, len_bytes })
}

/// Enlarges a volume whose origin has grown. Returns the manager's new configuration, if the volume is served.
pub(crate) fn grow(volumes: &mut Volumes, id: VolumeId, size_bytes: u64) -> Option<VolumeConfig> {
    let volume = volumes.get_mut(id)?;
    volume.origin.take_up_length(size_bytes);
    volume.config = VolumeConfig { size_bytes, ..volume.config.clone() };
    Some(volume.config.clone())
}
