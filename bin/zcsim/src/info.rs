//! `zcsim info`: properties of a trace, as a table or as JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};
use zc_recording::Ended;
use zc_trace::{DeviceChoice, Format, Info, Options, Reader};

use crate::say::{self, say};

/// Devices that are listed by name.
const DEVICES_SHOWN: usize = 8;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trace file, also gz, xz or zst; ARCHIVE:MEMBER for one in a tar
    trace: PathBuf,
    /// Format, if zcsim does not recognise it
    ///
    /// Formats: fingerprints, fiu, msr, cloudphysics, vscsi, spc, alibaba, tencent, blkparse, disksim (MQSim too), fio
    /// (I/O logs, versions 2 and 3), lis, keys, keys32, oraclegeneral (libCacheSim), recording (made by zcctl record)
    #[arg(long)]
    format: Option<Format>,
    /// Take the requests of one device alone, as zcsim info lists it
    ///
    /// MAJOR,MINOR, or a number in formats without both
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Stop at the first bad line
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match print(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zcsim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(args: &Args) -> anyhow::Result<()> {
    let options = Options { format: args.format, strict: args.strict, device: args.device };
    let shown = || args.trace.display().to_string();
    let mut reader = Reader::open(&args.trace, options)?;
    let mut info = Info::default();
    for request in &mut reader {
        info.add(&request.with_context(shown)?);
    }
    if args.json {
        say!("{:#}", to_json(&reader, &info));
    } else {
        say::text(to_text(&reader, &info));
    }
    Ok(())
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Formats one figure a line; figures missing in the format are omitted.
fn to_text(reader: &Reader, info: &Info) -> String {
    let mut lines = vec![
        ("format", reader.format().name().to_owned()),
        ("requests", format!("{} in {} lines or records", info.requests(), reader.lines())),
    ];
    let tallies = [
        ("reads", info.reads),
        ("writes", info.writes),
        ("accesses", info.accesses),
        ("discards", info.discards),
    ];
    for (name, tally) in tallies.into_iter().filter(|(_, tally)| tally.requests > 0) {
        lines.push((name, format!("{} of {}", tally.requests, mib(tally.bytes))));
    }
    if info.flushes > 0 {
        lines.push(("flushes", info.flushes.to_string()));
    }
    if info.reads.requests > 0 && info.writes.requests > 0 {
        let ratio = info.writes.requests as f64 / info.reads.requests as f64;
        lines.push(("writes to reads", format!("{ratio:.2}")));
    }
    lines.extend(recorded_lines(reader));
    if info.duration_ns > 0 {
        lines.push(("duration", format!("{:.1} s", info.duration_ns as f64 / 1e9)));
    }
    if info.devices() > 1 {
        lines.push(("devices", devices(reader, info)));
    }
    let footprint = info.footprint_bytes();
    let blocks =
        format!("{} in {} blocks of 4 KiB, {} named", mib(footprint), footprint / 4096, info.blocks());
    lines.push(("footprint", blocks));
    if let Some(share) = info.sequential_share() {
        lines.push(("sequential", format!("{:.1} % of requests", share * 100.0)));
    }
    lines.extend(content_lines(info));
    if !info.is_exact() {
        lines.push(("note", "footprint and contents are estimated from a sample by hash".to_owned()));
    }
    if reader.stacked_count() > 0 {
        let left_out = format!(
            "{} requests that a device of the trace passed down to another one are left out; --device chooses one",
            reader.stacked_count()
        );
        lines.push(("stacked", left_out));
    }
    if reader.bad_count() > 0 {
        let first: Vec<String> =
            reader.bad_lines().iter().map(|bad| format!("{} ({})", bad.line, bad.why)).collect();
        lines
            .push(("bad lines", format!("{}, passed over; first: {}", reader.bad_count(), first.join(", "))));
    }
    lines.iter().map(|(name, value)| format!("{name:<18}{value}\n")).collect()
}

/// Devices by their names, those with most requests first.
fn devices(reader: &Reader, info: &Info) -> String {
    let busiest = info.busiest_devices().into_iter().take(DEVICES_SHOWN);
    let mut shown: Vec<String> =
        busiest.map(|(device, count)| format!("{} with {count}", reader.device_name(device))).collect();
    if info.devices() > zc_core::u64_from_usize(DEVICES_SHOWN) {
        shown.push("...".to_owned());
    }
    format!("{}: {}", info.devices(), shown.join(", "))
}

/// Lines from a recording's header.
fn recorded_lines(reader: &Reader) -> Vec<(&'static str, String)> {
    let Some(recorded) = reader.recorded() else { return Vec::new() };
    let header = recorded.header;
    let of =
        format!("a volume of {}, extents of {} KiB", mib(header.volume_bytes), header.extent_bytes / 1024);
    let mut lines = vec![("recorded", of)];
    if !header.share.is_whole() {
        lines.push(("sample", format!("{} of the addresses; all figures are of the sample", header.share)));
    }
    if recorded.lost > 0 {
        lines.push(("lost", format!("{} requests, because the recorder did not keep up", recorded.lost)));
    }
    let why = recorded.end.map_or("it was cut off", |end| match end.why {
        Ended::Asked => "an operator asked for it",
        Ended::Time => "its time was over",
        Ended::Size => "the file had its size",
        Ended::Stopped => "the daemon stopped",
    });
    lines.push(("ended because", why.to_owned()));
    lines
}

fn content_lines(info: &Info) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(count) = info.unique_contents() {
        lines.push(("unique contents", count.to_string()));
    }
    if let Some(ratio) = info.read_dedup_ratio() {
        lines.push(("read dedup", format!("{ratio:.3}x")));
    }
    if let Some(share) = info.duplicate_write_share() {
        lines.push(("duplicate writes", format!("{:.1} %", share * 100.0)));
    }
    let ratios = |(lz4, zstd1): (Option<f64>, Option<f64>)| {
        let one = |name: &str, ratio: Option<f64>| ratio.map(|ratio| format!("{name} {ratio:.2}x"));
        let both: Vec<String> = [one("LZ4", lz4), one("Zstandard", zstd1)].into_iter().flatten().collect();
        (!both.is_empty()).then(|| both.join(", "))
    };
    lines.extend(ratios(info.compression_ratios()).map(|text| ("compression", text)));
    lines.extend(ratios(info.read_compression_ratios()).map(|text| ("  of what is read", text)));
    lines
}

fn to_json(reader: &Reader, info: &Info) -> Value {
    let tally = |tally: zc_trace::Tally| json!({ "requests": tally.requests, "bytes": tally.bytes });
    let ratios = |(lz4, zstd1): (Option<f64>, Option<f64>)| {
        (lz4.is_some() || zstd1.is_some()).then(|| json!({ "lz4": lz4, "zstd1": zstd1 }))
    };
    let bad = reader.bad_lines().iter().map(|bad| json!({ "line": bad.line, "why": bad.why }));
    let busiest = info.busiest_devices().into_iter().take(DEVICES_SHOWN);
    let busiest =
        busiest.map(|(device, count)| json!({ "device": reader.device_name(device), "requests": count }));
    json!({
        "format": reader.format().name(),
        "lines": reader.lines(),
        "requests": info.requests(),
        "reads": tally(info.reads),
        "writes": tally(info.writes),
        "accesses": tally(info.accesses),
        "discards": tally(info.discards),
        "flushes": info.flushes,
        "duration_ns": info.duration_ns,
        "devices": info.devices(),
        "busiest_devices": busiest.collect::<Vec<_>>(),
        "stacked_requests_left_out": reader.stacked_count(),
        "footprint_bytes": info.footprint_bytes(),
        "blocks_4k": info.blocks(),
        "sequential_share": info.sequential_share(),
        "unique_contents": info.unique_contents(),
        "read_dedup_ratio": info.read_dedup_ratio(),
        "duplicate_write_share": info.duplicate_write_share(),
        "compression_ratio": ratios(info.compression_ratios()),
        "read_compression_ratio": ratios(info.read_compression_ratios()),
        "exact": info.is_exact(),
        "recorded": reader.recorded().map(|recorded| json!({
            "volume_bytes": recorded.header.volume_bytes,
            "extent_bytes": recorded.header.extent_bytes,
            "began_s": recorded.header.began_s,
            "share": recorded.header.share.rate(),
            "lost": recorded.lost,
            "ended": recorded.end.map(|end| end.why.name()),
        })),
        "bad_lines": reader.bad_count(),
        "first_bad_lines": bad.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Reader, Info) {
        let mut reader = Reader::from_vec(text.as_bytes().to_vec(), Options::default()).unwrap();
        let mut info = Info::default();
        for request in &mut reader {
            info.add(&request.unwrap());
        }
        (reader, info)
    }

    #[test]
    fn a_trace_with_contents_tells_everything() {
        let mut text = "5 0 8 R 0123456789abcdef 2048 1024\n".repeat(20);
        text.push_str("1000000005 8 8 W 0123456789abcdef 2048 1024\nrubbish\n");
        let (reader, info) = read(&text);
        let shown = to_text(&reader, &info);
        let wanted = [
            "format            fingerprints\n",
            "requests          21 in 22 lines or records\n",
            "reads             20 of 0.1 MB\n",
            "duration          1.0 s\n",
            "footprint         0.0 MB in 2 blocks of 4 KiB, 21 named\n",
            "read dedup        1.000x\n",
            "duplicate writes  100.0 %\n",
            "compression       LZ4 2.00x, Zstandard 4.00x\n",
            "bad lines         1, passed over; first: 22 (a field is not a whole number)\n",
        ];
        for line in wanted {
            assert!(shown.contains(line), "{line}{shown}");
        }
        let json = to_json(&reader, &info);
        assert_eq!((&json["requests"], &json["bad_lines"]), (&json!(21), &json!(1)));
        assert_eq!(json["compression_ratio"]["lz4"], json!(2.0));
    }

    #[test]
    fn devices_are_listed_by_the_names_that_choose_them() {
        let text = "253,0 1 1 0.1 9 Q W 36 + 8 [x]\n8,0 1 2 0.1 9 A W 100 + 8 <- (253,0) 36\n\
            8,0 1 3 0.1 9 Q W 100 + 8 [x]\n8,16 1 3 0.1 9 Q W 100 + 8 [x]\n";
        let (reader, info) = read(&text.repeat(5));
        let shown = to_text(&reader, &info);
        assert!(shown.contains("devices           2: 8,16 with 5, 253,0 with 5\n"), "{shown}");
        assert!(shown.contains("stacked           5 requests"), "{shown}");
        let json = to_json(&reader, &info);
        assert_eq!(json["busiest_devices"][1], json!({ "device": "253,0", "requests": 5 }));
    }

    #[test]
    fn a_key_stream_tells_what_it_can() {
        let (reader, info) = read(&"7\n8\n".repeat(10));
        let shown = to_text(&reader, &info);
        assert!(shown.contains("accesses          20 of 0.1 MB\n"), "{shown}");
        assert!(!shown.contains("dedup") && !shown.contains("duration"), "{shown}");
        assert_eq!(to_json(&reader, &info)["read_dedup_ratio"], Value::Null);
    }
}
