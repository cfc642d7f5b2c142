//! Moves the cache to another device, or recreates it on a device that has grown, while clients stay connected.
//!
//! Job: let the data plane close its cache, create a cache on the other device, and let the data plane continue with a
//! manager for that one.
//!
//! # Order, and effects of a crash
//! 1. Checks that may refuse. The new device is opened, locked, and written once: a read-only one is detected here.
//! 2. Write-back volumes become write-through, and all dirty data is destaged. A start finds the old cache as after
//!    any kill.
//! 3. Requests are held back (`shard/pause`). The manager closes its cache, as at a stop. The old device and the state
//!    directory record a clean end without dirty data. A start from here on finds the old cache, clean.
//! 4. The new device becomes the cache: it gets the old one's identity, and session numbers above all of the old one.
//!    Then the state directory records the location of the cache (`state/moved`). A start from here on uses the new
//!    device. It is empty, and the origins have all acknowledged data.
//! 5. The code of a start begins a session on it, and a new manager takes the requests that were held back. Volumes
//!    are write-back again, which is durably recorded before.
//! 6. The old device becomes an empty cache with an identity of its own, so that it can be reused.
//!
//! # Soundness
//! For the manager it is a stop and a start with an empty cache. No acknowledged write depends on either device
//! between steps 3 and 5: nothing is dirty, and no request is executed. Because of the same identity, the protection
//! against an old image of the cache applies to the old device: its session is lower than the one recorded in the
//! state directory.
//!
//! If a step from 4 on fails, a session starts on the old cache again, cold. If that fails, too, the data plane ends,
//! as by a kill: the service manager restarts the daemon, and that start has either device, clean, or continues
//! without.
//!
//! On the same device step 4 destroys the old cache. A crash within it leaves a device without a cache, and the start
//! serves from the origins alone.
//!
//! # Out of scope
//! Writing the configuration (`zcctl cache replace` does, and `state/moved` warns until then), copying contents, and
//! moving a journal on a separate device.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_config::Config;
use zc_core::units::SizeOrShare;
use zc_core::{Mode, VolumeId};

use crate::control::reattach::{self, COLD_REASON, Ended, FoundCache, Paused, Served, blocking};
use crate::control::{InForce, Shared};
use crate::limits::{DRAIN_LOOK_MS, DRAIN_REST_MS};
use crate::session::new_device::{self, NewDevice};
use crate::session::pair::Paired;
use zc_engine::error::EngineError;
use zc_engine::shard::close::in_time;
use zc_engine::shard::commands::Command;
use zc_engine::shard::pause::{Closed, OpenResources, Replacement};
use zc_engine::shard::stats::ShardStats;
use zc_engine::state::ledger::Ledger;
use zc_engine::state::moved::Moved;

/// Destination of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// On another device.
    Other { path: PathBuf, force: bool },
    /// The current device, with its current size.
    Same,
}

impl Shared {
    /// Exchanges the cache; returns source and destination. `dry_run`: only checks that it is possible.
    pub(crate) async fn exchange_cache(&self, target: &Target, dry_run: bool) -> Result<Value, String> {
        let mut in_force = self.settings().await?;
        let stats = self.stats().await?;
        self.can_exchange(&in_force, &stats)?;
        let from = in_force.config.cache.path.clone();
        let mut config = in_force.config.clone();
        if let Target::Other { path, .. } = target {
            if is_same_place(path, &from) {
                return Err(format!(
                    "{} is the cache already; `zcctl cache resize` makes it larger",
                    from.display()
                ));
            }
            config.cache.path.clone_from(path);
        }
        let new = self.open_new(&config, target).await?;
        let answer = json!({
            "from": from,
            "to": config.cache.path,
            "size_bytes": new.len_bytes(),
            "used_bytes": stats.slots[0].saturating_mul(self.weu_bytes.into()),
            "dirty": stats.dirty,
        });
        if dry_run {
            return Ok(answer);
        }
        if *target != Target::Same {
            let (tried, config) = (new.clone(), config.clone());
            blocking(move || tried.make_empty(&config)).await?;
        }
        let volumes = in_force.volumes.clone();
        let done = self.exchange(&mut in_force, new, config).await;
        if done.is_err() {
            // They may have been write-through temporarily. An end of the data plane was reported already.
            let _ended = self.configure(volumes).await;
        }
        done.map(|()| answer)
    }

