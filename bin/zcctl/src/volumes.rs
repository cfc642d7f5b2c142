//! The volumes of a daemon, as tables for people and for programs.

use std::io::Write;

use serde_json::{Value, json};

use crate::columns::{self, Cell, Column};
use crate::dirty;
use crate::options::Listing;
use crate::text::{self, number, string};
use crate::units::{count, duration, share, size};

/// Prints the volumes that are served.
///
/// # Errors
/// The output fails.
pub(crate) fn for_people(status: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = |volume: &Value| {
        let info = &volume["info"];
        let traffic = &volume["traffic"];
        vec![
            string(&volume["name"]),
            size(number(&info["size_bytes"])),
            mode(info),
            share(number(&traffic["hits"]), number(&traffic["reads"])),
            dirty::cell(&volume["dirty"]),
            string(&info["origin"]),
            string(&info["device"]),
            remarks(volume),
        ]
    };
    let rows: Vec<Vec<String>> = status["volumes"].as_array().into_iter().flatten().map(row).collect();
    let heading = ["volume", "size", "mode", "hits", "dirty", "origin", "device", ""];
    Ok(text::table(out, &heading, &rows)?)
}

fn connection(remote: &Value) -> String {
    let again = match number(&remote["reconnects"]) {
        0 => String::new(),
        times => format!(", connected again {} times", count(times)),
    };
    let owed = match number(&remote["owed_bytes"]) {
        0 => String::new(),
        bytes => format!(", {} kept until the next flush", size(bytes)),
    };
    let state = match remote["outage_ms"].as_u64() {
        None => "up".to_owned(),
        Some(ms) => format!("unreachable for {} s: {}", ms / 1000, string(&remote["why"])),
    };
    format!("{state}{again}{owed}")
}

/// Late requests of an origin on this machine.
fn late_requests(late: &Value) -> String {
    let total = match number(&late["expired"]) {
        0 => format!("{} requests were late", count(number(&late["late"]))),
        failed => {
            format!("{} requests were late, {} of them failed", count(number(&late["late"])), count(failed))
        }
    };
    match late["outage_ms"].as_u64() {
        None => total,
        Some(ms) => {
            format!("no answer for {} s to {} of them; {total}", ms / 1000, count(number(&late["waiting"])))
        }
    }
}

/// Returns the properties of a volume besides its settings.
pub(crate) fn facts(volume: &Value) -> Vec<(&'static str, String)> {
    let (info, traffic) = (&volume["info"], &volume["traffic"]);
    let n = |name: &str| number(&traffic[name]);
    let bytes = number(&info["size_bytes"]);
    let mut facts = vec![
        ("volume", string(&volume["name"])),
        ("state", state(volume).to_owned()),
        ("size", format!("{} ({bytes} bytes)", size(bytes))),
        ("mode", mode(info)),
        ("origin", string(&info["origin"])),
        ("device", string(&info["device"])),
        ("dirty", dirty::cell(&volume["dirty"])),
        ("reads", format!("{} ({})", count(n("reads")), size(n("read_bytes")))),
        ("hits", share(n("hits"), n("reads"))),
        ("writes", format!("{} ({})", count(n("writes")), size(n("write_bytes")))),
        ("flushes", count(n("flushes"))),
    ];
    if !volume["share"].is_null() {
        facts.push(("share of the cache", share_of_cache(&volume["share"])));
    }
    if !volume["remote"].is_null() {
        facts.push(("connection", connection(&volume["remote"])));
    }
    if number(&volume["late"]["late"]) > 0 || number(&volume["late"]["expired"]) > 0 {
        facts.push(("late requests", late_requests(&volume["late"])));
    }
    if !volume["pins"].is_null() {
        facts.push(("pinned", pinned(&volume["pins"])));
    }
    let limits = &volume["limits"];
    if number(&limits["waited"]) > 0 {
        facts.push(("waited for limits", waited(limits)));
    }
    let origin_limits = &volume["origin_limits"];
    if number(&origin_limits["waited"]) > 0 {
        facts.push(("waited for the origin's", waited(origin_limits)));
    }
    let remarks = remarks(volume);
    if !remarks.is_empty() {
        facts.push(("remarks", remarks));
    }
    facts
}

