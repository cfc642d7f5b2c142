//! Settings of the front end that can change at run time.
//!
//! Job: collect bounds and exports of a configuration.
//!
//! Invariants: a volume that the daemon does not serve is not exported.
//!
//! It does not apply them (`shard/clients`), or open or close listening sockets.

use zc_cache::config::VolumeConfig;
use zc_config::{AddressRange, Config, OriginReach, VolumeLimits};
use zc_core::VolumeId;

use crate::front::access::Export;
use crate::front::settings::{self, FrontLimits};
use crate::front::tls::Tls;

/// The live part of the front end.
#[derive(Debug)]
pub struct FrontSettings {
    pub(crate) limits: FrontLimits,
    pub(crate) exports: Vec<Export>,
    pub(crate) allow: Vec<AddressRange>,
    pub(crate) tls: Tls,
    pub(crate) volumes: Vec<(VolumeId, VolumeLimits)>,
    /// Time limits of their origins.
    pub(crate) origins: Vec<(VolumeId, OriginReach)>,
}

impl FrontSettings {
    /// Collects the settings of the served volumes. `default`: the volume for clients that name none.
    pub fn new(config: &Config, served: &[(String, VolumeConfig)], tls: Tls, default: Option<&str>) -> Self {
        let export = |volume: &zc_config::VolumeConfig| {
            let (_, running) = served.iter().find(|(name, _)| *name == volume.name && volume.nbd.export)?;
            Some(settings::export(volume, running.id, running.size_bytes))
        };
        let mut exports: Vec<Export> = config.volumes.iter().filter_map(export).collect();
        if let Some(name) = default {
            let place = exports.iter().position(|export| export.info.name == name);
            let first = place.map_or_else(|| Export::absent(name), |place| exports.remove(place));
            exports.insert(0, first);
        }
        let id = |volume: &zc_config::VolumeConfig| {
            served.iter().find(|(name, _)| *name == volume.name).map(|(_, running)| running.id)
        };
        let limits = |volume: &zc_config::VolumeConfig| Some((id(volume)?, volume.limits));
        let reach = |volume: &zc_config::VolumeConfig| Some((id(volume)?, volume.reach));
        Self {
            limits: settings::front_limits(config),
            exports,
            allow: config.nbd.allow.clone(),
            tls,
            volumes: config.volumes.iter().filter_map(limits).collect(),
            origins: config.volumes.iter().filter_map(reach).collect(),
        }
    }
}

/// Returns the volume for clients that name none: the first exported one.
pub fn default_export(config: &Config) -> Option<String> {
    config.volumes.iter().find(|volume| volume.nbd.export).map(|volume| volume.name.clone())
}
