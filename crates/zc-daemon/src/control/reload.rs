//! Reads the configuration again, and applies the changes that a running daemon can.
//!
//! Job: `reload`, and `check-config`, which reports the prospective result of a reload of another file.
//!
//! Invariants: steps that may fail come first. Exactly the applied changes are in force; the rest is reported again by
//! the next reload. A concurrent change waits.
//!
//! It does not write the file. The daemon may only read it; `zcctl volume` writes it.

use std::path::PathBuf;

use serde_json::{Value, json};
use zc_config::{Config, diff_live};
use zc_core::Mode;

use crate::control::add_volume::Changed;
use crate::control::{InForce, Shared};
use crate::program::ConfigFile;
use zc_config::manager::{Found, volume_config};
use zc_engine::front::reloadable::default_export;
use zc_engine::front::settings::has_durable_journal;
use zc_engine::front::tls::Tls;
use zc_engine::shard::commands::Command;

/// Outcome of a new configuration's keys.
struct Keys {
    applied: Vec<String>,
    later: Vec<String>,
}

impl Keys {
    /// Compares the configuration in force with the new one, including added and removed volumes.
    fn new(in_force: &InForce, new: &Config, changed: &Changed) -> Self {
        let (mut applied, mut later) = (changed.applied.clone(), changed.later.clone());
        for change in diff_live(&in_force.config, new) {
            if applied.contains(&change.key) {
                continue;
            }
            if let Some(until) = until_restart(in_force, new, &change.key) {
                later.push(format!(
                    "{} (from or to read-only; the volume is {} until then)",
                    change.key,
                    until.word()
                ));
            } else if change.live {
                applied.push(change.key);
            } else {
                later.push(changed.explained(change.key));
            }
        }
        Self { applied, later }
    }

    fn to_json(&self) -> Value {
        json!({ "applied": self.applied, "needs_restart": self.later })
    }
}

/// The mode until the restart, if a key is the mode of a volume that becomes read-only, or stops being so.
fn until_restart(in_force: &InForce, new: &Config, key: &str) -> Option<Mode> {
    let (name, current) = in_force.volumes.iter().find(|(name, _)| key == mode_key(name))?;
    let wanted = new.volumes.iter().find(|volume| volume.name == *name)?.mode;
    let until = live_mode(current.mode, wanted);
    (until != wanted).then_some(until)
}

fn mode_key(name: &str) -> String {
    format!("volume \"{name}\": mode")
}

/// The mode of a volume that is served when it is to be `wanted`. From and to read-only it needs a restart: its origin
/// was opened for reading, and its export announced as read-only. A volume that is to become read-only leaves write-back
/// at once: the start cannot serve it as read-only while it has dirty data.
pub(crate) fn live_mode(now: Mode, wanted: Mode) -> Mode {
    match (now, wanted) {
        (Mode::WriteBack, Mode::ReadOnly) => Mode::WriteThrough,
        (Mode::ReadOnly, _) | (_, Mode::ReadOnly) => now,
        _ => wanted,
    }
}

impl Shared {
    fn config_file(&self) -> Result<&ConfigFile, String> {
        self.hooks.config_file.as_ref().ok_or_else(|| "there is no configuration to reload".to_owned())
    }

    /// Reads the configuration again and applies the changes that a running daemon can; reports the rest.
    pub(crate) async fn reload(&self) -> Result<Value, String> {
        let file = self.config_file()?;
        self.notify(&[sd_notify::NotifyState::Reloading]);
        let result = match file.read_all().await {
            Ok((new, tls)) => self.apply(new, tls).await,
            Err(error) => Err(error),
        };
        self.notify(&[sd_notify::NotifyState::Ready]);
        if let Ok(value) = &result {
            tracing::info!("reloaded: {value}");
        }
        result
    }

    /// Returns the path of the configuration file, whether it has changed since it was last read, and the settings of
    /// a volume.
    pub(crate) async fn config_report(&self, volume: Option<&str>) -> Result<Value, String> {
        let file = self.config_file()?;
        let in_force = self.settings().await?;
        let unread = match file.read_again().await {
            Ok(now) => diff_live(&in_force.last_read, &now).into_iter().map(|change| change.key).collect(),
            Err(error) => vec![error],
        };
        let settings = volume.map(|name| {
            let volume = in_force.config.volumes.iter().find(|volume| volume.name == name);
            let volume = volume.ok_or_else(|| format!("there is no volume \"{name}\""))?;
            let rows = zc_config::volume_settings(volume).into_iter();
            let row = |(key, value, live)| json!({ "key": key, "value": value, "live": live });
            Ok::<_, String>(Value::Array(rows.map(row).collect()))
        });
        Ok(json!({ "path": file.path(), "unread": unread, "settings": settings.transpose()? }))
    }

