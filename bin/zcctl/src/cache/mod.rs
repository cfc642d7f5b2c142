//! `zcctl cache`: shows the cache device of a running daemon on one page; `exchange` moves it.
//!
//! Job: combine the daemon's status and counters of the device: size, usage, memory, wear.
//!
//! It does not read the device itself. `check` and `dump` do, while no daemon has it open.

mod exchange;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::control::ask;
use crate::erase::erased;
use crate::options::Daemon;
use crate::text::{self, hit_ratio, number, string};
use crate::units::{duration, ratio, share, size};
use exchange::{ReplaceArgs, ResizeArgs};

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Uptimes below this are too short to extrapolate to a day.
const RATE_MS_MIN: u64 = 600_000;

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show device, size, content, memory and wear of the cache.
    ///
    /// Written: bytes that the daemon wrote to the device since its start. After ten minutes also the rate per day,
    /// and as drive writes per day (DWPD): a day's bytes over the size. Other writes to the SSD appear only in
    /// `smartctl`.
    ///
    /// Exit status: 0 the cache is in use, 1 it is offline, 2 not possible.
    Show(Daemon),
    /// Move the cache to another SSD while the daemon serves.
    ///
    /// Dirty data is destaged first. Then requests pause for a moment, and the daemon continues with the new device,
    /// which is empty. The new path is written to the daemon's configuration file. The old device is left as an empty
    /// cache, and can be removed.
    ///
    /// Exit status: 0 moved, 1 moved but the configuration file is unchanged, or an origin refuses dirty data, 2 not
    /// possible, and the old device is in use.
    Replace(ReplaceArgs),
    /// Recreate the cache in the full size of its device.
    ///
    /// The layout of a cache is fixed when it is made, so the daemon recreates it and continues with an empty cache.
    /// Dirty data is destaged first.
    ///
    /// Exit status: 0 done, 1 an origin refuses dirty data, 2 not possible.
    Resize(ResizeArgs),
    /// Erase cached data of removed volumes.
    ///
    /// Units with data of a removed volume are evicted and overwritten with zeros, and so is free space. Other volumes
    /// lose cached data in the same units. An SSD may keep copies that no write reaches.
    ///
    /// Exit status: 0 done, 1 some units could not be erased, 2 not possible.
    Erase(Daemon),
}

pub(crate) fn run(command: &CacheCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        CacheCommand::Show(daemon) => show(daemon, out),
        CacheCommand::Replace(args) => exchange::replace(args, out),
        CacheCommand::Resize(args) => exchange::resize(args, out),
        CacheCommand::Erase(daemon) => erase(daemon, out),
    }
}

