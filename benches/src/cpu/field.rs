//! The run: who is asked, in which order, and what is noted.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;

use super::cases::{CASES, Case, Target};
use super::measured::{Measured, Options, Sample, Series, Work};
use super::work::us_per_block;
use crate::harness::certificate::certificate;
use crate::harness::cores::{Cores, run_on};
use crate::harness::daemon::{Counters, Daemon, fill_file, make_cache};
use crate::harness::servers::{self, Server};
use crate::harness::tasks::{Tasks, Used};
use crate::harness::usage::SyscallCount;
use crate::load::{self, Address, Outcome};
use crate::nbd::volumes::{self, Setting, Volume};

/// Connections and paths that were never used are slow at first: so long every run goes before it counts.
const WARM_NS: u64 = 30_000_000;
/// System calls are counted in runs of this length.
const LOOK_NS: u64 = 100_000_000;
/// Size of the cache, in sizes of one volume: four of them are cached, and writes need room.
const CACHE_VOLUMES: u64 = 6;

/// The volumes of the daemon.
const VOLUMES: [Volume; 5] = [
    volume(Target::Noise, "write-through"),
    volume(Target::Halving, "write-through"),
    volume(Target::PassThrough, "pass-through"),
    volume(Target::BackNoise, "write-back"),
    volume(Target::BackHalving, "write-back"),
];

const fn volume(target: Target, mode: &'static str) -> Volume {
    Volume { name: target.export(), mode, compression: "lz4", dedup: true, content: target.content() }
}

/// Every server, and the cores.
#[derive(Debug)]
struct Field {
    cores: Cores,
    daemon: Daemon,
    daemon_tcp: SocketAddr,
    /// What the daemon shows over TLS.
    certificate: PathBuf,
    floor: Server,
    floor_tcp: SocketAddr,
    null: Server,
    qemu: Option<Server>,
    nbdkit_file: Option<Server>,
}

impl Field {
    fn set_up(options: &Options) -> anyhow::Result<Self> {
        let (dir, size_bytes) = (&options.dir, options.size_bytes);
        std::fs::create_dir_all(dir)?;
        let cores = Cores::pick()?;
        let [floor_file, file] = ["floor.img", "file.img"].map(|name| dir.join(name));
        fill_file(&floor_file, size_bytes)?;
        fill_file(&file, size_bytes)?;
        let of_daemon = dir.join("zcached");
        std::fs::create_dir_all(&of_daemon)?;
        let cache_bytes = CACHE_VOLUMES * size_bytes;
        make_cache(&of_daemon, cache_bytes)?;
        let [daemon_tcp, floor_tcp] = [servers::free_address()?, servers::free_address()?];
        // What is started from here on stays on the servers' core.
        run_on(cores.server)?;
        let setting =
            Setting { cache_bytes, size_bytes, poll_max_us: 0, tcp: Some(daemon_tcp), io_threads: 1 };
        let field = Self {
            cores,
            daemon: volumes::start(&of_daemon, setting, &VOLUMES)?,
            daemon_tcp,
            certificate: certificate(&of_daemon),
            floor: servers::floor(dir, &floor_file, floor_tcp)?,
            floor_tcp,
            null: servers::null(dir, size_bytes, 0)?,
            qemu: servers::is_installed("qemu-nbd").then(|| servers::qemu(dir, &file)).transpose()?,
            nbdkit_file: servers::is_installed("nbdkit")
                .then(|| servers::nbdkit_file(dir, &file))
                .transpose()?,
        };
        run_on(cores.client)?;
        for volume in VOLUMES.iter().filter(|volume| volume.mode == "write-through") {
            volumes::fill(&field.daemon, volume)?;
        }
        Ok(field)
    }

    /// Address and process of a target's server; `None` where it is not installed.
    fn server(&self, case: &Case, target: Target) -> Option<(Address<'_>, u32)> {
        let (server, tcp) = match target {
            Target::Floor | Target::FloorPlus | Target::FloorNull => (&self.floor, Some(self.floor_tcp)),
            Target::Null => (&self.null, None),
            Target::Qemu => (self.qemu.as_ref()?, None),
            Target::NbdkitFile => (self.nbdkit_file.as_ref()?, None),
            _ => (self.daemon.server(), Some(self.daemon_tcp)),
        };
        let address = match tcp {
            Some(tcp) if case.tls => Address::Tls(tcp, &self.certificate),
            Some(tcp) if case.tcp => Address::Tcp(tcp),
            _ => Address::Unix(server.socket()),
        };
        Some((address, server.pid()))
    }

    fn measure(
        &self,
        case: &Case,
        target: Target,
        time_ns: u64,
        seed: u64,
    ) -> anyhow::Result<Option<Sample>> {
        let Some((address, pid)) = self.server(case, target) else { return Ok(None) };
        run_on(if case.one_core { self.cores.server } else { self.cores.client })?;
        load::run(address, target.export(), case.load(target, WARM_NS, seed * 2))?;
        let counters = || match (target.is_daemon(), case.writes) {
            (false, _) => Ok(None),
            (true, false) => self.daemon.counters().map(Some),
            (true, true) => self.daemon.settled_counters().map(Some),
        };
        let before = counters()?;
        let tasks = Tasks::of(pid)?;
        let outcome = load::run(address, target.export(), case.load(target, time_ns, seed * 2 + 1))?;
        let after = counters()?;
        let ended = Tasks::of(pid)?;
        let used = ended.since(&tasks);
        let later = self.destage(case, target, &ended)?;
        let seen = after.zip(before).map(|(after, before)| after.since(before));
        let each = |count: u64| count as f64 / outcome.requests.max(1) as f64;
        Ok(Some(Sample {
            cpu_us: each(used.cpu_ns) / 1000.0,
            later_us: later.map(|used| each(used.cpu_ns) / 1000.0),
            switches: each(used.switches),
            share: seen.and_then(|seen| share(case, &seen)),
            ..sample(&outcome)
        }))
    }