    /// Refuses an exchange that is impossible now, or would lose data.
    fn can_exchange(&self, in_force: &InForce, stats: &ShardStats) -> Result<(), String> {
        if self.without_cache {
            return Err(
                "this daemon was started without its cache device: name the new device as cache.path, \
                        `zcctl format` it, and restart the daemon"
                    .to_owned(),
            );
        }
        if in_force.config.cache.journal_path.is_some() {
            return Err("the cache has its journal on a device of its own, which cannot be moved with it while the \
                        daemon runs: `zcctl stop --flush`, `zcctl format --journal JOURNAL NEW-DEVICE`, name that \
                        device as cache.path, and start the daemon"
                .to_owned());
        }
        if stats.cache_healthy && stats.index_loaded_ms.is_none() {
            return Err(
                "the index of the cache is still loading; try again when `zcctl cache show` says that it is \
                        complete"
                    .to_owned(),
            );
        }
        let served: Vec<&str> = in_force.volumes.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(volume) = self.ledger.unserved(&served).first() {
            return Err(format!(
                "the cache has dirty data of volume \"{0}\", which is not served; serve it and `zcctl flush {0}`, or \
                 start the daemon once with --drop-dirty {0}",
                volume.name
            ));
        }
        match stats.dirty.iter().find(|(_, dirty)| dirty.fenced) {
            Some((name, _)) => Err(format!(
                "volume \"{name}\" is fenced, and may have dirty data; `zcctl status` shows the remedy"
            )),
            None => Ok(()),
        }
    }

    async fn open_new(&self, config: &Config, target: &Target) -> Result<NewDevice, String> {
        let config = config.clone();
        match target {
            Target::Other { force, .. } => {
                let (force, now) = (*force, self.ledger.superblock().uuid);
                blocking(move || NewDevice::open(&config, &now, force)).await
            }
            Target::Same => {
                let looked = self.look(false).await?;
                let path = config.cache.path.clone();
                // Planned size of the cache: the device may have grown while no daemon had it open.
                let laid_out = self.ledger.superblock().geometry.device_bytes;
                let new = blocking(move || NewDevice::again(&config, &looked.cache)).await?;
                // A cache occupies whole blocks.
                let (len_bytes, block_bytes) = (new.len_bytes(), u64::from(zc_core::limits::BLOCK_BYTES));
                if len_bytes / block_bytes * block_bytes == laid_out {
                    return Err(format!(
                        "{} has {len_bytes} bytes and is not larger than the cache",
                        path.display()
                    ));
                }
                Ok(new)
            }
        }
    }

    /// Steps 2 to 6.
    async fn exchange(&self, in_force: &mut InForce, new: NewDevice, config: Config) -> Result<(), String> {
        self.bring_all_to_origins(&in_force.volumes).await?;
        let paused = Paused(Arc::clone(&self.mailbox));
        let looked = self.look(true).await?;
        let closed = self.close_cache().await?;
        let (old, len_bytes) = (Arc::clone(&looked.cache), new.len_bytes());
        let is_other = in_force.config.cache.path != config.cache.path;
        let before = Served { config: in_force.config.clone(), volumes: in_force.volumes.clone() };
        let after = Served { config: config.clone(), volumes: in_force.volumes.clone() };
        let move_ = Move { ledger: Arc::clone(&self.ledger), before, after, new, looked, closed };
        let (replacement, failure) = blocking(move || move_.carry_out()).await.map_err(|error| {
            format!("{error}; neither device can be used now, so the daemon exits, and its next start reports the \
                fault")
        })?;
        for ((name, config), new) in in_force.volumes.iter_mut().zip(&replacement.volumes) {
            config.clone_from(new);
            if let Some(mut info) = self.registry.volumes.get_mut(name) {
                info.cold_reason = failure.as_ref().map(|_| COLD_REASON.to_owned());
            }
        }
        self.mailbox.send(Command::Swap(Box::new(replacement)));
        drop(paused);
        // It has answered once the new manager is there.
        self.stats().await?;
        if let Some(error) = failure {
            return Err(format!("{error}; the cache is on its old device again, and cold"));
        }
        self.configure(in_force.volumes.clone()).await?;
        in_force.config.cache.path.clone_from(&config.cache.path);
        if let Some(size) = &mut in_force.config.cache.size {
            // The configuration file will have the same.
            *size = SizeOrShare::Bytes(len_bytes);
        }
        self.cache_moved(&config.cache.path);
        tracing::info!("the cache is {} now, and cold", config.cache.path.display());
        if is_other {
            leave(config, old).await;
        }
        Ok(())
    }

