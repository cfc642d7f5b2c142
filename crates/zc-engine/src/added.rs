//! Volumes that a running daemon takes up: those that a reload finds in the configuration.
//!
//! # Which
//! Only such as the cache has never known by their name: nothing is cached under a number that was never given, so that
//! there is nothing to judge. What the cache holds of a volume that it knew is judged at a start (`pairing`).
//!
//! # The order, and what a crash leaves
//! 1. What can be refused: two names for one file, an origin that another cache has data for, one that is in use. Then an
//!    origin is made, if the configuration says so.
//! 2. Volume table, then state directory, then the word that the volume may become dirty. A start after a crash finds a
//!    volume of which nothing is cached; if only the table had it, it starts cold.
//! 3. The plan for a ublk device; the data plane with its manager. The exports follow with the reload's other settings.
//!
//! # What it does not do
//! Let a volume go: its clients would be cut off. It is served until the daemon starts again.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_config::Config;
use zc_core::VolumeId;

use crate::absent;
use crate::cache_device::check_debts;
use crate::commands::Command;
use crate::control::{InForce, Shared};
use crate::custody::Custody;
use crate::engine::EngineOptions;
use crate::error::EngineError;
use crate::origin::Origin;
use crate::pairing::{Answers, Known, Paired, RisksBefore};
use crate::places::check_distinct;
use crate::serving::{self, Served};
use crate::settings;
use crate::shard::{Shard, Volume};
use crate::stand_in;
use crate::startup::{self, Facing, Found};
use crate::stores::Stores;

/// What came of the volumes that are new in a configuration.
#[derive(Debug, Default)]
pub(crate) struct Added {
    pub(crate) applied: Vec<String>,
    /// Volumes that need a restart, by key, and why.
    pub(crate) refused: Vec<(String, &'static str)>,
    /// What else did not work.
    pub(crate) later: Vec<String>,
}

impl Added {
    /// A key that needs a restart, with the reason if there is one here.
    pub(crate) fn explained(&self, key: String) -> String {
        match self.refused.iter().find(|(refused, _)| *refused == key) {
            Some((_, reason)) => format!("{key} ({reason})"),
            None => key,
        }
    }
}

/// Volumes whose origins are open and which may be served.
struct Prepared {
    config: Config,
    origins: Vec<Origin>,
    facing: Vec<Facing>,
    sizes: Vec<u64>,
    paired: Vec<Paired>,
}

impl Shared {
    /// Takes up the volumes of a new configuration that are not served, as far as that is possible now.
    pub(crate) async fn add_volumes(&self, in_force: &mut InForce, new: &Config) -> Result<Added, String> {
        let mut added = Added::default();
        let is_new = |volume: &&zc_config::VolumeConfig| {
            in_force.config.volumes.iter().all(|known| known.name != volume.name)
        };
        let mut wanted: Vec<_> = new.volumes.iter().filter(is_new).cloned().collect();
        if wanted.is_empty() {
            return Ok(added);
        }
        let hindrance = self.hindrance().await?;
        let missing = self.still_missing(&wanted).await?;
        wanted.retain(|volume| {
            let is_known = self.custody.knows(&volume.name);
            let reason = hindrance
                .or_else(|| is_known.then_some("the cache knows a volume of that name from before"))
                .or_else(|| missing.contains(&volume.name).then_some("its origin still cannot be opened"));
            if let Some(reason) = reason {
                added.refused.push((volume_key(&volume.name), reason));
            }
            reason.is_none()
        });
        if wanted.is_empty() {
            return Ok(added);
        }
        let mut all = in_force.config.clone();
        all.volumes.extend(wanted.iter().cloned());
        let only = Config { volumes: wanted, ..in_force.config.clone() };
        let (custody, registry) = (Arc::clone(&self.custody), Arc::clone(&self.registry));
        let stores = Arc::clone(&self.stores);
        let work = move || {
            let prepared = prepare(&all, only, &custody, &stores)?;
            record(&prepared, &custody)?;
            let Prepared { config, origins, sizes, paired, .. } = prepared;
            let served = serving::served(&config, &registry, origins, &paired, &sizes, &custody.superblock());
            let volumes = served.volumes.iter().map(|(_, volume)| (&volume.name, &volume.config));
            custody.acknowledges_early(&settings::early(volumes))?;
            Ok((served, config))
        };
        let (Served { volumes, ublk, .. }, config) = self.work_on_cache(work).await?;
        for ((id, volume), configured) in volumes.into_iter().zip(config.volumes) {
            let (name, for_manager) = (volume.name.clone(), volume.config.clone());
            let (reply, done) = oneshot::channel();
            self.mailbox.send(Command::Add { id, volume: Box::new(volume), reply });
            done.await.map_err(|_| "the data plane has ended".to_owned())?;
            self.took_up(&name, id);
            in_force.volumes.push((name.clone(), for_manager));
            in_force.config.volumes.push(configured);
            tracing::info!("volume \"{name}\" is served from now on");
            added.applied.push(volume_key(&name));
        }
        for plan in ublk {
            let (name, is_wanted) = (plan.name().to_owned(), plan.is_attached_at_start());
            self.ublk.add_plan(plan)?;
            if is_wanted && let Err(reason) = self.ublk.attach(&name).await {
                added.later.push(format!("{}: ublk.attach ({reason})", volume_key(&name)));
            }
        }
        Ok(added)
    }

