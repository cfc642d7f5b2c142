//! Where the clean layer has an extent, without touching anything.

use zc_core::ExtentKey;

use crate::clean::Clean;
use crate::clean::read::sector_range;
use crate::clean::staging::OldCopy;
use crate::device::Core;
use crate::residency::Residency;

impl Clean {
    /// What the cache holds of a part of an extent. Places are looked through in the order of a read.
    pub(crate) fn residency_of(
        &self,
        key: ExtentKey,
        skip_bytes: u32,
        len_bytes: u32,
        core: &Core,
    ) -> Residency {
        if let Some(staged) = self.staging.get(&key) {
            let sectors = sector_range(skip_bytes, len_bytes);
            if staged.valid.contains(sectors.clone()) {
                return Residency::Cached;
            }
            let untouched = staged.touched.runs(sectors.end, true).all(|run| run.end <= sectors.start);
            return match staged.old {
                OldCopy::Cached(mapping) if untouched => core.device.catalog.residency_of_mapping(mapping),
                _ => Residency::OriginOnly,
            };
        }
        if self.ahead.get(&key).is_some_and(|ahead| core.base.tracks.holds(&ahead.guard)) {
            return Residency::Cached;
        }
        let mapping = core
            .device
            .catalog
            .mapping(key)
            .filter(|mapping| core.device.is_past_gate(key.volume, *mapping, &core.base));
        match mapping.map(|mapping| core.device.catalog.residency_of_mapping(mapping)) {
            Some(Residency::OriginOnly) | None => {}
            Some(known) => return known,
        }
        if self.inserting(key, core).is_some() { Residency::Cached } else { Residency::OriginOnly }
    }
}
