//! Runs all scenarios, one after the other.
//!
//! Invariants: a failed scenario fails the run, and the others still run; duration and result of each are reported at
//! the end and written as JSON.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

use super::scenarios;
use crate::boot::{Packages, boot};
use crate::chance::fresh_seed;
use crate::cut::{Plan, power_cut};
use crate::host::run::{build_dir, timed};
use crate::mode::{FileSystem, Mode};
use crate::setup::Image;

/// A loss is found in most of them.
const CANARY_CUTS: u32 = 8;
const CYCLES: u32 = 100;
const KILLS: u32 = 50;
/// Power cuts on each file system.
const CUTS: [(FileSystem, u32); 3] =
    [(FileSystem::Ext4, 100), (FileSystem::Xfs, 20), (FileSystem::Btrfs, 20)];

/// Outcome of a scenario.
struct Outcome {
    name: String,
    took: Duration,
    result: anyhow::Result<()>,
}

/// `cargo xtask vm all`.
///
/// # Errors
/// A scenario failed.
pub(crate) fn all(image: &Image, kernel: &str, packages: &Packages) -> anyhow::Result<()> {
    let mut outcomes = Vec::new();
    let (result, took) = timed(|| boot(image, packages));
    if let Err(error) = &result {
        println!("    boot FAILED: {error:#}");
    }
    outcomes.push(Outcome { name: "boot".to_owned(), took, result });
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        let mut run = |name: String, work: &dyn Fn() -> anyhow::Result<()>| {
            let (result, took) = timed(work);
            if let Err(error) = &result {
                println!("    {name} FAILED: {error:#}");
            }
            outcomes.push(Outcome { name, took, result });
        };
        let named = |what: &str| format!("{what}, {}", mode.name());
        run(named("functional"), &|| scenarios::functional(image, mode, CYCLES, &[]));
        run(named("faults"), &|| scenarios::faults(image, mode, &[]));
        run(named("crash"), &|| scenarios::crash(image, mode, KILLS));
        for (fs, cuts) in CUTS {
            let name = named(&format!("{cuts} power cuts, {}", fs.name()));
            run(name, &|| power_cut(image, Plan { cuts, mode, fs, seed: fresh_seed(), is_canary: false }));
        }
        run(named("flushes dropped"), &|| {
            let fs = FileSystem::Ext4;
            power_cut(image, Plan { cuts: CANARY_CUTS, mode, fs, seed: fresh_seed(), is_canary: true })
        });
    }
    println!("\n{}", table(&outcomes));
    write(&build_dir()?.join("vm-all.json"), &to_json(&outcomes, kernel))?;
    let failed: Vec<&str> =
        outcomes.iter().filter(|one| one.result.is_err()).map(|one| one.name.as_str()).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    Ok(())
}

fn table(outcomes: &[Outcome]) -> String {
    let line = |name: &str, took: Duration, result: &str| {
        format!("{name:<40} {:>8.1}  {result}\n", took.as_secs_f64())
    };
    let lines = outcomes
        .iter()
        .map(|one| line(&one.name, one.took, if one.result.is_ok() { "ok" } else { "FAILED" }));
    let total = line("total", outcomes.iter().map(|one| one.took).sum(), "");
    format!("{:<40} {:>8}  result\n{}{}", "scenario", "seconds", lines.collect::<String>(), total.trim_end())
}

fn to_json(outcomes: &[Outcome], kernel: &str) -> Value {
    let scenarios = outcomes.iter().map(|one| {
        let error = one.result.as_ref().err().map(|error| format!("{error:#}"));
        json!({"scenario": one.name, "seconds": one.took.as_secs_f64(), "ok": error.is_none(), "error": error})
    });
    json!({"kernel": kernel, "scenarios": scenarios.collect::<Vec<_>>()})
}

fn write(path: &Path, value: &Value) -> anyhow::Result<()> {
    std::fs::write(path, value.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_told_with_its_reason_and_the_rest_too() {
        let outcome = |name: &str, result| Outcome {
            name: name.to_owned(),
            took: Duration::from_millis(1_500),
            result,
        };
        let outcomes = [outcome("one", Ok(())), outcome("two", Err(anyhow::anyhow!("broken")))];
        let table = table(&outcomes);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["one", "1.5", "ok"]);
        assert_eq!(lines[2], ["two", "1.5", "FAILED"]);
        assert_eq!(lines[3], ["total", "3.0"]);
        let value = to_json(&outcomes, "stable");
        assert_eq!(value["kernel"], "stable");
        assert_eq!(value["scenarios"][0]["ok"], true);
        assert_eq!(value["scenarios"][1]["error"], "broken");
    }
}
