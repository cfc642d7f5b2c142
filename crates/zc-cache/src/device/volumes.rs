//! Changes of a volume's settings and size.

use core::ops::Range;

use zc_core::VolumeId;

use crate::config::{ShareConfig, VolumeConfig};
use crate::device::slots::class_id::ClassId;
use crate::device::{Core, Device};

impl Core {
    pub(crate) fn add_volume(&mut self, cfg: VolumeConfig) {
        self.device.recovery.add_volume(&cfg, &self.base);
        self.base.add_volume(cfg);
    }

    pub(crate) fn apply_config(&mut self, cfg: VolumeConfig) {
        match self.base.volume_mut(cfg.id) {
            Some(volume) => volume.configure(&cfg),
            None => self.add_volume(cfg),
        }
    }

    /// Applies a volume's share of the cache.
    pub(crate) fn configure_share(&mut self, id: VolumeId, share: &ShareConfig) {
        let Self { device: Device { catalog, units, .. }, base } = self;
        let Some(before) = catalog.slots_mut().configure_share(id, share) else { return };
        if before != ClassId::DEFAULT {
            units.clean_mut().seal(before, catalog, base);
        }
        catalog.slots_mut().move_home(base);
    }

    /// Applies the pinned ranges of a volume.
    pub(crate) fn configure_pins(&mut self, id: VolumeId, pins: &[Range<u64>], size_bytes: u64) {
        let is_now = self.base.volume(id).map_or(0, |volume| volume.cfg().size_bytes);
        let extents = size_bytes.max(is_now) / u64::from(self.base.extent_bytes());
        self.device.catalog.configure_pins(id, pins, extents, &self.base);
    }

    /// Grows a volume if the size is larger. The extent that its former end cut can be cached from now on, except by
    /// operations in progress: the remainder did not exist when they began. Nothing beyond the former end was ever
    /// read, written or mapped by a session whose mappings are trusted: a start trusts no mapping beyond the end, and
    /// none at all of a volume whose length has changed since the stop.
    pub(crate) fn grow(&mut self, id: VolumeId, size_bytes: u64) {
        let extent_bytes = self.base.extent_bytes();
        let cut = self.base.volume_mut(id).and_then(|volume| volume.grow(size_bytes, extent_bytes));
        if let Some(cut) = cut {
            self.base.tracks.changes(cut);
        }
    }
}
