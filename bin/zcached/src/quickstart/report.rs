//! The report of a quickstart.

use std::io::Write;
use std::time::Duration;

use zc_core::limits::EXTENT_BYTES_DEFAULT;
use zc_core::u64_from_usize;
use zc_daemon::ShardStats;
use zc_nbd::uri::{Endpoint, NbdUri};

use super::place::{Place, Ports, STORE};
use super::traffic::Measured;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first volume was written.
    Store,
    Change,
    /// Everything was read for the first time.
    FirstRead,
    /// And once more.
    SecondRead,
    /// Everything was read after a restart.
    WarmRead,
    /// Blocks of the slow disk were read.
    NoCache,
    /// Blocks of it were read through an empty cache.
    ColdCache,
    /// Blocks of it were read again.
    WarmCache,
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Change => "change clone",
            Self::FirstRead => "first read",
            Self::SecondRead => "second read",
            Self::WarmRead => "warm read",
            Self::NoCache => "no cache",
            Self::ColdCache => "cold cache",
            Self::WarmCache => "warm cache",
        }
    }

    /// Returns `true` if it reads.
    pub(crate) const fn reads(self) -> bool {
        !matches!(self, Self::Store | Self::Change)
    }
}

/// A phase as measured by the client, with the daemon's counters before and after.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) phase: Phase,
    pub(crate) measured: Measured,
    pub(crate) before: ShardStats,
    pub(crate) after: ShardStats,
}

/// "17.3 MiB".
pub(crate) fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.iter().find(|(shift, _)| bytes >= f64::from(*shift).exp2());
    fitting.map_or_else(
        || format!("{bytes:.0} B"),
        |(shift, name)| format!("{:.1} {name}", bytes / f64::from(*shift).exp2()),
    )
}

/// "3.1 %" of a share from 0 to 1.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn ratio(large: u64, small: u64) -> String {
    if small == 0 { "-".to_owned() } else { format!("{:.2} : 1", large as f64 / small as f64) }
}

fn latency(sorted: &[Duration], permille: usize) -> String {
    let at = (sorted.len() * permille / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or_else(|| "-".to_owned(), |time| format!("{:.2} ms", time.as_secs_f64() * 1000.0))
}

fn counter(stats: &ShardStats, name: &str) -> u64 {
    stats.manager.get(name).copied().unwrap_or(0)
}

impl Line {
    pub(crate) fn bytes_per_s(&self) -> u64 {
        let ms = self.measured.took.as_millis().max(1);
        u64::try_from(u128::from(self.measured.bytes) * 1000 / ms).unwrap_or(u64::MAX)
    }

    pub(crate) fn requests_per_s(&self) -> u64 {
        let ms = u64::try_from(self.measured.took.as_millis().max(1)).unwrap_or(u64::MAX);
        u64_from_usize(self.measured.latencies.len()) * 1000 / ms
    }

    fn rate(&self) -> String {
        format!("{:.0} MiB/s", self.bytes_per_s() as f64 / f64::from(1 << 20))
    }

    /// Extents read from the cache device, of all that were read.
    fn device_share(&self) -> f64 {
        let device = |stats: &ShardStats| counter(stats, "extent_hits_device");
        let read = self.after.extents.read.saturating_sub(self.before.extents.read);
        device(&self.after).saturating_sub(device(&self.before)) as f64 / read.max(1) as f64
    }

    /// Returns the share of extent reads that needed no origin. Prefetched extents came from the origin.
    fn hit_ratio(&self) -> Option<f64> {
        let extents = |stats: &ShardStats| (stats.extents.hits, stats.extents.read);
        let ((hits, all), (hits_before, all_before)) = (extents(&self.after), extents(&self.before));
        let (hits, all) = (hits.saturating_sub(hits_before), all.saturating_sub(all_before));
        (all > 0 && self.phase.reads()).then(|| hits as f64 / all as f64)
    }
}

/// Speed of the device behind the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file that is read through the page cache; the cache device's file is read with direct I/O, past it.
    PageCache,
    /// A disk that is made slow.
    Slow,
}

pub(crate) fn passes(lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "  {:12} {:>12} {:>10} {:>11} {:>11} {:>11}",
        "", "throughput", "hit ratio", "p50", "p99", "p99.9"
    )?;
    for line in lines {
        let [p50, p99, p999] = [500, 990, 999].map(|permille| latency(&line.measured.latencies, permille));
        let hits = line.hit_ratio().map_or_else(|| "-".to_owned(), percent);
        let (name, rate) = (line.phase.name(), line.rate());
        writeln!(out, "  {name:12} {rate:>12} {hits:>10} {p50:>11} {p99:>11} {p999:>11}")?;
    }
    Ok(())
}

/// Prints how the requests of whole volumes were made.
pub(crate) fn requests(out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "  (requests of 128 KiB, 8 in flight; latency as the client sees it)\n")?;
    Ok(())
}

