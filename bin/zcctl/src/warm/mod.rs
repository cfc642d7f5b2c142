//! `zcctl volume warm`: prefetches ranges of a volume into the cache.
//!
//! Job: pass the ranges to the daemon, a bounded number at a time, and show the progress. Time is the daemon's own.
//!
//! Invariants: the warm-up ends with this program, immediately at an interrupt. Progress goes to the standard error,
//! the result to the standard output.
//!
//! It does not read the volume. The daemon does.

mod ranges;

use std::io::{IsTerminal as _, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use rustix::event::poll;
use rustix::io::Errno;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use zc_core::u64_from_usize;
use zc_core::units::{ByteSize, ByteSpan};

use crate::control::ask;
use crate::options::Daemon;
use crate::text;
use crate::units::{bar, duration, share, size};

use ranges::{cut, in_volume, of_file, of_recording};

/// Polling interval.
const PAUSE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// Ranges in one line to the daemon: up to 44 bytes each, of 64 KiB.
const RANGES_PER_LINE: usize = 1_400;
const EXIT_NOT_DONE: u8 = 1;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct WarmArgs {
    /// Name of the volume.
    volume: String,
    /// Range of the volume, such as 10GiB-12GiB; repeatable.
    ///
    /// Without an end, as in 10GiB-, it goes up to the end of the volume.
    #[arg(long, value_name = "START-END", group = "what")]
    range: Vec<ByteSpan>,
    /// File with one such range a line.
    #[arg(long, value_name = "FILE", group = "what")]
    from: Option<PathBuf>,
    /// Recording of this volume; the most-read ranges go first.
    #[arg(long, value_name = "FILE", group = "what")]
    trace: Option<PathBuf>,
    /// Bytes to warm at most; default is the size of the cache.
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<ByteSize>,
    /// Bytes per second to read from the origin at most.
    #[arg(long, value_name = "BYTES/S")]
    limit: Option<ByteSize>,
    #[command(flatten)]
    daemon: Daemon,
}

/// Has a volume warmed, and waits for the end.
pub(crate) fn run(args: &WarmArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let wanted = WarmPlan::of(args)?;
    if !args.daemon.json {
        wanted.notes.iter().try_for_each(|note| writeln!(std::io::stderr(), "zcctl: {note}"))?;
    }
    let end = warm(args, &wanted)?;
    if args.daemon.json {
        writeln!(out, "{:#}", end.answer)?;
    } else {
        writeln!(out, "{}: {}", text::clean(&args.volume), end.line(wanted.bytes))?;
    }
    if end.number("failed_bytes") > 0 {
        writeln!(
            std::io::stderr(),
            "zcctl: the origin failed to return {}; see `zcctl status`",
            size(end.number("failed_bytes"))
        )?;
    }
    let is_whole = end.is("done") && end.number("failed_bytes") == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_DONE) })
}

/// Ranges to warm.
#[derive(Debug)]
struct WarmPlan {
    ranges: Vec<Range<u64>>,
    /// Their length.
    bytes: u64,
    /// Notes for the operator before the start.
    notes: Vec<String>,
}

impl WarmPlan {
    fn of(args: &WarmArgs) -> anyhow::Result<Self> {
        let status = ask(&args.daemon.socket, &json!({"cmd": "status"}))?;
        let entries = status["volumes"].as_array().into_iter().flatten();
        let entry = entries.into_iter().find(|entry| entry["name"] == json!(args.volume));
        let entry = entry.with_context(|| format!("there is no volume \"{}\"", args.volume))?;
        let volume_bytes = entry["info"]["size_bytes"].as_u64().context("the daemon reports no size")?;
        let mut spans = args.range.clone();
        if let Some(path) = &args.from {
            spans.extend(of_file(path)?);
        }
        let (mut ranges, mut notes) = (in_volume(&spans, volume_bytes)?, Vec::new());
        if let Some(path) = &args.trace {
            let most = of_recording(path, volume_bytes)?;
            if let Some(share) = most.share {
                notes.push(format!("the recording has {share} of the addresses; the others are not warmed"));
            }
            if most.damaged > 0 {
                notes.push(format!("{} blocks of the recording are damaged and left out", most.damaged));
            }
            ranges.extend(most.ranges);
        }
        let (slots, unit) = (status["cache"]["slots"][1].as_u64(), status["cache"]["unit_bytes"].as_u64());
        let cache_bytes = slots.unwrap_or(0).saturating_mul(unit.unwrap_or(0));
        let max_bytes = args.max_bytes.map_or(cache_bytes, |size| size.0);
        let all_bytes = cut(&mut ranges, max_bytes);
        if all_bytes > max_bytes {
            let bound = if args.max_bytes.is_some() { "--max-bytes" } else { "the size of the cache" };
            let (first, all) = (size(max_bytes), size(all_bytes));
            notes.push(format!("the first {first} of {all} are warmed: {bound} is the bound"));
        }
        Ok(Self { ranges, bytes: all_bytes.min(max_bytes), notes })
    }

    /// The ranges in lines for the daemon; the last flag is true of the last.
    fn lines(&self) -> Vec<(Value, bool)> {
        let pairs = |ranges: &[Range<u64>]| -> Value {
            ranges.iter().map(|range| json!([range.start, range.end - range.start])).collect()
        };
        let mut lines: Vec<(Value, bool)> =
            self.ranges.chunks(RANGES_PER_LINE).map(|ranges| (pairs(ranges), false)).collect();
        if lines.is_empty() {
            lines.push((json!([]), false));
        }
        if let Some((_, is_last)) = lines.last_mut() {
            *is_last = true;
        }
        lines
    }
}

