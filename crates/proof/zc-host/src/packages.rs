//! The Debian packages and cargo tools that the checks need: find what is missing, install it.
//!
//! Invariant: after `ensure_*` returned `Ok`, the tool can be run. Nothing is installed that is already there.

use crate::run::{build_dir, cargo, run};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How we see that a package is there.
#[derive(Debug, Clone, Copy)]
enum Proof {
    /// An executable of this name is on the search path.
    Program(&'static str),
    /// Debian's Python imports this module.
    PythonModule(&'static str),
    /// This file is there.
    File(&'static str),
}

/// A Debian package and the parts of it that the tests use.
#[derive(Debug, Clone, Copy)]
struct Package {
    name: &'static str,
    proofs: &'static [Proof],
}

/// What the end-to-end tests and the fuzzers use.
const PACKAGES: &[Package] = &[
    Package { name: "g++", proofs: &[Proof::Program("c++")] },
    Package { name: "util-linux", proofs: &[Proof::Program("prlimit")] },
    Package {
        name: "libnbd-bin",
        proofs: &[
            Proof::Program("nbdinfo"),
            Proof::Program("nbdcopy"),
            Proof::Program("nbddump"),
            Proof::Program("nbdfuse"),
        ],
    },
    Package { name: "python3-libnbd", proofs: &[Proof::PythonModule("nbd")] },
    Package { name: "nbdkit", proofs: &[Proof::Program("nbdkit")] },
    Package {
        name: "qemu-utils",
        proofs: &[Proof::Program("qemu-img"), Proof::Program("qemu-io"), Proof::Program("qemu-nbd")],
    },
    Package { name: "qemu-system-x86", proofs: &[Proof::Program("qemu-system-x86_64")] },
    Package { name: "openssl", proofs: &[Proof::Program("openssl")] },
    Package { name: "nbd-server", proofs: &[Proof::Program("nbd-server")] },
    Package { name: "fio", proofs: &[Proof::Program("fio")] },
    Package { name: "e2fsprogs", proofs: &[Proof::Program("mke2fs"), Proof::Program("e2fsck")] },
    Package { name: "xfsprogs", proofs: &[Proof::Program("mkfs.xfs")] },
    Package { name: "btrfs-progs", proofs: &[Proof::Program("mkfs.btrfs")] },
    Package { name: "mount", proofs: &[Proof::Program("mount"), Proof::Program("umount")] },
    Package { name: "fuse3", proofs: &[Proof::Program("fusermount3")] },
    Package { name: "xz-utils", proofs: &[Proof::Program("xz")] },
    Package { name: "prometheus", proofs: &[Proof::Program("promtool")] },
    Package { name: "chromium", proofs: &[Proof::Program("chromium")] },
    // Without a font it shows no text.
    Package {
        name: "fonts-dejavu-core",
        proofs: &[Proof::File("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")],
    },
    Package { name: "systemd", proofs: &[Proof::Program("systemd-analyze")] },
];

/// What the virtual machine is made with and runs on.
const VM_PACKAGES: &[Package] = &[
    Package { name: "qemu-system-x86", proofs: &[Proof::Program("qemu-system-x86_64")] },
    Package { name: "mmdebstrap", proofs: &[Proof::Program("mmdebstrap")] },
    Package { name: "busybox-static", proofs: &[Proof::Program("busybox")] },
    Package { name: "binutils", proofs: &[Proof::Program("strip")] },
    Package { name: "e2fsprogs", proofs: &[Proof::Program("mke2fs"), Proof::Program("debugfs")] },
    Package { name: "procps", proofs: &[Proof::Program("kill")] },
    Package { name: "xz-utils", proofs: &[Proof::Program("xz")] },
    Package { name: "zstd", proofs: &[Proof::Program("zstd")] },
];

/// What a look into RPM packages takes.
const RPM_PACKAGES: &[Package] = &[Package { name: "rpm", proofs: &[Proof::Program("rpm")] }];

/// Debian's own Python, whatever other Pythons come first on the search path: its packages install modules there.
const PYTHON: &str = "/usr/bin/python3";

/// The version of cargo-deny that `deny.toml` is written for.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// The version of cargo-mutants whose names of changes `crates/zc-cache/MUTANTS.md` has.
const CARGO_MUTANTS_VERSION: &str = "27.1.0";

/// The version of cargo-deb that `bin/zcached/Cargo.toml` is written for.
const CARGO_DEB_VERSION: &str = "3.8.0";

/// The version of cargo-generate-rpm that `bin/zcached/Cargo.toml` is written for.
const CARGO_GENERATE_RPM_VERSION: &str = "0.21.1";

/// The version of mdBook that `docs/book.toml` is written for.
const MDBOOK_VERSION: &str = "0.5.4";

/// Makes sure that every Debian package is there.
///
/// # Errors
/// Something is missing and may not, or cannot, be installed; the message says what to type.
pub fn ensure_debian(install: bool) -> anyhow::Result<()> {
    ensure(PACKAGES, install)
}

/// Makes sure that the Debian packages of the virtual machine are there.
///
/// # Errors
/// As [`ensure_debian`].
pub fn ensure_vm(install: bool) -> anyhow::Result<()> {
    ensure(VM_PACKAGES, install)
}

/// Makes sure that the Debian package that reads RPM packages is there.
///
/// # Errors
/// As [`ensure_debian`].
pub fn ensure_rpm(install: bool) -> anyhow::Result<()> {
    ensure(RPM_PACKAGES, install)
}

fn ensure(packages: &[Package], install: bool) -> anyhow::Result<()> {
    let missing = missing_of(packages);
    if missing.is_empty() {
        println!("    every Debian package is there");
        return Ok(());
    }
    let list = missing.join(" ");
    if !install {
        bail!("missing tools; install them with: sudo apt-get install {list}");
    }
    let Some(apt) = find("apt-get") else {
        bail!("missing tools, and this is not a Debian machine: install the counterparts of {list}");
    };
    let lists = [PACKAGES, VM_PACKAGES, RPM_PACKAGES];
    let lacked = lists.map(missing_of);
    run(as_root(&apt)?.args(["update", "-q"]))?;
    install_all(&apt, &missing)?;
    // A package from another suite may have had to go for one that shares files with it.
    let gone = lists.into_iter().zip(&lacked).flat_map(|(list, lacked)| {
        missing_of(list).into_iter().filter(|name| !lacked.contains(name)).collect::<Vec<_>>()
    });
    let gone: Vec<&str> = gone.collect();
    if !gone.is_empty() {
        install_all(&apt, &gone)?;
    }
    let still = missing_of(packages);
    if !still.is_empty() {
        bail!("installed, but their programs cannot be found: {}", still.join(" "));
    }
    Ok(())
}

fn install_all(apt: &Path, packages: &[&str]) -> anyhow::Result<()> {
    run(as_root(apt)?.args(["install", "-q", "-y", "--no-install-recommends"]).args(packages))
}

/// Makes sure that cargo-deny is there and returns its path: about two and a half minutes on two cores, once.
///
/// # Errors
/// It is missing and may not, or cannot, be built.
pub fn ensure_cargo_deny(install: bool) -> anyhow::Result<PathBuf> {
    ensure_cargo_tool("cargo-deny", CARGO_DENY_VERSION, &[], install)
}

/// Makes sure that cargo-mutants is there and returns its path.
///
/// # Errors
/// As [`ensure_cargo_deny`].
pub fn ensure_cargo_mutants(install: bool) -> anyhow::Result<PathBuf> {
    ensure_cargo_tool("cargo-mutants", CARGO_MUTANTS_VERSION, &[], install)
}

/// Makes sure that cargo-deb is there and returns its path.
///
/// # Errors
/// As [`ensure_cargo_deny`].
pub fn ensure_cargo_deb(install: bool) -> anyhow::Result<PathBuf> {
    ensure_cargo_tool("cargo-deb", CARGO_DEB_VERSION, &[], install)
}

/// Makes sure that cargo-generate-rpm is there and returns its path.
///
/// # Errors
/// As [`ensure_cargo_deny`].
pub fn ensure_cargo_generate_rpm(install: bool) -> anyhow::Result<PathBuf> {
    ensure_cargo_tool("cargo-generate-rpm", CARGO_GENERATE_RPM_VERSION, &[], install)
}

/// Makes sure that mdBook is there, without its server and its search, and returns its path.
///
/// # Errors
/// As [`ensure_cargo_deny`].
pub fn ensure_mdbook(install: bool) -> anyhow::Result<PathBuf> {
    ensure_cargo_tool("mdbook", MDBOOK_VERSION, &["--no-default-features"], install)
}

/// A tool that is missing is built into the target directory, not into your home; `features` choose what it can do.
fn ensure_cargo_tool(name: &str, version: &str, features: &[&str], install: bool) -> anyhow::Result<PathBuf> {
    if let Some(found) = find(name) {
        return Ok(found);
    }
    let root = build_dir()?.join("xtask-tools");
    let program = root.join("bin").join(name);
    if !program.is_file() {
        if !install {
            bail!("missing tool; install it with: cargo install {name} --locked");
        }
        let exact = format!("={version}");
        let mut command = cargo();
        command.args(["install", name, "--locked", "--version", &exact]).args(features);
        run(command.arg("--root").arg(&root))?;
    }
    Ok(program)
}

fn missing_of(packages: &[Package]) -> Vec<&'static str> {
    let there = |package: &&Package| package.proofs.iter().all(|proof| holds(*proof));
    packages.iter().filter(|package| !there(package)).map(|package| package.name).collect()
}

fn holds(proof: Proof) -> bool {
    match proof {
        Proof::Program(name) => find(name).is_some(),
        Proof::File(path) => Path::new(path).is_file(),
        Proof::PythonModule(name) => {
            let mut python = Command::new(PYTHON);
            python.args(["-c", &format!("import {name}")]).stdout(Stdio::null()).stderr(Stdio::null());
            python.status().is_ok_and(|status| status.success())
        }
    }
}

/// Finds a program on the search path, and where Debian keeps programs of the administrator.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

/// `program` run with the rights to install packages, asking nothing.
pub fn as_root(program: &Path) -> anyhow::Result<Command> {
    let mut command;
    if user_is_root()? {
        command = Command::new(program);
    } else {
        let Some(sudo) = find("sudo") else {
            bail!("installing packages needs root or sudo; or install them yourself and use --no-install");
        };
        command = Command::new(sudo);
        command.arg("--preserve-env=DEBIAN_FRONTEND").arg(program);
    }
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Ok(command)
}

fn user_is_root() -> anyhow::Result<bool> {
    let answer = Command::new("id").arg("-u").output().context("cannot run `id -u`")?;
    Ok(answer.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_only_if_they_exist() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }

    #[test]
    fn a_missing_part_does_not_hold() {
        assert!(holds(Proof::Program("sh")));
        assert!(!holds(Proof::Program("no-such-program")));
        assert!(!holds(Proof::PythonModule("no_such_module")));
        assert!(holds(Proof::File("/proc/self/exe")) && !holds(Proof::File("/no-such-file")));
    }

    #[test]
    fn no_package_is_listed_twice_or_without_proof() {
        for list in [PACKAGES, VM_PACKAGES, RPM_PACKAGES] {
            let names: std::collections::BTreeSet<_> = list.iter().map(|package| package.name).collect();
            assert_eq!(names.len(), list.len());
            assert!(list.iter().all(|package| !package.proofs.is_empty()));
        }
    }
}
