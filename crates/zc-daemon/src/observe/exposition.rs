//! Metrics in the text formats of Prometheus.
//!
//! Job: assign every counter of the daemon to a family with a name, a help sentence and a type; metrics of a volume
//! have it as a label. Names are in base units (bytes, seconds). `prometheus-client` writes the text: the classic
//! format (0.0.4) and OpenMetrics.
//!
//! Invariants: a family is written once, its samples together. Families keep name and meaning within a major version.
//! It does not query the counters (`control`), or serve them (`metrics_http`).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use zc_cache::Stats;
use zc_pool_io::PoolState;

use crate::observe::verdict::Level;
use zc_engine::front::throttle::Waits;
use zc_engine::origin::store_looks::StoreLook;
use zc_engine::registry::VolumeInfo;
use zc_engine::shard::metrics::{BOUNDS_NS, Durations, Path, Traffic};
use zc_engine::shard::stats::{Dirty, Driver, LateRequests, Pins, RemoteOrigin, ShardStats, Share};

/// Prefix of every name.
const PREFIX: &str = "zcached";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Version 0.0.4.
    Classic,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) stats: Box<ShardStats>,
    pub(crate) volumes: Vec<(String, VolumeInfo)>,
    /// Names of volumes that do not serve their clients, those among `volumes` included.
    pub(crate) failed: Vec<String>,
    /// Names of volumes whose origins could not be opened.
    pub(crate) absent: Vec<String>,
    pub(crate) stores: Vec<StoreLook>,
    pub(crate) state: Level,
    pub(crate) ram_max_bytes: u64,
}

impl Scrape {
    /// The text of all families.
    pub(crate) fn render(self, format: Format) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        let written = match format {
            Format::Classic => prometheus_text::encode(&mut page, &registry),
            Format::OpenMetrics => text::encode(&mut page, &registry),
        };
        assert!(written.is_ok(), "writing to a string cannot fail");
        page
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.whole(&mut page)?;
        self.of_manager(&mut page)?;
        for number in DRIVER {
            page.family(number.family, [(vec![], (number.of)(&self.stats.driver))])?;
        }
        self.of_volumes(&mut page)?;
        self.of_stores(&mut page)?;
        self.of_durations(&mut page)
    }
}

/// A sample's value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Whole(u64),
    Seconds(f64),
    Ratio(f64),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl Value {
    fn ms(milliseconds: u64) -> Self {
        Self::Seconds(std::time::Duration::from_millis(milliseconds).as_secs_f64())
    }

    fn us(microseconds: u64) -> Self {
        Self::Seconds(std::time::Duration::from_micros(microseconds).as_secs_f64())
    }
}

/// A family of samples; its name lacks [`PREFIX`], and the format's suffix of counters.
#[derive(Debug, Clone, Copy)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: MetricType,
}

/// A metric family, with the function that reads its value from `T`.
struct Number<T> {
    family: Family<'static>,
    of: fn(&T) -> Value,
}

const fn family(name: &'static str, help: &'static str) -> Family<'static> {
    Family { name, help, kind: MetricType::Gauge }
}

const fn gauge<T>(name: &'static str, help: &'static str, of: fn(&T) -> Value) -> Number<T> {
    Number { family: family(name, help), of }
}

const fn counter<T>(name: &'static str, help: &'static str, of: fn(&T) -> Value) -> Number<T> {
    Number { family: Family { name, help, kind: MetricType::Counter }, of }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Metric families being encoded.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn family<'l>(
        &mut self,
        family: Family<'_>,
        samples: impl IntoIterator<Item = (Labels<'l>, Value)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(family.name, family.help, None, family.kind)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                sample(&mut metric, family.kind, value)?;
            } else {
                sample(&mut metric.encode_family(&labels)?, family.kind, value)?;
            }
        }
        Ok(())
    }

    /// A family with a sample for each volume.
    fn by_volume<'l, T: 'l>(
        &mut self,
        number: &Number<T>,
        of: impl Iterator<Item = (&'l String, &'l T)>,
    ) -> fmt::Result {
        self.family(number.family, of.map(|(name, of)| (volume(name), (number.of)(of))))
    }
}

fn volume(name: &str) -> Labels<'_> {
    vec![("volume", name)]
}