fn state(volume: &Value) -> &'static str {
    if volume["info"].is_null() {
        "absent"
    } else if volume["dirty"]["fenced"] == json!(true) {
        "fenced"
    } else {
        "served"
    }
}

/// Formats a volume's mode, with its write-back settings.
fn mode(info: &Value) -> String {
    let mut words = string(&info["mode"]);
    if let Some(ack) = info["ack"].as_str() {
        words += &format!(", {ack} ack");
    }
    if info["destage"] == "coalesce" {
        words += ", coalesced";
    }
    words
}

/// Formats a volume's part of the cache, with its bounds.
fn share_of_cache(of: &Value) -> String {
    let bytes = |name: &str| size(number(&of[name]));
    let mut words = bytes("held_bytes");
    if !of["quota_bytes"].is_null() {
        words += &format!(", of at most {}", bytes("quota_bytes"));
    }
    if number(&of["reserve_bytes"]) > 0 {
        words += &format!(", reserve {}", bytes("reserve_bytes"));
    }
    format!("{words}, priority {}", string(&of["priority"]))
}

/// Formats a volume's pinned bytes, and their cached part.
fn pinned(of: &Value) -> String {
    let n = |name: &str| number(&of[name]);
    let (pinned, kept, cached) = (n("pinned_bytes"), n("kept_bytes"), n("cached_bytes"));
    let of_that =
        if cached >= pinned { "all of it cached".to_owned() } else { format!("{} cached", size(cached)) };
    let space = if kept < pinned { format!(", space for {}", size(kept)) } else { String::new() };
    format!("{}, {of_that}{space}", size(pinned))
}

/// Formats number and duration of waits for the volume's limits.
fn waited(limits: &Value) -> String {
    let n = |name: &str| number(&limits[name]);
    format!(
        "{} requests, {} together; {} wait now",
        count(n("waited")),
        duration(n("waited_us") / 1000),
        count(n("waiting"))
    )
}

