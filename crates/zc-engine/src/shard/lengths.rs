//! How long origins are: told, taken up when one has grown, and drawn the consequence when one was truncated.
//!
//! Invariants: an origin that was withdrawn gets no request any more.
//!
//! What it does not do: look at origins by itself (`control/lengths`), or record what is found (`control/resize`).

use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_core::VolumeId;
use zc_origin::LengthProbe;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::origin::Facing;
use crate::shard::Shard;

/// An origin to be measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) volume: VolumeId,
    pub(crate) name: String,
    /// What clients may use of it.
    pub(crate) size_bytes: u64,
    pub(crate) probe: LengthProbe,
}

impl Shard {
    /// The raw origins that are in use.
    pub(crate) fn lengths(&self) -> Vec<Measured> {
        let in_use = self.volumes.iter().filter(|(_, volume)| !volume.is_withdrawn);
        in_use
            .filter_map(|(id, volume)| {
                let (name, size_bytes) = (volume.name.clone(), volume.config.size_bytes);
                Some(Measured { volume: *id, name, size_bytes, probe: volume.origin.length_probe()? })
            })
            .collect()
    }

    /// Sends an origin no request any more.
    pub(crate) fn withdraw(&mut self, volume: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.origin.withdraw();
            volume.is_withdrawn = true;
        }
    }

    /// How long a volume's origin is now, and what else identifies it.
    pub(crate) fn measure(
        &self,
        volume: VolumeId,
        at_least_bytes: Option<u64>,
    ) -> Result<Facing, EngineError> {
        let Some(volume) = self.volumes.get(&volume) else {
            return Err(EngineError::refused(Refusal::NotServed(volume)));
        };
        let len_bytes = volume.origin.measure(at_least_bytes)?;
        Ok(Facing { identity: volume.origin.identity()?, len_bytes })
    }

    /// A volume becomes larger: its origin has grown.
    pub(crate) fn grow(&mut self, id: VolumeId, size_bytes: u64) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        volume.origin.take_up_length(size_bytes);
        volume.config = VolumeConfig { size_bytes, ..volume.config.clone() };
        self.events.push_back(Event::Configure(Box::new(volume.config.clone())));
        for export in self.nbd.exports.iter_mut().filter(|export| export.info.token == u64::from(id.0)) {
            export.info.size_bytes = size_bytes;
        }
        self.grow_devices(id, size_bytes);
    }
}
