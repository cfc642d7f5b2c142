//! Replay of a trace through the production cache manager, under the daemon's configuration.
//!
//! The configuration's volumes are the trace's devices, in order; further devices get the settings of the last volume.
//! Its files and devices are not opened.

use zc_cache::config::VolumeConfig;
use zc_cache::startup::StartState;
use zc_cache::{CacheManager, Stats};
use zc_config::Config;
use zc_config::manager::Found;
use zc_core::{VolumeId, u64_from_usize};
use zc_format::{Geometry, PlanOptions};

use crate::driver::{Driver, OriginTraffic};
use crate::error::ReplayError;
use crate::load::{Step, Trace};
use crate::ssd::{Ssd, Watcher};

/// Memory of the simulated machine: results do not depend on where they are made.
const MEMORY_BYTES: u64 = u64::MAX;
/// Requests between reports of progress.
const PROGRESS_STEPS: usize = 1 << 14;

/// Size of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum CacheSize {
    /// The configured size of the device, with metadata. For a sample, scaled by its rate.
    #[default]
    Configured,
    /// The write-evict units together have this share, in per cent, of the bytes that the trace reads or writes.
    OfFootprint(f64),
    /// Total bytes of the write-evict units.
    Units(u64),
}

/// Result of a replay.
#[derive(Debug, Clone)]
pub struct Report {
    /// Layout of the cache.
    pub geometry: Geometry,
    /// Sizes of the volumes together, in bytes.
    pub volume_bytes: u64,
    /// Bytes that the trace reads or writes, each once.
    pub footprint_bytes: u64,
    /// Requests replayed.
    pub requests: u64,
    /// The manager's counters.
    pub stats: Stats,
    /// Counters when the cache was taken to be warm: those of the start without a warm-up. Hits, ratios and written
    /// bytes exclude them.
    pub warm: Stats,
    /// Traffic of the origins after that.
    pub origin: OriginTraffic,
    /// Counters of the SSD model, from the start, if there was one.
    pub flash: Option<zc_flash::Stats>,
    /// Bytes of RAM by the manager's structures.
    pub manager_ram: Vec<(&'static str, u64)>,
    /// The manager's estimate of hits at other cache sizes.
    pub curve: zc_cache::Curve,
    /// Bytes of RAM of the simulated devices, without the trace.
    pub replay_ram_bytes: u64,
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

const fn written(stats: &Stats) -> u64 {
    stats.weu_bytes_written
        + stats.journal_bytes_written
        + stats.checkpoint_bytes_written
        + stats.region_map_bytes_written
}

const fn shared(stats: &Stats) -> u64 {
    stats.insert_duplicates + stats.dirty_shared
}

const fn stored(stats: &Stats) -> u64 {
    stats.insert_stored + stats.dirty_stored
}

impl Report {
    /// Bytes of all units.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        u64::from(self.geometry.slots) * u64::from(self.geometry.weu_bytes)
    }

    /// Parts of extents that reads got without the origin.
    #[must_use]
    pub const fn read_hits(&self) -> u64 {
        self.stats.extent_hits() - self.warm.extent_hits()
    }

    /// Parts of extents in reads.
    #[must_use]
    pub fn read_extents(&self) -> u64 {
        self.stats.extents_read() - self.warm.extents_read()
    }

    /// Hits over parts of extents read.
    #[must_use]
    pub fn read_hit_ratio(&self) -> f64 {
        ratio(self.read_hits(), self.read_extents())
    }

    /// Hits over extents read; first uses of prefetched extents count as hits, since they came from the origin before
    /// the client's request.
    #[must_use]
    pub fn read_hit_ratio_with_ahead(&self) -> f64 {
        let ahead = self.stats.prefetched_hits - self.warm.prefetched_hits;
        ratio(self.read_hits() + ahead, self.read_extents())
    }

    /// Bytes written to the cache device: units, journal, checkpoints, region maps.
    #[must_use]
    pub const fn ssd_bytes_written(&self) -> u64 {
        written(&self.stats) - written(&self.warm)
    }

    /// Pages of 4 KiB read from the cache device for each extent that was read from there.
    #[must_use]
    pub fn ssd_pages_per_hit(&self) -> f64 {
        let (now, warm) = (&self.stats, &self.warm);
        let pages =
            (now.device_read_bytes - warm.device_read_bytes) / u64::from(zc_core::limits::BLOCK_BYTES);
        ratio(pages, now.device_read_extents - warm.device_read_extents)
    }

    /// Extents that entered without being stored, as their content was known; dirty ones among them.
    #[must_use]
    pub const fn dedup_hits(&self) -> u64 {
        shared(&self.stats) - shared(&self.warm)
    }

    /// Extents that entered over extents that had to be stored.
    #[must_use]
    pub fn dedup_ratio(&self) -> f64 {
        let (now, warm) = (&self.stats, &self.warm);
        let stored = stored(now) - stored(warm);
        ratio(stored + self.dedup_hits() + now.insert_zero - warm.insert_zero, stored)
    }

    /// Bytes stored before over after compression.
    #[must_use]
    pub fn compression_ratio(&self) -> f64 {
        let (now, warm) = (&self.stats, &self.warm);
        ratio(now.stored_raw_bytes - warm.stored_raw_bytes, now.stored_bytes - warm.stored_bytes)
    }
}

/// Returns the share of a number of bytes for a sample of this rate; all of it for a whole trace.
pub(crate) fn scaled(bytes: u64, rate: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of it, and positive"
    )]
    let part = (bytes as f64 * rate) as u64;
    if rate < 1.0 { part } else { bytes }
}

