//! The settings of volumes: taken on, changed, grown.

use zc_core::{ExtentKey, ExtentNo, VolumeId};

use crate::base::Volume;
use crate::base::origin::OriginTracker;
use crate::config::VolumeConfig;
use crate::device::Core;

impl Core {
    pub(crate) fn add_volume(&mut self, cfg: VolumeConfig) {
        assert!(cfg.region_bytes > 0, "a region has a size");
        let whole_extents = cfg.size_bytes / u64::from(self.base.extent_bytes);
        // What is not believed is not loaded, so that there is nothing to compare.
        let closed = self.device.recovery.load.is_some()
            && cfg.trusted
            && self.device.recovery.restart.mapping_trusted;
        self.device.recovery.probes.add(cfg.id, closed);
        let origin = OriginTracker::new(cfg.lost_writes);
        self.base.volumes.insert(cfg.id, Volume { cfg, whole_extents, origin });
    }

    pub(crate) fn apply_config(&mut self, cfg: VolumeConfig) {
        match self.base.volumes.get_mut(&cfg.id) {
            Some(volume) => {
                let VolumeConfig { size_bytes, region_bytes, trusted, domain, .. } = volume.cfg;
                volume.cfg = VolumeConfig { size_bytes, region_bytes, trusted, domain, ..cfg };
            }
            None => self.add_volume(cfg),
        }
    }

    /// A volume that exists becomes larger, if this is larger. The extent that its end used to cut may be cached from
    /// now on, but nothing that is under way for it: its rest was not there when that began. Nothing behind it was ever
    /// read, written or mapped, by this session or one whose mappings are believed: a start believes none behind the
    /// end, and none at all of a volume that has another length than when it stopped.
    pub(crate) fn grow(&mut self, id: VolumeId, size_bytes: u64) {
        let extent = u64::from(self.base.extent_bytes);
        let Some(volume) = self.base.volumes.get_mut(&id).filter(|volume| volume.cfg.size_bytes < size_bytes)
        else {
            return;
        };
        let cut = ExtentKey { volume: id, extent: ExtentNo(volume.cfg.size_bytes / extent) };
        volume.cfg.size_bytes = size_bytes;
        volume.whole_extents = size_bytes / extent;
        self.device.index.tracks.changes(cut);
    }
}