    /// Lets the origin of a write-back volume have what a run left; what that takes from `ended` on.
    fn destage(&self, case: &Case, target: Target, ended: &Tasks) -> anyhow::Result<Option<Used>> {
        if !case.writes || !target.is_write_back() {
            return Ok(None);
        }
        self.daemon.flush(target.export())?;
        Ok(Some(Tasks::of(self.daemon.pid())?.since(ended)))
    }

    fn count_syscalls(&self, case: &Case, target: Target) -> anyhow::Result<Option<f64>> {
        let Some((address, pid)) = self.server(case, target) else { return Ok(None) };
        let Some(count) = SyscallCount::begin(pid) else { return Ok(None) };
        let outcome = load::run(address, target.export(), case.load(target, LOOK_NS, 99))?;
        Ok(count.end().map(|calls| calls as f64 / outcome.requests.max(1) as f64))
    }

    /// What the bytes of a case's writes cost by themselves, on the servers' core.
    fn note_work(&self, case: &Case, round: u64, work: &mut Work) -> anyhow::Result<()> {
        run_on(self.cores.server)?;
        for target in [Target::Noise, Target::Halving] {
            let us = us_per_block(target.content(), case.block_bytes, round + 1)?;
            match work.of.iter_mut().find(|(of, to, _)| of == case && *to == target) {
                Some((_, _, rounds)) => rounds.push(us),
                None => work.of.push((*case, target, vec![us])),
            }
        }
        Ok(())
    }

    fn measure_case(&self, case: &Case, options: &Options, work: &mut Work) -> anyhow::Result<Vec<Series>> {
        let wanted =
            |target: &Target| options.target.as_ref().is_none_or(|part| target.name().contains(part));
        let mut series: Vec<Series> = Target::ALL
            .into_iter()
            .filter(|target| wanted(target) && case.has(*target) && self.server(case, *target).is_some())
            .map(|target| Series { case: *case, target, samples: Vec::new(), syscalls: None })
            .collect();
        let count = series.len();
        for round in 0..options.rounds {
            for turn in 0..count {
                let one = &mut series[(turn + zc_core::usize_from_u64(round)) % count];
                let sample = self
                    .measure(case, one.target, options.time_ns, round)
                    .with_context(|| format!("{}: {}", one.target.name(), case.name()))?;
                one.samples.extend(sample);
            }
            if case.writes {
                self.note_work(case, round, work)?;
            }
        }
        for one in &mut series {
            one.syscalls = self.count_syscalls(case, one.target)?;
        }
        Ok(series)
    }
}

/// Hits among reads, or what was taken in of what was offered.
fn share(case: &Case, seen: &Counters) -> Option<f64> {
    let (part, whole) = if case.writes { (seen.inserted, seen.offered) } else { (seen.hits, seen.reads) };
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn sample(outcome: &Outcome) -> Sample {
    Sample {
        requests: outcome.requests,
        cpu_us: 0.0,
        later_us: None,
        switches: 0.0,
        per_second: outcome.per_second(),
        p50_us: outcome.latency.value_at_quantile(0.5) as f64 / 1000.0,
        share: None,
    }
}

/// The cases that the options name, as they change them.
fn cases(options: &Options) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for case in CASES {
        let connections = options.connections.unwrap_or(case.connections);
        // TLS is on one connection (`Address::Tls`).
        let tls = case.tls && connections == 1;
        let case = Case { connections, tcp: case.tcp || options.tcp, tls, ..case };
        let wanted = options.only.as_ref().is_none_or(|only| case.name().contains(only));
        if wanted && !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

/// Makes the run; `tell` hears how far it is.
///
/// # Errors
/// A server or tool is missing or fails, or the machine has one core.
pub fn run(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Measured> {
    tell("making files and filling caches");
    let field = Field::set_up(options)?;
    let mut all = Measured { series: Vec::new(), work: Work::default() };
    for case in cases(options) {
        let series = field.measure_case(&case, options, &mut all.work)?;
        tell(&super::report::case_table(&series.iter().collect::<Vec<_>>()));
        all.series.extend(series);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Content;

    fn options(connections: Option<u32>, tcp: bool, only: Option<&str>) -> Options {
        Options {
            dir: PathBuf::new(),
            time_ns: 1,
            rounds: 1,
            size_bytes: 1,
            only: only.map(str::to_owned),
            target: None,
            connections,
            tcp,
        }
    }

    #[test]
    fn options_change_cases_and_make_none_twice() {
        assert_eq!(cases(&options(None, false, None)), CASES);
        let changed = cases(&options(Some(4), true, None));
        assert_eq!(changed.len(), CASES.len() - 4);
        assert!(changed.iter().all(|case| case.tcp && !case.tls && case.connections == 4));
        assert_eq!(cases(&options(None, false, Some("128k"))).len(), 3);
    }

    #[test]
    fn every_volume_holds_what_its_target_is_filled_with() {
        for volume in VOLUMES {
            let target = Target::ALL.into_iter().find(|target| target.export() == volume.name).unwrap();
            assert!(target.is_daemon());
            assert_eq!(target.is_write_back(), volume.mode == "write-back");
            assert_eq!(volume.content == Content::Halving, volume.name.ends_with("halving"));
        }
    }
}