/// The origin of the hits of a first pass.
pub(crate) fn first_hits(lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    let first = lines.iter().find(|line| line.phase == Phase::FirstRead);
    if first.and_then(Line::hit_ratio).is_some_and(|hits| hits > 0.5) {
        writeln!(
            out,
            "  The first read has hits because the cache inserted the data as it was stored; it finds the clone's\n  \
             content by the store's fingerprints."
        )?;
    }
    Ok(())
}

/// Reasons for which a pass with as many hits as the one before it, or more, is no faster.
pub(crate) fn no_faster(lines: &[Line], origin: Origin, out: &mut dyn Write) -> anyhow::Result<()> {
    let passes: Vec<&Line> = lines.iter().filter(|line| line.hit_ratio().is_some()).collect();
    for pair in passes.windows(2) {
        let [earlier, later] = pair else { continue };
        let Some(compared) = compared(earlier, later) else { continue };
        writeln!(
            out,
            "  The {} is {compared} the {}, with as many hits or more: {} of its reads came from the\n  \
             cache device, {} before; the device's own speed counts here.",
            later.phase.name(),
            earlier.phase.name(),
            percent(later.device_share()),
            percent(earlier.device_share()),
        )?;
        if origin == Origin::PageCache {
            writeln!(
                out,
                "  The store's file is read through this machine's page cache, the cache's file with direct I/O.\n  \
                 So a hit saves little time here. The slow disk below shows what it saves."
            )?;
        }
    }
    Ok(())
}

/// Compares the speed of a pass with an earlier one. `None` if it is faster by more than 10 %, or has fewer hits.
fn compared(earlier: &Line, later: &Line) -> Option<&'static str> {
    let [before, after] = [earlier, later].map(|line| u128::from(line.bytes_per_s()));
    if later.hit_ratio() < earlier.hit_ratio() || after * 10 > before * 11 {
        return None;
    }
    Some(if after * 10 < before * 9 { "slower than" } else { "as fast as" })
}

/// Prints that all data was correct; a difference would have ended the run.
pub(crate) fn verified(lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    let read: u64 = lines.iter().filter(|line| line.phase.reads()).map(|line| line.measured.bytes).sum();
    writeln!(
        out,
        "  verified           {} read and compared with the source: every byte is right",
        size(read)
    )?;
    Ok(())
}

/// Prints the effect of reduction. `ssd_bytes` are those of the units in use.
pub(crate) fn reduction(
    stats: &ShardStats,
    volume_bytes: u64,
    client_bytes: u64,
    ssd_bytes: u64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let get = |name| counter(stats, name);
    let stored = get("insert_stored");
    let offered = stored + get("insert_duplicates") + get("insert_zero");
    let mapped = get("file_index_len") * u64::from(EXTENT_BYTES_DEFAULT);
    let written = get("weu_bytes_written")
        + get("journal_bytes_written")
        + get("checkpoint_bytes_written")
        + get("region_map_bytes_written");
    let rows = [
        ("deduplication", format!("{} (extents cached to extents stored)", ratio(offered, stored))),
        ("compression", ratio(get("stored_raw_bytes"), get("stored_bytes"))),
        (
            "cache holds",
            format!(
                "{} of {} in {} of the cache device ({})",
                size(mapped),
                size(volume_bytes),
                size(ssd_bytes),
                ratio(mapped, ssd_bytes)
            ),
        ),
        ("evictions", format!("{} write-evict units", get("evictions"))),
        (
            "SSD bytes written",
            format!(
                "{} ({} of client writes)",
                size(written),
                percent(written as f64 / client_bytes.max(1) as f64)
            ),
        ),
    ];
    for (name, value) in rows {
        writeln!(out, "  {name:18} {value}")?;
    }
    let skipped = get("insert_skipped");
    if skipped > 0 {
        writeln!(
            out,
            "  not inserted       {skipped} extents: clients never wait for the cache to be filled"
        )?;
    }
    Ok(())
}

/// Prints the stored bytes in relation to the volumes' size.
pub(crate) fn store(shown_bytes: u64, stored_bytes: u64, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "  pool               {} in a and its clone b take {} ({})",
        size(shown_bytes),
        size(stored_bytes),
        ratio(shown_bytes, stored_bytes)
    )?;
    Ok(())
}

pub(crate) fn restart(stats: &ShardStats, cold: &[String], out: &mut dyn Write) -> anyhow::Result<()> {
    let loaded = stats.index_loaded_ms.map_or_else(|| "still loading".to_owned(), |ms| format!("{ms} ms"));
    let read = stats.restart_bytes_read + counter(stats, "load_header_bytes");
    writeln!(
        out,
        "  restart            index complete after {loaded}; {} of metadata read, {} mappings found",
        size(read),
        counter(stats, "load_mappings")
    )?;
    for reason in cold {
        writeln!(out, "  started cold       {reason}")?;
    }
    Ok(())
}

/// Returns the path of `zcctl` beside this program if there is one, because it need not be installed.
fn zcctl() -> String {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("zcctl"));
    beside.filter(|path| path.exists()).map_or_else(|| "zcctl".to_owned(), |path| path.display().to_string())
}

