//! The run: daemons side by side, slice by slice.

use std::path::Path;

use anyhow::{Context as _, bail};
use zc_core::u64_from_usize;

use super::plan::{Plan, volume_name};
use super::report::{self, CACHED, PASS};
use super::setting::{self, Cache, Setting};
use super::{Options, TINY_CACHE_BYTES};
use crate::harness::daemon::Daemon;
use crate::harness::usage::{Profile, cpu_ns};
use crate::load::{Pace, Replay, Replayed};
use crate::measure::{Measured, Sample, Series, rounds};

/// Most passes over the boots until all of them are cached.
const PASSES_MAX: u32 = 12;

/// Returns the size for everything that boots read, uncompressed, with the cache's own overhead.
pub(crate) fn full_cache_bytes(machines: u64, volume_bytes: u64) -> u64 {
    (machines * volume_bytes / 100 * 115 + (160 << 20)).next_multiple_of(2 << 20)
}

/// Disk that a storm takes: two copies of the volumes and the largest cache.
pub(crate) fn disk_bytes(machines: u64, volume_bytes: u64) -> u64 {
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

    fn measure(&mut self, plan: &Plan, options: &Options, slice: u64) -> anyhow::Result<Sample> {
        let steps = plan.slice(zc_core::usize_from_u64(slice), zc_core::usize_from_u64(options.slices));
        let most = steps.iter().map(|steps| steps.len()).max().unwrap_or(1);
        let pause_ns = options.boot_ns / options.slices / u64_from_usize(most).max(1);
        let before_ns = cpu_ns(self.daemon.pid())?;
        let pace = Pace { pause_ns, seed: slice + 1 };
        let done = self.replay.run(&steps, plan.payloads(), pace)?;
        let cpu_ns = cpu_ns(self.daemon.pid())?.saturating_sub(before_ns);
        sample(&done, cpu_ns)
    }
}

/// A slice: reads all together and by length, writes, and the daemon's CPU time, in steps of ten milliseconds.
fn sample(done: &Replayed, cpu_ns: u64) -> anyhow::Result<Sample> {
    let mut reads = done.short_reads.clone();
    reads.add(&done.long_reads)?;
    let median_us =
        |histogram: &hdrhistogram::Histogram<u64>| histogram.value_at_quantile(0.5) as f64 / 1000.0;
    let writes = done.writes.len() as f64;
    Ok(Sample::latencies(&reads)
        .with("short_p50_us", median_us(&done.short_reads))
        .with("long_p50_us", median_us(&done.long_reads))
        .with("writes", writes)
        .with("writes_us", writes * done.writes.mean() / 1000.0)
        .with("requests", (reads.len() + done.writes.len()) as f64)
        .with("seconds", done.elapsed_ns as f64 / 1e9)
        .with("cpu_us", cpu_ns as f64 / 1000.0))
}

/// Reads all boots until nothing is missed any more.
fn warm_up(side: &mut Side, plan: &Plan) -> anyhow::Result<()> {
    let reads = plan.reads();
    let steps: Vec<_> = reads.iter().map(Vec::as_slice).collect();
    for pass in 0..PASSES_MAX {
        let before = side.daemon.counters()?;
        let pace = Pace { pause_ns: 0, seed: u64::from(pass) };
        side.replay.run(&steps, plan.payloads(), pace)?;
        let seen = side.daemon.counters()?.since(&before);
        if seen.get("hits") == seen.get("reads") {
            return Ok(());
        }
    }
    bail!("after {PASSES_MAX} boots some of what they read is still not in the cache")
}

