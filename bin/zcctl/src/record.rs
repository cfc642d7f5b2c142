//! `zcctl record`: records a volume's requests, with computed properties of their contents, to a file that `zcsim`
//! replays.
//!
//! It does not write the file. The daemon does, as its own user.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use zc_core::units::{ByteSize, Millis};

use crate::control::one;
use crate::options::Daemon;
use crate::text;
use crate::units::{count, duration, size};

/// Recordings.
#[derive(Debug, Subcommand)]
pub(crate) enum Record {
    /// Start a recording of a volume's requests.
    ///
    /// A recording has addresses, times, compressed sizes and which extents are equal. It never has contents.
    Start(StartArgs),
    /// End the recording of a volume.
    Stop {
        /// Name of the volume.
        volume: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Show running recordings, and the last one of each volume.
    Status(Daemon),
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Name of the volume.
    volume: String,
    /// File to make; an existing file is refused.
    ///
    /// The daemon makes it, readable by its user alone.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Share of the addresses to record, such as 10% or 1/8.
    ///
    /// zcsim makes caches smaller by the share of a recording. To judge deduplication, record all addresses.
    #[arg(long)]
    share: Option<String>,
    /// Size of the file at which the recording ends.
    #[arg(long, default_value = "1 GiB")]
    max_bytes: ByteSize,
    /// Time after which it ends, such as 90s, 10min or 1h.
    #[arg(long, value_name = "TIME")]
    duration: Option<Millis>,
    #[command(flatten)]
    daemon: Daemon,
}

pub(crate) fn run(command: &Record, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        Record::Start(args) => {
            let path = std::path::absolute(&args.to).context("cannot determine the path of the file")?;
            let request = json!({
                "cmd": "record-start", "volume": args.volume, "path": path, "share": args.share,
                "max_bytes": args.max_bytes.0, "duration_ms": args.duration.map(|duration| duration.0),
            });
            let begun = |answer: &Value, out: &mut dyn Write| {
                let (volume, path) = (&args.volume, answer["path"].as_str().unwrap_or("-"));
                Ok(writeln!(out, "{} is being recorded to {}", text::clean(volume), text::clean(path))?)
            };
            one(&args.daemon, &request, begun, out)?;
        }
        Record::Stop { volume, daemon } => {
            let ended = |answer: &Value, out: &mut dyn Write| Ok(text::pairs(out, &rows(answer))?);
            one(daemon, &json!({"cmd": "record-stop", "volume": volume}), ended, out)?;
        }
        Record::Status(daemon) => one(daemon, &json!({"cmd": "record-status"}), status, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(recording: &Value) -> [(&'static str, String); 8] {
    let number = |name: &str| recording[name].as_u64().unwrap_or(0);
    let word = |name: &str| recording[name].as_str().unwrap_or("-").to_owned();
    [
        ("volume", word("volume")),
        ("file", word("path")),
        ("share", word("share")),
        ("requests", count(number("requests"))),
        ("extents known", count(number("known_extents"))),
        ("lost", count(number("lost"))),
        ("size", format!("{} in {}", size(number("bytes")), duration(number("elapsed_ms")))),
        ("state", state(recording)),
    ]
}

fn state(recording: &Value) -> String {
    let ended = match recording["ended"].as_str() {
        None => return "records".to_owned(),
        Some("asked") => "ended on request",
        Some("time") => "ended: duration reached",
        Some("size") => "ended: size reached",
        Some("stopped") => "ended with the daemon",
        Some(_) => "FAILED",
    };
    recording["error"].as_str().map_or_else(|| ended.to_owned(), |error| format!("{ended}: {error}"))
}

fn status(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut first = true;
    for recording in answer["recordings"].as_array().into_iter().flatten() {
        if !first {
            writeln!(out)?;
        }
        first = false;
        text::pairs(out, &rows(recording))?;
    }
    if first {
        writeln!(out, "no volume was recorded since the daemon started")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_shown() {
        let running = json!({"volume": "db", "path": "/x\u{1b}", "share": "10%", "requests": 12_345, "lost": 2,
            "bytes": 3 << 20, "elapsed_ms": 61_000, "ended": null});
        let failed = json!({"volume": "b", "ended": "error", "error": "no space"});
        let mut out = Vec::new();
        status(&json!({"recordings": [running, failed]}), &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        for part in ["12,345", "3.0 MiB in 1 min 1 s", "10%", "records\n", "FAILED: no space", "/x\u{fffd}"] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        let mut out = Vec::new();
        status(&json!({"recordings": []}), &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("no volume"));
        assert_eq!(state(&json!({"ended": "size"})), "ended: size reached");
    }
}
