//! The counters in the text format of Prometheus (exposition format 0.0.4), for its node exporter's textfile collector.
//!
//! Job: name every number of `stats` once, with the unit in its name. Counters end in `_total`, sizes are in bytes,
//! latencies are summaries in seconds, what belongs to a volume has it as a label.
//!
//! What it does not do: serve HTTP, or make up numbers that `stats` does not have.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Map, Value};

/// Of the manager's and the driver's numbers, and of those by volume, these are of now; the others only grow.
const GAUGES: &[&str] = &[
    "file_index_len",
    "file_index_capacity",
    "fingerprint_index_len",
    "fingerprint_index_capacity",
    "journal_blocks",
    "regions_active",
    "requests_in_flight",
    "payload_bytes",
    "unsent_bytes",
    "reduce_jobs_waiting",
    "buffers",
    "bytes",
    "extents",
    "epochs",
    "oldest_age_ms",
    "newest_epoch",
    "draining",
    "fenced",
    "waiting_writes",
    "stuck_offset_bytes",
    "stuck_bytes",
];
/// The quantiles of a latency by their names in `stats`.
const QUANTILES: [(&str, &str); 4] =
    [("0.5", "p50_us"), ("0.9", "p90_us"), ("0.99", "p99_us"), ("0.999", "p999_us")];

/// Samples by the name of their family, with its type.
#[derive(Default)]
struct Families(BTreeMap<String, (&'static str, Vec<String>)>);

impl Families {
    /// One sample; `suffix` is what it has behind the family's name.
    fn add(&mut self, family: &str, kind: &'static str, suffix: &str, labels: &str, value: f64) {
        let (_, samples) = self.0.entry(family.to_owned()).or_insert_with(|| (kind, Vec::new()));
        samples.push(format!("{family}{suffix}{labels} {value}"));
    }

    /// A counter or gauge, by what it is called in `stats`.
    fn number(&mut self, section: &str, name: &str, labels: &str, value: &Value) {
        let Some(value) = value.as_f64().or_else(|| value.as_bool().map(|set| f64::from(u8::from(set))))
        else {
            return;
        };
        if GAUGES.contains(&name) {
            self.add(&format!("zcached_{section}_{name}"), "gauge", "", labels, value);
        } else {
            self.add(&format!("zcached_{section}_{name}_total"), "counter", "", labels, value);
        }
    }

    fn gauge(&mut self, name: &str, labels: &str, value: &Value) {
        if let Some(value) = value.as_f64().or_else(|| value.as_bool().map(|set| f64::from(u8::from(set)))) {
            self.add(&format!("zcached_{name}"), "gauge", "", labels, value);
        }
    }

    fn latency(&mut self, path: &str, latency: &Value) {
        const FAMILY: &str = "zcached_latency_seconds";
        let of = |name: &str| latency[name].as_f64().unwrap_or(0.0);
        for (quantile, name) in QUANTILES {
            let labels = format!("{{path=\"{path}\",quantile=\"{quantile}\"}}");
            self.add(FAMILY, "summary", "", &labels, of(name) / 1e6);
        }
        let labels = format!("{{path=\"{path}\"}}");
        self.add(FAMILY, "summary", "_sum", &labels, of("mean_us") * of("count") / 1e6);
        self.add(FAMILY, "summary", "_count", &labels, of("count"));
    }
}

/// A label's value, escaped as the format wants it.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{name}=\"{value}\"}}")
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// Writes the answer to `stats`.
pub(crate) fn write(stats: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut families = Families::default();
    families.gauge("uptime_milliseconds", "", &stats["uptime_ms"]);
    families.gauge("cache_healthy", "", &stats["cache_healthy"]);
    families.gauge("stopping", "", &stats["stopping"]);
    for (name, pair) in [("units", &stats["slots"]), ("regions", &stats["regions_active"])] {
        families.gauge(&format!("{name}_used"), "", &pair[0]);
        families.gauge(&format!("{name}_max"), "", &pair[1]);
    }
    for section in ["manager", "driver"] {
        entries(&stats[section]).for_each(|(name, value)| families.number(section, name, "", value));
    }
    entries(&stats["ram_bytes"])
        .for_each(|(name, bytes)| families.gauge("ram_bytes", &label("structure", name), bytes));
    for (section, by_volume) in [("volume", &stats["traffic"]), ("dirty", &stats["dirty"])] {
        for (volume, numbers) in entries(by_volume) {
            let labels = label("volume", volume);
            entries(numbers).for_each(|(name, value)| families.number(section, name, &labels, value));
        }
    }
    entries(&stats["latency"]).for_each(|(path, latency)| families.latency(path, latency));
    for (family, (kind, samples)) in families.0 {
        writeln!(out, "# TYPE {family} {kind}")?;
        samples.iter().try_for_each(|sample| writeln!(out, "{sample}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_number_has_a_family_and_volumes_are_labels() {
        let stats = json!({
            "uptime_ms": 1500, "cache_healthy": true, "cache_fault": null, "slots": [3, 64],
            "manager": { "reads": 7, "journal_blocks": 2 },
            "traffic": { "a": { "reads": 4 }, "b \"c\"": { "reads": 3 } },
            "dirty": { "a": { "bytes": 8192, "fenced": false, "refused": 1 } },
            "latency": { "hit": { "count": 4, "mean_us": 250.0, "p50_us": 200.0 } },
        });
        let mut out = Vec::new();
        write(&stats, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "# TYPE zcached_cache_healthy gauge\nzcached_cache_healthy 1\n",
            "# TYPE zcached_manager_reads_total counter\nzcached_manager_reads_total 7\n",
            "# TYPE zcached_manager_journal_blocks gauge\nzcached_manager_journal_blocks 2\n",
            "# TYPE zcached_volume_reads_total counter\nzcached_volume_reads_total{volume=\"a\"} 4\n\
             zcached_volume_reads_total{volume=\"b \\\"c\\\"\"} 3\n",
            "zcached_dirty_bytes{volume=\"a\"} 8192\n",
            "zcached_dirty_fenced{volume=\"a\"} 0\n",
            "zcached_dirty_refused_total{volume=\"a\"} 1\n",
            "# TYPE zcached_latency_seconds summary\n\
             zcached_latency_seconds{path=\"hit\",quantile=\"0.5\"} 0.0002\n",
            "zcached_latency_seconds_sum{path=\"hit\"} 0.001\n",
            "zcached_units_used 3\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("null") && !text.contains("fault"));
    }
}
