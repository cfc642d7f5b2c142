//! `zcsim run --time`: duration of a trace with the cache and without, on devices of a profile.

use anyhow::bail;
use serde_json::{Value, json};
use zc_config::Config;
use zc_replay::Trace;
use zc_replay::cache::{Replay, Report};
use zc_replay::time::profile::{PROFILES, Profile};
use zc_replay::time::{self, Arrival, HitReads, Latencies, TimeReport, Timing};

use super::args::Args;

const CLIENTS_MAX: u32 = 4096;

/// With the cache, and without.
#[derive(Debug)]
pub(super) struct Times {
    profile: &'static str,
    cached: TimeReport,
    bare: TimeReport,
}

pub(super) fn run(
    args: &Args,
    profile: &str,
    trace: &Trace,
    config: &Config,
    replay: Replay,
) -> anyhow::Result<(Report, Times)> {
    let Some(profile) = Profile::named(profile) else {
        let known: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        bail!("no profile is called \"{profile}\"; there are {}", known.join(", "));
    };
    let arrival = match args.open {
        Some(speed) if speed > 0.0 && speed.is_finite() => Arrival::Open { speed },
        Some(speed) => bail!("--open must be above 0, not {speed}"),
        None if (1..=CLIENTS_MAX).contains(&args.clients) => Arrival::Closed { clients: args.clients },
        None => bail!("--clients must be 1 to {CLIENTS_MAX}, not {}", args.clients),
    };
    let timing = Timing { profile, arrival, memory_scale: 1.0, hits: HitReads::Pieces };
    let (report, cached) = time::run(trace, config, replay, &timing)?;
    let bare = time::bare(trace, &timing, replay.warm_requests)?;
    Ok((report, Times { profile: profile.name, cached, bare }))
}

fn milliseconds(times: &Latencies) -> String {
    let [mean, p50, p90, p99, p999] =
        [times.mean_us, times.p50_us, times.p90_us, times.p99_us, times.p999_us].map(|us| us / 1000.0);
    format!("mean {mean:.3}, 50 % {p50:.3}, 90 % {p90:.3}, 99 % {p99:.3}, 99.9 % {p999:.3} ms")
}

fn one(report: &TimeReport) -> Value {
    let latencies = |times: &Latencies| {
        json!({
            "count": times.count,
            "mean_us": times.mean_us,
            "p50_us": times.p50_us,
            "p90_us": times.p90_us,
            "p99_us": times.p99_us,
            "p999_us": times.p999_us,
        })
    };
    json!({
        "iops": report.iops(),
        "seconds": report.seconds,
        "reads": latencies(&report.reads),
        "writes": latencies(&report.writes),
        "disk_busy": report.disk_busy,
        "ssd_busy": report.ssd_busy,
        "cpu_busy": report.cpu_busy,
    })
}

impl Times {
    pub(super) fn to_json(&self) -> Value {
        json!({ "profile": self.profile, "cached": one(&self.cached), "bare": one(&self.bare) })
    }

    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let rate = |report: &TimeReport| {
            format!(
                "{:.0} requests/s; disks {:.0} %, SSD {:.0} %, cores {:.0} % busy",
                report.iops(),
                report.disk_busy * 100.0,
                report.ssd_busy * 100.0,
                report.cpu_busy * 100.0
            )
        };
        vec![
            ("with the cache", rate(&self.cached)),
            ("  reads", milliseconds(&self.cached.reads)),
            ("  writes", milliseconds(&self.cached.writes)),
            ("without", rate(&self.bare)),
            ("  reads", milliseconds(&self.bare.reads)),
            ("  writes", milliseconds(&self.bare.writes)),
        ]
    }
}
