//! The run: daemons side by side, slice by slice.

use std::path::Path;

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use zc_core::u64_from_usize;

use super::measured::{Options, Sample, Series, TINY_CACHE_BYTES};
use super::plan::{Plan, volume_name};
use super::setting::{self, Cache, Setting};
use crate::harness::daemon::Daemon;
use crate::harness::usage::{Profile, cpu_ns};
use crate::load::{Pace, Replay, Replayed};

/// Boots are read so often, at most, until all of them are in the cache.
const PASSES_MAX: u32 = 12;

/// Room for everything that boots read, uncompressed, and for the cache's own needs.
#[must_use]
pub fn full_cache_bytes(machines: u64, volume_bytes: u64) -> u64 {
    (machines * volume_bytes / 100 * 115 + (160 << 20)).next_multiple_of(2 << 20)
}

/// Disk that a storm takes: two copies of the volumes and the largest cache.
#[must_use]
pub fn disk_bytes(machines: u64, volume_bytes: u64) -> u64 {
    2 * machines * volume_bytes + full_cache_bytes(machines, volume_bytes) + TINY_CACHE_BYTES
}

struct Side {
    daemon: Daemon,
    replay: Replay,
}

impl Side {
    fn start(daemon: Daemon, machines: usize) -> anyhow::Result<Self> {
        let names: Vec<String> = (0..machines).map(volume_name).collect();
        let replay = Replay::connect(daemon.socket(), names.iter().map(String::as_str))?;
        Ok(Self { daemon, replay })
    }

    fn measure(&mut self, plan: &Plan, options: &Options, slice: usize) -> anyhow::Result<Sample> {
        let steps = plan.slice(slice, options.slices);
        let most = steps.iter().map(|steps| steps.len()).max().unwrap_or(1);
        let slices = u64_from_usize(options.slices);
        let pause_ns = options.boot_ns / slices / u64_from_usize(most).max(1);
        let before_ns = cpu_ns(self.daemon.pid())?;
        let pace = Pace { pause_ns, seed: u64_from_usize(slice) + 1 };
        let done = self.replay.run(&steps, plan.payloads(), pace)?;
        let cpu_ns = cpu_ns(self.daemon.pid())?.saturating_sub(before_ns);
        sample(&done, cpu_ns)
    }
}

fn sample(done: &Replayed, cpu_ns: u64) -> anyhow::Result<Sample> {
    let mut reads = done.short_reads.clone();
    reads.add(&done.long_reads)?;
    let us = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Sample {
        read_us: [reads.mean() / 1000.0, us(&reads, 0.5), us(&reads, 0.9), us(&reads, 0.99)],
        by_length_us: [us(&done.short_reads, 0.5), us(&done.long_reads, 0.5)],
        writes: (done.writes.len(), done.writes.mean() / 1000.0),
        requests: reads.len() + done.writes.len(),
        seconds: done.elapsed_ns as f64 / 1e9,
        cpu_ns,
    })
}

/// Reads all boots until nothing is missed any more.
fn warm_up(side: &mut Side, plan: &Plan) -> anyhow::Result<()> {
    let reads = plan.reads();
    let steps: Vec<_> = reads.iter().map(Vec::as_slice).collect();
    for pass in 0..PASSES_MAX {
        let before = side.daemon.counters()?;
        let pace = Pace { pause_ns: 0, seed: u64::from(pass) };
        side.replay.run(&steps, plan.payloads(), pace)?;
        let seen = side.daemon.counters()?.since(before);
        if seen.hits == seen.reads {
            return Ok(());
        }
    }
    bail!("after {PASSES_MAX} boots some of what they read is still not in the cache")
}

/// A configuration beside the pass-through.
fn measure(
    plan: &Plan,
    options: &Options,
    pass: &mut Side,
    setting: Setting,
    full: bool,
) -> anyhow::Result<Series> {
    let dir = options.dir.join("cached");
    let origins = options.dir.join("origins");
    plan.restore(&origins)?;
    plan.restore(&options.dir.join("pass-origins"))?;
    let machines = plan.machines();
    let cache_bytes =
        if full { full_cache_bytes(u64_from_usize(machines), plan.volume_bytes()) } else { TINY_CACHE_BYTES };
    let place = options.tiny_cache.as_deref().filter(|_| !full).unwrap_or(&dir);
    let cache = place.join(format!("bootstorm-{}.cache", std::process::id()));
    let cache = Cache { path: &cache, bytes: cache_bytes };
    let daemon = setting::start(&dir, &origins, machines, Some(setting), cache)?;
    let mut cached = Side::start(daemon, machines)?;
    if full {
        warm_up(&mut cached, plan)?;
    }
    let filled = cached.daemon.counters()?;
    let mut slices = Vec::new();
    for slice in 0..options.slices {
        // Whoever comes second finds the disk busy with the first one's late writes: take turns.
        let pair = if slice.is_multiple_of(2) {
            let first = pass.measure(plan, options, slice)?;
            (first, cached.measure(plan, options, slice)?)
        } else {
            let first = cached.measure(plan, options, slice)?;
            (pass.measure(plan, options, slice)?, first)
        };
        slices.push(pair);
    }
    let measured = cached.daemon.counters()?.since(filled);
    if let Some(out) = &options.profiles {
        profile(plan, options, &mut cached, setting, full, out)?;
    }
    cached.replay.close()?;
    drop(cached.daemon);
    std::fs::remove_file(cache.path)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(Series { setting, full, slices, measured, filled })
}

/// Profiles the daemon while the first quarter of the boots goes to it once more.
fn profile(
    plan: &Plan,
    options: &Options,
    cached: &mut Side,
    setting: Setting,
    full: bool,
    out: &Path,
) -> anyhow::Result<()> {
    let Some(profile) = Profile::begin(cached.daemon.pid(), &out.join("perf.data")) else { return Ok(()) };
    for slice in 0..options.slices.div_ceil(4) {
        cached.measure(plan, options, slice)?;
    }
    let name =
        format!("bootstorm-profile-{}-{}.txt", if full { 100 } else { 0 }, setting.name().replace(',', "-"));
    std::fs::write(out.join(name), profile.end().unwrap_or_default())?;
    Ok(())
}

/// Makes the run; `tell` hears how far it is.
///
/// # Errors
/// A daemon fails, or the disk is full.
pub fn run(plan: &Plan, options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Series>> {
    let (origins, pass_origins) = (options.dir.join("origins"), options.dir.join("pass-origins"));
    tell("making the volumes, twice");
    plan.make_files(&[&origins, &pass_origins])?;
    let machines = plan.machines();
    let dir = options.dir.join("pass");
    let cache = Cache { path: &dir.join("pass.cache"), bytes: TINY_CACHE_BYTES };
    let daemon = setting::start(&dir, &pass_origins, machines, None, cache)?;
    let mut pass = Side::start(daemon, machines)?;
    let mut all = Vec::new();
    for full in [false, true] {
        for setting in Setting::ALL {
            if options.only.as_ref().is_some_and(|only| only != setting.name()) {
                continue;
            }
            let name = format!("{} at {} %", setting.name(), if full { 100 } else { 0 });
            let series = measure(plan, options, &mut pass, setting, full).with_context(|| name.clone())?;
            tell(&format!("{name}: {}", super::report::line(&series)));
            all.push(series);
        }
    }
    pass.replay.close()?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_counted_in_full() {
        let volume = 52 << 20;
        assert!(full_cache_bytes(60, volume) > 60 * volume);
        assert!(disk_bytes(60, volume) > 3 * 60 * volume);
        assert!(disk_bytes(60, volume) < 12_000_000_000);
    }
}
