//! Configuration changes that a running daemon can apply.
//!
//! Job: compare two configurations key by key. It does not apply changes. [`LIVE`] must list only the keys that the
//! engine really applies; all others are reported as waiting for a restart. (The engine handles exceptions: a volume
//! cannot change to or from read-only under its clients; new volumes are added and missing ones removed if possible.)

use crate::key_lines::{store_key, volume_key};
use crate::show::{Row, store_rows, volume_rows};
use crate::{Config, StoreConfig};

/// Keys that take effect while the daemon runs, by section. The codec, dedup and window settings of `[cache]` are
/// included because they are only defaults of volumes, whose keys are listed too.
pub const LIVE: &[(&str, &str)] = &[
    ("cache", "compression"),
    ("cache", "compression_level"),
    ("cache", "dedup"),
    ("cache", "destage_window"),
    ("volume", "origin_deadline"),
    ("volume", "mode"),
    ("volume", "outage_max"),
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

/// Difference of two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key: `cache.max_ram`, `volume "db": mode`; the volume alone if it is added or removed.
    pub key: String,
    /// Value before, as TOML; `None` if there was none.
    pub before: Option<String>,
    /// Value after, as TOML; `None` if there is none.
    pub after: Option<String>,
    /// `true` if a running daemon applies it.
    pub live: bool,
}

/// Returns the settings of a volume: key, value as TOML, and `true` if a running daemon applies a change of it.
#[must_use]
pub fn volume_settings(volume: &crate::VolumeConfig) -> Vec<(&'static str, String, bool)> {
    let rows = volume_rows(volume).into_iter();
    rows.map(|(key, value)| (key, value, LIVE.contains(&("volume", key)))).collect()
}

/// Returns the differences between two configurations, in the order of the file. Volumes are identified by name;
/// whether a new one needs a restart depends on the cache.
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

/// Stores are identified by name, like volumes.
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

/// Records every differing row, including rows of one side only.
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
