//! `zcached quickstart`: a cache with real data in one directory, measured, then served.
//!
//! Job: gather input, store it in a volume of a store through the daemon's own NBD front end, clone the volume, change
//! the clone by a few per cent, read both back twice and compare every byte, report, compare a slow disk without and
//! with a cache, and continue serving. A second start finds the cache warm.
//!
//! Invariants: nothing outside the directory is written, and in it only files of quickstart (identified by a marker in
//! the generated configuration). Measurements are taken at the client.
//!
//! It does not stand for a benchmark. The store is a file on the same machine and often in its page cache, so a
//! miss costs less here than on a disk.

mod args;
mod input;
mod orders;
mod pictures;
mod place;
mod report;
mod slow_disk;
mod traffic;
mod volumes;
mod watch;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use zc_config::Config;
use zc_daemon::{ConfigFile, Daemon, Hooks, ShardStats, StartOptions};

pub(crate) use args::QuickstartArgs;
use input::Gathered;
use place::{Place, Ports, path_text};
use report::{Line, Phase};
use traffic::Bars;
use volumes::Volume;

/// Less input than this makes no cache worth looking at.
const INPUT_BYTES_MIN: u64 = 16 << 20;
/// The volumes: the first, and its clone.
const BOTH: [&str; 2] = ["a", "b"];
/// Maximum attempts to start while other programs take the free ports.
const START_TRIES: u32 = 5;

/// Runs it all; 0 when everything read was right.
pub(crate) fn run(args: &QuickstartArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let place = Place::open(&args.dir)?;
    let warm = place.is_complete();
    ensure!(
        !warm || args.input.is_empty(),
        "{} holds volumes already; take another --dir for other input, or delete it",
        place.dir().display()
    );
    writeln!(out, "\nzcached quickstart in {}\n", place.dir().display())?;
    let bars = Bars::new();
    // Leftovers of an interrupted comparison.
    place.remove_slow_disk()?;
    if !warm {
        place.clear()?;
        let gathered = input::gather(&args.input, &place.source(), &bars)?;
        if gathered.image_bytes < INPUT_BYTES_MIN {
            place.clear()?;
            bail!(
                "the input is {} only; quickstart needs at least {} (name more with --input)",
                report::size(gathered.image_bytes),
                report::size(INPUT_BYTES_MIN)
            );
        }
        say_input(&gathered, out)?;
        place.make_pool(gathered.image_bytes)?;
    }
    let image_bytes = std::fs::metadata(place.source())
        .with_context(|| format!("cannot read {}", place.source().display()))?
        .len();
    writeln!(
        out,
        "  volumes  a, and b, its clone with {} of the blocks changed; {} each\n  cache    {}, a third of both \
         volumes\n",
        report::percent(volumes::differing_share(image_bytes)),
        report::size(image_bytes),
        report::size(place::cache_bytes(image_bytes)),
    )?;
    out.flush()?;
    let served: &[&str] = if warm { &BOTH } else { &BOTH[..1] };
    let (daemon, ports) = start(&place, served, image_bytes)?;
    let session = Session { daemon: &daemon, place: &place, image_bytes, ports, bars: &bars };
    let result = if warm { session.again(out) } else { session.first(out) };
    if let Err(error) = result {
        let stopped = daemon.stats().is_none();
        drop(daemon);
        return if stopped { Err(error.context("stopped before the end")) } else { Err(error) };
    }
    if !args.exit {
        report::attach(&place, ports, out)?;
        out.flush()?;
        daemon.wait()?;
    } else if !daemon.stop()? {
        bail!("the cache could not be closed cleanly, so it may start cold; its directory may be full");
    }
    writeln!(out, "\nStopped. The next start in this directory finds the cache warm.")?;
    Ok(ExitCode::SUCCESS)
}

/// Starts serving; also returns the TCP ports.
fn start(place: &Place, volumes: &[&str], image_bytes: u64) -> anyhow::Result<(Daemon, Ports)> {
    let options = StartOptions { signals: true, ..StartOptions::default() };
    let mut tries = START_TRIES;
    loop {
        tries -= 1;
        let ports = Ports::free()?;
        let path = place.write_config(volumes, image_bytes, ports)?;
        let config = Config::load(&path)?;
        let read = |path: &Path| Config::load(path).map_err(|error| error.to_string());
        let hooks = Hooks { config_file: Some(ConfigFile::new(path, Arc::new(read))), ..Hooks::default() };
        match Daemon::start(&config, &options, hooks) {
            Ok(daemon) => return Ok((daemon, ports)),
            // Another program took a port in between.
            Err(_) if tries > 0 && !ports.are_free() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot start in {}", place.dir().display()));
            }
        }
    }
}