    /// Those that the start left out and whose origins still cannot be opened: they are no reason to refuse the others.
    async fn still_missing(&self, wanted: &[zc_config::VolumeConfig]) -> Result<Vec<String>, String> {
        let was_absent = |volume: &&zc_config::VolumeConfig| self.was_absent(&volume.name);
        let asked: Vec<_> = wanted.iter().filter(was_absent).cloned().collect();
        let stores = Arc::clone(&self.stores);
        let look = move || {
            let missing = asked.into_iter().filter(|volume| absent::reason(volume, &stores).is_some());
            missing.map(|volume| volume.name).collect()
        };
        tokio::task::spawn_blocking(look).await.map_err(|_| "the look at origins was cut off".to_owned())
    }

    /// Why no volume can be added.
    async fn hindrance(&self) -> Result<Option<&'static str>, String> {
        Ok((!self.stats().await?.cache_healthy)
            .then_some("the cache device is out of reach and has to know of it first"))
    }
}

/// As the differences of two configurations name a volume that comes.
fn volume_key(name: &str) -> String {
    format!("volume \"{name}\"")
}

/// Everything that can be refused; then origins that are to be made.
fn prepare(
    all: &Config,
    config: Config,
    custody: &Custody,
    stores: &Stores,
) -> Result<Prepared, EngineError> {
    check_distinct(all)?;
    settings::ring_ops(all)?;
    let mut origins = startup::open_existing_origins(&config, stores)?;
    let sizes = startup::volume_sizes(&config, &origins)?;
    let superblock = custody.superblock();
    let debts = startup::debts(&config, &EngineOptions::default(), &origins)?;
    check_debts(&config, &debts, Some(&superblock.uuid))?;
    let (table, state) = (custody.table(), custody.state().snapshot());
    let cache_path: PathBuf = config.cache.path.clone();
    let known = Known {
        cache_path: &cache_path,
        table: &table,
        session: superblock.session,
        clean: false,
        state: &state,
        cold: false,
        answers: Answers { trust: &[], drop: &[] },
        risks: RisksBefore::default(),
    };
    let paired = startup::judge(&config, &known, &vec![Found::default(); origins.len()], &sizes)?;
    startup::create_origins(&config, &mut origins, stores)?;
    startup::disown_others(&config, &superblock.uuid, &stand_in::places(&config, &origins, true)?)?;
    let origins: Vec<_> = origins.into_iter().flatten().collect();
    let facing = origins.iter().map(Facing::of).collect::<Result<_, _>>()?;
    Ok(Prepared { config, origins, facing, sizes, paired })
}

/// Says durably who belongs together, and who may become dirty.
fn record(prepared: &Prepared, custody: &Custody) -> Result<(), EngineError> {
    let Prepared { config, facing, paired, .. } = prepared;
    let volumes = || config.volumes.iter().zip(facing).zip(paired);
    custody.set_table(|table| {
        let records = volumes().map(|((volume, facing), paired)| {
            serving::record(volume, &facing.identity, facing.len_bytes, paired)
        });
        table.records.extend(records);
    })?;
    custody.state().update(|state| {
        let entries = volumes().map(|((volume, facing), paired)| {
            (volume.name.clone(), serving::state(volume, &facing.identity, paired))
        });
        state.volumes.extend(entries);
    })?;
    let write_back = config.volumes.iter().filter(|volume| volume.mode == zc_core::Mode::WriteBack);
    custody.may_become_dirty(&write_back.map(|volume| volume.name.clone()).collect::<Vec<_>>())?;
    custody.add_stamps(volumes().map(|((volume, _), paired)| (volume.name.clone(), paired.stamp)));
    Ok(())
}

impl Shard {
    /// Serves another volume.
    pub(crate) fn add_volume(&mut self, id: VolumeId, volume: Volume) {
        let config: VolumeConfig = volume.config.clone();
        self.volumes.insert(id, volume);
        self.events.push_back(Event::Configure(Box::new(config)));
    }
}
