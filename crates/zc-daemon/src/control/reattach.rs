//! Reattaches a returned cache device, while clients stay connected.
//!
//! Job: check that the device in the place of a failed cache is that cache in its last state; if so, let the data
//! plane replace its manager by one with a new session on it.
//!
//! # Soundness
//! For the manager it is a crash and a restart: the old one is dropped, and the code of a start creates the new one,
//! from superblock, checkpoint, journal and intent log, with the same trust decisions. There are three differences,
//! each of which only distrusts more:
//! - No clean mapping is trusted, regardless of the state directory: the origins were written while the cache was
//!   offline. Stored contents serve as dedup targets, as after any cold start.
//! - An image of another session than the last of this process is refused, older or newer: an operator restored it, or
//!   used it in the meantime. Another cache is refused; nothing is formatted or created.
//! - Acknowledged but unflushed data at the failure is lost, as in a crash. But this server stays alive, and clients
//!   must not continue silently: connections of such volumes are closed. A ublk device cannot be closed, and a client
//!   may reconnect automatically. So the next flush of such a volume fails, once, like that of a disk which lost
//!   writes: a mounted file system stops there, before it relies on lost data.
//!
//! Between the two managers nothing is in flight: requests are held back, unanswered, until every action of the old
//! one has completed (`pause`). Until the last step, any failure leaves the old one in place, and the fences active.
//! The first check of the device happens without that pause, so that a hung device costs clients nothing.
//!
//! It does not detect the return of a device, or discard or trust dirty data (a restart with `--trust-dirty` or
//! `--drop-dirty` does).

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_config::Config;
use zc_core::{Mode, VolumeId};

use crate::control::Shared;
use crate::session::cache_device::CacheDevice;
use crate::session::open;
use crate::session::pair::{Answers, Known, Paired, RisksBefore, When};
use zc_engine::error::EngineError;
use zc_engine::error::refusal::Refusal;
use zc_engine::front::settings;
use zc_engine::origin::OriginStat;
use zc_engine::shard::commands::{Command, Mailbox};
use zc_engine::shard::pause::{OpenResources, Replacement};
use zc_engine::state::ledger::Ledger;
use zc_engine::state::risk::Risks;

pub(super) const COLD_REASON: &str = "the cache device had failed";

/// A device that is the cache as it was left, or the one that takes its place.
pub(super) struct FoundCache {
    pub(super) device: CacheDevice,
    pub(super) manager: ManagerConfig,
    pub(super) paired: Vec<Paired>,
    pub(super) origin_stats: Vec<OriginStat>,
}

/// Served volumes in their current state.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) config: Config,
    pub(super) volumes: Vec<(String, VolumeConfig)>,
}

/// The data plane holds requests back until this is dropped.
pub(super) struct Paused(pub(super) Arc<Mailbox>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.send(Command::Resume);
    }
}

impl Shared {
    /// Reattaches the cache device; returns the dirty data. Settings do not change concurrently.
    pub(crate) async fn reattach(&self) -> Result<Value, String> {
        let mut in_force = self.settings().await?;
        if self.stats().await?.cache_healthy {
            return Err("the cache device is in use and works".to_owned());
        }
        if self.without_cache {
            return Err(
                "this daemon was started without its cache device; when that is back, restart the daemon \
                (users of ublk devices wait in the meantime)"
                    .to_owned(),
            );
        }
        let served = Served { config: in_force.config.clone(), volumes: in_force.volumes.clone() };
        let looked = self.look(false).await?;
        let (first, ledger) = (served.clone(), Arc::clone(&self.ledger));
        blocking(move || examine(&first, &ledger, &looked, Ended::CutOff).map(drop)).await?;
        let paused = Paused(Arc::clone(&self.mailbox));
        let looked = self.look(true).await?;
        let (path, ledger) = (served.config.cache.path.clone(), Arc::clone(&self.ledger));
        let replacement = blocking(move || {
            let found = examine(&served, &ledger, &looked, Ended::CutOff)?;
            begin(&served, &ledger, found)
        })
        .await?;
        let lost = in_force.volumes.iter().zip(&replacement.volumes).filter(|(_, new)| new.lost_writes);
        let lost: Vec<String> = lost.map(|((name, _), _)| name.clone()).collect();
        for ((name, config), new) in in_force.volumes.iter_mut().zip(&replacement.volumes) {
            config.clone_from(new);
            if let Some(mut info) = self.registry.volumes.get_mut(name) {
                info.cold_reason = Some(COLD_REASON.to_owned());
            }
        }
        self.mailbox.send(Command::Swap(Box::new(replacement)));
        drop(paused);
        drop(in_force);
        let stats = self.stats().await?;
        tracing::info!("the cache {} is back in use; its mappings start cold", path.display());
        Ok(json!({ "path": path, "dirty": stats.dirty, "lost_writes": lost }))
    }

