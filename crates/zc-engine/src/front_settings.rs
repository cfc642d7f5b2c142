//! What of the front end can change while it serves.
//!
//! Job: gather bounds and exports of a configuration, and put new ones in force.
//!
//! Invariants: a connection keeps the export it chose and what its session was made with; new bounds of time, memory
//! and number hold for all at once. A connection that new settings of TLS would not let in ends: a replaced authority,
//! an expired or a revoked certificate leaves no client behind. A volume that the daemon does not serve is not exported.
//!
//! What it does not do: open or close listening sockets.

use zc_cache::config::VolumeConfig;
use zc_config::{AddressRange, Config, VolumeLimits};
use zc_core::VolumeId;

use crate::access::Export;
use crate::audit;
use crate::peer::Peer;
use crate::settings::{self, FrontLimits};
use crate::shard::Shard;
use crate::tls::Tls;

/// The live part of the front end.
#[derive(Debug)]
pub(crate) struct FrontSettings {
    limits: FrontLimits,
    exports: Vec<Export>,
    allow: Vec<AddressRange>,
    tls: Tls,
    /// Of volumes that are served.
    volumes: Vec<(VolumeId, VolumeLimits)>,
}

impl FrontSettings {
    /// Of a configuration, for the volumes that are served. `default`: the volume for clients that name none.
    pub(crate) fn new(
        config: &Config,
        served: &[(String, VolumeConfig)],
        tls: Tls,
        default: Option<&str>,
    ) -> Self {
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
        let limits = |volume: &zc_config::VolumeConfig| {
            let (_, running) = served.iter().find(|(name, _)| *name == volume.name)?;
            Some((running.id, volume.limits))
        };
        Self {
            limits: settings::front_limits(config),
            exports,
            allow: config.nbd.allow.clone(),
            tls,
            volumes: config.volumes.iter().filter_map(limits).collect(),
        }
    }
}

/// The name of the volume that clients get who name none: the first that is exported.
pub(crate) fn default_export(config: &Config) -> Option<String> {
    config.volumes.iter().find(|volume| volume.nbd.export).map(|volume| volume.name.clone())
}

impl Shard {
    pub(crate) fn apply_front(&mut self, front: FrontSettings) {
        self.limits = front.limits;
        self.nbd.exports = front.exports;
        self.nbd.allow = front.allow;
        self.nbd.tls = front.tls;
        self.set_limits(front.volumes);
        self.end_refused();
        // What waited for memory may go on with more of it.
        self.recount_all();
    }

    /// Ends connections that the settings of TLS do not let in any more.
    fn end_refused(&mut self) {
        let tls = &self.nbd.tls;
        let live = self.nbd.conns.iter().filter(|(_, conn)| !conn.dead);
        let refused: Vec<(u64, Peer, String)> =
            live.filter_map(|(id, conn)| Some((*id, conn.peer, conn.is_refused_by(tls)?))).collect();
        for (id, peer, why) in refused {
            tracing::warn!(target: audit::TARGET, connection = id, %peer, "audit: client disconnected by a reload: {why}");
            self.kill(id);
        }
    }
}
