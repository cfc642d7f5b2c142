//! The Debian packages and cargo tools that the checks need: detects missing ones, installs them.
//!
//! Invariant: after `ensure_*` returned `Ok`, the tool can be run. Present packages are not installed again.

use crate::host::run::{build_dir, cargo, run};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Evidence that a package is present.
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

/// The packages that a kind of check needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// The end-to-end tests and the NBD suite.
    EndToEnd,
    /// The fuzzers.
    Fuzzers,
    /// The browser.
    Browser,
    /// The virtual machine, and clean roots.
    Vm,
    /// Inspection of RPM packages.
    Rpm,
    /// A Ceph cluster of two processes.
    Ceph,
}

impl Set {
    const ALL: [Self; 6] = [Self::EndToEnd, Self::Fuzzers, Self::Browser, Self::Vm, Self::Rpm, Self::Ceph];

    const fn packages(self) -> &'static [Package] {
        match self {
            Self::EndToEnd => PACKAGES,
            Self::Fuzzers => FUZZER_PACKAGES,
            Self::Browser => BROWSER_PACKAGES,
            Self::Vm => VM_PACKAGES,
            Self::Rpm => RPM_PACKAGES,
            Self::Ceph => CEPH_PACKAGES,
        }
    }
}

const PACKAGES: &[Package] = &[
    // A client with `origin_tls` and no authority of its own trusts the system's.
    Package { name: "ca-certificates", proofs: &[Proof::File("/etc/ssl/certs/ca-certificates.crt")] },
    // nbdinfo calls it.
    Package { name: "file", proofs: &[Proof::Program("file")] },
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
    Package { name: "systemd", proofs: &[Proof::Program("systemd-analyze")] },
];

const FUZZER_PACKAGES: &[Package] = &[
    Package { name: "g++", proofs: &[Proof::Program("c++")] },
    Package { name: "util-linux", proofs: &[Proof::Program("prlimit")] },
];

const BROWSER_PACKAGES: &[Package] = &[
    Package { name: "chromium", proofs: &[Proof::Program("chromium")] },
    // Without a font it shows no text.
    Package {
        name: "fonts-dejavu-core",
        proofs: &[Proof::File("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")],
    },
];

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

const RPM_PACKAGES: &[Package] = &[Package { name: "rpm", proofs: &[Proof::Program("rpm")] }];

const CEPH_PACKAGES: &[Package] = &[
    Package { name: "ceph-mon", proofs: &[Proof::Program("ceph-mon")] },
    Package { name: "ceph-osd", proofs: &[Proof::Program("ceph-osd")] },
    Package { name: "ceph-common", proofs: &[Proof::Program("ceph")] },
    Package { name: "ceph-base", proofs: &[Proof::Program("monmaptool")] },
    Package { name: "python3-rbd", proofs: &[Proof::PythonModule("rbd")] },
    Package {
        name: "nbdkit-plugin-python",
        proofs: &[Proof::File("/usr/share/doc/nbdkit-plugin-python/copyright")],
    },
];

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

/// Ensures that every package of some sets is present.
///
/// # Errors
/// When something is missing and may not, or cannot, be installed; the message has the command to type.
pub fn ensure(sets: &[Set], install: bool) -> anyhow::Result<()> {
    let missing = missing_of(sets);
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
    let lacked = missing_of(&Set::ALL);
    run(as_root(&apt)?.args(["update", "-q"]))?;
    install_all(&apt, &missing)?;
    // A package from another suite may have had to go for one that shares files with it.
    let gone: Vec<&str> = missing_of(&Set::ALL).into_iter().filter(|name| !lacked.contains(name)).collect();
    if !gone.is_empty() {
        install_all(&apt, &gone)?;
    }
    let still = missing_of(sets);
    if !still.is_empty() {
        bail!("installed, but their programs cannot be found: {}", still.join(" "));
    }
    Ok(())
}

fn install_all(apt: &Path, packages: &[&str]) -> anyhow::Result<()> {
    run(as_root(apt)?.args(["install", "-q", "-y", "--no-install-recommends"]).args(packages))
}

/// Makes sure that cargo-deny is there and returns its path.
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

/// Builds a missing tool into the target directory, not into your home; `features` select its capabilities. It is not
/// optimised, because it runs only for seconds.
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
        command.args(["install", name, "--locked", "--quiet", "--debug", "--version", &exact]).args(features);
        command.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
        run(command.arg("--root").arg(&root))?;
    }
    Ok(program)
}

fn missing_of(sets: &[Set]) -> Vec<&'static str> {
    let there = |package: &&Package| package.proofs.iter().all(|proof| holds(*proof));
    let packages = sets.iter().flat_map(|set| set.packages());
    let mut names: Vec<&str> =
        packages.filter(|package| !there(package)).map(|package| package.name).collect();
    names.sort_unstable();
    names.dedup();
    names
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

/// Returns `program` with the rights to install packages, without prompts.
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
        for list in Set::ALL.map(Set::packages) {
            let names: std::collections::BTreeSet<_> = list.iter().map(|package| package.name).collect();
            assert_eq!(names.len(), list.len());
            assert!(list.iter().all(|package| !package.proofs.is_empty()));
        }
    }
}
