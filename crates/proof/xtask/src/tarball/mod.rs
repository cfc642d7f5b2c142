//! `cargo xtask tarball`: the contents of the Debian package as an archive for any Linux on this machine's processor.
//!
//! Job: replace the package's programs with statically linked ones, and pack the tree; `--check` uses the archive in
//! an otherwise empty root.
//!
//! Invariants: the archive has exactly the files of the package, in the same places; its programs need no library of
//! the machine. It does not sign or publish.

use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use zc_rig::host::packages::{as_root, find};
use zc_rig::host::run::{build_dir, run};

use crate::deb::TRIAL;

/// Packs the files of the package $1 as $2, with the programs in the folder $3.
const PACK: &str = include_str!("pack.sh");
/// Uses the archive $1 in an empty root.
const CHECK: &str = include_str!("check.sh");

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Use the archive in a root that has nothing else.
    #[arg(long)]
    check: bool,
    /// Build the programs in this profile.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

/// `cargo xtask tarball`.
///
/// # Errors
/// When something cannot be built, or fails.
pub(crate) fn run_task(args: &Args) -> anyhow::Result<()> {
    let package = crate::deb::build(&args.profile, true)?;
    let archive = build(&package, &crate::static_link::programs(&args.profile)?)?;
    if args.check { check(&archive) } else { Ok(()) }
}

/// The step of `cargo xtask test`: package and archive with the programs of the tests, each used in a root of its own.
///
/// # Errors
/// When something cannot be built, or fails.
pub(crate) fn step(install: bool) -> anyhow::Result<()> {
    let package = crate::deb::build(TRIAL, install)?;
    crate::canaries::check_shipped(&crate::deb::folder_of(TRIAL)?)?;
    check(&build(&package, &crate::static_link::programs(TRIAL)?)?)?;
    crate::deb::check(&package, install)
}

/// Packs the files of a Debian package with the programs of a folder, and returns where the archive is.
///
/// # Errors
/// The package cannot be read, or the archive cannot be written.
fn build(package: &Path, programs: &Path) -> anyhow::Result<PathBuf> {
    let folder = build_dir()?.join("tarball");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let archive = folder.join(format!("zcached-{}.tar.gz", std::env::consts::ARCH));
    run(Command::new("sh").args(["-ec", PACK, "sh"]).arg(package).arg(&archive).arg(programs))?;
    println!("    {}", archive.display());
    Ok(archive)
}

/// Uses an archive in a root with only /dev and /proc.
///
/// # Errors
/// When it fails.
fn check(archive: &Path) -> anyhow::Result<()> {
    let unshare = find("unshare").context("there is no unshare")?;
    run(as_root(&unshare)?.args(["--mount", "sh", "-ec", CHECK, "sh"]).arg(archive))
}