/// Formats irregular states of a volume.
fn remarks(volume: &Value) -> String {
    let (info, traffic, limits) = (&volume["info"], &volume["traffic"], &volume["limits"]);
    let counted = |name: &str, what: &str| {
        let times = number(&traffic[name]);
        (times > 0).then(|| format!("{what}: {}", count(times)))
    };
    let cold = info["cold_reason"].as_str().map(|why| format!("started cold: {why}"));
    let failed = counted("failed", "failed requests");
    let errors = counted("origin_errors", "errors of the origin");
    let waiting = number(&limits["waiting"]);
    let waiting = (waiting > 0).then(|| format!("requests that wait for its limits: {}", count(waiting)));
    [cold, failed, errors, waiting].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Prints the volumes of a status for programs, those that are absent included.
///
/// # Errors
/// If there is no such column, or the output fails.
pub(crate) fn table(status: &Value, listing: &Listing, out: &mut dyn Write) -> anyhow::Result<()> {
    let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let rows = [list("volumes"), list("absent")].concat();
    let columns: [Column<'_, Value>; 26] = [
        ("name", &|row| Cell::of(&row["name"])),
        ("state", &|row| Cell::Text(Some(state(row).to_owned()))),
        ("size", &|row| Cell::Bytes(number(&row["info"]["size_bytes"]))),
        ("mode", &|row| Cell::of(&row["info"]["mode"])),
        ("hits", &|row| Cell::Share(number(&row["traffic"]["hits"]), number(&row["traffic"]["reads"]))),
        ("dirty", &|row| Cell::Bytes(number(&row["dirty"]["bytes"]))),
        ("dirty-age", &|row| Cell::Millis(number(&row["dirty"]["oldest_age_ms"]))),
        ("origin", &|row| Cell::of(&row["info"]["origin"])),
        ("device", &|row| Cell::of(&row["info"]["device"])),
        ("reads", &|row| Cell::Count(number(&row["traffic"]["reads"]))),
        ("read", &|row| Cell::Bytes(number(&row["traffic"]["read_bytes"]))),
        ("writes", &|row| Cell::Count(number(&row["traffic"]["writes"]))),
        ("written", &|row| Cell::Bytes(number(&row["traffic"]["write_bytes"]))),
        ("trims", &|row| Cell::Count(number(&row["traffic"]["trims"]))),
        ("flushes", &|row| Cell::Count(number(&row["traffic"]["flushes"]))),
        ("failed", &|row| Cell::Count(number(&row["traffic"]["failed"]))),
        ("origin-errors", &|row| Cell::Count(number(&row["traffic"]["origin_errors"]))),
        ("waited", &|row| Cell::Count(number(&row["limits"]["waited"]))),
        ("waited-time", &|row| Cell::Millis(number(&row["limits"]["waited_us"]) / 1000)),
        ("waiting", &|row| Cell::Count(number(&row["limits"]["waiting"]))),
        ("held", &|row| Cell::Bytes(number(&row["share"]["held_bytes"]))),
        ("quota", &|row| Cell::Bytes(number(&row["share"]["quota_bytes"]))),
        ("reserve", &|row| Cell::Bytes(number(&row["share"]["reserve_bytes"]))),
        ("pinned", &|row| Cell::Bytes(number(&row["pins"]["pinned_bytes"]))),
        ("pinned-cached", &|row| Cell::Bytes(number(&row["pins"]["cached_bytes"]))),
        ("domain", &|row| Cell::of(&row["info"]["dedup_domain"])),
    ];
    columns::print(&columns, &rows, listing, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_against_its_bounds() {
        let mut share =
            json!({"held_bytes": 6 << 20, "quota_bytes": null, "reserve_bytes": 0, "priority": "low"});
        assert_eq!(share_of_cache(&share), "6.0 MiB, priority low");
        share["quota_bytes"] = json!(8 << 20);
        share["reserve_bytes"] = json!(4 << 20);
        assert_eq!(share_of_cache(&share), "6.0 MiB, of at most 8.0 MiB, reserve 4.0 MiB, priority low");
    }

    #[test]
    fn pins_are_told_with_what_is_cached_of_them() {
        let mut pins = json!({"pinned_bytes": 8 << 20, "kept_bytes": 8 << 20, "cached_bytes": 8 << 20});
        assert_eq!(pinned(&pins), "8.0 MiB, all of it cached");
        pins["kept_bytes"] = json!(6 << 20);
        pins["cached_bytes"] = json!(5 << 20);
        assert_eq!(pinned(&pins), "8.0 MiB, 5.0 MiB cached, space for 6.0 MiB");
    }

    #[test]
    fn volumes_are_words() {
        let status = json!({
            "volumes": [
                {"name": "a b", "info": {"size_bytes": 2048, "mode": "write-back", "origin": "/d", "device": null},
                 "traffic": {"reads": 4, "hits": 3}, "dirty": {"bytes": 512, "fenced": false},
                 "limits": {"waited": 3, "waited_us": 1_500_000, "waiting": 1}},
                {"name": "f", "info": {"size_bytes": 1}, "dirty": {"fenced": true}},
            ],
            "absent": [{"name": "gone", "why": "no such file"}],
        });
        let columns = ["name", "state", "size", "hits", "dirty", "device", "waited", "waited-time"]
            .map(str::to_owned)
            .to_vec();
        let listing = Listing { columns, no_headings: true, bytes: true };
        let mut out = Vec::new();
        table(&status, &listing, &mut out).unwrap();
        let lines = "a\\040b\tserved\t2048\t75.0%\t512\t-\t3\t1500\nf\tfenced\t1\t-\t0\t-\t0\t0\n\
                     gone\tabsent\t0\t-\t0\t-\t0\t0\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
    }
}
