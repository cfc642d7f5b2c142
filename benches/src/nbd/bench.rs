//! The run: who is asked, in which order, and what is noted.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::cases::{CASES, Case, Target};
use super::floor;
use super::measured::{Options, Sample, Series};
use super::volumes::{self, Setting, Volume};
use crate::harness::daemon::{Daemon, fill_file};
use crate::harness::servers::{self, Server};
use crate::harness::usage::{Profile, SyscallCount, cpu_ns};
use crate::load::{self, Content, Outcome};

/// Connections and paths that were never used are slow at first: so long every run goes before it counts.
const WARM_NS: u64 = 30_000_000;
/// Profiles and counts of system calls come from runs of this length.
const LOOK_NS: u64 = 500_000_000;

/// The volumes of the daemon, by target.
const VOLUMES: [Volume; 4] = [
    volume("noise", "write-through", Content::Noise),
    volume("halving", "write-through", Content::Halving),
    volume("half-duplicate", "write-through", Content::HalfDuplicate),
    volume("pass", "pass-through", Content::Noise),
];

const fn volume(name: &'static str, mode: &'static str, content: Content) -> Volume {
    Volume { name, mode, compression: "lz4", dedup: true, content }
}

/// What `poll_max` is for targets that have it, in microseconds.
const POLL_MAX_US: u32 = 100;

/// Everything that is asked.
#[derive(Debug)]
struct Field {
    file: PathBuf,
    daemon: Daemon,
    polling: Daemon,
    null: Server,
    null_polling: Server,
    nbdkit_null: Server,
    qemu: Server,
    nbdkit_file: Server,
}

impl Field {
    fn set_up(options: &Options) -> anyhow::Result<Self> {
        let dir = &options.dir;
        std::fs::create_dir_all(dir)?;
        let file = dir.join("file.img");
        fill_file(&file, options.size_bytes)?;
        let null_bytes = options.size_bytes;
        let bytes = options.size_bytes;
        let setting =
            Setting { cache_bytes: 4 * bytes, size_bytes: bytes, poll_max_us: 0, tcp: None, io_threads: 1 };
        let daemon = volumes::start(&dir.join("zcached"), setting, &VOLUMES)?;
        let halving = &VOLUMES[1..2];
        let setting = Setting { cache_bytes: 2 * bytes, poll_max_us: POLL_MAX_US, ..setting };
        let polling = volumes::start(&dir.join("polling"), setting, halving)?;
        volumes::fill(&polling, &halving[0])?;
        for volume in VOLUMES.iter().filter(|volume| volume.mode != "pass-through") {
            volumes::fill(&daemon, volume)?;
        }
        Ok(Self {
            daemon,
            polling,
            null: servers::null(dir, null_bytes, 0)?,
            null_polling: servers::null(dir, null_bytes, POLL_MAX_US)?,
            nbdkit_null: servers::nbdkit_null(dir, null_bytes)?,
            qemu: servers::qemu(dir, &file)?,
            nbdkit_file: servers::nbdkit_file(dir, &file)?,
            file,
        })
    }

    /// The daemon of a target that is one's volume.
    fn daemon(&self, target: Target) -> &Daemon {
        if target == Target::ZcPoll { &self.polling } else { &self.daemon }
    }

    /// Socket, export and process of a target that is a server.
    fn server(&self, target: Target) -> Option<(&Path, &'static str, u32)> {
        match target {
            Target::Raw | Target::PingPong => None,
            Target::Null => Some((self.null.socket(), "", self.null.pid())),
            Target::NbdkitNull => Some((self.nbdkit_null.socket(), "", self.nbdkit_null.pid())),
            Target::Qemu => Some((self.qemu.socket(), "", self.qemu.pid())),
            Target::NbdkitFile => Some((self.nbdkit_file.socket(), "", self.nbdkit_file.pid())),
            Target::NullPoll => Some((self.null_polling.socket(), "", self.null_polling.pid())),
            _ => {
                let daemon = self.daemon(target);
                target.volume().map(|volume| (daemon.socket(), volume, daemon.pid()))
            }
        }
    }

