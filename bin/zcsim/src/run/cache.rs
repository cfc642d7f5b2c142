//! `zcsim run --config`: a trace through the cache manager.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use zc_config::Config;
use zc_replay::Trace;
use zc_replay::cache::{self, CacheSize, Replay, Report};

use super::args::{Args, open};
use super::time;
use crate::clock::now;
use crate::notes::{line, sized_by_others, trace_notes};
use crate::say::{self, say};
use crate::settings::{self, Mapping};
use crate::spent;

pub(super) fn print(args: &Args, path: &Path) -> anyhow::Result<()> {
    let shown = || args.trace.display().to_string();
    let text = settings::read(path)?;
    let config = settings::with_settings(&text, &path.display().to_string(), &args.set)?;
    let mut reader = open(args).with_context(shown)?;
    let (trace, mut spent) = spent::load(&mut reader, args.ratios.ratios()).with_context(shown)?;
    let trace = trace.is_sample_of(reader.sample_rate());
    let size = args.cache_share.map_or(CacheSize::Configured, |share| CacheSize::OfFootprint(share.0));
    let ssd = args.ssd.map(Mapping::model);
    let began = now();
    let replay = Replay { size, check: args.check, recipes: args.recipes, ssd, ..Replay::default() };
    let (done, replaying) = spent::timed(|| match &args.time {
        Some(profile) => {
            time::run(args, profile, &trace, &config, replay).map(|(report, times)| (report, Some(times)))
        }
        None => cache::run(&trace, &config, replay, |_| {})
            .map(|report| (report, None))
            .map_err(anyhow::Error::from),
    });
    let (report, times) = done?;
    spent.replaying = Some(replaying);
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    let per_second = report.requests as f64 / seconds;
    if args.json {
        let mut found = to_json(&report);
        found.insert("trace".to_owned(), json!(shown()));
        found.insert("sample_rate".to_owned(), json!(trace.rate()));
        found
            .insert("lost_requests".to_owned(), json!(reader.recorded().map_or(0, |recorded| recorded.lost)));
        found.insert("requests_per_second".to_owned(), json!(per_second));
        found.insert("spent".to_owned(), spent.to_json(report.requests));
        found.insert("trace_ram_bytes".to_owned(), json!(trace.ram_bytes()));
        found.insert("joined".to_owned(), json!(trace.fitted.joined));
        found.insert("rounded".to_owned(), json!(trace.fitted.rounded));
        found.insert("differing_blocks".to_owned(), json!(trace.fitted.differing));
        found.insert("bad_lines".to_owned(), json!(reader.bad_count()));
        found.insert("sized_by_other_codecs".to_owned(), json!(sized_by_others(&trace, &config)));
        if let Some(times) = &times {
            found.insert("time".to_owned(), times.to_json());
        }
        say!("{:#}", Value::Object(found));
        return Ok(());
    }
    say::text(to_text(&config, &report));
    if let Some(times) = &times {
        times.lines().iter().for_each(|(name, value)| line(name, value));
    }
    let ram = report.manager_ram.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let [manager, devices, held] =
        [ram, report.replay_ram_bytes, trace.ram_bytes()].map(|bytes| bytes as f64 / 1e6);
    line("memory", &format!("manager {manager:.1}, devices {devices:.1}, trace {held:.1} MB"));
    line("speed", &format!("{per_second:.0} requests/s, without reading the trace"));
    spent.lines(report.requests).iter().for_each(|(name, value)| line(name, value));
    notes(&trace, &config, &reader, &report);
    Ok(())
}

