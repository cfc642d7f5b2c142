//! Volume of the manager: its settings, and the state of its origin writes.
//!
//! Invariant: size, region size, domain and trust are fixed when the volume is added; new settings do not change
//! them. Out of scope: the cached contents of the volume.

use zc_core::{ExtentKey, ExtentNo, Mode};

use crate::base::origin::OriginTracker;
use crate::config::VolumeConfig;

#[derive(Debug)]
pub(crate) struct Volume {
    cfg: VolumeConfig,
    whole_extents: u64,
    origin: OriginTracker,
}

impl Volume {
    /// Creates a volume for a cache with extents of this length.
    ///
    /// # Panics
    /// When a region has no size.
    pub(crate) fn new(cfg: VolumeConfig, extent_bytes: u32) -> Self {
        assert!(cfg.region_bytes > 0, "a region has a size");
        let whole_extents = cfg.size_bytes / u64::from(extent_bytes);
        let origin = OriginTracker::new(cfg.lost_writes, cfg.origin_is_flushed);
        Self { cfg, whole_extents, origin }
    }

    pub(crate) const fn cfg(&self) -> &VolumeConfig {
        &self.cfg
    }

    pub(crate) const fn whole_extents(&self) -> u64 {
        self.whole_extents
    }

    /// Returns `true` if the extent lies wholly inside the volume; only such extents are cached.
    pub(crate) const fn has_whole(&self, extent: ExtentNo) -> bool {
        extent.0 < self.whole_extents
    }

    pub(crate) const fn origin(&self) -> &OriginTracker {
        &self.origin
    }

    pub(crate) const fn origin_mut(&mut self) -> &mut OriginTracker {
        &mut self.origin
    }

    pub(crate) fn configure(&mut self, cfg: &VolumeConfig) {
        let VolumeConfig { size_bytes, region_bytes, trusted, domain, .. } = self.cfg;
        self.cfg = VolumeConfig { size_bytes, region_bytes, trusted, domain, ..cfg.clone() };
    }

    pub(crate) const fn set_mode(&mut self, mode: Mode) {
        self.cfg.mode = mode;
    }

    /// Withdraws the trust in content that earlier sessions stored. Returns `true` if it was trusted.
    pub(crate) const fn distrust(&mut self) -> bool {
        core::mem::replace(&mut self.cfg.trusted, false)
    }

    /// Grows the volume if `size_bytes` is larger. Returns the extent that the former end cut.
    pub(crate) fn grow(&mut self, size_bytes: u64, extent_bytes: u32) -> Option<ExtentKey> {
        if size_bytes <= self.cfg.size_bytes {
            return None;
        }
        let cut = ExtentNo(self.cfg.size_bytes / u64::from(extent_bytes));
        self.cfg.size_bytes = size_bytes;
        self.whole_extents = size_bytes / u64::from(extent_bytes);
        Some(ExtentKey { volume: self.cfg.id, extent: cut })
    }
}

#[cfg(test)]
mod tests {
    use zc_core::VolumeId;

    use super::*;

    fn volume() -> Volume {
        let cfg = VolumeConfig { trusted: true, ..VolumeConfig::new(VolumeId(3), 10 * 8192 + 512, 8192) };
        Volume::new(cfg, 8192)
    }

    #[test]
    fn only_growth_changes_the_size_and_tells_the_extent_that_was_cut() {
        let mut volume = volume();
        assert!(volume.has_whole(ExtentNo(9)) && !volume.has_whole(ExtentNo(10)));
        assert_eq!(volume.grow(8192, 8192), None);
        let cut = ExtentKey { volume: VolumeId(3), extent: ExtentNo(10) };
        assert_eq!(volume.grow(20 * 8192, 8192), Some(cut));
        assert_eq!((volume.whole_extents(), volume.has_whole(ExtentNo(10))), (20, true));
    }

    #[test]
    fn new_settings_change_neither_size_nor_trust() {
        let mut volume = volume();
        assert!(volume.distrust() && !volume.distrust());
        let cfg = VolumeConfig { trusted: true, dedup: false, ..VolumeConfig::new(VolumeId(3), 1, 8192) };
        volume.configure(&cfg);
        let cfg = volume.cfg();
        assert_eq!((cfg.trusted, cfg.dedup, cfg.size_bytes), (false, false, 10 * 8192 + 512));
    }
}
