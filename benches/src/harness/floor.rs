//! Lower bounds of any server: a bare round trip through a socket, and the file itself.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;
use zc_core::usize_from_u32;

use crate::clock::now_ns;
use crate::load::{Durability, Load, Op, Order, Outcome, histogram};
use crate::measure::Sample;

/// An NBD request's header, and a structured reply's with its offset, in bytes.
const REQUEST_BYTES: usize = 28;
const REPLY_HEAD_BYTES: usize = 28;

/// Two threads throw a request's bytes and a reply's bytes of data at each other, one at a time.
pub(crate) fn ping_pong(block_bytes: u32, time_ns: u64) -> anyhow::Result<Outcome> {
    let (mut near, mut far) = UnixStream::pair()?;
    let reply_bytes = REPLY_HEAD_BYTES + usize_from_u32(block_bytes);
    let echo = std::thread::spawn(move || {
        let (mut request, reply) = ([0; REQUEST_BYTES], vec![7; reply_bytes]);
        while far.read_exact(&mut request).is_ok() && far.write_all(&reply).is_ok() {}
    });
    let mut latency = histogram();
    let (request, mut reply) = ([1; REQUEST_BYTES], vec![0; reply_bytes]);
    let start_ns = now_ns();
    let mut at_ns = start_ns;
    while at_ns - start_ns < time_ns {
        near.write_all(&request)?;
        near.read_exact(&mut reply)?;
        let now_ns = now_ns();
        latency.saturating_record(now_ns - at_ns);
        at_ns = now_ns;
    }
    drop(near);
    let Ok(()) = echo.join() else { bail!("the echo thread panicked") };
    Ok(Outcome { requests: latency.len(), elapsed_ns: at_ns - start_ns, latency })
}

/// Runs `fio` on a file with the load's order, block size and depth; connections become jobs.
pub(crate) fn fio(file: &Path, load: &Load) -> anyhow::Result<Sample> {
    let kind = match (load.op, load.order) {
        (Op::Read, Order::Random) => "randread",
        (Op::Read, Order::Sequential) => "read",
        (Op::Write(_), Order::Random) => "randwrite",
        (Op::Write(_), Order::Sequential) => "write",
    };
    let mut command = Command::new("fio");
    command.args(["--name=raw", "--ioengine=io_uring", "--direct=1", "--thread", "--group_reporting"]);
    command.args(["--time_based", "--output-format=json", "--norandommap", "--lat_percentiles=1"]);
    // The servers that read from the page cache keep it.
    command.arg("--invalidate=0");
    command.arg(format!("--filename={}", file.display())).arg(format!("--rw={kind}"));
    command.arg(format!("--bs={}", load.block_bytes)).arg(format!("--iodepth={}", load.depth));
    command.arg(format!("--numjobs={}", load.connections));
    command.arg(format!("--runtime={}ms", load.time_ns / 1_000_000));
    command.arg(format!("--randseed={}", load.seed));
    match load.durability {
        Durability::None => {}
        Durability::Fua => drop(command.arg("--sync=dsync")),
        Durability::Flush => drop(command.arg("--fdatasync=1")),
    }
    let output = command.output().context("cannot start fio")?;
    if !output.status.success() {
        bail!("fio failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let side = if load.op == Op::Read { "read" } else { "write" };
    parse(&output.stdout, side).context("fio's output lacks what was looked for")
}

fn parse(bytes: &[u8], side: &str) -> Option<Sample> {
    // Warnings may stand before the object.
    let start = bytes.iter().position(|byte| *byte == b'{')?;
    let value: Value = serde_json::from_slice(&bytes[start..]).ok()?;
    let job = value.get("jobs")?.get(0)?;
    let figures = job.get(side)?;
    let percentile =
        |name: &str| figures.get("lat_ns")?.get("percentile")?.get(name)?.as_f64().map(|ns| ns / 1000.0);
    let per_second = figures.get("iops")?.as_f64()?;
    let busy_percent = job.get("usr_cpu")?.as_f64()? + job.get("sys_cpu")?.as_f64()?;
    let jobs = job.get("job options").and_then(|o| o.get("numjobs")?.as_str()?.parse::<f64>().ok());
    let mean_us = figures.get("lat_ns")?.get("mean")?.as_f64()? / 1000.0;
    Some(Sample::new([
        ("per_second", per_second),
        ("mean_us", mean_us),
        ("p50_us", percentile("50.000000")?),
        ("p90_us", percentile("90.000000")?),
        ("p99_us", percentile("99.000000")?),
        ("p999_us", percentile("99.900000")?),
        ("cpu_us", busy_percent / 100.0 * jobs.unwrap_or(1.0) * 1e6 / per_second),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_warnings() {
        let text = br#"note: something
            {"jobs": [{"usr_cpu": 20.0, "sys_cpu": 30.0, "job options": {"numjobs": "2"}, "read": {"iops": 10000.0,
            "lat_ns": {"mean": 90000.0, "percentile": {"50.000000": 80000, "90.000000": 95000, "99.000000": 99000,
            "99.900000": 120000}}}}]}"#;
        let raw = parse(text, "read").unwrap();
        assert_eq!((raw.get("p50_us"), raw.get("cpu_us")), (Some(80.0), Some(100.0)));
        assert!(parse(text, "write").is_none());
    }
}