/// Prints caveats of the figures.
fn notes(trace: &Trace, config: &Config, reader: &zc_trace::Reader, report: &Report) {
    if report.geometry.extent_bytes > 4096 && report.stats.compress_tried > 0 {
        line(
            "note",
            "the trace tells sizes of 4 KiB; those of larger extents are modelled, 1 to 5 % too large in all",
        );
    }
    trace_notes(trace, config, reader).iter().for_each(|note| line("note", note));
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn percent_of(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn to_text(config: &Config, report: &Report) -> String {
    let (stats, geometry) = (&report.stats, &report.geometry);
    let units = report.unit_bytes();
    let codec = config.cache.compression.word();
    let mode = config.volumes.first().map_or("", |volume| volume.mode.word());
    let dedup = if config.cache.dedup { "dedup" } else { "no dedup" };
    let cache = format!(
        "{} in {} units of {} KiB: {:.2} % of the volumes, {:.2} % of the footprint",
        megabytes(units),
        geometry.slots,
        geometry.weu_bytes / 1024,
        percent_of(units, report.volume_bytes),
        percent_of(units, report.footprint_bytes),
    );
    let ssd = format!(
        "{}: units {}, journal {}, checkpoints {}, region maps {}",
        megabytes(report.ssd_bytes_written()),
        megabytes(stats.weu_bytes_written),
        megabytes(stats.journal_bytes_written),
        megabytes(stats.checkpoint_bytes_written),
        megabytes(stats.region_map_bytes_written),
    );
    let origin = format!(
        "{} reads of {}, {} writes of {}",
        report.origin.reads.operations,
        megabytes(report.origin.reads.bytes),
        report.origin.writes.operations,
        megabytes(report.origin.writes.bytes),
    );
    let inserted = format!(
        "{} offered: {} stored, {} duplicates, {} zero, {} not",
        stats.insert_offered,
        stats.insert_stored,
        stats.insert_duplicates,
        stats.insert_zero,
        stats.insert_offered - stats.insert_stored - stats.insert_duplicates - stats.insert_zero,
    );
    let dirty = format!(
        "{} pieces stored, {} shared; {} destaged",
        stats.dirty_stored,
        stats.dirty_shared,
        megabytes(stats.destaged_bytes),
    );
    let lines = [
        ("cache", cache),
        ("settings", format!("extents of {} KiB, {dedup}, {codec}, {mode}", geometry.extent_bytes / 1024)),
        ("requests", format!("{}: {} reads, {} writes", report.requests, stats.reads, stats.writes)),
        ("reads", format!("{} extents, {} hits", report.read_extents(), report.read_hits())),
        ("hit ratio", format!("{:.2} %", report.read_hit_ratio() * 100.0)),
        ("of other sizes", curve_text(&report.curve)),
        ("read ahead", read_ahead_text(report)),
        ("insertions", inserted),
        ("dirty data", dirty),
        ("dedup ratio", format!("{:.3}", report.dedup_ratio())),
        ("compression ratio", format!("{:.3}", report.compression_ratio())),
        ("evictions", stats.evictions.to_string()),
        ("written to SSD", ssd),
        ("read from SSD", ssd_reads_text(report)),
        ("padding", format!("{} in units, between extents", megabytes(stats.weu_bytes_padding))),
        ("flash", report.flash.as_ref().map(flash_text).unwrap_or_default()),
        ("origin", origin),
    ];
    let wanted = |name: &str| match name {
        "read ahead" => stats.prefetched_extents > 0,
        "dirty data" => stats.dirty_written_bytes > 0,
        "flash" => report.flash.is_some(),
        "of other sizes" => report.curve.reads > 0,
        _ => true,
    };
    let shown = lines.iter().filter(|(name, _)| wanted(name));
    shown.map(|(name, value)| format!("{name:<18}{value}\n")).collect()
}

/// Formats a sample's estimate for other sizes, relative to the cache.
fn curve_text(curve: &zc_cache::Curve) -> String {
    let percent = |ratio: Result<f64, _>| {
        ratio.map_or_else(|_| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
    };
    let text = curve.points().map(|(size, hit_ratio)| format!("{size} times {}", percent(hit_ratio)));
    text.collect::<Vec<_>>().join(", ")
}

fn read_ahead_text(report: &Report) -> String {
    let (prefetched_extents, prefetched_used) =
        (report.stats.prefetched_extents, report.stats.prefetched_used);
    let with = report.read_hit_ratio_with_ahead() * 100.0;
    format!(
        "{prefetched_extents} extents, {prefetched_used} used; with those {with:.2} % did not wait for the origin"
    )
}

fn ssd_reads_text(report: &Report) -> String {
    format!(
        "{} in {} reads; {:.3} pages of 4 KiB for each extent",
        megabytes(report.stats.device_read_bytes),
        report.stats.device_reads,
        report.ssd_pages_per_hit(),
    )
}

/// All figures, the manager's counters among them.
fn flash_json(flash: &zc_flash::Stats) -> Value {
    json!({
        "host_writes": flash.host_writes,
        "host_reads": flash.host_reads,
        "trims": flash.trims,
        "programs": flash.programs,
        "reads": flash.reads,
        "copies": flash.copies,
        "erasures": flash.erasures,
        "write_amplification": flash.write_amplification(),
        "most_worn": flash.most_worn,
        "least_worn": flash.least_worn,
        "lifetime_bytes": flash.lifetime_bytes().and_then(|bytes| u64::try_from(bytes).ok()),
        "busiest_us": flash.busiest_us,
    })
}

fn flash_text(flash: &zc_flash::Stats) -> String {
    let lifetime = flash.lifetime_bytes().map_or_else(String::new, |bytes| {
        format!("; at this rate {:.2} TB can be written to it", bytes as f64 / 1e12)
    });
    format!(
        "{} pages written, {} copied: write amplification {:.3}; {} erasures, {} to {} of a block{lifetime}",
        flash.host_writes,
        flash.copies,
        flash.write_amplification(),
        flash.erasures,
        flash.least_worn,
        flash.most_worn,
    )
}

fn curve_json(curve: &zc_cache::Curve) -> Value {
    let points: Vec<Value> = curve
        .points()
        .map(|(size, hit_ratio)| json!({ "size": size, "hit_ratio": hit_ratio.ok() }))
        .collect();
    json!({
        "reads": curve.reads,
        "points": points,
        "second_touch_hit_ratio": curve.second_touch_hit_ratio.ok(),
        "second_touch": curve.second_touch,
    })
}

pub(crate) fn to_json(report: &Report) -> Map<String, Value> {
    let counters: Map<String, Value> =
        report.stats.named().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let ram: Map<String, Value> =
        report.manager_ram.iter().map(|(name, bytes)| ((*name).to_owned(), json!(bytes))).collect();
    let traffic =
        |traffic: zc_replay::Traffic| json!({ "operations": traffic.operations, "bytes": traffic.bytes });
    let all = json!({
        "requests": report.requests,
        "device_bytes": report.geometry.device_bytes,
        "unit_bytes": report.unit_bytes(),
        "weu_bytes": report.geometry.weu_bytes,
        "extent_bytes": report.geometry.extent_bytes,
        "volume_bytes": report.volume_bytes,
        "footprint_bytes": report.footprint_bytes,
        "cache_percent_of_volumes": percent_of(report.unit_bytes(), report.volume_bytes),
        "cache_percent_of_footprint": percent_of(report.unit_bytes(), report.footprint_bytes),
        "read_extents": report.read_extents(),
        "read_hits": report.read_hits(),
        "read_hit_ratio": report.read_hit_ratio(),
        "read_hit_ratio_with_read_ahead": report.read_hit_ratio_with_ahead(),
        "curve": curve_json(&report.curve),
        "dedup_hits": report.dedup_hits(),
        "evictions": report.stats.evictions,
        "ssd_bytes_written": report.ssd_bytes_written(),
        "dedup_ratio": report.dedup_ratio(),
        "compression_ratio": report.compression_ratio(),
        "ssd_pages_per_hit": report.ssd_pages_per_hit(),
        "origin_reads": traffic(report.origin.reads),
        "origin_writes": traffic(report.origin.writes),
        "origin_flushes": report.origin.flushes,
        "manager_ram_bytes": ram,
        "replay_ram_bytes": report.replay_ram_bytes,
        "counters": counters,
        "flash": report.flash.as_ref().map(flash_json),
    });
    match all {
        Value::Object(all) => all,
        _ => Map::new(),
    }
}