fn erase(daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let erased = erased(daemon)?;
    if daemon.json {
        writeln!(out, "{:#}", erased.to_json())?;
    } else {
        writeln!(out, "{}", erased.describe())?;
    }
    Ok(if erased.left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    let stats = ask(&daemon.socket, &json!({"cmd": "stats"}))?;
    let cache = summarize(&status, &stats);
    if daemon.json {
        writeln!(out, "{cache:#}")?;
    } else {
        text::pairs(out, &rows(&cache, &status["extents"]))?;
    }
    Ok(if cache["healthy"] == json!(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Structures of a bounded size that `max_ram` does not count.
const HISTORY: [&str; 3] = ["first_misses", "streamed_once", "ghosts"];

/// Returns the output of `--json`.
fn summarize(status: &Value, stats: &Value) -> Value {
    let cache = &status["cache"];
    let manager = |name: &str| number(&stats["manager"][name]);
    let written = [
        "weu_bytes_written",
        "journal_bytes_written",
        "checkpoint_bytes_written",
        "region_map_bytes_written",
    ];
    let sum = |values: &Value| -> u64 {
        values.as_object().into_iter().flatten().map(|(_, value)| number(value)).sum()
    };
    let history_bytes: u64 = HISTORY.iter().map(|name| number(&stats["ram_bytes"][*name])).sum();
    let dirty = stats["dirty"].as_object().into_iter().flatten();
    let unit_bytes = number(&cache["unit_bytes"]);
    json!({
        "path": cache["path"],
        "healthy": cache["healthy"],
        "fault": cache["fault"],
        "size_bytes": number(&cache["slots"][1]).saturating_mul(unit_bytes),
        "used_bytes": number(&cache["slots"][0]).saturating_mul(unit_bytes),
        "unit_bytes": unit_bytes,
        "extent_bytes": cache["extent_bytes"],
        "holds_bytes": cache["holds"]["bytes"],
        "dirty_bytes": dirty.map(|(_, volume)| number(&volume["bytes"])).sum::<u64>(),
        "volumes": status["volumes"].as_array().map_or(0, Vec::len),
        "ram_bytes": sum(&stats["ram_bytes"]).saturating_sub(history_bytes),
        "history_ram_bytes": history_bytes,
        "ram_max_bytes": cache["ram_max_bytes"],
        "mappings": [manager("file_index_len"), manager("file_index_capacity")],
        "written_bytes": written.iter().map(|name| manager(name)).sum::<u64>(),
        "uptime_ms": status["uptime_ms"],
        "index_loaded_ms": cache["index_loaded_ms"],
        "verification_failed": manager("failed_hits"),
    })
}

fn rows(cache: &Value, extents: &Value) -> Vec<(&'static str, String)> {
    let n = |name: &str| number(&cache[name]);
    let state = match (&cache["healthy"], cache["index_loaded_ms"].as_u64()) {
        (healthy, _) if *healthy != json!(true) => format!("OUT OF ORDER: {}", string(&cache["fault"])),
        (_, Some(ms)) => format!("in use, index complete after {}", duration(ms)),
        (_, None) => "in use, index loading".to_owned(),
    };
    let holds = format!(
        "{} of {} volumes, {}",
        size(n("holds_bytes")),
        n("volumes"),
        ratio(n("holds_bytes"), n("used_bytes"))
    );
    let mappings = &cache["mappings"];
    let filled = share(number(&mappings[0]), number(&mappings[1]));
    vec![
        ("device", string(&cache["path"])),
        ("state", state),
        (
            "size",
            format!(
                "{}, units of {}, extents of {}",
                size(n("size_bytes")),
                size(n("unit_bytes")),
                size(n("extent_bytes"))
            ),
        ),
        ("filled", format!("{}, {}", size(n("used_bytes")), share(n("used_bytes"), n("size_bytes")))),
        ("holds", holds),
        ("dirty", size(n("dirty_bytes"))),
        ("hit ratio", hit_ratio(extents)),
        (
            "memory",
            format!(
                "{} of {}, {filled} of the mappings taken; {} for the history of reads",
                size(n("ram_bytes")),
                size(n("ram_max_bytes")),
                size(n("history_ram_bytes"))
            ),
        ),
        ("written", written(n("written_bytes"), n("size_bytes"), n("uptime_ms"))),
        ("verification failed", n("verification_failed").to_string()),
    ]
}

/// Formats the bytes written, with the rate per day.
fn written(bytes: u64, size_bytes: u64, uptime_ms: u64) -> String {
    let since = format!("{} in {}", size(bytes), duration(uptime_ms));
    if uptime_ms < RATE_MS_MIN || size_bytes == 0 {
        return since;
    }
    let day = u128::from(bytes) * u128::from(DAY_MS) / u128::from(uptime_ms);
    let hundredths = day * 100 / u128::from(size_bytes);
    let day_bytes = u64::try_from(day).unwrap_or(u64::MAX);
    format!("{since}, {} a day, {}.{:02} DWPD", size(day_bytes), hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_told_by_day_once_there_is_time_to_tell_by() {
        assert_eq!(written(3 << 20, 1 << 30, 599_999), "3.0 MiB in 9 min 59 s");
        assert_eq!(written(3 << 30, 2 << 30, DAY_MS / 2), "3.0 GiB in 12 h 0 min, 6.0 GiB a day, 3.00 DWPD");
        assert_eq!(written(1, 0, DAY_MS), "1 B in 1 d 0 h");
    }

    #[test]
    fn a_cache_is_put_together_from_status_and_counters() {
        let status = json!({
            "cache": {"path": "/dev/ssd", "healthy": true, "fault": null, "slots": [3, 8], "unit_bytes": 1024,
                      "extent_bytes": 8192, "ram_max_bytes": 100, "holds": {"bytes": 6144}, "index_loaded_ms": 5},
            "volumes": [{}, {}], "uptime_ms": 1000,
        });
        let stats = json!({
            "manager": {"weu_bytes_written": 1, "journal_bytes_written": 2, "file_index_len": 1, "file_index_capacity": 4},
            "ram_bytes": {"a": 20, "b": 30, "ghosts": 7}, "dirty": {"vm": {"bytes": 512}, "db": {"bytes": 1}},
        });
        let cache = summarize(&status, &stats);
        for (name, expected) in [
            ("size_bytes", 8192),
            ("used_bytes", 3072),
            ("written_bytes", 3),
            ("dirty_bytes", 513),
            ("ram_bytes", 50),
            ("volumes", 2),
        ] {
            assert_eq!(cache[name], json!(expected), "{name}");
        }
        let rows = rows(&cache, &json!({"read": 4, "hits": 1, "read_ahead": 0}));
        let field = |name: &str| rows.iter().find(|(key, _)| *key == name).unwrap().1.clone();
        assert_eq!(field("holds"), "6.0 KiB of 2 volumes, 2.00 : 1");
        assert_eq!(
            field("memory"),
            "50 B of 100 B, 25.0 % of the mappings taken; 7 B for the history of reads"
        );
    }
}