    /// Has volumes acknowledge no write that their origins lack, and waits until these have all.
    pub(crate) async fn bring_all_to_origins(
        &self,
        volumes: &[(String, VolumeConfig)],
    ) -> Result<(), String> {
        let write_back = volumes.iter().filter(|(_, volume)| volume.mode == Mode::WriteBack);
        let through: Vec<(String, VolumeConfig)> = write_back
            .map(|(name, volume)| (name.clone(), VolumeConfig { mode: Mode::WriteThrough, ..volume.clone() }))
            .collect();
        if through.is_empty() {
            return Ok(());
        }
        self.configure(through.clone()).await?;
        for (_, volume) in &through {
            self.mailbox.send(Command::Destage(volume.id));
        }
        let mut looks = DRAIN_REST_MS / DRAIN_LOOK_MS;
        loop {
            let stats = self.stats().await?;
            let Some(left) = left_dirty(&stats) else { return Ok(()) };
            if let Some((name, _)) = stats.dirty.iter().find(|(_, dirty)| dirty.fenced) {
                return Err(format!(
                    "volume \"{name}\" is fenced, and may have dirty data; `zcctl status` shows the remedy"
                ));
            }
            if looks == 0 {
                return Err(format!(
                    "{left} are still dirty, because the origins are too slow; `zcctl flush` the volumes first. If \
                     their clients write faster than the origins, `zcctl set-mode VOLUME write-through` before \
                     that"
                ));
            }
            looks -= 1;
            tokio::time::sleep(Duration::from_millis(DRAIN_LOOK_MS)).await;
        }
    }

    async fn close_cache(&self) -> Result<Closed, String> {
        let (reply, closed) = oneshot::channel();
        self.mailbox.send(Command::Close(reply));
        let closed = closed.await.map_err(|_| "the data plane is busy or has ended".to_owned())?;
        closed.map_err(|error| error.to_string())
    }
}

