//! Deliberate bugs: a build of the simulator that has them, and proof that what ships has none.
//!
//! Job: `cargo xtask canaries` builds `zcsim` with `--cfg zc_canary` in a target directory of its own, and has it find
//! every bug. The step `shipped` looks in the programs that users install for the mark that every cache manager with such
//! bugs carries, and in what they depend on for crates of the lab. The step `package` does the same with the
//! programs that it packs, which are built alone, as users build them.
//!
//! Invariants: no other build of this tool sets that `cfg`; the mark is looked for in the simulator too, where it must
//! be, so that the search itself is known to work.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use zc_host::run::{build_dir, cargo, run, workspace};

/// What turns the bugs on.
const CFG: &str = "--cfg zc_canary";
/// As in `zc_cache::config::CANARY_MARK`.
const MARK: &[u8] = b"this build contains deliberate bugs";
/// What users install.
const SHIPPED: [&str; 2] = ["zcached", "zcctl"];

/// Folders whose crates do not ship, as `cargo tree` prints them.
const LAB_FOLDERS: [&str; 2] = ["/crates/lab/", "/crates/proof/"];
/// Crates of others that only the lab needs.
const LAB_DEPENDENCIES: [&str; 2] = ["tpchgen", "lzma-rust2"];

/// `cargo xtask canaries`.
///
/// # Errors
/// The simulator cannot be built, or missed a bug.
pub(crate) fn canaries(args: &[String]) -> anyhow::Result<()> {
    run(with_bugs("build")?.args(["--package", "zcsim"]))?;
    let simulator = canary_dir()?.join("debug/zcsim");
    if !has_mark(&simulator)? {
        bail!("{} has no deliberate bugs: the flag `{CFG}` did not reach the compiler", simulator.display());
    }
    let command = || Command::new(&simulator);
    if args.is_empty() {
        run(command().args(["fuzz", "--canaries"]))?;
        return run(command().args(["fuzz", "--store", "--canaries"]));
    }
    run(command().args(args))
}

/// The programs that users install, in the folder where they were built, and what they are made of.
///
/// # Errors
/// They contain a deliberate bug, or depend on the lab.
pub(crate) fn check_shipped(built: &Path) -> anyhow::Result<()> {
    for name in SHIPPED {
        let program = built.join(name);
        if has_mark(&program)? {
            bail!("{} contains deliberate bugs; is `{CFG}` in RUSTFLAGS?", program.display());
        }
        let tree = tree_of(name)?;
        if let Some(line) = tree.lines().find(|line| line.contains("canary")) {
            bail!("{name} is built with a feature that is a deliberate bug: {line}");
        }
        if let Some(line) = lab_in(&tree) {
            bail!("{name} depends on the lab: {line}");
        }
    }
    Ok(())
}

/// The first line of a tree of dependencies that is a crate of the lab or of the proof, or that only they need.
fn lab_in(tree: &str) -> Option<&str> {
    let foreign =
        |line: &str| line.split_whitespace().next().is_some_and(|name| LAB_DEPENDENCIES.contains(&name));
    let own = |line: &str| LAB_FOLDERS.iter().any(|folder| line.contains(folder));
    tree.lines().find(|line| own(line) || foreign(line))
}

/// All that a program depends on, with features, one a line.
fn tree_of(package: &str) -> anyhow::Result<String> {
    let mut command = cargo();
    command.args([
        "tree",
        "--locked",
        "--edges",
        "features,normal",
        "--prefix",
        "none",
        "--package",
        package,
    ]);
    let output = command.current_dir(workspace()).output().context("cannot start `cargo tree`")?;
    if !output.status.success() {
        bail!("`cargo tree` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn canary_dir() -> anyhow::Result<PathBuf> {
    Ok(build_dir()?.join("canary"))
}

/// Cargo, with the bugs and with a target directory that no other build uses.
fn with_bugs(verb: &str) -> anyhow::Result<Command> {
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    if !flags.is_empty() {
        flags.push(' ');
    }
    flags.push_str(CFG);
    let mut command = cargo();
    command.arg(verb).args(["--locked", "--quiet", "--target-dir"]).arg(canary_dir()?);
    command.env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(command)
}

fn has_mark(program: &Path) -> anyhow::Result<bool> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    Ok(bytes.windows(MARK.len()).any(|window| window == MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_of_the_lab_is_found_in_a_tree() {
        let shipped =
            "zcached v0.1.0 (/src/bin/zcached)\nzc-engine v0.1.0 (/src/crates/zc-engine)\ntracing v0.1.44\n";
        assert_eq!(lab_in(shipped), None);
        for lab in [
            "tpchgen v4.0.0",
            "zc-trace v0.1.0 (/src/crates/lab/zc-trace)",
            "zc-sim v0.1.0 (/src/crates/proof/zc-sim)",
        ] {
            assert_eq!(lab_in(&format!("{shipped}{lab}\n")), Some(lab));
        }
    }

    #[test]
    fn the_mark_is_that_of_the_cache_manager() {
        let source = std::fs::read_to_string(workspace().join("crates/zc-cache/src/config.rs")).unwrap();
        assert!(source.contains(std::str::from_utf8(MARK).unwrap()));
    }
}
