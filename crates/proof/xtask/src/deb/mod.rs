//! `cargo xtask deb`: the Debian package.
//!
//! Job: build the programs, generate their manual and completions, and pack everything with cargo-deb according to
//! `bin/zcached/Cargo.toml`; with `--check` also install the package in a clean Debian root, use it and remove it.
//!
//! Invariants: nothing of this machine changes except the target directory. The clean root has this machine's release
//! and mirror, and is removed afterwards. It does not sign or publish.

use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

use zc_rig::host::packages::ensure_cargo_deb;
use zc_rig::host::run::{build_dir, cargo, run};

const CHECK: &str = include_str!("check.sh");
/// Packs a package again as a newer version of itself, in a folder of its own.
const NEWER: &str = include_str!("newer.sh");
/// Packed programs.
pub(crate) const PROGRAMS: [&str; 3] = ["zcached", "zcctl", "zcsim"];
/// Shells, and names of their completions; `%` is the program.
const SHELLS: [(&str, &str); 3] = [("bash", "%"), ("zsh", "_%"), ("fish", "%.fish")];

/// The profile of the tests: a trial of the packing.
pub(crate) const TRIAL: &str = "dev";

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install the package in a clean Debian root, use it, remove it.
    #[arg(long)]
    check: bool,
    /// Build the programs in this profile; another than release is a trial of the packing.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

/// `cargo xtask deb`.
///
/// # Errors
/// Something cannot be built or installed.
pub(crate) fn run_task(args: &Args) -> anyhow::Result<()> {
    let package = build(&args.profile, true)?;
    println!("    {}", package.display());
    if args.check { check(&package, true) } else { Ok(()) }
}

/// The package with the programs of the tests, in two versions, for the virtual machine.
///
/// # Errors
/// It cannot be built.
pub(crate) fn for_machine(install: bool) -> anyhow::Result<zc_rig::Packages> {
    let now = build(TRIAL, install)?;
    Ok(zc_rig::Packages { newer: newer(&now)?, now })
}

/// Builds the package with the programs of a profile, and returns where it is.
///
/// # Errors
/// Something cannot be built.
pub(crate) fn build(profile: &str, install: bool) -> anyhow::Result<PathBuf> {
    let tool = ensure_cargo_deb(install)?;
    programs(profile)?;
    write_pages(&folder_of(profile)?)?;
    let package = build_dir()?.join("debian").join("zcached.deb");
    let mut pack = Command::new(tool);
    // Of itself the tool leaves the line tables of the release profile in.
    pack.args([
        "--package",
        "zcached",
        "--no-build",
        "--locked",
        "--strip",
        "--profile",
        profile,
        "--output",
    ])
    .arg(&package);
    if profile == TRIAL {
        pack.arg("--fast");
    }
    run(&mut pack)?;
    Ok(package)
}

/// The next version of a package, with the same files.
fn newer(package: &Path) -> anyhow::Result<PathBuf> {
    let newer = package.with_file_name("zcached-newer.deb");
    run(Command::new("sh").args(["-ec", NEWER, "sh"]).arg(package).arg(&newer))?;
    Ok(newer)
}

/// Builds the programs in a profile.
///
/// # Errors
/// They cannot be built.
pub(crate) fn programs(profile: &str) -> anyhow::Result<()> {
    let packages = PROGRAMS.iter().flat_map(|program| ["--package", program]);
    run(cargo().args(["build", "--locked", "--profile", profile]).args(packages))
}

/// Returns the folder of a profile's programs.
///
/// # Errors
/// When cargo does not report it.
pub(crate) fn folder_of(profile: &str) -> anyhow::Result<PathBuf> {
    Ok(build_dir()?.join(if profile == "dev" { "debug" } else { profile }))
}

/// Generates manual and completions of the programs beside them.
fn write_pages(built: &Path) -> anyhow::Result<()> {
    let folder = |name: &str| {
        let place = built.join("deb").join(name);
        if place.exists() {
            std::fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
        }
        std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
        anyhow::Ok(place)
    };
    let man = folder("man")?;
    for program in PROGRAMS {
        run(Command::new(built.join(program)).args(["man", "--dir"]).arg(&man))?;
    }
    run(Command::new("sh").args(["-ec", "gzip -9n \"$1\"/*", "sh"]).arg(&man))?;
    for (shell, name) in SHELLS {
        let place = folder(shell)?;
        for program in PROGRAMS {
            let mut command = Command::new(built.join(program));
            let output = command.args(["completions", shell]).output().context("cannot start a program")?;
            ensure!(output.status.success(), "{program} writes no completions for {shell}");
            let file = place.join(name.replace('%', program));
            std::fs::write(&file, output.stdout)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

/// Installs, uses, upgrades and removes the package in a minimal Debian root.
///
/// # Errors
/// When the root cannot be made, or the package fails.
pub(crate) fn check(package: &Path, install: bool) -> anyhow::Result<()> {
    crate::clean_root::with(&[package, &newer(package)?], CHECK, &[], install)
}
