//! The benefit of a cache: the same reads of a slow disk without the cache, through it, and through it again.
//!
//! Job: serve the source image as an origin with a low request rate, and read the same blocks three times: once in a
//! volume that does not use its cache, and twice in one that does.
//!
//! Invariants: the three passes request the same blocks in the same order, one at a time. Every byte is compared. Its
//! files in the directory are removed at the end, or by the next start after an interruption.
//!
//! It does not represent a particular disk. Its limit is that of a hard disk; its latency includes no seek.

use anyhow::Context as _;
use zc_config::Config;
use zc_daemon::{Daemon, Hooks, StartOptions};
use zc_engine::NbdClient;
use zc_nbd::uri::{Endpoint, NbdUri};

use super::place::{Place, path_text};
use super::report::{self, Line, Phase};
use super::traffic::{Bars, Traffic};
use super::volumes::{BLOCK_BYTES, Volume, mix};
use super::{pictures, place, watch};

/// Requests per second of the disk: about those of a hard disk with 7,200 rpm at random.
const DISK_IOPS: u32 = 150;
const READS: u64 = 400;
/// Blocks that programs use, and those of them that they use most.
const BLOCKS: u64 = 300;
const HOT_BLOCKS: u64 = 60;
/// Share of the reads that goes to the hot blocks, in per cent.
const HOT_PERCENT: u64 = 80;

/// Reads three times, and prints the duration of each pass.
pub(super) fn compare(
    place: &Place,
    image_bytes: u64,
    bars: &Bars,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    place.make_slow_disk()?;
    let lines = passes(place, image_bytes, bars);
    place.remove_slow_disk()?;
    let lines = lines.context("the comparison with a slow disk failed")?;
    writeln!(
        out,
        "\n  A disk of {DISK_IOPS} requests a second, without a cache and with one. The same {READS} reads of {} each time,\n  \
         one after another, {HOT_PERCENT} % of them to {HOT_BLOCKS} of {BLOCKS} blocks:\n",
        report::size(BLOCK_BYTES)
    )?;
    report::passes(&lines, out)?;
    report::no_faster(&lines, report::Origin::Slow, out)?;
    pictures::reads(&lines, out)
}

fn passes(place: &Place, image_bytes: u64, bars: &Bars) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let modes: [(&str, &[Phase]); 2] =
        [("pass-through", &[Phase::NoCache]), ("write-through", &[Phase::ColdCache, Phase::WarmCache])];
    for (mode, phases) in modes {
        let config = Config::load(&place.write_disk_config(mode, DISK_IOPS)?)?;
        let daemon = Daemon::start(&config, &StartOptions::default(), Hooks::default())?;
        for phase in phases {
            lines.push(pass(&daemon, place, image_bytes, *phase, bars)?);
        }
        daemon.stop()?;
    }
    Ok(lines)
}

fn pass(daemon: &Daemon, place: &Place, image_bytes: u64, phase: Phase, bars: &Bars) -> anyhow::Result<Line> {
    let volume = Volume::open(place::DISK, &place.source(), image_bytes)?;
    let endpoint = Endpoint::Unix { socket: path_text(&place.disk_socket())? };
    let before = watch::stats(daemon)?;
    let mut client = NbdClient::connect(&NbdUri { endpoint, export: place::DISK.to_owned(), tls: false })?;
    let mut traffic = Traffic::new(bars, phase.name(), READS * BLOCK_BYTES);
    let read = traffic.read_blocks(&mut client, &volume, blocks(image_bytes));
    read.with_context(|| format!("{} failed", phase.name()))?;
    client.disconnect()?;
    let measured = traffic.finish();
    watch::settle(daemon)?;
    Ok(Line { phase, measured, before, after: watch::stats(daemon)? })
}

/// Offsets of the blocks that a pass reads, in bytes: the same for every pass.
fn blocks(image_bytes: u64) -> impl Iterator<Item = u64> {
    let all = image_bytes / BLOCK_BYTES;
    (0..READS).map(move |read| {
        let number = mix(read);
        let used = if number % 100 < HOT_PERCENT { HOT_BLOCKS } else { BLOCKS };
        // Spread over the image, so that no read has its neighbour read ahead.
        mix(BLOCKS + (number >> 8) % used) % all * BLOCK_BYTES
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_reads_go_to_few_blocks_of_the_image() {
        let image_bytes = 64 << 20;
        let mut counts = std::collections::BTreeMap::new();
        for offset in blocks(image_bytes) {
            assert!(offset + BLOCK_BYTES <= image_bytes && offset % BLOCK_BYTES == 0, "{offset}");
            *counts.entry(offset).or_insert(0u64) += 1;
        }
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = counts.iter().take(60).sum();
        assert!((300..=360).contains(&hot), "{hot} of {READS}");
        assert!(counts.len() > 100, "{}", counts.len());
    }
}
