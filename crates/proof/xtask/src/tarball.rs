//! `cargo xtask tarball`: what the Debian package installs, as an archive for other distributions.
//!
//! Invariants: the archive has the files of the package and no others, in the places of the package; the oldest C library
//! that the programs run with is told and stands in the name. What it does not do: link statically. The toolchain has no
//! target for that.

use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

use zc_host::run::run;

/// Unpacks the package $1, and packs its files as $2.
const PACK: &str = "dpkg-deb --fsys-tarfile \"$1\" | gzip -9n > \"$2\"";

/// What to build.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Build the programs in this profile.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

/// `cargo xtask tarball`.
///
/// # Errors
/// Something cannot be built.
pub(crate) fn run_task(args: &Args) -> anyhow::Result<()> {
    let package = crate::deb::build(&args.profile, true)?;
    pack(&package).map(drop)
}

/// The step of `cargo xtask test`: package and archive with the programs of the tests. The package is checked in a clean
/// root.
///
/// # Errors
/// Something cannot be built, or the package does not do what it should.
pub(crate) fn step(install: bool) -> anyhow::Result<()> {
    let package = crate::deb::trial(install)?;
    pack(&package)?;
    crate::deb::check(&package, install)
}

/// Packs the files of a Debian package beside it, and returns where the archive is.
///
/// # Errors
/// The package cannot be read, or its programs name no C library.
fn pack(package: &Path) -> anyhow::Result<PathBuf> {
    let bound = c_library(package)?;
    let archive = package.with_file_name(format!("zcached-x86_64-glibc-{bound}.tar.gz"));
    run(Command::new("sh").args(["-ec", PACK, "sh"]).arg(package).arg(&archive))?;
    println!("    {}: for Linux with glibc {bound} or later", archive.display());
    Ok(archive)
}

/// The oldest glibc that has everything that the daemon of a package asks for, as its dependencies have it.
fn c_library(package: &Path) -> anyhow::Result<String> {
    let output = Command::new("dpkg-deb").arg("-f").arg(package).arg("Depends").output();
    let output = output.context("cannot start dpkg-deb")?;
    ensure!(output.status.success(), "dpkg-deb cannot read {}", package.display());
    let depends = String::from_utf8_lossy(&output.stdout).into_owned();
    bound_in(&depends).with_context(|| format!("the package names no C library: {depends}"))
}

/// "2.34" of "libc6 (>= 2.34), ...".
fn bound_in(depends: &str) -> Option<String> {
    let (_, rest) = depends.split_once("libc6 (>= ")?;
    rest.split_once(')').map(|(version, _)| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_dependencies() {
        assert_eq!(bound_in("libc6 (>= 2.34), systemd | other").as_deref(), Some("2.34"));
        assert_eq!(bound_in("libgcc-s1 (>= 4.2)"), None);
    }
}