fn geometry(config: &Config, size: CacheSize, trace: &Trace, volumes: u64) -> Result<Geometry, ReplayError> {
    match size {
        CacheSize::Configured => {
            let size = config.cache.size.ok_or(ReplayError::NoSize)?;
            plan(config, scaled(size.of(volumes), trace.rate))
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive; huge ones saturate"
        )]
        CacheSize::OfFootprint(percent) => {
            with_units(config, (trace.footprint_bytes() as f64 * percent / 100.0) as u64)
        }
        CacheSize::Units(bytes) => with_units(config, bytes),
    }
}

fn plan(config: &Config, device_bytes: u64) -> Result<Geometry, ReplayError> {
    Geometry::plan(&PlanOptions {
        device_bytes,
        weu_bytes: config.cache.weu_bytes,
        extent_bytes: config.cache.extent_bytes,
        align_bytes: 0,
        journal_blocks: None,
    })
    .map_err(|source| ReplayError::Geometry { device_bytes, source })
}

/// Returns the smallest device with `unit_bytes` of units, and the reserved metadata.
///
/// # Errors
/// No device has so many.
pub fn device_bytes(config: &Config, unit_bytes: u64) -> Result<u64, ReplayError> {
    with_units(config, unit_bytes).map(|geometry| geometry.device_bytes)
}

/// Metadata adds to the units: grows the device until they have the wanted size.
fn with_units(config: &Config, wanted: u64) -> Result<Geometry, ReplayError> {
    let unit = u64::from(config.cache.weu_bytes);
    let slots = (wanted / unit).max(1);
    let mut device_bytes = slots * unit;
    loop {
        match plan(config, device_bytes) {
            Ok(geometry) if u64::from(geometry.slots) >= slots => return Ok(geometry),
            Ok(geometry) => device_bytes += (slots - u64::from(geometry.slots)) * unit,
            Err(_) if device_bytes < slots * unit + (1 << 30) => device_bytes += unit,
            Err(error) => return Err(error),
        }
    }
}

/// The volumes as the manager sees them, and their sizes together.
fn volumes(config: &Config, trace: &Trace) -> (Vec<VolumeConfig>, u64) {
    let mut found = Vec::new();
    let mut sum = 0;
    for (number, span) in trace.spans().iter().enumerate() {
        let Some(volume) = config.volumes.get(number).or_else(|| config.volumes.last()) else { continue };
        // Read-ahead may exceed the trace's addresses, up to a whole number of the largest extents.
        let whole = span.next_multiple_of(u64::from(zc_core::limits::EXTENT_BYTES_MAX));
        let size_bytes = volume.create_bytes.unwrap_or(0).max(whole);
        sum += size_bytes;
        let of_device = Found {
            id: VolumeId(u16::try_from(number).unwrap_or(u16::MAX)),
            size_bytes,
            region_bytes: zc_config::manager::region_bytes(config.cache.region_size, size_bytes),
            trusted: true,
            may_be_dirty: false,
            durable_journal: false,
            domain: zc_config::manager::domain(volume, &[0; 16]),
        };
        found.push(zc_config::manager::volume_config(volume, of_device));
    }
    (found, sum)
}