/// Returns the counters of contents and of reads.
fn counted(is_full: bool, filled: &Sample, measured: &Sample) -> Sample {
    // At 0 % the measured boots are the offered ones.
    let held = if is_full { filled } else { measured };
    let get = |name| held.get(name).unwrap_or(0.0);
    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
    let stored = get("stored").max(1.0);
    Sample::default()
        .with("hits_percent", percent(measured.share("hits", "reads")))
        .with("ssd_reads_per_hit", measured.share("device_reads", "hits"))
        .with("dedup_ratio", (get("stored") + get("duplicates")) / stored)
        .with("compression_ratio", held.share("raw_bytes", "stored_bytes"))
        .with("ssd_mb", get("ssd_bytes") / 1e6)
        .with("skipped_percent", percent(held.share("skipped", "offered")))
}

/// Measures a configuration beside the pass-through.
fn measure(
    plan: &Plan,
    options: &Options,
    pass: &mut Side,
    setting: Setting,
    is_full: bool,
) -> anyhow::Result<Vec<Series>> {
    let dir = options.dir.join("cached");
    let origins = options.dir.join("origins");
    plan.restore(&origins)?;
    plan.restore(&options.dir.join("pass-origins"))?;
    let machines = plan.machines();
    let full_bytes = full_cache_bytes(u64_from_usize(machines), plan.volume_bytes());
    let place = options.tiny_cache.as_deref().filter(|_| !is_full).unwrap_or(&dir);
    let path = place.join(format!("bootstorm-{}.cache", std::process::id()));
    let cache = Cache { path: &path, bytes: if is_full { full_bytes } else { TINY_CACHE_BYTES } };
    let daemon = setting::start(&dir, &origins, machines, Some(setting), cache)?;
    let mut cached = Side::start(daemon, machines)?;
    if is_full {
        warm_up(&mut cached, plan)?;
    }
    let filled = cached.daemon.counters()?;
    let case = report::case(setting, is_full);
    // Whoever comes second finds the disk busy with the first one's late writes: they take turns.
    let mut series = rounds(&case, &[(PASS, false), (CACHED, true)], options.slices, |is_cached, slice| {
        let side = if *is_cached { &mut cached } else { &mut *pass };
        side.measure(plan, options, slice)
    })?;
    let measured = cached.daemon.counters()?.since(&filled);
    series[1].once = counted(is_full, &filled, &measured);
    if let Some(out) = &options.profiles {
        profile(plan, options, &mut cached, &case, out)?;
    }
    cached.replay.close()?;
    drop(cached.daemon);
    std::fs::remove_file(&path)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(series)
}

/// Profiles the daemon while the first quarter of the boots goes to it once more.
fn profile(plan: &Plan, options: &Options, cached: &mut Side, case: &str, out: &Path) -> anyhow::Result<()> {
    let Some(profile) = Profile::begin(cached.daemon.pid(), &out.join("perf.data")) else { return Ok(()) };
    for slice in 0..options.slices.div_ceil(4) {
        cached.measure(plan, options, slice)?;
    }
    let name = format!("bootstorm-profile-{}.txt", case.replace([',', ' '], "-").replace("-%", ""));
    std::fs::write(out.join(name), profile.end().unwrap_or_default())?;
    Ok(())
}

/// Runs the storm on every configuration.
pub(crate) fn storm(plan: &Plan, options: &Options) -> anyhow::Result<Measured> {
    let (origins, pass_origins) = (options.dir.join("origins"), options.dir.join("pass-origins"));
    println!("making the volumes, twice");
    plan.make_files(&[&origins, &pass_origins])?;
    let machines = plan.machines();
    let dir = options.dir.join("pass");
    let cache = Cache { path: &dir.join("pass.cache"), bytes: TINY_CACHE_BYTES };
    let daemon = setting::start(&dir, &pass_origins, machines, None, cache)?;
    let mut pass = Side::start(daemon, machines)?;
    let mut all = Measured::default();
    for is_full in [false, true] {
        for setting in Setting::ALL {
            if options.only.as_ref().is_some_and(|only| only != setting.name()) {
                continue;
            }
            let case = report::case(setting, is_full);
            let series = measure(plan, options, &mut pass, setting, is_full).context(case)?;
            let found = Measured(series);
            println!("{}", report::latencies(&found));
            all.0.extend(found.0);
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
