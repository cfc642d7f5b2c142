//! Adds volumes to a running daemon.
//!
//! # Candidates
//! Volumes that a reload finds in the configuration, and those whose origins were missing at the start (`returning`).
//! Cached data of a known volume is judged as at a start (`session/pair`). Its clean contents are distrusted, because
//! the start treated it as a volume that another program may write. Its dirty data was kept.
//!
//! # Order, and effects of a crash
//! 1. Checks that may refuse: two names of one file, an origin whose data another cache holds, an origin in use.
//! 2. Volume table, then state directory, then the record that the volume may become dirty. A start after a crash
//!    finds a volume without cached data; if only the table had it, it starts cold.
//! 3. The plan for a ublk device; the data plane with its manager. Exports follow with the reload's other settings.
//!
//! # Out of scope
//! Removal of a volume (`remove_volume` does it).

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;
use zc_config::Config;

use crate::control::{InForce, Shared};
use crate::program::StartOptions;
use crate::session::cache_device::check_dirty_elsewhere;
use crate::session::check::makeable;
use crate::session::distinct::check_distinct;
use crate::session::looks;
use crate::session::open;
use crate::session::origins;
use crate::session::pair::{Answers, Known, Paired, RisksBefore, When};
use crate::session::serving::{self, Served};
use crate::session::without_cache;
use zc_engine::error::EngineError;
use zc_engine::front::settings;
use zc_engine::origin::Origin;
use zc_engine::origin::OriginStat;
use zc_engine::origin::stores::Stores;
use zc_engine::shard::commands::Command;
use zc_engine::state::ledger::Ledger;
use zc_engine::state::state_dir::VolumeState;

/// Result of added and removed volumes.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) applied: Vec<String>,
    /// Volumes that stay as they are, by key, and why.
    pub(crate) refused: Vec<(String, String)>,
    /// Failures after the addition.
    pub(crate) later: Vec<String>,
}

impl Changed {
    pub(crate) fn and(&mut self, more: Self) {
        self.applied.extend(more.applied);
        self.refused.extend(more.refused);
        self.later.extend(more.later);
    }

    /// Key that is not applied, with a specific reason if there is one.
    pub(crate) fn explained(&self, key: String) -> String {
        match self.refused.iter().find(|(refused, _)| *refused == key) {
            Some((_, reason)) => format!("{key} ({reason})"),
            None => key,
        }
    }
}

/// Volumes with open origins, ready to be served.
struct Prepared {
    config: Config,
    origins: Vec<Origin>,
    origin_stats: Vec<OriginStat>,
    sizes: Vec<u64>,
    paired: Vec<Paired>,
}

impl Shared {
    /// Takes up the volumes of a new configuration that are not served, as far as that is possible now.
    pub(crate) async fn add_volumes(&self, in_force: &mut InForce, new: &Config) -> Result<Changed, String> {
        let (mut changed, wanted) = self.wanted(in_force, new).await?;
        let absent = self.absent();
        let is_absent =
            |volume: &zc_config::VolumeConfig| absent.iter().any(|absent| absent.name == volume.name);
        let (returning, new): (Vec<_>, Vec<_>) = wanted.into_iter().partition(is_absent);
        if !new.is_empty() {
            changed.and(self.take_up(in_force, new, When::Addition).await?);
        }
        for volume in returning {
            let name = volume.name.clone();
            match self.take_up(in_force, vec![volume], When::Return).await {
                Ok(more) => changed.and(more),
                // No reason to refuse the rest.
                Err(why) => {
                    self.stays_absent(&name, &why);
                    let why = "it still cannot be served; `zcctl status` shows the reason".to_owned();
                    changed.refused.push((volume_key(&name), why));
                }
            }
        }
        Ok(changed)
    }

