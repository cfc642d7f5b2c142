//! Measurements in the form of the report.
//!
//! Invariants: an incomplete result is an error that names the missing part; a value that a contender cannot report is
//! absent, not 0.

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde_json::Value;
use std::path::Path;

use super::plan::{Contender, Workload};

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Side {
    pub(crate) requests: f64,
    pub(crate) bytes: f64,
    pub(crate) per_second: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// One load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) read: Side,
    pub(crate) write: Side,
    pub(crate) flush: Side,
    ssd_written_bytes: f64,
    origin_reads: f64,
    origin_writes: f64,
    own_hits: Option<f64>,
    own_misses: Option<f64>,
    ram_bytes: f64,
}

/// A contender under a workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub(crate) contender: Contender,
    pub(crate) workload: Workload,
    samples: Vec<Sample>,
}

impl Side {
    fn parse(value: &Value) -> anyhow::Result<Self> {
        let number = |key| number(value, key);
        Ok(Self {
            requests: number("requests")?,
            bytes: number("bytes")?,
            per_second: number("per_second")?,
            mean_ms: number("mean_ms")?,
            p50_ms: number("p50_ms")?,
            p99_ms: number("p99_ms")?,
        })
    }
}

fn number(value: &Value, key: &str) -> anyhow::Result<f64> {
    value[key].as_f64().with_context(|| format!("the result has no {key}"))
}

impl Sample {
    fn parse(value: &Value) -> anyhow::Result<Self> {
        let name = value["sample"].as_str().context("a sample has no name")?.to_owned();
        Ok(Self {
            name,
            read: Side::parse(&value["read"])?,
            write: Side::parse(&value["write"])?,
            flush: Side::parse(&value["flush"])?,
            ssd_written_bytes: number(value, "ssd_written_bytes")?,
            origin_reads: number(value, "origin_reads")?,
            origin_writes: number(value, "origin_writes")?,
            own_hits: value["own_hits"].as_f64(),
            own_misses: value["own_misses"].as_f64(),
            ram_bytes: number(value, "ram_bytes")?,
        })
    }

    pub(crate) fn iops(&self) -> f64 {
        self.read.per_second + self.write.per_second
    }

    /// Returns the share of reads without the slow disk: from the cache's own counters, or from the slow disk's.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        if let (Some(hits), Some(misses)) = (self.own_hits, self.own_misses) {
            return (hits + misses > 0.0).then(|| hits / (hits + misses));
        }
        let reads = self.read.requests;
        (reads > 0.0).then(|| (1.0 - self.origin_reads / reads).max(0.0))
    }

    /// Requests that the slow disk saw for each of the client's.
    pub(crate) fn origin_share(&self) -> f64 {
        (self.origin_reads + self.origin_writes) / (self.read.requests + self.write.requests)
    }
}

impl Figures {
    /// # Errors
    /// Something is missing.
    pub(crate) fn parse(value: &Value) -> anyhow::Result<Self> {
        let name = |key| value[key].as_str().with_context(|| format!("the result has no {key}"));
        let (contender, workload) = (name("contender")?, name("workload")?);
        let unknown = |error| anyhow::anyhow!("{contender} under {workload}: {error}");
        let samples = value["samples"].as_array().context("the result has no samples")?;
        let samples = samples.iter().map(Sample::parse).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(samples.iter().any(|sample| sample.name == "run"), "the result of {contender} has no run");
        Ok(Self {
            contender: Contender::from_str(contender, false).map_err(unknown)?,
            workload: Workload::from_str(workload, false).map_err(unknown)?,
            samples,
        })
    }

    pub(crate) fn sample(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.name == name)
    }

    /// The load that counts.
    ///
    /// # Panics
    /// Never: without it there are no figures.
    pub(crate) fn run(&self) -> &Sample {
        let Some(run) = self.sample("run") else { unreachable!("there is a run, as it was parsed") };
        run
    }

    /// Bytes written to the SSD for each byte that clients read or wrote, from the empty cache on.
    pub(crate) fn ssd_share(&self) -> f64 {
        let sum = |of: fn(&Sample) -> f64| self.samples.iter().map(of).sum::<f64>();
        sum(|sample| sample.ssd_written_bytes) / sum(|sample| sample.read.bytes + sample.write.bytes)
    }

    /// Memory that the whole machine used more than before there was a cache, in MiB.
    pub(crate) fn ram_mib(&self) -> f64 {
        self.run().ram_bytes / f64::from(1 << 20)
    }
}

