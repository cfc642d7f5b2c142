//! `cargo xtask mutants`: small changes to the cache manager, each of which the tests must detect.
//!
//! Job: run cargo-mutants on the modules that guarantees depend on, one place at a time, and test each change with the
//! unit tests of zc-cache and with seeds of the simulator. An undetected change is a survivor; the document
//! [`SURVIVORS`] lists the known ones, each with the reason why it is harmless or with the test that would detect it.
//!
//! Invariants: the changes are made to a copy of the tree below the target directory, never to the tree itself. An
//! unlisted survivor is a failure.
//!
//! It does not cover the simulator's canaries. Those are design bugs, which no change of one operator produces.

use anyhow::{Context, bail};
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use zc_rig::host::packages::ensure_cargo_mutants;
use zc_rig::host::run::{build_dir, run, show, workspace};

/// Known survivors, in the workspace.
const SURVIVORS: &str = "crates/zc-cache/MUTANTS.md";
/// Folders of the changed modules.
const SOURCES: &str = "crates/zc-cache/src";
/// Variable with the number of seeds of the simulator's test; as in `crates/proof/zc-sim/tests/seeds.rs`.
const SEEDS_VARIABLE: &str = "ZC_SIM_SEEDS";
/// Exit statuses of cargo-mutants that complete its work: no survivors, survivors, and tests that timed out, which
/// count as detected.
const GOOD: [i32; 3] = [0, 2, 3];

/// A part of the cache manager that guarantees hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Module {
    /// Journal, region map, retirements.
    Meta,
    /// Dirty data: commits, summaries, destaging.
    Dirty,
    /// Findings and decisions of a start.
    Startup,
    /// Reading of the device at a start.
    Recovery,
    /// Units that are filled and written.
    Units,
    /// Slots: states, classes, replacement.
    Slots,
    /// Contents: fingerprints and headers.
    Contents,
    /// Mappings and eviction.
    Catalog,
    /// Checkpoints and the index image.
    Snapshot,
    /// Reads, writes and insertions of clean data, and the order of accesses of origins.
    Clean,
    /// Port, health, and the writes of volumes at their origins.
    Base,
}

impl Module {
    const fn folder(self) -> &'static str {
        match self {
            Self::Meta => "device/meta",
            Self::Dirty => "dirty",
            Self::Startup => "startup",
            Self::Recovery => "device/recovery",
            Self::Units => "device/units",
            Self::Slots => "device/slots",
            Self::Contents => "device/contents",
            Self::Catalog => "device/catalog",
            Self::Snapshot => "device/snapshot",
            Self::Clean => "clean",
            Self::Base => "base",
        }
    }
}

/// Selection of changes, and effort.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change this module only (repeatable); by default all.
    #[arg(long, value_name = "MODULE")]
    module: Vec<Module>,
    /// Seeds of the simulator that judge each change.
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u32,
    /// Try one part of the changes: `0/20` is the first of twenty.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only list the changes.
    #[arg(long)]
    list: bool,
    /// Passed on to cargo-mutants: `--re destage`, `--iterate`, ...
    #[arg(last = true)]
    args: Vec<String>,
}

/// `cargo xtask mutants`.
///
/// # Errors
/// cargo-mutants cannot be had or run, the tests fail without a change, or a change survived that is not listed.
pub(crate) fn mutants(args: &Args) -> anyhow::Result<()> {
    let program = ensure_cargo_mutants(true)?;
    let place = build_dir()?.join("mutants");
    let tree = place.join("tree");
    crate::tree::copy(&tree)?;
    let mut command = Command::new(program);
    command.args(["mutants", "--in-place", "--no-config", "--cap-lints=true", "--package", "zc-cache"]);
    command.args(["--test-package", "zc-cache", "--test-package", "zc-sim"]);
    command.arg("--output").arg(&place).env(SEEDS_VARIABLE, args.seeds.to_string());
    let modules = if args.module.is_empty() { Module::value_variants() } else { &args.module };
    for module in modules {
        command.args(["--file", &format!("{SOURCES}/{}/**", module.folder())]);
    }
    if let Some(shard) = &args.shard {
        command.args(["--shard", shard]);
    }
    // Variables of this package are not for the packages that it builds.
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_TARGET_DIR").arg("--dir").arg(&tree);
    if args.list {
        return run(command.arg("--list").args(&args.args));
    }
    command.args(&args.args).args(["--", "--locked", "--lib", "--tests"]);
    println!("    $ {}", show(&command));
    let status = command.current_dir(&tree).status().context("cannot start cargo-mutants")?;
    if !status.code().is_some_and(|code| GOOD.contains(&code)) {
        bail!("cargo-mutants failed: {status}; output in {}", place.join("mutants.out").display());
    }
    judge(&place.join("mutants.out"))
}