/// Returns `true` if two paths lead to one file or device.
fn is_same_place(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Returns the dirty data in words.
fn left_dirty(stats: &ShardStats) -> Option<String> {
    let is_dirty = |dirty: &crate::Dirty| dirty.bytes > 0 || dirty.waiting_writes > 0 || dirty.fenced;
    let left = stats.dirty.iter().filter(|(_, dirty)| is_dirty(dirty));
    let left: Vec<String> =
        left.map(|(name, dirty)| format!("{} bytes of volume \"{name}\"", dirty.bytes)).collect();
    (!left.is_empty()).then(|| left.join(", "))
}

/// The old device is no longer the cache. Correctness does not depend on recording that on it.
async fn leave(config: Config, old: Arc<zc_io::BlockFile>) {
    let place: PathBuf = old.path().to_owned();
    if let Err(error) = blocking(move || new_device::make_empty(&config, &old)).await {
        tracing::warn!("{}, which was the cache, is left as it is: {error}", place.display());
    }
}

/// Steps 3 to 5, as far as they block.
struct Move {
    ledger: Arc<Ledger>,
    before: Served,
    after: Served,
    new: NewDevice,
    looked: OpenResources,
    closed: Closed,
}

impl Move {
    /// Returns a manager for the new device; on failure, one for the old device with the reason.
    fn carry_out(self) -> Result<(Replacement, Option<EngineError>), EngineError> {
        match self.end_old().and_then(|()| self.take_new()) {
            Ok(replacement) => Ok((replacement, None)),
            Err(error) => {
                tracing::error!("{error}; the cache stays on its old device");
                let looked = OpenResources { lost: self.closed.owes_loss.clone(), ..self.looked };
                let found = reattach::examine(&self.before, &self.ledger, &looked, Ended::Closed)?;
                reattach::begin(&self.before, &self.ledger, found).map(|old| (old, Some(error)))
            }
        }
    }

    /// Ends the session on the old device, which has no dirty data.
    fn end_old(&self) -> Result<(), EngineError> {
        let named = |id: VolumeId| {
            self.before.volumes.iter().find(|(_, volume)| volume.id == id).map(|(name, _)| name.clone())
        };
        let epochs: Vec<(String, u64)> =
            self.closed.epochs.iter().filter_map(|(id, epoch)| Some((named(*id)?, *epoch))).collect();
        let (is_whole, journal_next) = (self.closed.is_whole, self.closed.journal_next);
        in_time(Arc::clone(&self.ledger), move |ledger| {
            if is_whole {
                let names: Vec<String> = epochs.into_iter().map(|(name, _)| name).collect();
                return ledger.ends_empty(&names, journal_next);
            }
            // The device has failed and cannot be written.
            epochs.iter().try_for_each(|(name, epoch)| ledger.give_up(name, *epoch))
        })
    }

    /// The new device is the cache.
    fn take_new(&self) -> Result<Replacement, EngineError> {
        let config = &self.after.config;
        let last = self.ledger.superblock();
        let session = last.session.max(self.ledger.state().snapshot().session);
        let is_other = self.before.config.cache.path != config.cache.path;
        let dir = &config.cache.state_dir;
        let recorded = Moved::read(dir)?;
        let device = self.new.become_cache(config, last.uuid, session)?;
        let begun = (|| {
            if is_other {
                let moved =
                    Moved::after(recorded.as_ref(), &self.before.config.cache.path, &config.cache.path);
                Moved::write(Some(&moved), dir)?;
            }
            let manager = device.manager_config(config)?;
            let origin_stat = |(_, volume): &(String, VolumeConfig)| {
                let of = self.looked.origin_stats.iter().find(|(id, _)| *id == volume.id);
                of.map(|(_, origin_stat)| *origin_stat)
            };
            let origin_stats = self.after.volumes.iter().filter_map(origin_stat).collect();
            let found = FoundCache { device, manager, paired: self.paired(), origin_stats };
            reattach::begin(&self.after, &self.ledger, found)
        })();
        begun.inspect_err(|_| {
            if is_other {
                self.take_back(recorded.as_ref(), dir);
            }
        })
    }

    /// Volumes as an empty cache takes them up, under the numbers that clients' requests have.
    fn paired(&self) -> Vec<Paired> {
        let state = self.ledger.state().snapshot();
        let paired = |(name, volume): &(String, VolumeConfig)| Paired {
            id: volume.id,
            region_bytes: volume.region_bytes,
            stamp: state.volumes.get(name).map_or(0, |entry| entry.stamp).wrapping_add(1),
            cold_reason: None,
            may_be_dirty: false,
            drop_dirty: false,
            incomplete: false,
            lost_writes: self.closed.owes_loss.contains(&volume.id),
            clients_may_live: true,
        };
        self.after.volumes.iter().map(paired).collect()
    }

    /// The new device does not become the cache after all, and must not pass for it.
    fn take_back(&self, recorded: Option<&Moved>, dir: &Path) {
        let emptied = self.new.make_empty(&self.after.config);
        let undone = Moved::write(recorded, dir);
        for error in [emptied.err(), undone.err()].into_iter().flatten() {
            tracing::error!("the new device cannot be put aside: {error}");
        }
    }
}
