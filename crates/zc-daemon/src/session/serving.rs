//! Turns a judged volume into a served one.
//!
//! Job: build a volume's entries for the data plane, the clients' registry, the devices and the two pairing records,
//! in one place for a start and for later additions.
//!
//! It does not judge (`pair`), or write the records (`open`, `add_volume`).

use zc_cache::config::VolumeConfig;
use zc_config::Config;
use zc_core::VolumeId;
use zc_format::{Superblock, VolumeRecord};
use zc_io::Identity;

use crate::session::pair::Paired;
use zc_engine::front::access::Export;
use zc_engine::front::settings;
use zc_engine::front::ublk::Plan;
use zc_engine::origin::Origin;
use zc_engine::registry::{Registry, VolumeInfo};
use zc_engine::shard::volumes::Volume;
use zc_engine::state::state_dir::{self, OriginMark, VolumeState};

/// Volumes with the results of pairing, in the order of the configuration.
pub(crate) struct Served {
    pub(crate) volumes: Vec<(VolumeId, Volume)>,
    pub(crate) exports: Vec<Export>,
    pub(crate) ublk: Vec<Plan>,
}

/// Returns the volumes with their exports, in the order of the configuration. `before`: their state at the end of the
/// previous session.
pub(crate) fn served(
    config: &Config,
    registry: &Registry,
    origins: Vec<Origin>,
    paired: &[Paired],
    sizes: &[u64],
    before: &Superblock,
) -> Served {
    let mut volumes = Vec::new();
    // The first volume of the configuration is the default export.
    let mut exports = Vec::new();
    let mut ublk = Vec::new();
    let durable_journal = settings::has_durable_journal(&config.cache);
    for (((volume, origin), paired), size) in config.volumes.iter().zip(origins).zip(paired).zip(sizes) {
        let found = zc_config::manager::Found {
            id: paired.id,
            size_bytes: *size,
            region_bytes: paired.region_bytes,
            trusted: paired.cold_reason.is_none(),
            may_be_dirty: paired.may_be_dirty,
            durable_journal,
            domain: zc_config::manager::domain(volume, &before.uuid),
        };
        let for_manager = VolumeConfig {
            lost_writes: paired.lost_writes,
            origin_is_flushed: origin.is_flushed(),
            ..zc_config::manager::volume_config(volume, found)
        };
        describe(registry, volume, &for_manager, paired);
        // After an orderly stop only the word of it is owed: a flush that fails is enough.
        let went_back = paired.lost_writes && (paired.drop_dirty || !before.clean);
        ublk.push(Plan::new(volume, &for_manager, origin.block_bytes(), &before.uuid, went_back));
        if volume.nbd.export {
            exports.push(settings::export(volume, paired.id, *size));
        }
        volumes.push((
            paired.id,
            Volume::new(volume.name.clone(), origin, for_manager, (volume.limits, volume.reach)),
        ));
    }
    Served { volumes, exports, ublk }
}

/// Settings of a volume for a later session, which has no information on earlier flushes.
pub(crate) fn lasting(config: &VolumeConfig) -> VolumeConfig {
    VolumeConfig { origin_is_flushed: false, ..config.clone() }
}

fn describe(registry: &Registry, volume: &zc_config::VolumeConfig, config: &VolumeConfig, paired: &Paired) {
    if let Some(reason) = &paired.cold_reason {
        tracing::warn!("volume \"{}\" starts cold: {reason}", volume.name);
    }
    if paired.lost_writes {
        tracing::warn!(
            "volume \"{}\": acknowledged writes that no flush covered are lost or may be lost; the next flush of a \
             client fails once, to notify the client (`ack = \"durable\"` prevents such a loss)",
            volume.name
        );
    }
    let info = VolumeInfo {
        id: config.id.0,
        size_bytes: config.size_bytes,
        mode: config.mode.word().to_owned(),
        ack: settings::ack_name(config),
        destage: settings::destage_name(config),
        max_dirty_age_ms: settings::max_dirty_age_ms(config),
        origin: volume.origin.clone(),
        dedup_domain: volume.dedup_domain.clone(),
        cold_reason: paired.cold_reason.clone(),
        origin_truncated_bytes: None,
        exported: volume.nbd.export,
        attaches: volume.ublk.attach,
        device: None,
    };
    registry.volumes.insert(volume.name.clone(), info);
}

/// Returns the volume table's new record of a volume.
pub(crate) fn record(
    volume: &zc_config::VolumeConfig,
    identity: &Identity,
    len_bytes: u64,
    paired: &Paired,
) -> VolumeRecord {
    VolumeRecord {
        id: paired.id,
        name: volume.name.clone(),
        size_bytes: len_bytes,
        region_bytes: paired.region_bytes,
        origin: OriginMark::of(identity).for_media(),
        stamp: paired.stamp,
        may_be_dirty: paired.may_be_dirty,
    }
}

/// Returns the state directory's new record of a volume.
pub(crate) fn state(volume: &zc_config::VolumeConfig, identity: &Identity, paired: &Paired) -> VolumeState {
    VolumeState {
        // Unequal until the next clean stop if the volume starts cold: see `pair`.
        stamp: if paired.cold_reason.is_some() { paired.stamp.wrapping_add(1) } else { paired.stamp },
        path: state_dir::place_of(volume),
        origin: OriginMark::of(identity),
        dedup_domain: volume.dedup_domain.clone(),
        dirty: paired.may_be_dirty,
        settled: false,
        given_up: 0,
        incomplete: paired.incomplete,
        // From now on the origin is written here, so earlier observations are invalid.
        seen: None,
        // Durably recorded by the code that applies the settings, before the manager uses them.
        volatile: false,
        owes_loss: paired.lost_writes,
        served_since: None,
    }
}