/// Reports the outcome of the changes.
fn judge(out: &Path) -> anyhow::Result<()> {
    let lines = |name: &str| -> anyhow::Result<Vec<String>> {
        let path = out.join(name);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let (missed, caught) = (lines("missed.txt")?, lines("caught.txt")?);
    let (endless, unviable) = (lines("timeout.txt")?, lines("unviable.txt")?);
    let document = workspace().join(SURVIVORS);
    let text =
        std::fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
    let known = known(&text);
    let new: Vec<&String> = missed.iter().filter(|line| !known.contains(&key(line))).collect();
    println!(
        "{} changes noticed, {} by a test that did not end; {} survived; {} do not compile",
        caught.len() + endless.len(),
        endless.len(),
        missed.len(),
        unviable.len()
    );
    for line in &new {
        println!("    survived, and is not in {SURVIVORS}: {line}");
    }
    if !new.is_empty() {
        bail!("{} changes survived that are not listed in {SURVIVORS}", new.len());
    }
    Ok(())
}

/// A change without its line and column, and without the folder that all of them are in.
fn key(line: &str) -> String {
    let line = line.strip_prefix(SOURCES).unwrap_or(line).trim_start_matches('/');
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(change)) => format!("{file}:{change}"),
        _ => line.to_owned(),
    }
}

/// Returns the survivors in the document: the text between the first two grave accents of a list entry.
fn known(text: &str) -> BTreeSet<String> {
    let entry = |line: &str| Some(line.strip_prefix("- `")?.split_once('`')?.0.to_owned());
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_a_folder_of_the_cache_manager() {
        for module in Module::value_variants() {
            assert!(workspace().join(SOURCES).join(module.folder()).join("mod.rs").is_file(), "{module:?}");
        }
    }

    #[test]
    fn a_change_is_known_whatever_its_line() {
        let line = "crates/zc-cache/src/device/meta/journal.rs:120:17: replace > with >= in Journal::wanted";
        assert_eq!(key(line), "device/meta/journal.rs: replace > with >= in Journal::wanted");
        let text = format!("# Survivors\n- `{}`: the same.\n", key(line));
        assert!(known(&text).contains(&key(&line.replace("120:17", "7:1"))));
        assert!(!known(&text).contains(&key(&line.replace(">=", "=="))));
        assert!(!known("see `device/meta/journal.rs`").contains("device/meta/journal.rs"));
    }

    #[test]
    fn survivors_that_are_not_listed_are_an_error() {
        let out = tempfile::tempdir().unwrap();
        for name in ["missed.txt", "caught.txt", "timeout.txt", "unviable.txt"] {
            std::fs::write(out.path().join(name), "").unwrap();
        }
        judge(out.path()).unwrap();
        let line = "crates/zc-cache/src/device/meta/no_such_file.rs:1:1: replace + with - in nothing\n";
        std::fs::write(out.path().join("missed.txt"), line).unwrap();
        let error = judge(out.path()).unwrap_err();
        assert!(error.to_string().contains("1 changes survived"), "{error}");
    }

    #[test]
    fn every_survivor_that_is_listed_names_a_file() {
        let text = std::fs::read_to_string(workspace().join(SURVIVORS)).unwrap();
        for known in known(&text) {
            let (file, _) = known.split_once(':').unwrap();
            assert!(workspace().join(SOURCES).join(file).is_file(), "{known}");
        }
    }

    #[test]
    fn the_simulator_s_test_takes_the_number_of_seeds() {
        let test = workspace().join("crates/proof/zc-sim/tests/seeds.rs");
        assert!(std::fs::read_to_string(test).unwrap().contains(&format!("\"{SEEDS_VARIABLE}\"")));
    }
}