/// State of a warm-up in the daemon.
#[derive(Debug)]
struct Look {
    answer: Value,
}

impl Look {
    fn number(&self, name: &str) -> u64 {
        self.answer["warm"][name].as_u64().unwrap_or(0)
    }

    fn has_ended(&self) -> bool {
        !self.answer["warm"]["ended"].is_null()
    }

    /// Returns `true` if it ended with this reason.
    fn is(&self, how: &str) -> bool {
        self.answer["warm"]["ended"] == json!(how)
    }

    /// Formats a progress line: bar, remaining bytes, rate, remaining time.
    fn progress(&self, wanted_bytes: u64) -> String {
        let most = wanted_bytes.max(1);
        let done = self.number("done_bytes").min(most);
        let per_s = done.saturating_mul(1000).checked_div(self.number("elapsed_ms")).unwrap_or(0);
        let left =
            (most - done).saturating_mul(1000).checked_div(per_s).map_or_else(|| "?".to_owned(), duration);
        format!(
            "[{}] {}, {} left, {}/s, {left} to go",
            bar(done, most),
            share(done, most),
            size(most - done),
            size(per_s)
        )
    }

    /// The result.
    fn line(&self, wanted_bytes: u64) -> String {
        let (done, read) = (self.number("done_bytes"), self.number("read_bytes"));
        let how = match self.answer["warm"]["ended"].as_str() {
            Some("done") => "warm".to_owned(),
            Some("asked") => "cancelled".to_owned(),
            Some("stopped") => "ended, because the daemon stops".to_owned(),
            Some("no-cache") => "ended, because the volume no longer uses the cache".to_owned(),
            _ => "ended, because its client stopped polling".to_owned(),
        };
        format!(
            "{how}: {} of {} in {}; {} of them read from the origin",
            size(done),
            size(wanted_bytes),
            duration(self.number("elapsed_ms")),
            size(read)
        )
    }
}

fn warm(args: &WarmArgs, wanted: &WarmPlan) -> anyhow::Result<Look> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("cannot take signals")?;
    }
    let socket = &args.daemon.socket;
    let ask = |request: &Value| ask(socket, request).map(|answer| Look { answer });
    let shows = std::io::stderr().is_terminal() && !args.daemon.json;
    let mut lines = wanted.lines().into_iter().peekable();
    let (ranges, last) = lines.next().unwrap_or((json!([]), true));
    let limit = args.limit.map_or(0, |limit| limit.0);
    let mut now = ask(&json!({
        "cmd": "warm-start", "volume": args.volume, "ranges": ranges, "last": last, "limit_bytes_per_s": limit,
    }))?;
    let mut has_shown = false;
    while !now.has_ended() {
        let has_room = |now: &Look, ranges: &Value| {
            now.number("ranges_room") >= u64_from_usize(ranges.as_array().map_or(0, Vec::len))
        };
        if interrupted.load(Ordering::Relaxed) {
            now = ask(&json!({"cmd": "warm-stop", "volume": args.volume}))?;
            continue;
        }
        if let Some((ranges, last)) = lines.next_if(|(ranges, _)| has_room(&now, ranges)) {
            let request = json!({"cmd": "warm-add", "volume": args.volume, "ranges": ranges, "last": last});
            now = ask(&request)?;
            continue;
        }
        match poll(&mut [], Some(&PAUSE)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait"),
        }
        now = ask(&json!({"cmd": "warm-status", "volume": args.volume}))?;
        if shows {
            has_shown = true;
            // Back to the start of the line, and clear it.
            write!(std::io::stderr(), "\r\u{1b}[K{}", now.progress(wanted.bytes))?;
        }
    }
    if has_shown {
        writeln!(std::io::stderr())?;
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_only_the_last_says_so() {
        let wanted = |count: u64| WarmPlan {
            ranges: (0..count).map(|n| n * 9..n * 9 + 5).collect(),
            bytes: 0,
            notes: Vec::new(),
        };
        let lines = wanted(4000).lines();
        assert_eq!(lines.iter().map(|(_, last)| *last).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(lines[1].0[0], json!([1400 * 9, 5]));
        assert_eq!(wanted(0).lines(), [(json!([]), true)], "an empty one ends at once");
        let widest = json!(vec![[u64::MAX, u64::MAX]; RANGES_PER_LINE]);
        assert!(widest.to_string().len() < (64 << 10) - 500);
    }

    #[test]
    fn progress_and_result_have_sizes_and_times() {
        let warm =
            json!({"done_bytes": 1 << 20, "read_bytes": 512 << 10, "elapsed_ms": 2_000, "ended": null});
        let look = Look { answer: json!({ "warm": warm }) };
        let line = look.progress(4 << 20);
        for part in ["25.0 %", "3.0 MiB left", "512.0 KiB/s", "6.0 s to go"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!look.has_ended());
        let mut ended = look.answer;
        ended["warm"]["ended"] = json!("asked");
        let ended = Look { answer: ended };
        assert!(ended.has_ended() && ended.is("asked"));
        assert_eq!(
            ended.line(4 << 20),
            "cancelled: 1.0 MiB of 4.0 MiB in 2.0 s; 512.0 KiB of them read from the origin"
        );
    }
}
