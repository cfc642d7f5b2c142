//! The report of a run: tables, goals, and what fell short.

use std::fmt::Write as _;

use super::overwrite::bound;
use super::{Measured, flushes, overwrite, programs, series};

/// Bytes written per byte of a client, over the bound, that uniform overwrites at 80 % may cost.
const OVER_BOUND_MAX: f64 = 1.25;
/// Share of the pool at which that is judged, in per cent.
const JUDGED_PERCENT: u64 = 80;
/// Longest time in which no request ends, in nanoseconds.
const PAUSE_NS: u64 = 10_000_000;
/// Rate of the last generation, read from front to back, over the first's.
const LAST_OVER_FIRST_MIN: f64 = 0.5;
/// Rate of random writes over the bare disk's.
const RANDOM_WRITES_MIN: f64 = 3.0;

const MIB: f64 = 1_048_576.0;

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn size(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

fn per(bytes: u64, client_bytes: u64) -> f64 {
    bytes as f64 / client_bytes.max(1) as f64
}

/// The head of a table of overwrites.
const OVERWRITES_HEAD: &str = "\
    | full | pattern | at once | segments, KiB | in use | filled | device | moved | maps | chunk table | other tables | headers \
    | bound | over it | bound, filled | over it | checkpoints | operations a request | median / p99 / p99.9 / longest, ms \
    | no space | CPU us: pool + jobs |\n\
    |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

fn overwrite_row(seen: &overwrite::Seen, text: &mut String) {
    let client = seen.client_bytes();
    let device = seen.amplification();
    let headers = seen.tally.written_bytes.saturating_sub(client + seen.moved_bytes + seen.page_bytes());
    let quantile = |share: f64| ms(seen.times_ns.value_at_quantile(share));
    let mut cells = vec![
        format!("{} %", seen.case.full_percent),
        seen.case.pattern.to_string(),
        seen.case.depth.to_string(),
        (seen.segment_bytes >> 10).to_string(),
        format!("{:.1} %", 100.0 * seen.utilisation),
        format!("{:.1} %", 100.0 * seen.filled),
        format!("{device:.2}"),
    ];
    let parts = [seen.moved_bytes, seen.map_bytes, seen.chunk_table_bytes, seen.other_table_bytes, headers];
    cells.extend(parts.map(|bytes| format!("{:.2}", per(bytes, client))));
    for least in [seen.utilisation, seen.filled].map(bound) {
        cells.extend([format!("{least:.2}"), format!("{:.2}", device / least)]);
    }
    let cpu_us = |ns: u64| ns as f64 / 1000.0 / seen.requests.max(1) as f64;
    cells.extend([
        seen.checkpoints.to_string(),
        format!("{:.2}", per(seen.tally.writes + seen.tally.reads, seen.requests)),
        [quantile(0.5), quantile(0.99), quantile(0.999), ms(seen.times_ns.max())]
            .map(|ms| format!("{ms:.2}"))
            .join(" / "),
        seen.no_space.to_string(),
        format!("{:.1} + {:.1}", cpu_us(seen.cpu.pool_ns), cpu_us(seen.cpu.jobs_ns)),
    ]);
    let _infallible = writeln!(text, "| {} |", cells.join(" | "));
}

fn overwrites(all: &[overwrite::Seen], text: &mut String) {
    text.push_str(
        "## Random overwrites of 8 KiB\n\nThe volume is filled with noise, overwritten as often as the header says, then counted. \
         *Full*: the volume's bytes per 100 that contents may use. *In use*: what tables refer to, pages included, of what \
         contents may use. *Filled*: the same of all segments that were not free, on the average; the cleaner looks for victims \
         there. *Device*: bytes written per byte of a client, the sum of the client's own 1 and the five columns behind: \
         contents that the cleaner *moved*, pages of *maps*, of the *chunk table* and of *other tables*, *headers* of batches. \
         *Bound*: see `overwrite::bound`, for what is in use and for what is filled; it knows no pages and no headers. Small \
         segments stand for a larger pool: what is kept free is a number of segments.\n\n",
    );
    text.push_str(OVERWRITES_HEAD);
    all.iter().for_each(|seen| overwrite_row(seen, text));
}

fn flushed(all: &[flushes::Seen], text: &mut String) {
    let _infallible = write!(
        text,
        "\n## A flush behind {} random writes\n\nOn the disk. *Bare*: each write where it belongs, then a flush.\n\n\
         | bytes of a write | device writes | device bytes a byte | device reads | ms | bare, ms |\n|---|---|---|---|---|---|\n",
        flushes::WRITES
    );
    for seen in all {
        let client = flushes::WRITES * seen.len_bytes;
        let _infallible = writeln!(
            text,
            "| {} | {} | {:.2} | {} | {:.0} | {:.0} |",
            size(seen.len_bytes),
            seen.tally.writes,
            per(seen.tally.written_bytes, client),
            seen.tally.reads,
            ms(seen.took_ns),
            ms(seen.bare_ns)
        );
    }
}

fn generations(seen: &series::Seen, text: &mut String) {
    let _infallible = write!(
        text,
        "\n## {} generations of a volume\n\nOn the disk; 2.3 % change from one to the next, in runs of 64 KiB, and twelve snapshots \
         are kept. MiB/s of the data, which compresses two to one; *bare*: uncompressed, side by side.\n\n\
         | read | generation 1 | generation {} | ratio | bare |\n|---|---|---|---|---|\n",
        seen.generations, seen.generations
    );
    for read in &seen.reads {
        let _infallible = writeln!(
            text,
            "| {}, {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            size(read.len_bytes),
            if read.is_random { "random" } else { "front to back" },
            read.first / MIB,
            read.last / MIB,
            read.last / read.first,
            read.bare / MIB
        );
    }
    let _infallible = write!(
        text,
        "\nVolume and snapshots show {} and use {}, pages and what is to be cleaned included. For each changed byte the device \
         wrote {:.2}, the cleaner's {:.2} among them.\n",
        size(seen.shown_bytes),
        size(seen.referred_bytes),
        per(seen.written_bytes, seen.changed_bytes),
        per(seen.moved_bytes, seen.changed_bytes)
    );
}

fn programs(all: &[programs::Seen], text: &mut String) {
    text.push_str(
        "\n## Programs with and without compression\n\nZBD's experiment. The longer of the device's time and of what two \
         processors take counts. Processors are those of this machine, with whatever else it did; the device's time is the \
         model's. Sixteen requests at once, no deduplication. What is stored \
         includes what is to be cleaned. ZBD's paper has -34 % to +80 %.\n\n\
         | program | device | requests | device, s: raw, LZ4 | processors, s: raw, LZ4 | stored, MiB: raw, LZ4 | requests a second |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let seconds = |ns: u64| ns as f64 / 1e9;
    for seen in all {
        let (raw, lz4) = (&seen.plain, &seen.compressed);
        let _infallible = writeln!(
            text,
            "| {} | {} | {} | {:.2}, {:.2} | {:.2}, {:.2} | {:.0}, {:.0} | {:+.0} % |",
            seen.program.name(),
            seen.device,
            seen.requests,
            seconds(raw.device_ns),
            seconds(lz4.device_ns),
            seconds(raw.cpu_ns),
            seconds(lz4.cpu_ns),
            raw.stored_bytes as f64 / MIB,
            lz4.stored_bytes as f64 / MIB,
            (raw.longer_ns() / lz4.longer_ns() - 1.0) * 100.0
        );
    }
}

fn goals(measured: &Measured, text: &mut String) {
    text.push_str("\n## Goals\n\n| what | goal | seen | |\n|---|---|---|---|\n");
    let mut row = |what: &str, goal: String, seen: String, met: bool| {
        let _infallible = writeln!(text, "| {what} | {goal} | {seen} | {} |", verdict(met));
    };
    let judged = measured.overwrites.iter().filter(|seen| seen.case.full_percent == JUDGED_PERCENT);
    for seen in judged {
        let what = |what: &str| format!("{what}, {}", seen.case);
        let over = seen.amplification() / bound(seen.utilisation);
        if seen.case.pattern == overwrite::Pattern::Uniform {
            row(
                &what("written over the bound"),
                format!("at most {OVER_BOUND_MAX}"),
                format!("{over:.2}"),
                over <= OVER_BOUND_MAX,
            );
            let over = seen.amplification() / bound(seen.filled);
            row(
                &what("the same over the bound for what is filled"),
                format!("at most {OVER_BOUND_MAX}"),
                format!("{over:.2}"),
                over <= OVER_BOUND_MAX,
            );
        }
        let longest = seen.longest_pause_ns;
        row(
            &what("longest time in which no request ended"),
            "at most 10 ms".to_owned(),
            format!("{:.2} ms", ms(longest)),
            longest <= PAUSE_NS,
        );
    }
    if let Some(seen) = &measured.disk {
        let bare_ns = measured.disk_model.seek_ns + measured.disk_model.transfer_ns(super::rig::CHUNK_BYTES);
        let times = bare_ns as f64 * seen.requests as f64 / seen.took_ns.max(1) as f64;
        row(
            "random writes on a disk, over the bare disk's",
            format!("at least {RANDOM_WRITES_MIN}"),
            format!("{times:.1}"),
            times >= RANDOM_WRITES_MIN,
        );
    }
    if let Some(read) = measured.series.as_ref().and_then(|series| series.reads.first()) {
        let ratio = read.last / read.first;
        row(
            "last generation front to back, over the first",
            format!("at least {LAST_OVER_FIRST_MIN}"),
            format!("{ratio:.2}"),
            ratio >= LAST_OVER_FIRST_MIN,
        );
    }
}

/// The report as text.
#[must_use]
pub fn markdown(measured: &Measured, how: &str) -> String {
    let mut text = format!("# What a pool asks of its device\n\n{how}\n\n");
    overwrites(&measured.overwrites, &mut text);
    if let Some(seen) = &measured.disk {
        text.push_str("\nThe same on the disk:\n\n");
        text.push_str(OVERWRITES_HEAD);
        overwrite_row(seen, &mut text);
    }
    flushed(&measured.flushes, &mut text);
    if let Some(seen) = &measured.series {
        generations(seen, &mut text);
    }
    if !measured.programs.is_empty() {
        programs(&measured.programs, &mut text);
    }
    goals(measured, &mut text);
    text
}
