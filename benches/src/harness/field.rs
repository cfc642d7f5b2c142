//! The servers of a comparison, and one way to measure each.
//!
//! Job: start servers; run cases against targets in rotating order; record the resource use of the server's process.
//!
//! Invariants: the same client with the same requests for every server. Runs of writes end when the daemon has
//! inserted all data, and destaging happens outside the runs. CPU is that of the server's process alone. System calls
//! are counted and profiles taken in runs of their own, because both cost time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::certificate::certificate;
use super::cores::{Cores, run_on};
use super::daemon::{Daemon, fill_file};
use super::floor;
use super::servers::{self, Server};
use super::tasks::Tasks;
use super::usage::{Profile, SyscallCount};
use super::volumes::{self, Setting, Volume};
use super::work::us_per_block;
use crate::load::{self, Address, Content, Load, Op};
use crate::measure::{Measured, Sample, Series, rounds};
use crate::options::Work;
use crate::report::{Column, case_table};

/// Warm-up of each run: new connections and paths are slow at first.
const WARM_NS: u64 = 30_000_000;
/// System calls are counted and profiles taken in runs of these lengths.
const COUNT_NS: u64 = 100_000_000;
const PROFILE_NS: u64 = 500_000_000;

/// A server, or its substitute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The file itself, by `fio`.
    File,
    /// A bare socket round trip with the same number of bytes.
    PingPong,
    /// Cost of a write's bytes alone.
    Bytes,
    /// `bench floor-server` with a file.
    Floor,
    /// `bench floor-server` without a file, and its `poll_max` in microseconds.
    Null(u32),
    NbdkitNull,
    NbdkitFile,
    Qemu,
    /// The daemon that was started as this one.
    Daemon(usize),
}

/// Something that is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) export: &'static str,
    /// Contents of writes.
    pub(crate) content: Content,
}

impl Target {
    pub(crate) const fn new(name: &'static str, place: Place, export: &'static str) -> Self {
        Self { name, place, export, content: Content::Noise }
    }

    pub(crate) const fn of(self, content: Content) -> Self {
        Self { content, ..self }
    }
}

/// Connection of clients to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Unix,
    Tcp,
    Tls,
}

/// Load of a case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) load: Load,
    pub(crate) link: Link,
    /// Server and load generator share a core.
    pub(crate) one_core: bool,
}

impl Case {
    pub(crate) fn new(name: String, load: Load) -> Self {
        Self { name, load, link: Link::Unix, one_core: false }
    }

    pub(crate) fn writes(&self) -> bool {
        self.load.op != Op::Read
    }

    fn load(&self, target: &Target, time_ns: u64, seed: u64) -> Load {
        let op = if self.writes() { Op::Write(target.content) } else { Op::Read };
        Load { op, time_ns, seed, ..self.load }
    }
}

/// All servers.
#[derive(Debug)]
pub(crate) struct Field {
    dir: PathBuf,
    size_bytes: u64,
    file: PathBuf,
    cores: Option<Cores>,
    daemons: Vec<(Daemon, Option<SocketAddr>, PathBuf)>,
    servers: Vec<(Place, Server, Option<SocketAddr>)>,
}

impl Field {
    /// No servers yet. If they are bound, they have one core, and the load generator has another.
    pub(crate) fn new(work: &Work, are_bound: bool) -> anyhow::Result<Self> {
        println!("making files and filling caches");
        let (dir, size_bytes) = (work.dir.clone(), work.size_bytes);
        let file = dir.join("file.img");
        fill_file(&file, size_bytes)?;
        let cores = are_bound.then(Cores::pick).transpose()?;
        Ok(Self { dir, size_bytes, file, cores, daemons: Vec::new(), servers: Vec::new() })
    }

    fn run_on_server_core(&self) -> anyhow::Result<()> {
        self.cores.map_or(Ok(()), |cores| run_on(cores.server))
    }

    fn run_on_client_core(&self) -> anyhow::Result<()> {
        self.cores.map_or(Ok(()), |cores| run_on(cores.client))
    }