    /// Returns the prospective result of [`Shared::add_volumes`] after the removal of `removed`. Nothing is created or
    /// written.
    pub(crate) async fn would_add(
        &self,
        in_force: &InForce,
        new: &Config,
        removed: &Changed,
    ) -> Result<Changed, String> {
        let (mut changed, wanted) = self.wanted(in_force, new).await?;
        if wanted.is_empty() {
            return Ok(changed);
        }
        changed.applied.extend(wanted.iter().map(|volume| volume_key(&volume.name)));
        let mut all = in_force.config.clone();
        all.volumes.retain(|volume| !removed.applied.contains(&volume_key(&volume.name)));
        all.volumes.extend(wanted.iter().cloned());
        let only = Config { volumes: wanted, ..in_force.config.clone() };
        let (ledger, stores) = (Arc::clone(&self.ledger), Arc::clone(&self.stores));
        let work = move || {
            let judged = judge(&all, &only, When::Addition, &ledger, &stores)?;
            let missing = only.volumes.iter().zip(&judged.origins).filter(|(_, origin)| origin.is_none());
            missing
                .map(|(volume, _)| volume)
                .filter(|volume| volume.is_raw())
                .try_for_each(|volume| makeable(&volume.origin))
        };
        self.work_on_cache(work).await?;
        Ok(changed)
    }

    /// Returns the volumes of a new configuration that are not served and can be inspected, and the reasons against
    /// the others.
    async fn wanted(
        &self,
        in_force: &InForce,
        new: &Config,
    ) -> Result<(Changed, Vec<zc_config::VolumeConfig>), String> {
        let mut changed = Changed::default();
        let is_new = |volume: &&zc_config::VolumeConfig| {
            in_force.config.volumes.iter().all(|known| known.name != volume.name)
        };
        let mut wanted: Vec<_> = new.volumes.iter().filter(is_new).cloned().collect();
        if wanted.is_empty() {
            return Ok((changed, wanted));
        }
        let hindrance = self.hindrance().await?;
        let missing = self.missing(&wanted).await?;
        wanted.retain(|volume| {
            let reason = hindrance.or_else(|| {
                missing
                    .contains(&volume.name)
                    .then_some("its origin still cannot be opened; the daemon keeps retrying")
            });
            if let Some(reason) = reason {
                changed.refused.push((volume_key(&volume.name), reason.to_owned()));
            }
            reason.is_none()
        });
        Ok((changed, wanted))
    }

    /// Serves these volumes, whose origins are there: all of them or none.
    pub(crate) async fn take_up(
        &self,
        in_force: &mut InForce,
        wanted: Vec<zc_config::VolumeConfig>,
        when: When,
    ) -> Result<Changed, String> {
        let mut added = Changed::default();
        let mut all = in_force.config.clone();
        all.volumes.extend(wanted.iter().cloned());
        let only = Config { volumes: wanted, ..in_force.config.clone() };
        let (ledger, registry) = (Arc::clone(&self.ledger), Arc::clone(&self.registry));
        let stores = Arc::clone(&self.stores);
        let work = move || {
            let prepared = prepare(&all, only, when, &ledger, &stores)?;
            record(&prepared, &ledger)?;
            let Prepared { config, origins, sizes, paired, .. } = prepared;
            let served = serving::served(&config, &registry, origins, &paired, &sizes, &ledger.superblock());
            let volumes = served.volumes.iter().map(|(_, volume)| (&volume.name, &volume.config));
            ledger.acknowledges_early(&settings::early(volumes))?;
            Ok((served, config))
        };
        let (Served { volumes, ublk, .. }, config) = self.work_on_cache(work).await?;
        for ((id, volume), configured) in volumes.into_iter().zip(config.volumes) {
            let (name, for_manager) = (volume.name.clone(), serving::lasting(&volume.config));
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
            let name = plan.name().to_owned();
            if let Err(reason) = self.ublk.add(plan).await {
                added.later.push(format!("{}: ublk.attach ({reason})", volume_key(&name)));
            }
        }
        Ok(added)
    }