    pub(super) async fn look(&self, pause: bool) -> Result<OpenResources, String> {
        let (reply, looked) = oneshot::channel();
        self.mailbox.send(Command::Look { pause, reply });
        let looked = looked.await.map_err(|_| "the data plane is busy or has ended".to_owned())?;
        looked.map_err(|error| error.to_string())
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| "the work on the cache device was interrupted".to_owned())?
        .map_err(|error| error.to_string())
}

/// End of the last session of this process on the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    CutOff,
    /// Possibly clean: the record of it may not have become durable.
    Closed,
}

/// Checks that the cache is present in its last state. Writes nothing.
pub(super) fn examine(
    served: &Served,
    ledger: &Ledger,
    looked: &OpenResources,
    ended: Ended,
) -> Result<FoundCache, EngineError> {
    let config = &served.config;
    let last = ledger.superblock();
    let device = CacheDevice::again(config, &last.uuid, &looked.cache, looked.journal.as_ref())?;
    let superblock = &device.superblock;
    let place = config.cache.path.clone();
    if superblock.session != last.session || (superblock.clean && ended == Ended::CutOff) {
        let (session, here) = (superblock.session, last.session);
        return Err(EngineError::refused(Refusal::NotAsLeft { place, session, here }));
    }
    let manager = device.manager_config(config)?;
    let table = open::read_volume_table(&device.file, &superblock.geometry);
    let state = ledger.state().snapshot();
    let known = Known {
        cache_path: &config.cache.path,
        table: &table,
        session: superblock.session,
        clean: superblock.clean,
        state: &state,
        cold: true,
        when: When::Return,
        answers: Answers::default(),
        risks: RisksBefore { said: Some(&Risks::of(&looked.lost)), clients_may_live: true },
    };
    let of = |id: VolumeId| {
        looked.origin_stats.iter().find(|(other, _)| *other == id).map(|(_, origin_stat)| *origin_stat)
    };
    let origin_stats: Vec<OriginStat> =
        served.volumes.iter().filter_map(|(_, volume)| of(volume.id)).collect();
    let found =
        |origin_stat: &OriginStat| open::OriginFound { identity: Some(origin_stat.identity), changed: None };
    let found: Vec<_> = origin_stats.iter().map(found).collect();
    let sizes: Vec<u64> = served.volumes.iter().map(|(_, volume)| volume.size_bytes).collect();
    let paired = open::judge(config, &known, &found, &sizes)?;
    let ids = served.volumes.iter().map(|(_, volume)| volume.id);
    if !ids.eq(paired.iter().map(|paired| paired.id)) {
        return Err(EngineError::refused(Refusal::OtherVolumes(place)));
    }
    Ok(FoundCache { device, manager, paired, origin_stats })
}

/// Starts a session on the cache, which must be unused.
pub(super) fn begin(served: &Served, ledger: &Ledger, found: FoundCache) -> Result<Replacement, EngineError> {
    let FoundCache { device, manager, mut paired, origin_stats } = found;
    let config = &served.config;
    let cold = paired.iter().any(|paired| paired.cold_reason.is_some());
    let (mut session, given_up) = open::start_session(config, &device, ledger.state(), &mut paired, cold)?;
    ledger.replace(session.on_media(&device));
    let write_back = served.volumes.iter().filter(|(_, volume)| volume.mode == Mode::WriteBack);
    let write_back: Vec<String> = write_back.map(|(name, _)| name.clone()).collect();
    open::record_pairing(config, ledger, &session, &origin_stats, &paired, &given_up, &write_back)?;
    let volumes: Vec<VolumeConfig> = served
        .volumes
        .iter()
        .zip(&paired)
        .map(|((_, volume), paired)| VolumeConfig {
            region_bytes: paired.region_bytes,
            trusted: paired.cold_reason.is_none(),
            may_be_dirty: paired.may_be_dirty,
            lost_writes: paired.lost_writes,
            ..volume.clone()
        })
        .collect();
    ledger
        .acknowledges_early(&settings::early(served.volumes.iter().map(|(name, config)| (name, config))))?;
    let risk = session.risk_file(ledger.state(), &paired)?;
    let manager = session.manager(manager, volumes.clone());
    let (intent, bytes_read) = (session.intent, session.bytes_read);
    Ok(Replacement { manager, device: open::for_data_plane(device), intent, risk, volumes, bytes_read })
}