/// Prints how to use the served volumes.
pub(crate) fn attach(place: &Place, ports: Ports, out: &mut dyn Write) -> anyhow::Result<()> {
    let socket = place.nbd_socket();
    let uri = |export: &str| {
        let endpoint = Endpoint::Unix { socket: socket.display().to_string() };
        NbdUri { endpoint, export: export.to_owned(), tls: false }
    };
    let (a, b) = (uri("a"), uri("b"));
    let (socket, control, zcctl) = (socket.display(), place.control_socket(), zcctl());
    writeln!(
        out,
        "\n  Serving until Ctrl-C. The live page, for a browser: http://127.0.0.1:{page}/\n\n  \
         Try, in another terminal:\n\n\
         \x20   {zcctl} status --socket {control}\n\
         \x20   {zcctl} top --socket {control}\n\
         \x20   {zcctl} store volumes {STORE} --socket {control}\n\
         \x20   nbdinfo --list nbd://127.0.0.1:{port}\n\
         \x20   qemu-img info '{a}'\n\
         \x20   qemu-io -f raw -c 'read 0 1M' '{b}'\n\
         \x20   modprobe nbd && nbd-client -N a -unix {socket} /dev/nbd0   (as root)\n",
        control = control.display(),
        page = ports.page,
        port = ports.nbd,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(counters: &[(&'static str, u64)]) -> ShardStats {
        ShardStats { manager: counters.iter().copied().collect(), ..ShardStats::default() }
    }

    fn line(counters: &[(&'static str, u64)]) -> Line {
        let latencies = (1..=1000).map(Duration::from_millis).collect();
        let measured = Measured { bytes: 10 << 20, took: Duration::from_secs(2), latencies };
        Line {
            phase: Phase::FirstRead,
            measured,
            before: stats(&[("extent_misses", 5)]),
            after: stats(counters),
        }
    }

    #[test]
    fn the_hit_ratio_is_of_the_pass() {
        let mut line = line(&[]);
        line.before.extents = zc_daemon::Extents { read: 5, hits: 0, read_ahead: 0 };
        line.after.extents = zc_daemon::Extents { read: 15, hits: 7, read_ahead: 1 };
        assert_eq!(line.hit_ratio(), Some(0.7));
        let mut out = Vec::new();
        passes(&[line], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in ["5 MiB/s", "70.0 %", "501.00 ms", "991.00 ms", "1000.00 ms"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn a_pass_of_more_hits_that_is_no_faster_has_its_reason() {
        let pass = |phase, seconds, hits, device: [u64; 2]| {
            let mut line = line(&[]);
            line.phase = phase;
            line.measured.took = Duration::from_secs(seconds);
            let extents = |read, hits| zc_daemon::Extents { read, hits, read_ahead: 0 };
            (line.before.extents, line.after.extents) = (extents(0, 0), extents(100, hits));
            line.before.manager.insert("extent_hits_device", device[0]);
            line.after.manager.insert("extent_hits_device", device[1]);
            line
        };
        let shown = |lines: &[Line], origin| {
            let mut out = Vec::new();
            first_hits(lines, &mut out).unwrap();
            no_faster(lines, origin, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let lines = [pass(Phase::FirstRead, 2, 99, [0, 60]), pass(Phase::SecondRead, 3, 100, [60, 157])];
        let text = shown(&lines, Origin::PageCache);
        for part in [
            "second read is slower than",
            "97.0 % of its reads",
            "60.0 % before",
            "page cache",
            "inserted the data",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!shown(&lines, Origin::Slow).contains("page cache"));
        let alike =
            [pass(Phase::FirstRead, 1000, 99, [0, 60]), pass(Phase::SecondRead, 1007, 100, [60, 157])];
        assert!(shown(&alike, Origin::Slow).contains("second read is as fast as the first read"), "0.7 %");
        let faster = [pass(Phase::ColdCache, 3, 40, [0, 30]), pass(Phase::WarmCache, 2, 100, [30, 130])];
        assert_eq!(shown(&faster, Origin::Slow), "");
        let fewer = [pass(Phase::ColdCache, 2, 70, [0, 30]), pass(Phase::WarmCache, 3, 60, [30, 90])];
        assert_eq!(shown(&fewer, Origin::Slow), "");
    }

    #[test]
    fn ratios_are_told() {
        let stats = stats(&[
            ("insert_stored", 50),
            ("insert_duplicates", 50),
            ("stored_raw_bytes", 300),
            ("stored_bytes", 200),
            ("file_index_len", 256),
            ("weu_bytes_written", 1 << 20),
        ]);
        let mut out = Vec::new();
        reduction(&stats, 4 << 20, 2 << 20, 1 << 20, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "2.00 : 1",
            "1.50 : 1",
            "2.0 MiB of 4.0 MiB in 1.0 MiB of the cache device (2.00 : 1)",
            "50.0 % of client writes",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
