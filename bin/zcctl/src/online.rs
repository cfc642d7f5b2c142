//! Commands to a running daemon: requests, and display of replies.
//!
//! Invariants: text of a reply is escaped before it is shown. It does not start a daemon.

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use zc_core::Mode;

use crate::cache;
use crate::cli::Online;
use crate::columns::{self, Cell, Column};
use crate::control::{ask, one};
use crate::dirty;
use crate::events;
use crate::hooks::Hooks;
use crate::nbd;
use crate::obstacles;
use crate::options::{Daemon, Listing};
use crate::record;
use crate::text::{self, hit_ratio, number, string};
use crate::top;
use crate::units::{count, duration, ratio, share, size};
use crate::volume;
use crate::volumes;

/// Exit status of `status` when every volume is served and something needs attention.
const EXIT_DEGRADED: u8 = 1;
/// Exit status of `status` when a volume is not served. 2 is for a command that failed.
const EXIT_FAILED: u8 = 3;

pub(crate) fn run(command: &Online, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        Online::Status { daemon, listing } => return show_status(daemon, listing, out),
        Online::Connections { daemon, listing } => {
            let show = |answer: &Value, out: &mut dyn Write| connections(answer, listing, out);
            one(daemon, &json!({"cmd": "connections"}), show, out)?;
        }
        Online::Events { follow, after, socket, exec, exec_limit } => {
            let open = |folder: &PathBuf| Hooks::open(folder, *exec_limit, socket);
            return events::run(socket, *follow, *after, exec.as_ref().map(open).transpose()?, out);
        }
        Online::Top { interval, socket } => return top::run(socket, *interval),
        Online::Disconnect { id, client, volume, daemon } => {
            let asked = [("id", json!(id)), ("client", json!(client)), ("volume", json!(volume))];
            disconnect(&asked, daemon, out)?;
        }
        Online::Reload(daemon) => one(daemon, &json!({"cmd": "reload"}), reloaded, out)?,
        Online::Stop { dry_run: true, daemon, .. } => return obstacles::run(daemon, out),
        Online::Stop { flush, keep_dirty, no_wait, daemon, .. } => {
            let how = dirty::Stop { flush_first: *flush, keep_dirty: *keep_dirty, waits: !no_wait };
            return dirty::stop(&how, daemon, out);
        }
        Online::Flush { volume, daemon } => return dirty::flush(volume, daemon, out),
        Online::AcceptLoss { volume, consent, daemon } => {
            return dirty::accept_loss(volume, consent, daemon, out);
        }
        Online::DropDirty { volume, consent, unreadable: false, daemon } => {
            return dirty::drop_dirty(volume, consent, daemon, out);
        }
        Online::DropDirty { volume, consent, unreadable: true, daemon } => {
            return dirty::give_up_unreadable(volume, consent, daemon, out);
        }
        Online::Clear { volume, daemon } => {
            one(daemon, &json!({"cmd": "clear", "volume": volume}), cleared, out)?;
        }
        Online::Reattach(daemon) => one(daemon, &json!({"cmd": "reattach"}), dirty::reattached, out)?,
        Online::SetMode { volume, mode, daemon } => set_mode(volume, mode, daemon, out)?,
        Online::Resize { volume, size, daemon } => {
            return resize(volume, size.map(|size| size.0), daemon, out);
        }
        Online::Attach { volume, nbd: true, daemon, .. } => return nbd::attach(volume, daemon, out),
        Online::Attach { volume, daemon, .. } => {
            let done = |answer: &Value, out: &mut dyn Write| {
                Ok(writeln!(out, "{volume} is {}", text::clean(&string(&answer["device"])))?)
            };
            one(daemon, &json!({"cmd": "attach", "volume": volume}), done, out)?;
        }
        Online::Detach { volume, force, nbd: true, keep_dirty, daemon } => {
            return nbd::detach(volume, *force, *keep_dirty, daemon, out);
        }
        Online::Detach { volume, force, keep_dirty, daemon, .. } => {
            let done = |_: &Value, out: &mut dyn Write| Ok(writeln!(out, "{volume} is detached")?);
            one(daemon, &json!({"cmd": "detach", "volume": volume, "force": force}), done, out)?;
            if !keep_dirty {
                return dirty::flush_if_dirty(volume, daemon, out);
            }
        }
        Online::Record(command) => return record::run(command, out),
        Online::Volume(command) => return volume::run(command, out),
        Online::Cache(command) => return cache::run(command, out),
        Online::Stats { daemon, prometheus: true, .. } => {
            let answer = ask(&daemon.socket, &json!({"cmd": "metrics"}))?;
            out.write_all(answer["text"].as_str().context("the daemon's reply has no metrics")?.as_bytes())?;
        }
        Online::Stats { daemon, watch: None, .. } => one(daemon, &json!({"cmd": "stats"}), stats, out)?,
        Online::Stats { daemon, watch: Some(seconds), .. } => {
            watch(daemon, *seconds, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes the mode of a volume, and reports the destaging of its dirty data.
fn set_mode(volume: &str, mode: &str, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<()> {
    let request = json!({"cmd": "set-mode", "volume": volume, "mode": mode});
    let done = |answer: &Value, out: &mut dyn Write| {
        writeln!(out, "{volume} is {mode} now")?;
        let left = number(&answer["dirty"]["bytes"]);
        if left > 0 && mode != Mode::WriteBack.word() {
            let left = size(left);
            writeln!(out, "{left} are still being brought to its origin; `zcctl flush` waits for it")?;
        }
        Ok(())
    };
    one(daemon, &request, done, out)
}

/// Shows how many incidents have ended.
fn cleared(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let (count, state) = (number(&answer["cleared"]), string(&answer["state"]));
    Ok(writeln!(out, "incidents ended: {count}; the verdict is {}", text::clean(&state))?)
}

/// Shows the status; the exit status is the verdict's.
fn show_status(daemon: &Daemon, listing: &Listing, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let answer = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else if listing.is_asked() {
        volumes::table(&answer, listing, out)?;
    } else {
        status(&answer, out)?;
    }
    match answer["verdict"]["state"].as_str() {
        Some("HEALTHY") => Ok(ExitCode::SUCCESS),
        Some("DEGRADED") => Ok(ExitCode::from(EXIT_DEGRADED)),
        Some("FAILED") => Ok(ExitCode::from(EXIT_FAILED)),
        _ => bail!("the daemon reports no verdict; it has another version"),
    }
}

fn disconnect(asked: &[(&str, Value)], daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut request = json!({"cmd": "disconnect"});
    for (key, value) in asked.iter().filter(|(_, value)| !value.is_null()) {
        request[*key] = value.clone();
    }
    let done = |answer: &Value, out: &mut dyn Write| {
        let closed = answer["disconnected"].as_array().map_or(0, Vec::len);
        Ok(writeln!(out, "closed connections: {closed}")?)
    };
    one(daemon, &request, done, out)
}

fn resize(
    volume: &str,
    size_bytes: Option<u64>,
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let answer = ask(&daemon.socket, &json!({"cmd": "resize", "volume": volume, "size_bytes": size_bytes}))?;
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        resized(&answer, out)?;
    }
    Ok(if answer["device_error"].is_null() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn resized(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let volume = text::clean(&string(&answer["volume"]));
    let (before, now) = (number(&answer["before_bytes"]), number(&answer["size_bytes"]));
    if before == now {
        writeln!(out, "{volume} has {} ({now} bytes), as its origin", size(now))?;
    } else {
        writeln!(out, "{volume} has {} ({now} bytes) now, {before} before", size(now))?;
    }
    if let Some(reason) = answer["device_error"].as_str() {
        writeln!(out, "{}", text::clean(reason))?;
    } else if let Some(device) = answer["device"].as_str() {
        writeln!(out, "so has {}", text::clean(device))?;
    }
    Ok(())
}

/// Polls until interrupted.
fn watch(daemon: &Daemon, seconds: u16, out: &mut dyn Write) -> anyhow::Result<()> {
    loop {
        if !daemon.json && std::io::stdout().is_terminal() {
            // Cursor home, and clear below.
            write!(out, "\u{1b}[H\u{1b}[J")?;
        }
        one(daemon, &json!({"cmd": "stats"}), stats, out)?;
        out.flush()?;
        let pause = rustix::event::Timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
        rustix::event::poll(&mut [], Some(&pause)).context("cannot wait")?;
    }
}

fn status(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let cache = &answer["cache"];
    let state = if answer["stopping"] == json!(true) {
        "stopping".to_owned()
    } else if cache["healthy"] == json!(true) {
        "in use".to_owned()
    } else {
        format!("OUT OF ORDER: {}", string(&cache["fault"]))
    };
    let loaded = cache["index_loaded_ms"].as_u64();
    let listening: Vec<String> = answer["listening"].as_array().into_iter().flatten().map(string).collect();
    let verdict = &answer["verdict"];
    let (version, word) = (string(&answer["version"]), string(&verdict["state"]));
    writeln!(out, "zcached {}: {}", text::clean(&version), text::clean(&word))?;
    for reason in verdict["reasons"].as_array().into_iter().flatten() {
        let part = |name: &str| text::clean(&string(&reason[name]));
        let about = |kind| reason[kind].as_str().map(|name| format!("{kind} {}: ", text::clean(name)));
        let about = about("volume").or_else(|| about("store")).unwrap_or_default();
        writeln!(out, "  {}  {about}{}", part("level"), part("what"))?;
        writeln!(out, "    effect: {}", part("follows"))?;
        writeln!(out, "    action: {}", part("command"))?;
    }
    text::pairs(
        out,
        &[
            ("process", string(&answer["pid"])),
            ("up", duration(number(&answer["uptime_ms"]))),
            ("cache", string(&cache["path"])),
            ("state", state),
            ("filled", filled(&cache["slots"])),
            ("holds", holds(&cache["holds"])),
            ("hit ratio", hit_ratio(&answer["extents"])),
            (
                "index",
                loaded.map_or_else(|| "loading".to_owned(), |ms| format!("complete after {}", duration(ms))),
            ),
            ("listening", listening.join(", ")),
            ("metrics", string(&answer["metrics"])),
            ("page", string(&answer["page"])),
            ("connections", string(&answer["connections"])),
            ("sandbox", sandbox(&answer["sandbox"])),
        ],
    )?;
    writeln!(out)?;
    volumes::for_people(answer, out)
}

/// Formats the daemon's sandbox.
fn sandbox(held: &Value) -> String {
    if held.is_null() {
        return "off".to_owned();
    }
    let kept: Vec<String> = held["capabilities"].as_array().into_iter().flatten().map(string).collect();
    let capabilities = if kept.is_empty() { "no capabilities".to_owned() } else { kept.join(" ") };
    let step = |name: &str| format!("{name} {}", if held[name] == json!(true) { "on" } else { "OFF" });
    let notes: Vec<String> = held["notes"].as_array().into_iter().flatten().map(string).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("user {}, {capabilities}, {}, {}{notes}", string(&held["uid"]), step("landlock"), step("seccomp"))
}

/// Formats the used part of the cache device.
fn filled(slots: &Value) -> String {
    let (used, all) = (number(&slots[0]), number(&slots[1]));
    format!("{}, {} of {} write-evict units", share(used, all), count(used), count(all))
}

/// Formats the cached content, and its part of the cache device.
fn holds(holds: &Value) -> String {
    let (bytes, on_ssd) = (size(number(&holds["bytes"])), size(number(&holds["ssd_bytes"])));
    format!("{bytes} in {on_ssd} of the cache device")
}

fn connections(answer: &Value, listing: &Listing, out: &mut dyn Write) -> anyhow::Result<()> {
    if listing.is_asked() {
        let rows = answer["connections"].as_array().cloned().unwrap_or_default();
        let columns: [Column<'_, Value>; 5] = [
            ("id", &|row| Cell::of(&row["id"])),
            ("volume", &|row| Cell::of(&row["export"])),
            ("peer", &|row| Cell::of(&row["peer"])),
            ("listener", &|row| Cell::of(&row["listener"])),
            ("accepted", &|row| Cell::Millis(number(&row["accepted_ms"]))),
        ];
        return columns::print(&columns, &rows, listing, out);
    }
    let row = |connection: &Value| {
        ["id", "export", "peer", "listener"].map(|name| string(&connection[name])).to_vec()
    };
    let rows: Vec<Vec<String>> = answer["connections"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return Ok(writeln!(out, "no client is connected")?);
    }
    Ok(text::table(out, &["connection", "export", "peer", "listener"], &rows)?)
}

fn reloaded(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let list = |value: &Value| {
        let keys: Vec<String> = value.as_array().into_iter().flatten().map(string).collect();
        if keys.is_empty() { "-".to_owned() } else { keys.join(", ") }
    };
    let rows = [("applied", list(&answer["applied"])), ("needs a restart", list(&answer["needs_restart"]))];
    Ok(text::pairs(out, &rows)?)
}

fn stats(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let m = |name: &str| number(&answer["manager"][name]);
    let stored = m("insert_stored");
    let found = stored + m("insert_duplicates") + m("insert_zero");
    let written = m("weu_bytes_written")
        + m("journal_bytes_written")
        + m("checkpoint_bytes_written")
        + m("region_map_bytes_written");
    let ram: u64 =
        answer["ram_bytes"].as_object().into_iter().flatten().map(|(_, value)| number(value)).sum();
    let rows = [
        ("up", duration(number(&answer["uptime_ms"]))),
        ("reads", format!("{} ({})", count(m("reads")), size(m("read_bytes")))),
        ("writes", format!("{} ({})", count(m("writes")), size(m("write_bytes")))),
        ("hit ratio", hit_ratio(&answer["extents"])),
        ("  of late, by size", curve(&answer["curve"])),
        (
            "  device, memory, zero",
            ["extent_hits_device", "extent_hits_memory", "extent_hits_zero"]
                .map(|name| count(m(name)))
                .join(", "),
        ),
        (
            "inserted",
            format!(
                "{} ({} stored, {} duplicates, {} zero)",
                count(found),
                count(stored),
                count(m("insert_duplicates")),
                count(m("insert_zero"))
            ),
        ),
        ("  deduplication", reduced(found, stored)),
        ("  compression", reduced(m("stored_raw_bytes"), m("stored_bytes"))),
        ("holds", holds_reduced(&answer["holds"])),
        ("evictions", format!("{} write-evict units", count(m("evictions")))),
        ("cache device written", size(written)),
        ("verification failed", count(m("failed_hits"))),
        ("mappings", format!("{} of {}", count(m("file_index_len")), count(m("file_index_capacity")))),
        ("RAM of indexes", size(ram)),
    ];
    text::pairs(out, &rows)?;
    writeln!(out)?;
    traffic_table(&answer["traffic"], out)?;
    limits_table("limits of", &answer["limits"], out)?;
    limits_table("limits of the origin of", &answer["origin_limits"], out)?;
    shares_table(&answer["shares"], out)?;
    pins_table(&answer["pins"], out)?;
    dirty_table(&answer["dirty"], out)?;
    let row = |path: &str| {
        let latency = &answer["latency"][path];
        let us = |name: &str| format!("{:.0}", latency[name].as_f64().unwrap_or(0.0));
        vec![
            path.to_owned(),
            count(number(&latency["count"])),
            us("mean_us"),
            us("p50_us"),
            us("p99_us"),
            us("p999_us"),
            us("max_us"),
        ]
    };
    let rows: Vec<Vec<String>> = ["hit", "miss", "mixed", "write", "flush"].into_iter().map(row).collect();
    Ok(text::table(out, &["latency in us", "count", "mean", "p50", "p99", "p99.9", "max"], &rows)?)
}

/// Formats a ratio of insertions since the start.
fn reduced(whole: u64, part: u64) -> String {
    if part == 0 { "nothing stored since the start".to_owned() } else { ratio(whole, part) }
}

/// Cached bytes with their reduction, content of earlier sessions included.
fn holds_reduced(held: &Value) -> String {
    let (bytes, on_ssd) = (number(&held["bytes"]), number(&held["ssd_bytes"]));
    format!("{}, reduced {}", holds(held), ratio(bytes, on_ssd))
}

/// Hit ratios of caches of other sizes, in the reads of late, and why some are not known.
fn curve(curve: &Value) -> String {
    let percent = |ratio: &Value| {
        ratio.as_f64().map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
    };
    let points = || curve["points"].as_array().into_iter().flatten();
    let sizes: Vec<String> = points()
        .map(|point| {
            let size = match point["size"].as_f64() {
                Some(0.25) => "a quarter".to_owned(),
                Some(0.5) => "half".to_owned(),
                Some(1.0) => "as it is".to_owned(),
                size => format!("{} times", size.unwrap_or(0.0)),
            };
            format!("{size} {}", percent(&point["hit_ratio"]))
        })
        .collect();
    if sizes.is_empty() {
        return "no reads yet".to_owned();
    }
    let mut reasons: Vec<&str> = points().filter_map(|point| point["missing"].as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" (-: {})", reasons.join("; ")) };
    sizes.join(", ") + &reasons
}

/// Prints the waits of requests for limits of their volumes, if any.
fn limits_table(title: &str, volumes: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = |(name, limits): (&String, &Value)| {
        let n = |name: &str| number(&limits[name]);
        (n("waited") > 0).then(|| {
            vec![name.clone(), count(n("waited")), duration(n("waited_us") / 1000), count(n("waiting"))]
        })
    };
    let rows: Vec<Vec<String>> = volumes.as_object().into_iter().flatten().filter_map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    text::table(out, &[title, "requests that waited", "together", "wait now"], &rows)?;
    Ok(writeln!(out)?)
}

/// Prints the cache shares of volumes with a quota, a reserve or a priority.
fn shares_table(volumes: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = |(name, share): (&String, &Value)| {
        let bytes = |name: &str| share[name].as_u64().map_or_else(|| "-".to_owned(), size);
        vec![
            name.clone(),
            bytes("held_bytes"),
            bytes("quota_bytes"),
            bytes("reserve_bytes"),
            share["priority"].as_str().unwrap_or("-").to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = volumes.as_object().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    text::table(out, &["share of the cache", "holds", "quota", "reserve", "priority"], &rows)?;
    Ok(writeln!(out)?)
}

fn pins_table(volumes: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = |(name, pins): (&String, &Value)| {
        let bytes = |name: &str| size(number(&pins[name]));
        vec![name.clone(), bytes("pinned_bytes"), bytes("kept_bytes"), bytes("cached_bytes")]
    };
    let rows: Vec<Vec<String>> = volumes.as_object().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    text::table(out, &["pins of", "pinned", "space", "cached"], &rows)?;
    Ok(writeln!(out)?)
}

/// Prints the requests to each volume.
fn traffic_table(volumes: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = |(name, traffic): (&String, &Value)| {
        let n = |name: &str| number(&traffic[name]);
        vec![
            name.clone(),
            count(n("reads")),
            size(n("read_bytes")),
            share(n("hits"), n("reads")),
            count(n("writes")),
            size(n("write_bytes")),
            count(n("trims")),
            count(n("flushes")),
            count(n("failed")),
            count(n("origin_errors")),
        ]
    };
    let rows: Vec<Vec<String>> = volumes.as_object().into_iter().flatten().map(row).collect();
    let heading = [
        "volume",
        "reads",
        "read",
        "hits",
        "writes",
        "written",
        "trims",
        "flushes",
        "failed",
        "origin errors",
    ];
    text::table(out, &heading, &rows)?;
    Ok(writeln!(out)?)
}

/// Prints dirty data, if any volume ever had some.
fn dirty_table(dirty: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = |(name, state): (&String, &Value)| {
        let n = |name: &str| count(number(&state[name]));
        let (bytes, age) = (size(number(&state["bytes"])), duration(number(&state["oldest_age_ms"])));
        let fenced = if state["fenced"] == json!(true) { "FENCED" } else { "" };
        vec![
            name.clone(),
            bytes,
            n("extents"),
            n("epochs"),
            age,
            n("waiting_writes"),
            n("unreadable"),
            n("refused"),
            fenced.to_owned(),
        ]
    };
    let has_some = |state: &Value| {
        ["bytes", "epochs", "unreadable", "refused"].iter().any(|name| number(&state[name]) > 0)
    };
    let volumes = dirty.as_object().into_iter().flatten().filter(|(_, state)| has_some(state));
    let rows: Vec<Vec<String>> = volumes.map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let heading =
        ["dirty data", "bytes", "extents", "epochs", "oldest", "waiting", "unreadable", "refused", ""];
    text::table(out, &heading, &rows)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_ratios() {
        let answer = json!({
            "uptime_ms": 1500, "ram_bytes": {"files": 1024, "prints": 1024},
            "extents": {"read": 4, "hits": 2, "read_ahead": 1},
            "curve": {"points": [{"size": 0.5, "hit_ratio": 0.25}, {"size": 4.0, "hit_ratio": 0.625}]},
            "holds": {"bytes": 9 << 20, "ssd_bytes": 2 << 20},
            "manager": {"extent_hits_device": 2, "extent_hits_zero": 1, "extent_misses": 1, "insert_stored": 2,
                "insert_duplicates": 4, "stored_raw_bytes": 300, "stored_bytes": 100},
            "latency": {"hit": {"count": 3, "p50_us": 12.4}},
            "traffic": {"vm": {"reads": 8, "hits": 2, "read_bytes": 7 << 20, "origin_errors": 9}},
            "dirty": {"idle": {"bytes": 0}, "db": {"bytes": 3 << 20, "oldest_age_ms": 2500, "fenced": true}},
        });
        let mut out = Vec::new();
        stats(&answer, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("idle"), "{text}");
        for part in [
            "50.0 % of 4 extents read; 25.0 % more were prefetched",
            "half 25.0 %, 4 times 62.5 %",
            "7.0 MiB",
            "25.0 %",
            "3.0 MiB",
            "2.5 s",
            "FENCED",
            "3.00 : 1",
            "9.0 MiB in 2.0 MiB of the cache device, reduced 4.50 : 1",
            "2.0 KiB",
            "1.5 s",
            "12",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn a_restart_shows_the_reduction_of_what_is_stored_and_no_figure_that_is_not_known() {
        let answer = json!({
            "extents": {"read": 700, "hits": 700},
            "curve": {"points": [
                {"size": 0.25, "hit_ratio": null, "missing": "too little was read since the start"},
                {"size": 0.5, "hit_ratio": null, "missing": "too little was read since the start"},
                {"size": 1.0, "hit_ratio": 1.0, "missing": null}]},
            "holds": {"bytes": 6 << 20, "ssd_bytes": 3 << 20},
        });
        let mut out = Vec::new();
        stats(&answer, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "a quarter -, half -, as it is 100.0 % (-: too little was read since the start)\n",
            "reduced 2.00 : 1",
            "compression           nothing stored since the start\n",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn a_volume_that_grew_is_shown_with_its_device() {
        let shown = |answer: Value| {
            let mut out = Vec::new();
            resized(&answer, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let answer =
            json!({"volume": "a", "before_bytes": 512, "size_bytes": 1 << 30, "device": "/dev/ublkb0"});
        assert_eq!(shown(answer), "a has 1.0 GiB (1073741824 bytes) now, 512 before\nso has /dev/ublkb0\n");
        let answer = json!({"volume": "a", "before_bytes": 512, "size_bytes": 512, "device": null});
        assert_eq!(shown(answer), "a has 512 B (512 bytes), as its origin\n");
        let answer =
            json!({"volume": "a", "before_bytes": 512, "size_bytes": 1024, "device_error": "it stays"});
        assert!(shown(answer).ends_with("\nit stays\n"));
    }

    #[test]
    fn a_sick_cache_is_called_so() {
        let answer = json!({"version": "1", "cache": {"healthy": false, "fault": "I/O error"},
            "sandbox": {"uid": 7, "capabilities": [], "landlock": true, "seccomp": false, "notes": ["seccomp: no"]},
            "volumes": [{"name": "a", "info": {"size_bytes": 1 << 30, "mode": "write-back", "ack": "volatile", "destage": "coalesce"}}]});
        let mut out = Vec::new();
        status(&answer, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let bounds = "user 7, no capabilities, landlock on, seccomp OFF (seccomp: no)";
        for part in [bounds, "OUT OF ORDER: I/O error", "1.0 GiB", "write-back, volatile ack, coalesced"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
