//! `cargo xtask rpm`: the RPM package.
//!
//! Job: pack the files listed in `bin/zcached/Cargo.toml` with cargo-generate-rpm and statically linked programs;
//! install the package in an empty root, and compare its files with those of the Debian package; with `--check` also
//! install it with its scripts in a clean Debian root that has rpm, upgrade it and remove it.
//!
//! Invariants: nothing of this machine changes except the target directory. It does not sign or publish.

use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use zc_rig::host::packages::{Set, as_root, ensure, ensure_cargo_generate_rpm, find};
use zc_rig::host::run::{build_dir, run, workspace};

/// Lists the files of the package $1 as they are installed.
const LIST: &str = include_str!("list.sh");
const CHECK: &str = include_str!("check.sh");
/// Further packages of the clean root: the package needs systemd, which Debian has in two packages.
const ROOT_PACKAGES: &[&str] = &["rpm", "systemd", "udev"];
/// Folders of zsh completions of packages: in general, and on Debian.
const ZSH: [&str; 2] = ["/usr/share/zsh/site-functions/", "/usr/share/zsh/vendor-completions/"];
/// The licence: elsewhere, and in Debian's form.
const LICENCES: [&str; 2] = ["/usr/share/licenses/zcached/", "/usr/share/doc/zcached/copyright"];

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install the package in a clean Debian root with rpm, upgrade it, remove it.
    #[arg(long)]
    check: bool,
    /// Build the programs in this profile.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

/// `cargo xtask rpm`.
///
/// # Errors
/// Something cannot be built or installed, or the two packages differ.
pub(crate) fn run_task(args: &Args) -> anyhow::Result<()> {
    let debian = crate::deb::build(&args.profile, true)?;
    crate::static_link::programs(&args.profile)?;
    let built = crate::deb::folder_of(&args.profile)?;
    let package = build(&built, 1)?;
    compare(&package, &debian)?;
    println!("    {}", package.display());
    if args.check {
        crate::clean_root::with(&[&package, &build(&built, 2)?], CHECK, ROOT_PACKAGES, true)
    } else {
        Ok(())
    }
}

/// Packs the static programs below a folder, which are there, and returns where the package is.
///
/// # Errors
/// It cannot be packed.
fn build(built: &Path, release: u32) -> anyhow::Result<PathBuf> {
    let tool = ensure_cargo_generate_rpm(true)?;
    let folder = build_dir()?.join("rpm");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let package = folder.join(if release == 1 { "zcached.rpm" } else { "zcached-newer.rpm" });
    // To this tool a profile is the name of a folder.
    let name = built.file_name().context("the programs are in no folder")?;
    let mut pack = Command::new(tool);
    pack.args(["--package", "bin/zcached", "--profile"]).arg(name).arg("--target-dir").arg(build_dir()?);
    pack.args(["--set-metadata", &format!("release = \"{release}\""), "--output"]).arg(&package);
    run(pack.current_dir(workspace()))?;
    Ok(package)
}

/// Installs the package in an empty root, and compares the files with those of the Debian package.
///
/// # Errors
/// It cannot be installed, or the two packages differ.
fn compare(package: &Path, debian: &Path) -> anyhow::Result<()> {
    ensure(&[Set::Rpm], true)?;
    let shell = find("sh").context("there is no sh")?;
    let installed = said(as_root(&shell)?.args(["-ec", LIST, "sh"]).arg(package))?;
    let ours = files(installed.lines());
    let listed = said(Command::new("dpkg-deb").arg("--contents").arg(debian))?;
    let paths = listed.lines().filter_map(|line| line.split_once(" ./").map(|(_, path)| format!("/{path}")));
    let paths: Vec<String> = paths.filter(|path| !path.ends_with('/')).collect();
    let theirs = files(paths.iter().map(String::as_str));
    let differ: Vec<&String> = ours.symmetric_difference(&theirs).collect();
    ensure!(differ.is_empty(), "only one of the packages has these files: {differ:?}");
    println!("    {} files, as in the Debian package", ours.len());
    Ok(())
}

/// Paths as the Debian package has them, without licences.
fn files<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let is_licence = |path: &str| LICENCES.iter().any(|licence| path.starts_with(licence));
    paths.filter(|path| !is_licence(path)).map(|path| path.replace(ZSH[0], ZSH[1])).collect()
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_as_debian_has_them() {
        let elsewhere = ["/usr/bin/a", "/usr/share/zsh/site-functions/_a", "/usr/share/licenses/zcached/MIT"];
        let debian =
            ["/usr/bin/a", "/usr/share/zsh/vendor-completions/_a", "/usr/share/doc/zcached/copyright"];
        assert_eq!(files(elsewhere.into_iter()), files(debian.into_iter()));
        assert_ne!(files(elsewhere[..1].iter().copied()), files(debian.into_iter()));
    }
}