    fn measure(&self, case: &Case, target: Target, round: u64, time_ns: u64) -> anyhow::Result<Sample> {
        let Some((socket, export, pid)) = self.server(target) else {
            return self.measure_floor(case, target, round, time_ns);
        };
        load::run(socket, export, case.load(target, WARM_NS, round * 2))?;
        let is_daemon = target.volume().is_some();
        let daemon = self.daemon(target);
        let counters = || if case.writes { daemon.settled_counters() } else { daemon.counters() };
        let before = is_daemon.then(counters).transpose()?;
        let cpu_before = cpu_ns(pid)?;
        let outcome = load::run(socket, export, case.load(target, time_ns, round * 2 + 1))?;
        let cpu_ns = cpu_ns(pid)?.saturating_sub(cpu_before);
        let after = is_daemon.then(counters).transpose()?;
        Ok(Sample {
            cpu_us: Some(cpu_ns as f64 / 1000.0 / (outcome.requests.max(1) as f64)),
            counters: after.zip(before).map(|(after, before)| after.since(before)),
            ..sample(&outcome, round)
        })
    }

    fn measure_floor(&self, case: &Case, target: Target, round: u64, time_ns: u64) -> anyhow::Result<Sample> {
        if target == Target::PingPong {
            return Ok(sample(&floor::ping_pong(case.block_bytes, time_ns)?, round));
        }
        let raw = floor::fio(&self.file, &case.load(target, time_ns, round))?;
        Ok(Sample {
            round,
            per_second: raw.per_second,
            latency_us: raw.latency_us,
            cpu_us: Some(raw.cpu_us),
            counters: None,
            requests: 0,
        })
    }

    /// System calls per request of a server, counted in a run of its own.
    fn count_syscalls(&self, case: &Case, target: Target, time_ns: u64) -> anyhow::Result<Option<f64>> {
        let Some((socket, export, pid)) = self.server(target) else { return Ok(None) };
        let Some(count) = SyscallCount::begin(pid) else { return Ok(None) };
        let outcome = load::run(socket, export, case.load(target, time_ns, 99))?;
        Ok(count.end().map(|calls| calls as f64 / (outcome.requests.max(1) as f64)))
    }

    /// Profiles the daemon in a run of its own.
    fn profile(&self, case: &Case, target: Target, dir: &Path) -> anyhow::Result<Option<String>> {
        let Some(volume) = target.volume().filter(|_| case.is_profiled(target)) else { return Ok(None) };
        let data = dir.join("perf.data");
        let Some(profile) = Profile::begin(self.daemon.pid(), &data) else { return Ok(None) };
        load::run(self.daemon.socket(), volume, case.load(target, LOOK_NS, 77))?;
        Ok(profile.end())
    }
}

fn sample(outcome: &Outcome, round: u64) -> Sample {
    let at = |quantile| outcome.latency.value_at_quantile(quantile) as f64 / 1000.0;
    Sample {
        round,
        per_second: outcome.per_second(),
        latency_us: [outcome.latency.mean() / 1000.0, at(0.5), at(0.9), at(0.99), at(0.999)],
        cpu_us: None,
        counters: None,
        requests: outcome.requests,
    }
}

/// Makes the run; `tell` hears how far it is.
///
/// # Errors
/// A server or tool is missing or fails.
pub fn run(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Series>> {
    tell("making files and filling caches");
    let field = Field::set_up(options)?;
    let wanted = |case: &&Case| options.only.as_ref().is_none_or(|only| case.name().contains(only));
    let mut all = Vec::new();
    for case in CASES.iter().filter(wanted) {
        let mut series: Vec<Series> = Target::ALL
            .into_iter()
            .filter(|target| case.has(*target))
            .map(|target| Series { case: *case, target, samples: Vec::new(), syscalls: None, profile: None })
            .collect();
        for round in 0..options.rounds {
            let count = series.len();
            for turn in 0..count {
                let at = (turn + zc_core::usize_from_u64(round)) % count;
                let target = series[at].target;
                let sample = field
                    .measure(case, target, round, options.time_ns)
                    .with_context(|| format!("{}: {}", target.name(), case.name()))?;
                series[at].samples.push(sample);
            }
        }
        for one in &mut series {
            one.syscalls = field.count_syscalls(case, one.target, LOOK_NS / 5)?;
            one.profile = field.profile(case, one.target, &options.dir)?;
            if let (Some(dir), Some(text)) = (&options.profiles, &one.profile) {
                let name = format!("profile-{}.txt", case.name().replace([' ', ','], "_"));
                std::fs::write(dir.join(name), text)?;
            }
        }
        tell(&super::report::case_table(&series));
        all.extend(series);
    }
    Ok(all)
}
