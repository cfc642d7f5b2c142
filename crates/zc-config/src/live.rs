//! Which changes of a configuration a running daemon can apply.
//!
//! Job: compare two configurations key by key. What it does not do: apply anything. [`LIVE`] must list only what the
//! engine really applies; everything else is reported as waiting for a restart. (Exceptions are the engine's to make: a
//! volume cannot become read-only, or stop being so, under its clients; it takes up volumes that are new, and lets those
//! go that are gone, if it can.)

use crate::key_lines::{store_key, volume_key};
use crate::show::{Row, store_rows, volume_rows};
use crate::{Config, StoreConfig};

/// The keys that take effect while the daemon runs, by section. The codec, dedup and window settings of `[cache]` are
/// here because they are no more than defaults of the volumes, whose own keys are listed too.
pub const LIVE: &[(&str, &str)] = &[
    ("cache", "compression"),
    ("cache", "compression_level"),
    ("cache", "dedup"),
    ("cache", "destage_window"),
    ("volume", "mode"),
    ("volume", "ack"),
    ("volume", "max_dirty_age"),
    ("volume", "destage"),
    ("volume", "destage_window"),
    ("volume", "on_cache_loss"),
    ("volume", "full_wait"),
    ("volume", "admission"),
    ("volume", "sequential_cutoff"),
    ("volume", "quota"),
    ("volume", "reserve"),
    ("volume", "priority"),
    ("volume", "pin"),
    ("volume", "dedup"),
    ("volume", "compression"),
    ("volume", "compression_level"),
    ("volume", "index_share"),
    ("nbd", "allow"),
    ("nbd", "tls"),
    ("nbd", "tls_certificate"),
    ("nbd", "tls_key"),
    ("nbd", "tls_client_ca"),
    ("nbd", "tls_client_crl"),
    ("nbd", "connections_max"),
    ("nbd", "connections_per_client_max"),
    ("nbd", "ipv6_client_prefix"),
    ("nbd", "requests_in_flight_max"),
    ("nbd", "bytes_in_flight_max"),
    ("nbd", "bytes_in_flight_per_connection_max"),
    ("nbd", "handshake_timeout"),
    ("nbd", "stall_timeout"),
    ("nbd", "idle_timeout"),
    ("nbd", "keepalive"),
    ("volume", "nbd.export"),
    ("volume", "nbd.description"),
    ("volume", "nbd.read_only"),
    ("volume", "nbd.allow"),
    ("volume", "nbd.tls"),
    ("volume", "nbd.allow_certificates"),
    ("volume", "limits.iops"),
    ("volume", "limits.read_iops"),
    ("volume", "limits.write_iops"),
    ("volume", "limits.iops_burst"),
    ("volume", "limits.bytes_per_s"),
    ("volume", "limits.read_bytes_per_s"),
    ("volume", "limits.write_bytes_per_s"),
    ("volume", "limits.bytes_burst"),
    ("volume", "limits.origin_iops"),
    ("volume", "limits.origin_bytes_per_s"),
    ("log", "level"),
];

/// A difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key: `cache.max_ram`, `volume "db": mode`; the volume alone when it comes or goes.
    pub key: String,
    /// The value before, as TOML; `None` if there was none.
    pub before: Option<String>,
    /// The value now, as TOML; `None` if there is none.
    pub after: Option<String>,
    /// `true` if it applies to a running daemon.
    pub live: bool,
}

/// The settings of a volume: key, value as TOML, and whether a running daemon applies a change of it.
#[must_use]
pub fn volume_settings(volume: &crate::VolumeConfig) -> Vec<(&'static str, String, bool)> {
    let rows = volume_rows(volume).into_iter();
    rows.map(|(key, value)| (key, value, LIVE.contains(&("volume", key)))).collect()
}

/// The differences between two configurations, in the order of the file. Volumes are known by their names; whether
/// one that comes needs a restart, depends on what the cache knows.
#[must_use]
pub fn diff_live(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(&mut changes, "cache", |key| format!("cache.{key}"), old.cache_rows(), &new.cache_rows());
    compare_stores(&mut changes, old, new);
    for volume in &new.volumes {
        let name = &volume.name;
        match old.volumes.iter().find(|before| before.name == *name) {
            Some(before) => {
                let label = |key: &str| volume_key(name, key);
                compare(&mut changes, "volume", label, volume_rows(before), &volume_rows(volume));
            }
            None => changes.push(volume_change(name, None, Some("added"))),
        }
    }
    for gone in old.volumes.iter().filter(|old| new.volumes.iter().all(|new| new.name != old.name)) {
        changes.push(volume_change(&gone.name, Some("removed"), None));
    }
    compare(&mut changes, "nbd", |key| format!("nbd.{key}"), old.nbd_rows(), &new.nbd_rows());
    compare(&mut changes, "control", |key| format!("control.{key}"), old.control_rows(), &new.control_rows());
    compare(&mut changes, "metrics", |key| format!("metrics.{key}"), old.metrics_rows(), &new.metrics_rows());
    compare(&mut changes, "sandbox", |key| format!("sandbox.{key}"), old.sandbox_rows(), &new.sandbox_rows());
    compare(&mut changes, "log", |key| format!("log.{key}"), old.log_rows(), &new.log_rows());
    changes
}

/// Stores are known by their names, as volumes are.
fn compare_stores(changes: &mut Vec<Change>, old: &Config, new: &Config) {
    let find = |config: &Config, name: &str| {
        config.stores.iter().find(|store| store.name == name).map(store_rows).unwrap_or_default()
    };
    let gone = old.stores.iter().filter(|old| new.stores.iter().all(|new| new.name != old.name));
    for StoreConfig { name, .. } in new.stores.iter().chain(gone) {
        let label = |key: &str| store_key(name, key);
        compare(changes, "store", label, find(old, name), &find(new, name));
    }
}

fn volume_change(name: &str, before: Option<&str>, after: Option<&str>) -> Change {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Change { key: format!("volume \"{name}\""), before: owned(before), after: owned(after), live: false }
}

/// Notes every row that differs, also one that only one side has.
fn compare(
    changes: &mut Vec<Change>,
    section: &str,
    label: impl Fn(&str) -> String,
    old: Vec<Row>,
    new: &[Row],
) {
    let find = |key: &str| new.iter().find(|(other, _)| *other == key).map(|(_, value)| value.clone());
    let added: Vec<_> = new.iter().filter(|(key, _)| old.iter().all(|(other, _)| other != key)).collect();
    let added = added.into_iter().map(|(key, value)| (*key, None, Some(value.clone())));
    let both = old.into_iter().map(|(key, before)| (key, Some(before), find(key))).collect::<Vec<_>>();
    for (key, before, after) in both.into_iter().chain(added.collect::<Vec<_>>()) {
        if before != after {
            changes.push(Change { key: label(key), before, after, live: LIVE.contains(&(section, key)) });
        }
    }
}
