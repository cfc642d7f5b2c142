//! The cache device as the manager knows it: both indexes, the units in its slots, its durable metadata.
//!
//! Job: hold them together for whoever looks up, places or voids. What it does not do: see origins or requests.

mod mappings;
pub(crate) mod meta;
pub(crate) mod recovery;
pub(crate) mod tracks;
pub(crate) mod units;
mod volumes;

use zc_core::{BufId, Map, WeuSlot};

use crate::base::Base;
use crate::config::ManagerConfig;
use crate::device::meta::MetaLog;
use crate::device::recovery::Recovery;
use crate::device::tracks::Tracks;
use crate::device::units::evict::Sweeps;
use crate::device::units::header_reads::HeaderReads;
use crate::device::units::headers::HeaderCache;
use crate::device::units::owed::OwedSlots;
use crate::device::units::policy::{ReplacementPolicy, policy};
use crate::device::units::slots::SlotTable;
use crate::device::units::{OpenWeu, WritingWeu};
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
    pub(crate) index: Index,
    pub(crate) units: Units,
    pub(crate) meta: MetaLog,
    pub(crate) recovery: Recovery,
}

/// Where extents and contents are.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) files: FileIndex,
    pub(crate) prints: FingerprintIndex,
    /// Extents that work under way refers to.
    pub(crate) tracks: Tracks,
}

/// The slots and what is in them.
#[derive(Debug)]
pub(crate) struct Units {
    pub(crate) policy: Box<dyn ReplacementPolicy + Send>,
    pub(crate) slots: SlotTable,
    pub(crate) headers: HeaderCache,
    pub(crate) header_reads: HeaderReads,
    pub(crate) sweeps: Sweeps,
    pub(crate) open: Option<OpenWeu>,
    pub(crate) writing: Map<WeuSlot, WritingWeu>,
    /// The unit that dirty data fills, and its bytes.
    pub(crate) filling: Option<(WeuSlot, BufId)>,
    /// Dirty data in each slot.
    pub(crate) owed: OwedSlots,
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
                tracks: Tracks::new(&config.hash_key),
            },
            units: Units {
                policy: policy(config.replacement, geometry.slots),
                slots: SlotTable::new(geometry.slots, config.generation_bits),
                headers: HeaderCache::new(header_prints, &config.hash_key),
                header_reads: HeaderReads::default(),
                sweeps: Sweeps::default(),
                open: None,
                writing: Map::default(),
                filling: None,
                owed: OwedSlots::default(),
            },
            meta: MetaLog::new(config, &start),
            recovery: Recovery::new(&config.hash_key, start),
        }
    }

    /// The device failed: what is under way with it will not end, and nothing more is placed.
    pub(crate) fn device_failed(&mut self, base: &mut Base) {
        self.meta.device_failed();
        self.recovery.load = None;
        if let Some(open) = self.units.open.take() {
            base.port.release(open.buf);
        }
    }
}