/// Settings of a replay besides trace and configuration.
#[derive(Debug, Clone, Copy, Default)]
pub struct Replay {
    /// Size of the cache.
    pub size: CacheSize,
    /// Compare each read with the last write.
    pub check: bool,
    /// The origin supplies the fingerprints of its contents (Nitro's recipes).
    pub recipes: bool,
    /// Requests that only warm the cache.
    pub warm_requests: u64,
    /// The model of an SSD that the cache device is.
    pub ssd: Option<Ssd>,
}

/// A replay under way.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    pub(crate) driver: Driver<'a>,
    trace: &'a Trace,
    geometry: Geometry,
    volume_bytes: u64,
    warm: Stats,
    warm_origin: OriginTraffic,
    warm_requests: u64,
    passed: u64,
}

impl<'a> Running<'a> {
    pub(crate) fn start(trace: &'a Trace, config: &Config, replay: Replay) -> Result<Self, ReplayError> {
        let (mut volumes, volume_bytes) = volumes(config, trace);
        volumes.iter_mut().for_each(|volume| volume.recipes = replay.recipes);
        let geometry = geometry(config, replay.size, trace, volume_bytes)?;
        let fingerprint = zc_config::manager::fingerprint_kind(config.cache.fingerprint);
        let settings =
            zc_config::manager::manager_config(&config.cache, &geometry, fingerprint, false, MEMORY_BYTES)?;
        let manager = CacheManager::new(settings, volumes, StartState::fresh());
        let ssd = replay.ssd.map(|ssd| Watcher::new(ssd, &geometry)).transpose();
        let ssd = ssd.map_err(|source| ReplayError::Ssd { device_bytes: geometry.device_bytes, source })?;
        let mut driver = Driver::new(trace, manager, &geometry, ssd);
        if replay.check {
            driver.check();
        }
        let (warm, warm_origin) = (Stats::default(), OriginTraffic::default());
        let warm_requests = replay.warm_requests;
        Ok(Self { driver, trace, geometry, volume_bytes, warm, warm_origin, warm_requests, passed: 0 })
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), ReplayError> {
        if self.passed == self.warm_requests {
            self.warm = self.driver.manager.stats().clone();
            self.warm_origin = self.driver.origin;
        }
        self.passed += 1;
        self.driver.step(step)
    }

    pub(crate) fn finish(mut self) -> Result<Report, ReplayError> {
        self.driver.finish()?;
        Ok(Report {
            geometry: self.geometry,
            volume_bytes: self.volume_bytes,
            footprint_bytes: self.trace.footprint_bytes(),
            requests: self.trace.requests(),
            stats: self.driver.manager.stats().clone(),
            warm: self.warm,
            origin: self.driver.origin.since(&self.warm_origin),
            flash: self.driver.ssd.as_ref().map(Watcher::stats),
            curve: self.driver.manager.curve(),
            manager_ram: self.driver.manager.ram_by_structure(),
            replay_ram_bytes: self.driver.ram_bytes(),
        })
    }
}

/// Replays a trace. `progress` receives the number of completed requests at intervals.
///
/// # Errors
/// The cache has no valid layout, or the manager fails without an injected fault.
pub fn run(
    trace: &Trace,
    config: &Config,
    replay: Replay,
    mut progress: impl FnMut(u64),
) -> Result<Report, ReplayError> {
    let mut running = Running::start(trace, config, replay)?;
    for (number, step) in trace.steps.iter().enumerate() {
        running.step(step)?;
        if number % PROGRESS_STEPS == 0 {
            progress(u64_from_usize(number));
        }
    }
    running.finish()
}