    /// Volumes that the start left out and whose origins still cannot be opened. These are no reason to refuse the
    /// others. An origin of another volume that does not answer refuses all.
    async fn missing(&self, wanted: &[zc_config::VolumeConfig]) -> Result<Vec<String>, String> {
        let (asked, stores) = (wanted.to_vec(), Arc::clone(&self.stores));
        let look = move || {
            let looked = looks::at_all(asked.iter(), &stores);
            asked.into_iter().map(|volume| volume.name).zip(looked).collect::<Vec<_>>()
        };
        let looked = tokio::task::spawn_blocking(look).await;
        let absent = self.absent();
        let mut missing = Vec::new();
        for (name, outcome) in looked.map_err(|_| "the check of origins was interrupted".to_owned())? {
            match outcome {
                Err(_) if absent.iter().any(|absent| absent.name == name) => missing.push(name),
                Err(error) if error.is_silence() => return Err(error.to_string()),
                // Faults are reported when the origin is opened.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(missing)
    }

    /// Returns the reason why no volume can be added now.
    pub(crate) async fn hindrance(&self) -> Result<Option<&'static str>, String> {
        Ok((!self.stats().await?.cache_healthy)
            .then_some("the cache device does not answer, and must record the volume first"))
    }
}

/// Key of an added or removed volume in the differences of two configurations.
pub(crate) fn volume_key(name: &str) -> String {
    format!("volume \"{name}\"")
}

/// Volumes of which is known that they may be served.
struct Judged {
    origins: Vec<Option<Origin>>,
    sizes: Vec<u64>,
    paired: Vec<Paired>,
}

/// Performs all checks that may refuse, without creating or writing anything.
fn judge(
    all: &Config,
    config: &Config,
    when: When,
    ledger: &Ledger,
    stores: &Stores,
) -> Result<Judged, EngineError> {
    check_distinct(all)?;
    settings::ring_ops(all)?;
    let origins = origins::open_existing(config, stores)?;
    let sizes = origins::sizes(config, &origins)?;
    let superblock = ledger.superblock();
    let dirty_elsewhere = open::dirty_elsewhere(config, &StartOptions::default(), &origins)?;
    check_dirty_elsewhere(config, &dirty_elsewhere, Some(&superblock.uuid))?;
    let (table, state) = (ledger.table(), ledger.state().snapshot());
    let cache_path: PathBuf = config.cache.path.clone();
    let known = Known {
        cache_path: &cache_path,
        table: &table,
        session: superblock.session,
        clean: false,
        state: &state,
        cold: false,
        when,
        answers: Answers::default(),
        risks: RisksBefore::default(),
    };
    let found = open::found(config, &origins, &state, superblock.boot_id)?;
    let paired = open::judge(config, &known, &found, &sizes)?;
    Ok(Judged { origins, sizes, paired })
}

/// Everything that can be refused; then origins that are to be made.
fn prepare(
    all: &Config,
    config: Config,
    when: When,
    ledger: &Ledger,
    stores: &Stores,
) -> Result<Prepared, EngineError> {
    let Judged { mut origins, sizes, paired } = judge(all, &config, when, ledger, stores)?;
    origins::create(&config, &mut origins, stores)?;
    let uuid = ledger.superblock().uuid;
    open::disown_others(&config, &uuid, &without_cache::paired_origins(&config, &origins, true)?)?;
    let origins: Vec<_> = origins.into_iter().flatten().collect();
    let origin_stats = origins.iter().map(OriginStat::of).collect::<Result<_, _>>()?;
    Ok(Prepared { config, origins, origin_stats, sizes, paired })
}

/// Durably records the pairing, and the volumes that may become dirty.
fn record(prepared: &Prepared, ledger: &Ledger) -> Result<(), EngineError> {
    let Prepared { config, origin_stats, paired, .. } = prepared;
    let volumes = || config.volumes.iter().zip(origin_stats).zip(paired);
    ledger.set_table(|table| {
        for ((volume, origin_stat), paired) in volumes() {
            let record = serving::record(volume, &origin_stat.identity, origin_stat.len_bytes, paired);
            table.records.retain(|known| known.id != record.id);
            table.records.push(record);
        }
    })?;
    ledger.state().update(|state| {
        for ((volume, origin_stat), paired) in volumes() {
            // Discarded epochs must be discarded again until a session has ended cleanly.
            let given_up = state.volumes.get(&volume.name).map_or(0, |entry| entry.given_up);
            let entry = VolumeState { given_up, ..serving::state(volume, &origin_stat.identity, paired) };
            state.volumes.insert(volume.name.clone(), entry);
        }
    })?;
    let write_back = config.volumes.iter().filter(|volume| volume.mode == zc_core::Mode::WriteBack);
    ledger.may_become_dirty(&write_back.map(|volume| volume.name.clone()).collect::<Vec<_>>())?;
    ledger.add_stamps(volumes().map(|((volume, _), paired)| (volume.name.clone(), paired.stamp)));
    Ok(())
}
