//! The volumes of a daemon as a table for programs.

use std::io::Write;

use serde_json::{Value, json};

use crate::cli::Listing;
use crate::columns::{self, Cell, Column};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
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

/// Prints the volumes of a status, those that are absent included.
///
/// # Errors
/// There is no such column, or the output fails.
pub(crate) fn table(status: &Value, listing: &Listing, out: &mut dyn Write) -> anyhow::Result<()> {
    let of = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let rows = [of("volumes"), of("absent")].concat();
    let columns: [Column<'_, Value>; 18] = [
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
        ("domain", &|row| Cell::of(&row["info"]["dedup_domain"])),
    ];
    columns::print(&columns, &rows, listing, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_words() {
        let status = json!({
            "volumes": [
                {"name": "a b", "info": {"size_bytes": 2048, "mode": "write-back", "origin": "/d", "device": null},
                 "traffic": {"reads": 4, "hits": 3}, "dirty": {"bytes": 512, "fenced": false}},
                {"name": "f", "info": {"size_bytes": 1}, "dirty": {"fenced": true}},
            ],
            "absent": [{"name": "gone", "why": "no such file"}],
        });
        let columns = ["name", "state", "size", "hits", "dirty", "device"].map(str::to_owned).to_vec();
        let listing = Listing { columns, no_headings: true, bytes: true };
        let mut out = Vec::new();
        table(&status, &listing, &mut out).unwrap();
        let lines = "a\\040b\tserved\t2048\t75.0%\t512\t-\nf\tfenced\t1\t-\t0\t-\ngone\tabsent\t0\t-\t0\t-\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
    }
}