/// Every result in a folder, as it was written and as figures.
///
/// # Errors
/// One cannot be read or makes no sense.
pub(crate) fn read_all(folder: &Path) -> anyhow::Result<Vec<(Value, Figures)>> {
    let mut found = Vec::new();
    for workload in Workload::value_variants() {
        for contender in Contender::value_variants() {
            let path = folder.join(super::file_name(*workload, *contender));
            if path.is_file() {
                let text = std::fs::read_to_string(&path);
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                let value: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
                let figures = Figures::parse(&value).with_context(|| path.display().to_string())?;
                found.push((value, figures));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a result with `iops` reads per second, of which `missed` per cent went to the slow disk.
    pub(crate) fn figures(contender: Contender, workload: Workload, iops: f64, missed: f64) -> Figures {
        Figures::parse(&result(contender, workload, iops, missed)).unwrap()
    }

    fn result(contender: Contender, workload: Workload, iops: f64, missed: f64) -> Value {
        let side = |iops: f64| {
            json!({"requests": iops * 10.0, "bytes": iops * 81_920.0, "per_second": iops, "mean_ms": 3200.0 / (iops + 1.0),
                "p50_ms": 1.0, "p99_ms": 50.0})
        };
        let sample = |name: &str| {
            json!({"sample": name, "seconds": 10, "read": side(iops), "write": side(0.0), "flush": side(0.0), "ssd_written_bytes": iops * 8_192.0,
                "origin_reads": iops * missed / 10.0, "origin_writes": 0, "own_hits": null, "own_misses": null,
                "ram_bytes": 1 << 20})
        };
        json!({"contender": contender.name(), "workload": workload.name(),
            "samples": [sample("warm"), sample("before"), sample("run")]})
    }

    #[test]
    fn hits_are_what_the_slow_disk_did_not_see_unless_the_cache_counts() {
        let mut sample = figures(Contender::Raw, Workload::Zipf, 100.0, 30.0).run().clone();
        assert!((sample.hit_ratio().unwrap() - 0.7).abs() < 1e-9);
        assert!((sample.origin_share() - 0.3).abs() < 1e-9);
        (sample.own_hits, sample.own_misses) = (Some(3.0), Some(1.0));
        assert!((sample.hit_ratio().unwrap() - 0.75).abs() < 1e-9);
        (sample.own_hits, sample.read.requests) = (None, 0.0);
        assert_eq!(sample.hit_ratio(), None);
    }

    #[test]
    fn writes_to_the_ssd_count_from_the_empty_cache_on() {
        let figures = figures(Contender::BcacheWt, Workload::Zipf, 100.0, 30.0);
        assert!((figures.ssd_share() - 0.1).abs() < 1e-9, "{}", figures.ssd_share());
        assert!((figures.ram_mib() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_result_that_lacks_something_is_an_error_that_names_it() {
        let whole = result(Contender::Raw, Workload::Zipf, 100.0, 30.0);
        for (pointer, said) in [
            ("/samples/2/origin_reads", "origin_reads"),
            ("/samples/2/sample", "no name"),
            ("/workload", "workload"),
        ] {
            let mut value = whole.clone();
            *value.pointer_mut(pointer).unwrap() = Value::Null;
            assert!(Figures::parse(&value).unwrap_err().to_string().contains(said), "{pointer}");
        }
        let mut value = whole;
        value["samples"][2]["sample"] = json!("ran");
        assert!(Figures::parse(&value).unwrap_err().to_string().contains("no run"));
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_the_report() {
        let dir = tempfile::tempdir().unwrap();
        for (workload, contender) in [
            (Workload::Mix, Contender::Raw),
            (Workload::Zipf, Contender::ZcachedDC),
            (Workload::Zipf, Contender::Raw),
        ] {
            let path = dir.path().join(super::super::file_name(workload, contender));
            std::fs::write(path, result(contender, workload, 1.0, 1.0).to_string()).unwrap();
        }
        let found: Vec<_> =
            read_all(dir.path()).unwrap().iter().map(|(_, it)| (it.workload, it.contender)).collect();
        assert_eq!(
            found,
            [
                (Workload::Zipf, Contender::Raw),
                (Workload::Zipf, Contender::ZcachedDC),
                (Workload::Mix, Contender::Raw)
            ]
        );
    }
}