    /// Returns the prospective result of a reload with this file beside the configuration file.
    pub(crate) async fn check_config(&self, candidate: &str) -> Result<Value, String> {
        let file = self.config_file()?;
        let (new, _tls) = file.read_candidate(PathBuf::from(candidate)).await?;
        self.check_connections(&new)?;
        self.check_room(&new).await?;
        let in_force = self.settings().await?;
        let mut changed = self.would_remove(&in_force, &new).await?;
        changed.and(self.would_add(&in_force, &new, &changed).await?);
        Ok(Keys::new(&in_force, &new, &changed).to_json())
    }

    /// More connections than the data plane has places for need a restart.
    fn check_connections(&self, new: &Config) -> Result<(), String> {
        let (wanted, most) = (new.nbd.connections_max, self.connections_most);
        if wanted > most {
            return Err(format!(
                "nbd.connections_max is {wanted}, and this daemon has places for {most}: more need a restart"
            ));
        }
        Ok(())
    }

    /// Checks that reserves and pins fit the cache. An offline cache has no size to compare with.
    async fn check_room(&self, new: &Config) -> Result<(), String> {
        let stats = self.stats().await?;
        if !stats.cache_healthy {
            return Ok(());
        }
        let cache_bytes = stats.slots[1].saturating_mul(self.weu_bytes.into());
        let infos = self.infos();
        let volume_bytes =
            |name: &str| infos.iter().find(|(served, _)| served == name).map(|(_, info)| info.size_bytes);
        let pins = || new.pins_mistake(cache_bytes, volume_bytes);
        new.reserves_mistake(cache_bytes).or_else(pins).map_or(Ok(()), Err)
    }

    async fn apply(&self, new: Config, tls: Tls) -> Result<Value, String> {
        // Steps that may fail come first.
        self.check_connections(&new)?;
        self.check_room(&new).await?;
        let mut in_force = self.settings().await?;
        // Removed volumes free capacity for those added with their origins.
        let mut changed = self.remove_volumes(&mut in_force, &new).await?;
        self.announce_write_back(&in_force, &new).await?;
        changed.and(self.add_volumes(&mut in_force, &new).await?);
        self.reconfigure_absent(&new);
        if new.log != in_force.config.log {
            let set = self.hooks.set_log_level.as_ref().ok_or("the log level cannot be changed")?;
            set(&new.log.level)?;
        }
        let mut keys = Keys::new(&in_force, &new, &changed);
        let mut configs = Vec::new();
        // The journal's place is not live.
        let durable_journal = has_durable_journal(&in_force.config.cache);
        for (name, current) in &mut in_force.volumes {
            let Some(volume) = new.volumes.iter().find(|volume| volume.name == *name) else { continue };
            let found = Found {
                id: current.id,
                size_bytes: current.size_bytes,
                region_bytes: current.region_bytes,
                trusted: current.trusted,
                may_be_dirty: current.may_be_dirty,
                durable_journal,
                // Fixed until the volume is started again.
                domain: current.domain,
            };
            let wanted = volume_config(volume, found);
            if let Some(mut info) = self.registry.volumes.get_mut(name) {
                info.exported = volume.nbd.export;
            }
            let (before, wanted_mode) = (current.mode, wanted.mode);
            *current = zc_cache::config::VolumeConfig { mode: live_mode(before, wanted_mode), ..wanted };
            let key = mode_key(name);
            // This also reverts a mode set by `set-mode`.
            if current.mode != before && current.mode == wanted_mode && !keys.applied.contains(&key) {
                keys.applied.push(key);
            }
            configs.push((name.clone(), current.clone()));
        }
        in_force.take_on(&new, tls);
        let front = in_force.front();
        self.mailbox.send(Command::Front(Box::new(front)));
        // A concurrent change waits, because it would be reverted otherwise.
        self.configure(configs).await?;
        drop(in_force);
        Ok(keys.to_json())
    }
}

impl InForce {
    /// Updates the configuration in force by the applied changes; the rest is reported until a restart.
    fn take_on(&mut self, new: &Config, tls: Tls) {
        for volume in &mut self.config.volumes {
            if let Some(wanted) = new.volumes.iter().find(|wanted| wanted.name == volume.name) {
                let mode = live_mode(volume.mode, wanted.mode);
                let kept = (volume.origin.clone(), volume.create_bytes, volume.direct);
                let other = (volume.in_store.clone(), volume.remote.clone());
                let (origin_tls, connections) = (volume.origin_tls.clone(), volume.connections);
                *volume = wanted.clone();
                volume.mode = mode;
                (volume.origin, volume.create_bytes, volume.direct) = kept;
                (volume.in_store, volume.remote) = other;
                (volume.origin_tls, volume.connections) = (origin_tls, connections);
            }
        }
        self.config.log = new.log.clone();
        let sockets = self.config.nbd.clone();
        self.config.nbd = new.nbd.clone();
        self.config.nbd.keep_sockets(sockets);
        self.default_export = default_export(new);
        self.last_read = new.clone();
        self.tls = tls;
    }
}