fn sample(metric: &mut MetricEncoder<'_>, kind: MetricType, value: Value) -> fmt::Result {
    match (kind, value) {
        (MetricType::Counter, Value::Whole(value)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (MetricType::Counter, Value::Seconds(value) | Value::Ratio(value)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (_, Value::Whole(value)) => metric.encode_gauge(&value),
        (_, Value::Seconds(value) | Value::Ratio(value)) => metric.encode_gauge(&value),
    }
}

impl Scrape {
    /// Writes the metrics of the whole daemon.
    fn whole(&self, page: &mut Page<'_>) -> fmt::Result {
        for number in WHOLE {
            page.family(number.family, [(vec![], (number.of)(self))])?;
        }
        let states = [Level::Healthy, Level::Degraded, Level::Failed].into_iter();
        let states = states.map(|level| (vec![("state", level.word())], Value::from(level == self.state)));
        page.family(STATE, states)?;
        let ram = self.stats.ram_bytes.iter();
        page.family(RAM, ram.map(|(name, bytes)| (vec![("structure", *name)], Value::Whole(*bytes))))?;
        let points = self.stats.curve.points.iter();
        let points = points.filter_map(|point| Some((point.size.to_string(), point.hit_ratio?)));
        let points: Vec<_> = points.collect();
        page.family(
            CURVE,
            points.iter().map(|(size, ratio)| (vec![("size", size.as_str())], Value::Ratio(*ratio))),
        )?;
        page.family(BUILD, [(vec![("version", env!("CARGO_PKG_VERSION"))], Value::Whole(1))])
    }

    /// Writes the manager's counters, each with its own description.
    fn of_manager(&self, page: &mut Page<'_>) -> fmt::Result {
        for figure in Stats::FIGURES {
            // "summary" is the name of a metric type of Prometheus.
            let name = format!("manager_{}", figure.name.replace("by_summary", "in_one_write"));
            let kind = if figure.is_gauge { MetricType::Gauge } else { MetricType::Counter };
            let value = self.stats.manager.get(figure.name).copied().unwrap_or(0);
            let family = Family { name: &name, help: figure.meaning, kind };
            page.family(family, [(vec![], Value::Whole(value))])?;
        }
        Ok(())
    }

    fn of_volumes(&self, page: &mut Page<'_>) -> fmt::Result {
        let serves = |name: &String| Value::from(!self.failed.contains(name));
        let served = self.volumes.iter().map(|(name, _)| (volume(name), serves(name)));
        let absent = self.absent.iter().map(|name| (volume(name), Value::Whole(0)));
        page.family(SERVED, served.chain(absent))?;
        let infos = self.volumes.iter();
        let mode = infos
            .map(|(name, info)| (vec![("volume", name.as_str()), ("mode", &info.mode)], Value::Whole(1)));
        page.family(INFO, mode)?;
        // Only write-back has a bound, and no sample is better than one that would always be exceeded.
        let bound = |(name, info): &'_ (String, VolumeInfo)| Some((name.clone(), info.max_dirty_age_ms?));
        let bounds: Vec<_> = self.volumes.iter().filter_map(bound).collect();
        page.family(DIRTY_AGE_BOUND, bounds.iter().map(|(name, ms)| (volume(name), Value::ms(*ms))))?;
        for number in INFOS {
            page.by_volume(number, self.volumes.iter().map(|(name, info)| (name, info)))?;
        }
        for number in TRAFFIC {
            page.by_volume(number, self.stats.traffic.iter())?;
        }
        for number in LIMITS {
            page.by_volume(number, self.stats.limits.iter())?;
        }
        for number in ORIGIN_LIMITS {
            page.by_volume(number, self.stats.origin_limits.iter())?;
        }
        for number in SHARES {
            page.by_volume(number, self.stats.shares.iter())?;
        }
        let quota = |(name, share): (&'_ String, &Share)| Some((name.clone(), share.quota_bytes?));
        let quotas: Vec<_> = self.stats.shares.iter().filter_map(quota).collect();
        page.family(QUOTA, quotas.iter().map(|(name, bytes)| (volume(name), Value::Whole(*bytes))))?;
        for number in PINS {
            page.by_volume(number, self.stats.pins.iter())?;
        }
        for number in REMOTE {
            page.by_volume(number, self.stats.remote.iter())?;
        }
        for number in LATE {
            page.by_volume(number, self.stats.late.iter())?;
        }
        for number in DIRTY {
            page.by_volume(number, self.stats.dirty.iter())?;
        }
        Ok(())
    }

    fn of_stores(&self, page: &mut Page<'_>) -> fmt::Result {
        for number in STORES {
            let samples = self.stores.iter().map(|of| (vec![("store", of.name.as_str())], (number.of)(of)));
            page.family(number.family, samples)?;
        }
        let states = self.stores.iter().flat_map(|store| {
            let sample = |(word, state): &(&'static str, PoolState)| {
                (vec![("store", store.name.as_str()), ("state", *word)], Value::from(store.state == *state))
            };
            STORE_STATES.iter().map(sample)
        });
        page.family(STORE_STATE, states)
    }

    /// Histograms by volume and path.
    fn of_durations(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut family =
            page.0.encode_descriptor(DURATION.name, DURATION.help, None, MetricType::Histogram)?;
        for (volume, durations) in &self.stats.durations {
            for (word, path) in Path::WORDS {
                let labels = vec![("volume", volume.as_str()), ("path", word)];
                histogram(&mut family.encode_family(&labels)?, durations, path)?;
            }
        }
        Ok(())
    }
}

fn histogram(metric: &mut MetricEncoder<'_>, durations: &Durations, path: Path) -> fmt::Result {
    let steps = durations.of(path);
    let bounds = BOUNDS_NS.iter().map(|bound_ns| seconds(*bound_ns)).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(steps.counts).collect();
    metric.encode_histogram::<NoLabelSet>(seconds(steps.sum_ns), steps.counts.iter().sum(), &buckets, None)
}

fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

const WHOLE: &[Number<Scrape>] = &[
    gauge("uptime_seconds", "Time since the daemon began to start.", |of| Value::ms(of.stats.uptime_ms)),
    gauge("index_loaded", "1 when the index in memory is complete.", |of| {
        of.stats.index_loaded_ms.is_some().into()
    }),
    gauge("cache_healthy", "1 while the cache device works.", |of| of.stats.cache_healthy.into()),
    gauge("stopping", "1 while the daemon is ending.", |of| of.stats.stopping.into()),
    gauge("units_used", "Write-evict units on the cache device.", |of| Value::Whole(of.stats.slots[0])),
    gauge("units_max", "Capacity of the cache device in write-evict units.", |of| {
        Value::Whole(of.stats.slots[1])
    }),
    gauge("regions_used", "Regions that are marked: a power cut would make their contents cold.", |of| {
        Value::Whole(of.stats.regions_active[0])
    }),
    gauge("regions_max", "Regions that may be marked at once.", |of| {
        Value::Whole(of.stats.regions_active[1])
    }),
    gauge("ram_max_bytes", "Bound of the memory for indexes and slot tables, cache.max_ram.", |of| {
        Value::Whole(of.ram_max_bytes)
    }),
    counter(
        "restart_read_bytes",
        "Bytes of superblock, tables, checkpoint and journal read at the start.",
        |of| Value::Whole(of.stats.restart_bytes_read),
    ),
];

const STATE: Family<'_> =
    family("state", "1 for the state that `zcctl status` gives the daemon, 0 for the others.");
const RAM: Family<'_> = family("ram_bytes", "Memory of the growing structures of the cache manager.");
const CURVE: Family<'_> = family(
    "curve_hit_ratio",
    "Estimated hit ratio of a cache this many times as large for recent reads; absent while unknown.",
);
const BUILD: Family<'_> = family("build_info", "The daemon's version; always 1.");
const SERVED: Family<'_> =
    family("volume_served", "1 if the volume serves its clients, 0 if not; `zcctl status` shows the reason.");
const INFO: Family<'_> = family("volume_info", "The volume's mode; always 1.");
const DIRTY_AGE_BOUND: Family<'_> =
    family("dirty_age_bound_seconds", "Bound of the age of a write-back volume's dirty data, max_dirty_age.");
const DURATION: Family<'_> = family(
    "request_duration_seconds",
    "Time from the complete request to its answer being handed over, by path: a read that hit the cache, missed it, \
     or \
     both (mixed); a write, trim or zeroing; a flush.",
);

const STORES: &[Number<StoreLook>] = &[
    gauge("store_size_bytes", "Size of the store.", |of| Value::Whole(of.total_bytes)),
    gauge(
        "store_left_bytes",
        "Bytes that contents may still take once the cleaner has freed all dead data.",
        |of| Value::Whole(of.left_bytes),
    ),
    gauge(
        "store_pages_lost",
        "Pages of volume maps that cannot be read: the data they refer to is not freed.",
        |of| Value::Whole(of.pages_lost),
    ),
    counter(
        "store_fingerprints_known",
        "Fingerprints of contents that the cache passed to the store, since it was opened.",
        |of| Value::Whole(of.prints_known),
    ),
    counter(
        "store_fingerprints_computed",
        "Fingerprints of contents that the store computed, since it was opened.",
        |of| Value::Whole(of.prints_computed),
    ),
    counter(
        "store_encodings_known",
        "Chunks stored as the cache had compressed them, since the store was opened.",
        |of| Value::Whole(of.encodings_known),
    ),
    counter(
        "store_encodings_computed",
        "Chunks that the store compressed, or tried to, since it was opened.",
        |of| Value::Whole(of.encodings_computed),
    ),
    counter("store_no_space", "Requests that found no space in the store since it was opened.", |of| {
        Value::Whole(of.no_space)
    }),
];

const STORE_STATE: Family<'_> =
    family("store_state", "1 for the state that the store is in, 0 for the others.");
const STORE_STATES: [(&str, PoolState); 5] = [
    ("ok", PoolState::Ok),
    ("low", PoolState::Low),
    ("full", PoolState::Full),
    ("failed", PoolState::Failed),
    ("dropped", PoolState::Dropped),
];

const DRIVER: &[Number<Driver>] = &[
    counter("driver_connections_accepted", "Connections accepted.", |of| {
        Value::Whole(of.connections_accepted)
    }),
    counter("driver_connections_refused", "Connections refused at the bound.", |of| {
        Value::Whole(of.connections_refused)
    }),
    counter(
        "driver_connections_displaced",
        "Connections closed before they chose an export, to admit new ones.",
        |of| Value::Whole(of.connections_displaced),
    ),
    counter("driver_accept_errors", "Failed attempts to accept a connection.", |of| {
        Value::Whole(of.accept_errors)
    }),
    counter(
        "driver_connections_broken",
        "Connections closed because the client violated the protocol or stalled.",
        |of| Value::Whole(of.connections_broken),
    ),
    gauge("driver_requests_in_flight", "Requests being worked on.", |of| Value::Whole(of.requests_in_flight)),
    gauge("driver_payload_bytes", "Memory of payloads in flight.", |of| Value::Whole(of.payload_bytes)),
    gauge("driver_unsent_bytes", "Memory of replies that clients have not taken.", |of| {
        Value::Whole(of.unsent_bytes)
    }),
    counter("driver_payload_stalls", "Times that a connection had to wait for payload memory.", |of| {
        Value::Whole(of.payload_stalls)
    }),
    counter("driver_origin_errors", "Errors of origins.", |of| Value::Whole(of.origin_errors)),
    counter("driver_device_errors", "Errors of the cache device.", |of| Value::Whole(of.device_errors)),
    gauge("driver_reduce_jobs_waiting", "Jobs that wait for reduce workers.", |of| {
        Value::Whole(of.reduce_jobs_waiting)
    }),
    counter(
        "driver_reduce_jobs_inline",
        "Jobs that the data plane did itself because the queues were full.",
        |of| Value::Whole(of.reduce_jobs_inline),
    ),
    counter("driver_waits_met", "Waits of the data plane that ended while polling.", |of| {
        Value::Whole(of.waits_met)
    }),
    counter("driver_waits_slept", "Waits of the data plane that ended in sleep.", |of| {
        Value::Whole(of.waits_slept)
    }),
    counter("driver_looked_seconds", "Time that the data plane polled for completions.", |of| {
        Value::us(of.looked_us)
    }),
    counter("driver_turns", "Acquisitions of the shard lock by I/O threads.", |of| Value::Whole(of.turns)),
    counter("driver_turns_seconds", "Time that the shard lock was held, by one thread at a time.", |of| {
        Value::us(of.turns_us)
    }),
    counter("driver_turns_waited_seconds", "Time that I/O threads waited for the shard lock.", |of| {
        Value::us(of.turns_waited_us)
    }),
    gauge("driver_buffers", "Buffers in use.", |of| Value::Whole(of.buffers)),
];

const INFOS: &[Number<VolumeInfo>] = &[
    gauge("volume_size_bytes", "The volume's size.", |of| Value::Whole(of.size_bytes)),
    gauge("volume_cold", "1 if the volume's cache contents were not trusted at the start.", |of| {
        of.cold_reason.is_some().into()
    }),
];

const TRAFFIC: &[Number<Traffic>] = &[
    counter("volume_reads", "Reads of clients.", |of| Value::Whole(of.reads)),
    counter("volume_read_bytes", "Bytes of clients' reads.", |of| Value::Whole(of.read_bytes)),
    counter("volume_hits", "Reads served without the origin.", |of| Value::Whole(of.hits)),
    counter("volume_misses", "Reads served by the origin alone.", |of| Value::Whole(of.misses)),
    counter("volume_mixed", "Reads served in part by each.", |of| Value::Whole(of.mixed)),
    counter("volume_writes", "Writes of clients.", |of| Value::Whole(of.writes)),
    counter("volume_write_bytes", "Bytes of clients' writes.", |of| Value::Whole(of.write_bytes)),
    counter("volume_trims", "Trims and zeroings of clients.", |of| Value::Whole(of.trims)),
    counter("volume_trim_bytes", "Bytes of clients' trims and zeroings.", |of| Value::Whole(of.trim_bytes)),
    counter("volume_flushes", "Flushes of clients.", |of| Value::Whole(of.flushes)),
    counter("volume_failed", "Requests of clients that failed, of any kind.", |of| Value::Whole(of.failed)),
    counter(
        "volume_origin_errors",
        "Errors of the origin, those of destaging and read-ahead included.",
        |of| Value::Whole(of.origin_errors),
    ),
    counter(
        "volume_failed_by_device",
        "Requests that failed because the origin or the cache device did.",
        |of| Value::Whole(of.failed_by_device),
    ),
];

const LIMITS: &[Number<Waits>] = &[
    counter("limits_waited", "Requests of clients that waited for a limit of the volume.", |of| {
        Value::Whole(of.waited)
    }),
    counter("limits_waited_seconds", "Total time of these waits.", |of| Value::us(of.waited_us)),
    gauge("limits_waiting", "Requests of clients that wait for a limit of the volume.", |of| {
        Value::Whole(of.waiting)
    }),
];

const ORIGIN_LIMITS: &[Number<Waits>] = &[
    counter("origin_limits_waited", "Requests of the origin that waited for a limit of the origin.", |of| {
        Value::Whole(of.waited)
    }),
    counter("origin_limits_waited_seconds", "Total time of these waits.", |of| Value::us(of.waited_us)),
    gauge("origin_limits_waiting", "Requests of the origin that wait for a limit of the origin.", |of| {
        Value::Whole(of.waiting)
    }),
];

const SHARES: &[Number<Share>] = &[
    gauge(
        "share_held_bytes",
        "Units of the cache that hold clean content of the volume, if it has a quota, a reserve or a priority.",
        |of| Value::Whole(of.held_bytes),
    ),
    gauge("share_reserve_bytes", "Capacity of the cache that other volumes leave to the volume.", |of| {
        Value::Whole(of.reserve_bytes)
    }),
];
const QUOTA: Family<'_> =
    family("share_quota_bytes", "The most that clean content of the volume may take of the cache.");

const PINS: &[Number<Pins>] = &[
    gauge("pinned_bytes", "Pinned bytes of the volume, in whole extents.", |of| {
        Value::Whole(of.pinned_bytes)
    }),
    gauge("pinned_kept_bytes", "Pinned bytes of the volume that fit the cache.", |of| {
        Value::Whole(of.kept_bytes)
    }),
    gauge("pinned_cached_bytes", "Pinned bytes of the volume that were cached at the last check.", |of| {
        Value::Whole(of.cached_bytes)
    }),
];

const REMOTE: &[Number<RemoteOrigin>] = &[
    gauge("remote_connected", "1 while the connection to the server of the origin serves requests.", |of| {
        of.connected.into()
    }),
    gauge("remote_outage_seconds", "Time since the origin became unreachable; 0 if it is reachable.", |of| {
        Value::ms(of.outage_ms.unwrap_or(0))
    }),
    gauge("remote_owed_bytes", "Memory of changes that the server may lose until the next flush.", |of| {
        Value::Whole(of.owed_bytes)
    }),
    gauge("remote_waiting_requests", "Requests that the server has not answered.", |of| {
        Value::Whole(of.waiting)
    }),
    counter("remote_reconnects", "Connections after the first one.", |of| Value::Whole(of.reconnects)),
    counter("remote_replayed_bytes", "Bytes written again after a reconnect.", |of| {
        Value::Whole(of.replayed_bytes)
    }),
    counter("remote_hole_bytes", "Bytes of reads in holes that the server had reported.", |of| {
        Value::Whole(of.hole_bytes)
    }),
    counter("remote_expired_requests", "Requests that failed because an outage lasted too long.", |of| {
        Value::Whole(of.expired)
    }),
];

const LATE: &[Number<LateRequests>] = &[
    gauge(
        "origin_outage_seconds",
        "Age of the oldest late request to the origin; 0 if none is late.",
        |of| Value::ms(of.outage_ms.unwrap_or(0)),
    ),
    gauge("origin_waiting_requests", "Late requests that the origin has not answered.", |of| {
        Value::Whole(of.waiting)
    }),
    counter(
        "origin_late_requests",
        "Requests to the origin that lasted longer than origin_deadline.",
        |of| Value::Whole(of.late),
    ),
    counter("origin_expired_requests", "Requests that failed because the origin did not answer.", |of| {
        Value::Whole(of.expired)
    }),
];

const DIRTY: &[Number<Dirty>] = &[
    gauge("dirty_bytes", "Bytes of dirty data, with older versions that go to the origin first.", |of| {
        Value::Whole(of.bytes)
    }),
    gauge("dirty_extents", "Extents with dirty data.", |of| Value::Whole(of.extents)),
    gauge("dirty_epochs", "Epochs that are not on the origin.", |of| Value::Whole(of.epochs)),
    gauge(
        "dirty_oldest_age_seconds",
        "The recovery point: how long ago the oldest of these epochs began.",
        |of| Value::ms(of.oldest_age_ms),
    ),
    gauge("dirty_newest_epoch", "Number of the newest epoch.", |of| Value::Whole(of.newest_epoch)),
    gauge("dirty_dirty_epoch", "Number of the newest epoch with dirty data.", |of| {
        Value::Whole(of.dirty_epoch)
    }),
    gauge("dirty_clean_epoch", "Number of the newest epoch that is on the origin.", |of| {
        Value::Whole(of.clean_epoch)
    }),
    counter("dirty_destaged_bytes", "Bytes of dirty data written to the origin.", |of| {
        Value::Whole(of.destaged_bytes)
    }),
    gauge("dirty_draining", "1 while dirty data is written to the origin without a pause.", |of| {
        of.draining.into()
    }),
    gauge("dirty_fenced", "1 while requests fail because dirty data cannot be read.", |of| of.fenced.into()),
    gauge("dirty_waiting_writes", "Writes that wait for space for dirty data.", |of| {
        Value::Whole(of.waiting_writes)
    }),
    gauge("dirty_waiting_seconds", "How long the oldest of them has waited.", |of| Value::ms(of.waiting_ms)),
    gauge("dirty_no_space", "1 while the origin has no space for dirty data.", |of| of.no_space.into()),
    gauge(
        "dirty_stuck_bytes",
        "Dirty bytes that cannot be read back: nothing later reaches the origin.",
        |of| Value::Whole(of.stuck_bytes),
    ),
    gauge("dirty_unreadable_bytes", "Known total of these.", |of| Value::Whole(of.unreadable_bytes)),
    counter(
        "dirty_unreadable",
        "Times that dirty data could not be read back from the cache device.",
        |of| Value::Whole(of.unreadable),
    ),
    counter(
        "dirty_dropped_commits",
        "Starts that found incomplete commits that may have been acknowledged as durable.",
        |of| Value::Whole(of.dropped_commits),
    ),
    counter("dirty_refused", "Times that the origin refused dirty data, which is retried.", |of| {
        Value::Whole(of.refused)
    }),
];