    /// Starts a server.
    pub(crate) fn start(&mut self, place: Place) -> anyhow::Result<()> {
        let (dir, file, size_bytes) = (&self.dir, &self.file, self.size_bytes);
        // Processes started from here on stay on the servers' core.
        self.run_on_server_core()?;
        let (server, tcp) = match place {
            Place::Floor => {
                // Not the file that another server has in the page cache.
                let (file, tcp) = (dir.join("floor.img"), servers::free_address()?);
                fill_file(&file, size_bytes)?;
                (servers::floor(dir, &file, tcp)?, Some(tcp))
            }
            Place::Null(poll_max_us) => (servers::null(dir, size_bytes, poll_max_us)?, None),
            Place::NbdkitNull => (servers::nbdkit_null(dir, size_bytes)?, None),
            Place::NbdkitFile => (servers::nbdkit_file(dir, file)?, None),
            Place::Qemu => (servers::qemu(dir, file)?, None),
            Place::File | Place::PingPong | Place::Bytes | Place::Daemon(_) => return Ok(()),
        };
        self.servers.push((place, server, tcp));
        self.run_on_client_core()
    }

    /// Starts the next daemon, with a cache size in multiples of a volume, and fills the volumes that need it.
    pub(crate) fn start_daemon(
        &mut self,
        cache: &'static str,
        cache_volumes: u64,
        volumes: &[Volume],
        is_filled: impl Fn(&Volume) -> bool,
        is_tcp: bool,
    ) -> anyhow::Result<()> {
        let dir = self.dir.join(format!("zcached-{}", self.daemons.len()));
        let size_bytes = self.size_bytes;
        let tcp = is_tcp.then(servers::free_address).transpose()?;
        let setting = Setting { cache_bytes: cache_volumes * size_bytes, size_bytes, cache, tcp };
        self.run_on_server_core()?;
        let daemon = volumes::start(&dir, setting, volumes)?;
        self.run_on_client_core()?;
        volumes.iter().filter(|volume| is_filled(volume)).try_for_each(|one| volumes::fill(&daemon, one))?;
        self.daemons.push((daemon, tcp, certificate(&dir)));
        Ok(())
    }

    pub(crate) fn daemon(&self, target: &Target) -> Option<&Daemon> {
        match target.place {
            Place::Daemon(number) => self.daemons.get(number).map(|(daemon, ..)| daemon),
            _ => None,
        }
    }

    /// Address and process of a target's server, if it has one.
    fn server(&self, link: Link, target: &Target) -> Option<(Address<'_>, u32)> {
        let (server, tcp, certificate) = match target.place {
            Place::Daemon(number) => {
                let (daemon, tcp, certificate) = self.daemons.get(number)?;
                (daemon.server(), *tcp, certificate.as_path())
            }
            place => {
                let (_, server, tcp) = self.servers.iter().find(|(of, ..)| *of == place)?;
                (server, *tcp, Path::new(""))
            }
        };
        let address = match (link, tcp) {
            (Link::Unix, _) => Address::Unix(server.socket()),
            (Link::Tcp, tcp) => Address::Tcp(tcp?),
            (Link::Tls, tcp) => Address::Tls(tcp?, certificate),
        };
        Some((address, server.pid()))
    }

    /// Returns `true` if the target was started, and can be reached by this link.
    pub(crate) fn has(&self, case: &Case, target: &Target) -> bool {
        match target.place {
            Place::File | Place::PingPong | Place::Bytes => case.link == Link::Unix,
            _ => self.server(case.link, target).is_some(),
        }
    }