fn say_input(gathered: &Gathered, out: &mut dyn Write) -> anyhow::Result<()> {
    let roots: Vec<String> = gathered.roots.iter().map(|root| root.display().to_string()).collect();
    writeln!(
        out,
        "  input    {} files, {}, from {}",
        gathered.files,
        report::size(gathered.image_bytes),
        roots.join(" ")
    )?;
    Ok(())
}

/// A running daemon with its volumes.
struct Session<'a> {
    daemon: &'a Daemon,
    place: &'a Place,
    image_bytes: u64,
    ports: Ports,
    bars: &'a Bars,
}

impl Session<'_> {
    fn stats(&self) -> anyhow::Result<ShardStats> {
        watch::stats(self.daemon)
    }

    fn volumes(&self, names: &[&'static str]) -> anyhow::Result<Vec<Volume>> {
        names.iter().map(|name| Volume::open(name, &self.place.source(), self.image_bytes)).collect()
    }

    fn connect(&self, volume: &Volume) -> anyhow::Result<zc_engine::NbdClient> {
        let socket = path_text(&self.place.nbd_socket())?;
        let endpoint = zc_nbd::uri::Endpoint::Unix { socket };
        let uri = zc_nbd::uri::NbdUri { endpoint, export: volume.name().to_owned(), tls: false };
        Ok(zc_engine::NbdClient::connect(&uri)?)
    }

    /// Stores a volume, clones it, changes the clone, reads both twice.
    fn first(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut lines = vec![self.phase(Phase::Store, &BOTH[..1])?];
        let socket = self.place.control_socket();
        orders::clone(&socket, BOTH[0], BOTH[1])?;
        self.place.write_config(&BOTH, self.image_bytes, self.ports)?;
        orders::reload(&socket)?;
        lines.push(self.phase(Phase::Change, &BOTH[1..])?);
        for phase in [Phase::FirstRead, Phase::SecondRead] {
            lines.push(self.phase(phase, &BOTH)?);
        }
        self.place.mark_complete()?;
        report::passes(&lines, out)?;
        report::requests(out)?;
        report::first_hits(&lines, out)?;
        report::no_faster(&lines, report::Origin::PageCache, out)?;
        report::verified(&lines, out)?;
        let (shown_bytes, stored_bytes) = orders::shown_and_stored(&socket)?;
        report::store(shown_bytes, stored_bytes, out)?;
        let written = lines.iter().filter(|line| !line.phase.reads()).map(|line| line.measured.bytes).sum();
        let stats = self.stats()?;
        let ssd_bytes = stats.slots[0].saturating_mul(place::unit_bytes(self.image_bytes));
        report::reduction(&stats, self.image_bytes * 2, written, ssd_bytes, out)?;
        pictures::room(shown_bytes, stored_bytes, ssd_bytes, out)?;
        pictures::speed(&lines, out)?;
        out.flush()?;
        slow_disk::compare(self.place, self.image_bytes, self.bars, out)
    }

    /// Reads once from a cache of an earlier start.
    fn again(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        watch::wait_for_index(self.daemon)?;
        let lines = vec![self.phase(Phase::WarmRead, &BOTH)?];
        report::passes(&lines, out)?;
        report::requests(out)?;
        report::verified(&lines, out)?;
        let cold: Vec<String> = self
            .daemon
            .registry()
            .volumes
            .iter()
            .filter_map(|volume| volume.cold_reason.as_ref().map(|why| format!("{}: {why}", volume.key())))
            .collect();
        report::restart(&self.stats()?, &cold, out)
    }

    fn phase(&self, phase: Phase, names: &[&'static str]) -> anyhow::Result<Line> {
        let before = self.stats()?;
        let volumes = self.volumes(names)?;
        let bytes = match phase {
            Phase::Change => volumes.iter().map(Volume::changed_bytes).sum(),
            _ => volumes.iter().map(Volume::len_bytes).sum(),
        };
        let mut traffic = traffic::Traffic::new(self.bars, phase.name(), bytes);
        for volume in volumes {
            let mut client = self.connect(&volume)?;
            let done = match phase {
                Phase::Store => traffic.store(&mut client, &volume),
                Phase::Change => traffic.change(&mut client, &volume),
                _ => traffic.read(&mut client, &volume),
            };
            done.with_context(|| format!("{} of volume {} failed", phase.name(), volume.name()))?;
            client.disconnect()?;
        }
        let measured = traffic.finish();
        if !phase.reads() {
            watch::settle(self.daemon)?;
        }
        Ok(Line { phase, measured, before, after: self.stats()? })
    }
}
