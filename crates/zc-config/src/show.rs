//! The effective configuration as rows of key and value: printed as a file that parses to the same, and compared row
//! by row at a reload.

use core::fmt::Write as _;
use std::path::Path;

use zc_core::units::{ByteSize, Micros, Millis, Percent};

use crate::{Compression, Config, MaxRam, RegionSize, StoreConfig, VolumeConfig, VolumeLimits};

/// A key and its value in TOML.
pub(crate) type Row = (&'static str, String);

impl Config {
    /// Returns the configuration as TOML, every key written out. Keys without a value are omitted: an optional size,
    /// the level of a codec without levels.
    #[must_use]
    pub fn effective_toml(&self) -> String {
        let mut out = String::new();
        section(&mut out, "[cache]", self.cache_rows());
        for store in &self.stores {
            section(&mut out, "\n[[store]]", store_rows(store));
        }
        for volume in &self.volumes {
            section(&mut out, "\n[[volume]]", volume_rows(volume));
        }
        section(&mut out, "\n[nbd]", self.nbd_rows());
        section(&mut out, "\n[control]", self.control_rows());
        section(&mut out, "\n[metrics]", self.metrics_rows());
        section(&mut out, "\n[sandbox]", self.sandbox_rows());
        section(&mut out, "\n[log]", self.log_rows());
        out
    }

    pub(crate) fn cache_rows(&self) -> Vec<Row> {
        let cache = &self.cache;
        let cpus = |cpus: &[u16]| text(&cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        let region = match cache.region_size {
            RegionSize::Auto => text("auto"),
            RegionSize::Bytes(bytes) => size(bytes),
        };
        let max_ram = match cache.max_ram {
            MaxRam::Auto => text("auto"),
            MaxRam::Bytes(bytes) => size(bytes),
        };
        let mut rows = vec![("path", path(&cache.path))];
        rows.extend(cache.size.map(|size| ("size", text(&size.to_string()))));
        rows.extend(cache.journal_path.as_deref().map(|place| ("journal_path", path(place))));
        rows.extend(cache.journal_bytes.map(|bytes| ("journal_size", size(bytes))));
        rows.extend([
            ("state_dir", path(&cache.state_dir)),
            ("wait_max", duration(cache.wait_max_ms)),
            ("required", cache.required.to_string()),
            ("weu_size", size(cache.weu_bytes.into())),
            ("extent_size", size(cache.extent_bytes.into())),
            ("compression", text(cache.compression.word())),
        ]);
        rows.extend(level(cache.compression, cache.compression_level));
        rows.extend([
            ("fingerprint", text(cache.fingerprint.word())),
            ("fingerprint_index_ratio", percent(cache.fingerprint_index_percent)),
            ("dedup", cache.dedup.to_string()),
        ]);
        rows.extend(cache.discard.map(|discard| ("discard", discard.to_string())));
        rows.extend([
            ("direct", cache.direct.to_string()),
            ("max_ram", max_ram),
            ("reduce_threads", cache.reduce_threads.to_string()),
            ("reduce_cpus", cpus(&cache.reduce_cpus)),
            ("shard_cpus", cpus(&cache.shard_cpus)),
            ("io_threads", cache.io_threads.to_string()),
            ("poll_max", text(&Micros(cache.poll_max_us.into()).to_string())),
            ("device_deadline", duration(cache.device_deadline_ms)),
            ("slow_read", duration(cache.slow_read_ms)),
            ("weu_max_age", duration(cache.weu_max_age_ms)),
            ("prefetch_threshold", size(cache.prefetch_threshold_bytes.into())),
            ("prefetch_max", size(cache.prefetch_max_bytes.into())),
            ("read_buffer", size(cache.read_buffer_bytes.into())),
        ]);
        rows.extend(cache.learned_recipes_bytes.map(|bytes| ("learned_recipes", size(bytes))));
        rows.extend([
            ("staging", size(cache.staging_bytes.into())),
            ("insert_max", size(cache.insert_bytes_max.into())),
            ("regions_active_max", cache.regions_active_max.to_string()),
            ("region_size", region),
            ("policy", text(cache.policy.word())),
            ("packer", text(cache.packer.word())),
            ("dirty_high", percent(cache.dirty_high_percent)),
            ("dirty_low", percent(cache.dirty_low_percent)),
            ("dirty_memory", size(cache.dirty_memory_bytes)),
            ("destage_idle", duration(cache.destage_idle_ms)),
            ("destage_window", list(&cache.destage_window)),
            ("destage_writes", cache.destage_writes.to_string()),
            ("destage_rate", size(cache.destage_bytes_per_s)),
            ("dirty_scrub", duration(cache.dirty_scrub_ms)),
            ("prove_hits", cache.prove_hits.to_string()),
        ]);
        rows
    }

    pub(crate) fn nbd_rows(&self) -> Vec<Row> {
        let nbd = &self.nbd;
        let listen: Vec<_> = nbd.listen.iter().map(|address| text(&address.to_string())).collect();
        let unix: Vec<_> = nbd.unix.iter().map(|socket| path(socket)).collect();
        let mut rows = vec![
            ("listen", format!("[{}]", listen.join(", "))),
            ("unix", format!("[{}]", unix.join(", "))),
            ("unix_mode", text(&format!("{:04o}", nbd.unix_mode))),
        ];
        rows.extend(nbd.unix_group.as_ref().map(|group| ("unix_group", text(group))));
        rows.extend([("allow", list(&nbd.allow)), ("tls", text(nbd.tls.word()))]);
        rows.extend(nbd.tls_certificate.as_ref().map(|file| ("tls_certificate", path(file))));
        rows.extend(nbd.tls_key.as_ref().map(|file| ("tls_key", path(file))));
        rows.extend(nbd.tls_client_ca.as_ref().map(|file| ("tls_client_ca", path(file))));
        rows.extend(nbd.tls_client_crl.as_ref().map(|file| ("tls_client_crl", path(file))));
        let per_client = nbd.connections_per_client_max;
        rows.extend(per_client.map(|most| ("connections_per_client_max", most.to_string())));
        rows.extend([
            ("connections_max", nbd.connections_max.to_string()),
            ("ipv6_client_prefix", nbd.ipv6_client_prefix.to_string()),
            ("requests_in_flight_max", nbd.requests_in_flight_max.to_string()),
            ("bytes_in_flight_max", size(nbd.bytes_in_flight_max)),
            ("bytes_in_flight_per_connection_max", size(nbd.bytes_in_flight_per_connection_max)),
            ("handshake_timeout", duration(nbd.handshake_timeout_ms)),
            ("stall_timeout", duration(nbd.stall_timeout_ms)),
            ("idle_timeout", duration(nbd.idle_timeout_ms)),
            ("keepalive", duration(nbd.keepalive_ms)),
        ]);
        rows
    }

    pub(crate) fn control_rows(&self) -> Vec<Row> {
        vec![("socket", path(&self.control.socket))]
    }

    pub(crate) fn metrics_rows(&self) -> Vec<Row> {
        let row = |key, address: Option<std::net::SocketAddr>| Some((key, text(&address?.to_string())));
        row("listen", self.metrics.listen).into_iter().chain(row("page", self.metrics.page)).collect()
    }

    pub(crate) fn sandbox_rows(&self) -> Vec<Row> {
        let sandbox = &self.sandbox;
        let paths: Vec<_> = sandbox.paths.iter().map(|folder| path(folder)).collect();
        let mut rows = Vec::new();
        rows.extend(sandbox.user.as_ref().map(|user| ("user", text(user))));
        rows.extend([
            ("capabilities", text(sandbox.capabilities.word())),
            ("landlock", text(sandbox.landlock.word())),
            ("paths", format!("[{}]", paths.join(", "))),
            ("seccomp", text(sandbox.seccomp.word())),
            ("core_dumps", sandbox.core_dumps.to_string()),
        ]);
        rows
    }

    pub(crate) fn log_rows(&self) -> Vec<Row> {
        vec![("level", text(&self.log.level))]
    }
}

pub(crate) fn store_rows(store: &StoreConfig) -> Vec<Row> {
    let mut rows = vec![("name", text(&store.name)), ("path", path(&store.path))];
    rows.extend(store.direct.map(|direct| ("direct", direct.to_string())));
    rows.extend([
        ("page_cache", size(store.page_cache_bytes)),
        ("fingerprint_index", size(store.fingerprint_index_bytes)),
        ("workers", store.workers.to_string()),
        ("clean_below", percent(store.clean_below_percent)),
        ("clean_until", percent(store.clean_until_percent)),
        ("clean_rate", size(store.clean_bytes_per_s)),
        ("gather", store.gather.to_string()),
        ("discard", store.discard.to_string()),
    ]);
    rows
}

pub(crate) fn volume_rows(volume: &VolumeConfig) -> Vec<Row> {
    let mut rows = vec![("name", text(&volume.name)), ("origin", path(&volume.origin))];
    rows.extend(volume.remote.is_none().then(|| ("origin_deadline", duration(volume.reach.deadline_ms))));
    rows.extend(volume.reach.outage_max_ms.map(|ms| ("outage_max", duration(ms))));
    rows.extend(volume.remote.as_ref().map(|_| ("connections", volume.connections.to_string())));
    let tls = &volume.origin_tls;
    rows.extend(tls.ca.as_deref().map(|file| ("origin_tls.ca", path(file))));
    rows.extend(tls.certificate.as_deref().map(|file| ("origin_tls.certificate", path(file))));
    rows.extend(tls.key.as_deref().map(|file| ("origin_tls.key", path(file))));
    rows.extend(tls.server_name.as_deref().map(|name| ("origin_tls.server_name", text(name))));
    rows.extend(volume.create_bytes.map(|bytes| ("create_size", size(bytes))));
    rows.push(("mode", text(volume.mode.word())));
    rows.extend(volume.ack.map(|ack| ("ack", text(ack.word()))));
    rows.extend([
        ("max_dirty_age", duration(volume.max_dirty_age_ms)),
        ("destage", text(volume.destage.word())),
        ("destage_window", list(&volume.destage_window)),
        ("on_cache_loss", text(volume.on_cache_loss.word())),
        ("full_wait", duration(volume.full_wait_ms)),
        ("admission", text(volume.admission.word())),
        ("sequential_cutoff", size(volume.sequential_cutoff_bytes)),
        ("quota", text(&volume.quota.to_string())),
        ("reserve", text(&volume.reserve.to_string())),
        ("priority", text(volume.priority.word())),
        ("pin", list(&volume.pins)),
        ("dedup", volume.dedup.to_string()),
        ("dedup_domain", text(&volume.dedup_domain)),
        ("compression", text(volume.compression.word())),
    ]);
    rows.extend(level(volume.compression, volume.compression_level));
    rows.push(("index_share", percent(volume.index_share_percent)));
    rows.extend(volume.direct.map(|direct| ("direct", direct.to_string())));
    rows.extend([
        ("nbd.export", volume.nbd.export.to_string()),
        ("nbd.description", text(&volume.nbd.description)),
        ("nbd.read_only", volume.nbd.read_only.to_string()),
        ("nbd.allow", list(&volume.nbd.allow)),
        ("nbd.tls", volume.nbd.tls.to_string()),
        ("nbd.allow_certificates", list(&volume.nbd.allow_certificates)),
        ("ublk.attach", volume.ublk.attach.to_string()),
        ("ublk.queues", volume.ublk.queues.to_string()),
        ("ublk.queue_depth", volume.ublk.queue_depth.to_string()),
        ("ublk.request_max", size(volume.ublk.request_bytes_max.into())),
        ("ublk.copy", text(volume.ublk.copy.word())),
    ]);
    rows.extend(limit_rows(&volume.limits));
    rows
}

fn limit_rows(limits: &VolumeLimits) -> Vec<Row> {
    let mut rows = vec![
        ("limits.iops", limits.iops.to_string()),
        ("limits.read_iops", limits.read_iops.to_string()),
        ("limits.write_iops", limits.write_iops.to_string()),
    ];
    rows.extend(limits.iops_burst.map(|requests| ("limits.iops_burst", requests.to_string())));
    rows.extend([
        ("limits.bytes_per_s", size(limits.bytes_per_s)),
        ("limits.read_bytes_per_s", size(limits.read_bytes_per_s)),
        ("limits.write_bytes_per_s", size(limits.write_bytes_per_s)),
    ]);
    rows.extend(limits.bytes_burst.map(|bytes| ("limits.bytes_burst", size(bytes))));
    rows.extend([
        ("limits.origin_iops", limits.origin_iops.to_string()),
        ("limits.origin_bytes_per_s", size(limits.origin_bytes_per_s)),
    ]);
    rows
}

fn section(out: &mut String, heading: &str, rows: Vec<Row>) {
    let mut written = writeln!(out, "{heading}");
    for (key, value) in rows {
        written = written.and_then(|()| writeln!(out, "{key} = {value}"));
    }
    assert!(written.is_ok(), "writing to a string cannot fail");
}

fn level(codec: Compression, level: u8) -> Option<Row> {
    codec.levels().map(|_| ("compression_level", level.to_string()))
}

fn list<T: ToString>(values: &[T]) -> String {
    let values: Vec<_> = values.iter().map(|value| text(&value.to_string())).collect();
    format!("[{}]", values.join(", "))
}

fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

/// Paths come from TOML strings, so they are UTF-8.
fn path(value: &Path) -> String {
    text(&value.to_string_lossy())
}

fn size(bytes: u64) -> String {
    text(&ByteSize(bytes).to_string())
}

fn percent(share: u8) -> String {
    text(&Percent(share).to_string())
}

fn duration(ms: u64) -> String {
    text(&Millis(ms).to_string())
}
