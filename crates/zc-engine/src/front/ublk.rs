//! Plan of a volume's block device.
//!
//! It does not attach it (`control/ublk`), or serve it (`shard/clients/ublk`).

use zc_cache::config::VolumeConfig;
use zc_core::VolumeId;
use zc_ublk::registration::stamp;
use zc_ublk::{Attributes, CopyMode, DeviceOptions};

/// Larger reads are split for decoding over the workers; smaller ones cost a request each.
const OPTIMAL_BYTES: u32 = 64 << 10;

/// Plan of a volume's device.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the volume.
    pub name: String,
    /// Number of the volume.
    pub volume: VolumeId,
    /// Attach it when the daemon starts.
    pub attach: bool,
    /// How payloads are copied; `None` leaves it to the driver.
    pub copy: Option<CopyMode>,
    /// The volume may lack writes that an earlier daemon acknowledged.
    pub went_back: bool,
    /// Queues, limits and attributes of the device.
    pub options: DeviceOptions,
}

impl Plan {
    /// Plans the device of a volume; `cache` is the cache's identity.
    pub fn new(
        volume: &zc_config::VolumeConfig,
        config: &VolumeConfig,
        block_bytes: u32,
        cache: &[u8; 16],
        went_back: bool,
    ) -> Self {
        let ublk = &volume.ublk;
        let copy = match ublk.copy {
            zc_config::UblkCopy::Auto => None,
            zc_config::UblkCopy::Command => Some(CopyMode::InCommand),
            zc_config::UblkCopy::User => Some(CopyMode::UserCopy),
        };
        let attributes = Attributes {
            size_bytes: config.size_bytes,
            logical_block_bytes: block_bytes,
            physical_block_bytes: block_bytes.max(zc_core::limits::BLOCK_BYTES),
            optimal_bytes: OPTIMAL_BYTES,
            read_only: volume.mode == zc_core::Mode::ReadOnly,
            // In every mode: a write that was acknowledged may be in the origin's own volatile cache, or in the page
            // cache if it is a file. Without this the kernel would keep every flush to itself.
            volatile_cache: true,
            fua: true,
            discard_granularity_bytes: block_bytes.max(zc_core::limits::BLOCK_BYTES),
        };
        let options = DeviceOptions {
            id: None,
            queues: ublk.queues,
            depth: ublk.queue_depth,
            request_bytes_max: ublk.request_bytes_max,
            copy: CopyMode::InCommand,
            resizable: false,
            stamp: stamp(cache, &volume.name),
            attributes,
        };
        Self { name: volume.name.clone(), volume: config.id, attach: ublk.attach, copy, went_back, options }
    }

    /// Returns the name of the volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns this plan without attaching at the start.
    pub fn on_demand(self) -> Self {
        Self { attach: false, ..self }
    }
}
