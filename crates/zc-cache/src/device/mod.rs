//! The cache device as the manager knows it: both indexes, the units in its slots, its durable metadata.
//!
//! Job: hold them together for components that look up, place or void. What it does not do: see origins or requests.

mod mappings;
pub(crate) mod meta;
pub(crate) mod recovery;
pub(crate) mod units;
mod view;
mod volumes;

use zc_core::{Map, WeuSlot};

use crate::base::Base;
use crate::config::ManagerConfig;
use crate::device::meta::MetaLog;
use crate::device::recovery::Recovery;
use crate::device::units::classes::Classes;
use crate::device::units::dirty_slots::DirtySlots;
use crate::device::units::dirty_unit::DirtyUnits;
use crate::device::units::erase::Erasure;
use crate::device::units::evict::Sweeps;
use crate::device::units::header_reads::HeaderReads;
use crate::device::units::headers::HeaderCache;
use crate::device::units::kept::Kept;
use crate::device::units::policy::{ReplacementPolicy, policy};
use crate::device::units::slots::SlotTable;
use crate::device::units::{OpenWeus, WritingWeu};
use crate::index::file_index::{FileIndex, IndexShape};
use crate::index::fingerprint_index::FingerprintIndex;
use crate::startup::StartState;

/// What the components above the device use: see the two modules.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) base: Base,
    pub(crate) device: Device,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Device {
    index: Index,
    units: Units,
    meta: MetaLog,
    recovery: Recovery,
}

/// Where extents and contents are.
#[derive(Debug)]
struct Index {
    files: FileIndex,
    prints: FingerprintIndex,
}

/// The slots and what is in them.
#[derive(Debug)]
struct Units {
    policy: Box<dyn ReplacementPolicy + Send>,
    slots: SlotTable,
    classes: Classes,
    kept: Kept,
    headers: HeaderCache,
    header_reads: HeaderReads,
    sweeps: Sweeps,
    erasure: Erasure,
    open: OpenWeus,
    writing: Map<WeuSlot, WritingWeu>,
    dirty: DirtyUnits,
    /// Dirty data in each slot.
    dirty_slots: DirtySlots,
}

impl Device {
    /// Empty, after a start that found this on the device.
    ///
    /// # Panics
    /// When the geometry names more slots than an index location can.
    pub(crate) fn new(config: &ManagerConfig, start: StartState) -> Self {
        let geometry = &config.geometry;
        let shape = IndexShape {
            slots: geometry.slots,
            weu_bytes: geometry.weu_bytes,
            extent_bytes: geometry.extent_bytes,
            generation_bits: config.generation_bits,
        };
        let header_prints = zc_core::usize_from_u32(config.header_prints_max);
        Self {
            index: Index {
                files: FileIndex::new(shape, config.file_index_entries),
                prints: FingerprintIndex::new(shape, config.fingerprint_index_entries),
            },
            units: Units {
                policy: policy(config.replacement, geometry.slots),
                slots: SlotTable::new(geometry.slots, config.generation_bits),
                classes: Classes::new(geometry.slots, geometry.weu_bytes),
                kept: Kept::new(config),
                headers: HeaderCache::new(header_prints, &config.hash_key),
                header_reads: HeaderReads::default(),
                sweeps: Sweeps::default(),
                erasure: Erasure::default(),
                open: OpenWeus::default(),
                writing: Map::default(),
                dirty: DirtyUnits::default(),
                dirty_slots: DirtySlots::default(),
            },
            meta: MetaLog::new(config, &start),
            recovery: Recovery::new(&config.hash_key, start),
        }
    }

    /// The device failed: what is under way with it will not end, and nothing more is placed.
    pub(crate) fn device_failed(&mut self, base: &mut Base) {
        self.meta.device_failed();
        self.recovery.load = None;
        self.drop_open_units(base);
    }
}