    /// One short run.
    pub(crate) fn measure(
        &self,
        case: &Case,
        target: &Target,
        time_ns: u64,
        round: u64,
    ) -> anyhow::Result<Sample> {
        match target.place {
            Place::PingPong => {
                return Ok(Sample::from(&floor::ping_pong(case.load.block_bytes, time_ns)?));
            }
            Place::File => return floor::fio(&self.file, &case.load(target, time_ns, round + 1)),
            Place::Bytes => {
                self.run_on_server_core()?;
                let cpu_us = us_per_block(target.content, case.load.block_bytes, round + 1)?;
                return Ok(Sample::new([("cpu_us", cpu_us)]));
            }
            _ => {}
        }
        let (address, pid) = self.server(case.link, target).context("it was not started")?;
        let bound = if case.one_core { self.run_on_server_core() } else { self.run_on_client_core() };
        bound?;
        load::run(address, target.export, case.load(target, WARM_NS, round * 2))?;
        let daemon = self.daemon(target);
        let counters = || match daemon {
            None => Ok(Sample::default()),
            Some(daemon) if case.writes() => daemon.settled_counters(),
            Some(daemon) => daemon.counters(),
        };
        let (before, tasks) = (counters()?, Tasks::of(pid)?);
        let outcome = load::run(address, target.export, case.load(target, time_ns, round * 2 + 1))?;
        let (seen, ended) = (counters()?.since(&before), Tasks::of(pid)?);
        let used = ended.since(&tasks);
        let each = |count: f64| count / outcome.requests.max(1) as f64;
        let is_skipping = seen.get("skipped").is_some_and(|skipped| skipped > 0.0);
        let mut sample = Sample::from(&outcome)
            .with("skipping_per_second", is_skipping.then(|| outcome.per_second()))
            .with("cpu_us", each(used.cpu_ns as f64 / 1000.0))
            .with("switches", each(used.switches as f64))
            .with("turn_us", seen.get("turns_us").map(each))
            .with("waited_us", seen.get("turns_waited_us").map(each))
            .and(seen);
        if let Some(daemon) = daemon.filter(|_| case.writes() && target.export.contains("back")) {
            // Destages dirty data now, so that no other run is affected.
            daemon.flush(target.export)?;
            let later = Tasks::of(pid)?.since(&ended);
            sample = sample.with("later_us", each(later.cpu_ns as f64 / 1000.0));
        }
        Ok(sample)
    }

    /// System calls for each request.
    fn count_syscalls(&self, case: &Case, target: &Target) -> anyhow::Result<Sample> {
        let Some((address, pid)) = self.server(case.link, target) else { return Ok(Sample::default()) };
        let Some(count) = SyscallCount::begin(pid) else { return Ok(Sample::default()) };
        let outcome = load::run(address, target.export, case.load(target, COUNT_NS, 99))?;
        let calls = count.end().map(|calls| calls as f64 / outcome.requests.max(1) as f64);
        Ok(Sample::default().with("syscalls", calls))
    }

    fn profile(&self, case: &Case, target: &Target) -> anyhow::Result<Option<String>> {
        let Some((address, pid)) = self.server(case.link, target) else { return Ok(None) };
        let Some(profile) = Profile::begin(pid, &self.dir.join("perf.data")) else { return Ok(None) };
        load::run(address, target.export, case.load(target, PROFILE_NS, 77))?;
        Ok(profile.end())
    }

    /// Measures all targets of each case that `has` them. `is_profiled` selects runs with profiles.
    pub(crate) fn compare(
        &self,
        work: &Work,
        cases: &[Case],
        targets: &[Target],
        columns: &[Column],
        has: impl Fn(&Case, &Target) -> bool,
        is_profiled: impl Fn(&Case, &Target) -> bool,
    ) -> anyhow::Result<Measured> {
        let mut all = Measured::default();
        for case in cases.iter().filter(|case| work.wants(&case.name)) {
            let wanted = targets.iter().filter(|target| has(case, target) && self.has(case, target));
            let wanted: Vec<(&str, &Target)> = wanted.map(|target| (target.name, target)).collect();
            let measure = |target: &&Target, round| self.measure(case, target, work.time_ns, round);
            let mut series: Vec<Series> = rounds(&case.name, &wanted, work.rounds, measure)?;
            for (one, (_, target)) in series.iter_mut().zip(&wanted) {
                one.once = self.count_syscalls(case, target)?;
                if is_profiled(case, target) {
                    one.profile = self.profile(case, target)?;
                }
            }
            let measured = Measured(series);
            println!("{}", case_table(&measured, &case.name, columns));
            all.0.extend(measured.0);
        }
        Ok(all)
    }
}
