//! Cache device of the manager: its catalog, the units in memory, and the pending work of a start.
//!
//! Owns the components that look up, place, invalidate, write and recover. Each modifies only itself and receives
//! others as arguments.
//!
//! Out of scope: origins and requests.
//!
//! | component | contents |
//! |---|---|
//! | `meta` | the journal, marks of regions and their map, retirements |
//! | `contents` | the fingerprint index, headers that are cached or being read |
//! | `contents` | the fingerprint index, headers that are cached or being read |
//! | `catalog` | mappings of extents over those three, eviction, sweeps |
//! | `units` | units that are being filled or written |
//! | `snapshot` | checkpoints, and the index image of a stop |
//! | `erase` | the erasure of the data of removed volumes |
//! | `recovery` | mappings found at a start that are not read or verified yet |

pub(crate) mod catalog;
pub(crate) mod contents;
pub(crate) mod erase;
pub(crate) mod meta;
pub(crate) mod recovery;
pub(crate) mod slots;
pub(crate) mod snapshot;
pub(crate) mod stored;
pub(crate) mod units;
mod volumes;

use zc_core::{VolumeId, WeuSlot};

use crate::base::Base;
use crate::config::ManagerConfig;
use crate::device::catalog::Catalog;
use crate::device::erase::Erasure;
use crate::device::recovery::Recovery;
use crate::device::snapshot::checkpoint::Checkpoints;
use crate::device::snapshot::image::ImageWriter;
use crate::device::units::Units;
use crate::index::file_index::Mapping;
use crate::startup::StartState;
use crate::stats::Stats;

/// State shared by the components above the device: see the two modules.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) base: Base,
    pub(crate) device: Device,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) catalog: Catalog,
    pub(crate) units: Units,
    pub(crate) erasure: Erasure,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) image: ImageWriter,
    pub(crate) recovery: Recovery,
}

impl Device {
    /// Creates the components from the session found on the device.
    ///
    /// # Panics
    /// When the geometry names more slots than an index location can.
    pub(crate) fn new(config: &ManagerConfig, start: StartState) -> Self {
        Self {
            catalog: Catalog::new(config, &start),
            units: Units::default(),
            erasure: Erasure::default(),
            checkpoints: Checkpoints::new(
                start.checkpoint_sequence,
                start.checkpoint_area,
                start.checkpoint_found,
            ),
            image: ImageWriter::default(),
            recovery: Recovery::new(&config.hash_key, start),
        }
    }

    /// Handles a failure of the device: abandons its operations and stops placement.
    pub(crate) fn device_failed(&mut self, base: &mut Base) {
        self.catalog.meta_mut().device_failed();
        self.checkpoints.give_up();
        self.recovery.give_up(base);
        self.units.clean_mut().drop_open_units(base);
    }

    /// Returns `true` if a stored extent may be served: its content was stored in this session, or the volume's sample
    /// has been verified.
    pub(crate) fn is_past_gate(&self, volume: VolumeId, mapping: Mapping, base: &Base) -> bool {
        self.recovery.probes().is_past_gate(volume, mapping, self.catalog.table(), base)
    }

    /// Continues the comparison of samples with the origins after a start.
    pub(crate) fn pump_probes(&mut self, base: &mut Base) {
        self.recovery.probes_mut().pump(&mut self.catalog, &self.units, base);
    }

    /// Returns `true` if dirty data may refer to a slot, with at most `lent_max` slots kept for that alone.
    pub(crate) fn may_hold_dirty(&self, slot: WeuSlot, lent_max: u64) -> bool {
        self.units.dirty().may_hold(slot, lent_max, self.catalog.slots())
    }

    /// Bytes of RAM of the device's structures, by name.
    pub(crate) fn ram_by_structure(&self) -> [(&'static str, u64); 5] {
        let Self { catalog, recovery, .. } = self;
        let contents = catalog.contents();
        [
            ("file_index", catalog.files().ram_bytes() + recovery.image_ram_bytes()),
            ("fingerprint_index", contents.prints().ram_bytes()),
            ("slots", catalog.table().ram_bytes()),
            ("policy", catalog.slots().policy_ram_bytes()),
            ("headers", contents.headers().ram_bytes()),
        ]
    }

    pub(crate) fn gauges(&self, stats: &mut Stats) {
        let Self { catalog, .. } = self;
        let (files, prints, meta) = (catalog.files(), catalog.contents().prints(), catalog.meta());
        stats.gauges(files, prints, meta.journal().used_blocks(), meta.regions().len());
        stats.pinned_units = catalog.slots().kept_units().into();
    }
}
