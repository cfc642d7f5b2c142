//! `zcsim run --policy`: a trace through a reference policy.

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use zc_policy::{CAPACITY_MAX, Kind};
use zc_replay::plain::{self, Outcome};

use super::args::{Args, open};
use crate::clock::now;
use crate::say::{self, say};
use crate::size::{Share, extent_bytes};
use crate::spent::{self, Spent};

/// Settings as they turned out.
struct Run {
    capacity: usize,
    extent_bytes: u32,
    outcome: Outcome,
    bad_lines: u64,
    seconds: f64,
    spent: Spent,
}

fn capacity(args: &Args, extent_bytes: u32) -> anyhow::Result<usize> {
    let capacity = match (args.cache_extents, args.cache_share) {
        (Some(extents), _) => {
            // Of a sample, a cache smaller by its share has about the same hit ratio.
            let rate = open(args)?.sample_rate();
            let share = Share(rate * 100.0).of(zc_core::u64_from_usize(extents));
            if rate < 1.0 { zc_core::usize_from_u64(share).max(1) } else { extents }
        }
        (None, Some(share)) => {
            let footprint = zc_replay::footprint(open(args)?, extent_bytes)?;
            zc_core::usize_from_u64(share.of(footprint)).max(1)
        }
        (None, None) => bail!("--cache-extents or --cache-share is missing"),
    };
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        bail!("a cache of {capacity} extents cannot be simulated: it is 1 to {CAPACITY_MAX}");
    }
    Ok(capacity)
}

pub(super) fn print(args: &Args, policy: Kind) -> anyhow::Result<()> {
    let extent_bytes = extent_bytes(args.extent_size)?;
    let shown = || args.trace.display().to_string();
    let capacity = capacity(args, extent_bytes).with_context(shown)?;
    let mut reader = open(args).with_context(shown)?;
    let began = now();
    let ((outcome, reading), replaying) = spent::timed(|| {
        zc_trace::alongside(&mut reader, |requests| plain::run(requests, policy, capacity, extent_bytes))
    });
    let outcome = outcome.with_context(shown)?;
    let seconds = began.elapsed().as_secs_f64();
    let spent = Spent { reading: Some(reading), replaying: Some(replaying), ..Spent::default() };
    let run = Run { capacity, extent_bytes, outcome, bad_lines: reader.bad_count(), seconds, spent };
    if args.json {
        say!("{:#}", to_json(args, policy, &run));
    } else {
        say::text(to_text(policy, &run));
    }
    Ok(())
}

fn per_second(run: &Run) -> f64 {
    run.outcome.requests as f64 / run.seconds.max(1e-9)
}

fn to_text(policy: Kind, run: &Run) -> String {
    let Outcome { read_accesses, read_hits, write_accesses, write_hits, .. } = run.outcome;
    let capacity = format!("{} extents of {} KiB", run.capacity, run.extent_bytes / 1024);
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let mut lines = vec![
        ("policy", policy.name().to_owned()),
        ("cache", capacity),
        ("requests", run.outcome.requests.to_string()),
        ("reads", format!("{read_accesses} extents, {read_hits} hits")),
        ("hit ratio", percent(run.outcome.read_hit_ratio())),
    ];
    if write_accesses > 0 {
        lines.push(("writes", format!("{write_accesses} extents, {write_hits} hits")));
        lines.push(("reads and writes", percent(run.outcome.hit_ratio())));
    }
    lines.push(("evictions", run.outcome.evictions.to_string()));
    lines.push(("memory", format!("{:.1} MB", run.outcome.ram_bytes as f64 / 1e6)));
    lines.push(("speed", format!("{:.0} requests/s, reading the trace included", per_second(run))));
    lines.extend(run.spent.lines(run.outcome.requests));
    if run.bad_lines > 0 {
        lines.push(("bad lines", format!("{}, passed over", run.bad_lines)));
    }
    lines.iter().map(|(name, value)| format!("{name:<18}{value}\n")).collect()
}

fn to_json(args: &Args, policy: Kind, run: &Run) -> Value {
    json!({
        "trace": args.trace.display().to_string(),
        "policy": policy.name(),
        "cache_extents": run.capacity,
        "extent_bytes": run.extent_bytes,
        "requests": run.outcome.requests,
        "read_accesses": run.outcome.read_accesses,
        "read_hits": run.outcome.read_hits,
        "read_hit_ratio": run.outcome.read_hit_ratio(),
        "write_accesses": run.outcome.write_accesses,
        "write_hits": run.outcome.write_hits,
        "hit_ratio": run.outcome.hit_ratio(),
        "evictions": run.outcome.evictions,
        "ram_bytes": run.outcome.ram_bytes,
        "requests_per_second": per_second(run),
        "spent": run.spent.to_json(run.outcome.requests),
        "bad_lines": run.bad_lines,
    })
}
