//! Runs of the production cache manager under Nitro's variants.

use zc_config::Config;
use zc_replay::cache::{self, CacheSize, Replay, Report};
use zc_replay::time::{self, Store, TimeReport, Timing};
use zc_replay::{Ssd, Trace};

use crate::error::FigureError;

/// Share of requests that warm the cache: the paper warms for 16 of 21 days (6.2).
const WARM: f64 = 16.0 / 21.0;

/// A variant of the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) dedup: bool,
    /// As the configuration has it: none, lz4, zlib, zstd.
    pub(crate) codec: &'static str,
    pub(crate) extent_kib: u32,
    pub(crate) weu_kib: u32,
    /// `true` if the origin supplies fingerprints (the paper's COS).
    pub(crate) recipes: bool,
    /// `true` if the cache learns them.
    pub(crate) learned: bool,
    pub(crate) index_percent: u8,
}

impl Variant {
    /// The paper's default, with the given data reduction.
    pub(crate) const fn new(dedup: bool, compressed: bool, weu_kib: u32) -> Self {
        let codec = if compressed { "lz4" } else { "none" };
        Self { dedup, codec, extent_kib: 8, weu_kib, recipes: true, learned: false, index_percent: 100 }
    }

    /// The paper's four variants, by increasing data reduction.
    pub(crate) fn four(weu_kib: u32) -> [Self; 4] {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(dedup, compressed)| Self::new(dedup, compressed, weu_kib))
    }

    /// The paper's name.
    pub(crate) fn name(&self) -> String {
        let dedup = if self.dedup { "D" } else { "ND" };
        let compressed = if self.codec == "none" { "NC" } else { "C" };
        format!("{dedup},{compressed}")
    }

    fn config(&self) -> Result<Config, FigureError> {
        let learned = if self.learned { "64 MiB" } else { "0" };
        let text = format!(
            "[cache]\npath = \"c\"\nstate_dir = \"s\"\nsize = \"1 GiB\"\nmax_ram = \"8 GiB\"\n\
             weu_size = \"{} KiB\"\nextent_size = \"{} KiB\"\ndedup = {}\ncompression = \"{}\"\n\
             fingerprint_index_ratio = {}\nprefetch_max = 0\nread_buffer = 0\nlearned_recipes = \"{}\"\n\
             policy = \"lru\"\n[[volume]]\nname = \"v\"\norigin = \"o\"\nmode = \"write-through\"\n",
            self.weu_kib, self.extent_kib, self.dedup, self.codec, self.index_percent, learned
        );
        Ok(Config::parse(&text, "a figure's configuration")?)
    }

    /// Replays a trace through `unit_bytes` of units, in time.
    pub(crate) fn time(
        &self,
        trace: &Trace,
        unit_bytes: u64,
        timing: &Timing,
    ) -> Result<TimeReport, FigureError> {
        Ok(self.time_from(trace, unit_bytes, timing, warm_requests(trace))?.1)
    }

    /// Replays a trace in time after `warm_requests` requests warmed the cache. Also returns the cache's report.
    pub(crate) fn time_from(
        &self,
        trace: &Trace,
        unit_bytes: u64,
        timing: &Timing,
        warm_requests: u64,
    ) -> Result<(Report, TimeReport), FigureError> {
        let size = CacheSize::Units(unit_bytes);
        let replay = Replay { size, check: false, recipes: self.recipes, warm_requests, ssd: None };
        Ok(time::run(trace, &self.config()?, replay, timing)?)
    }

    /// Replays a trace in time over a store that was filled before.
    pub(crate) fn time_on(
        &self,
        store: &mut Store,
        trace: &Trace,
        unit_bytes: u64,
        timing: &Timing,
        warm_requests: u64,
    ) -> Result<TimeReport, FigureError> {
        let size = CacheSize::Units(unit_bytes);
        let replay = Replay { size, check: false, recipes: self.recipes, warm_requests, ssd: None };
        Ok(time::run_on(store, trace, &self.config()?, replay, timing)?.1)
    }

    /// Replays a trace through `unit_bytes` of units on this SSD, with or without discards, from the start.
    pub(crate) fn run_on(
        &self,
        ssd: Ssd,
        discard: bool,
        trace: &Trace,
        unit_bytes: u64,
    ) -> Result<Report, FigureError> {
        let mut config = self.config()?;
        config.cache.discard = Some(discard);
        let size = CacheSize::Units(unit_bytes);
        let replay = Replay { size, check: false, recipes: self.recipes, warm_requests: 0, ssd: Some(ssd) };
        Ok(cache::run(trace, &config, replay, |_| {})?)
    }

    /// Replays a trace through `unit_bytes` of units.
    pub(crate) fn run(&self, trace: &Trace, unit_bytes: u64) -> Result<Report, FigureError> {
        let (size, warm_requests) = (CacheSize::Units(unit_bytes), warm_requests(trace));
        let replay = Replay { size, check: false, recipes: self.recipes, warm_requests, ssd: None };
        Ok(cache::run(trace, &self.config()?, replay, |_| {})?)
    }
}

/// Requests that warm the cache.
pub(crate) fn warm_requests(trace: &Trace) -> u64 {
    percent_of(trace.requests(), WARM * 100.0)
}

/// A share of a number of bytes, in per cent.
pub(crate) fn percent_of(bytes: u64, percent: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and a share of it")]
    let part = (bytes as f64 * percent / 100.0) as u64;
    part
}
