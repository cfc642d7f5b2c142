//! The `newer-clients` step: libnbd and qemu of a newer Debian, driven against the daemon.
//!
//! Job: resolve and fetch those programs and their dependencies with apt, in a state of its own, unpack them below the
//! target directory, and run the tests with them. Clients with extended headers are newer than the Debian release that
//! the daemon is built on.
//!
//! Invariants: nothing is installed and the machine's own apt state is unchanged; packages are verified by Debian's
//! keys; completely unpacked packages are kept and not fetched again. If the packages are unavailable, the step
//! reports so and does not fail; otherwise a failing client is a failure.

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;
use zc_rig::host::Done;
use zc_rig::host::packages::find;
use zc_rig::host::run::{build_dir, cargo, run};

/// The suite, if `ZC_NEWER_SUITE` names no other.
const SUITE: &str = "trixie";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const PACKAGES: &[&str] = &["libnbd-bin", "python3-libnbd", "qemu-utils"];
/// Stands in the folder when everything is unpacked.
const WHOLE: &str = "whole";

/// Runs the newer clients against the daemon.
///
/// # Errors
/// A client failed, or the disk is full.
pub(crate) fn check(install: bool) -> anyhow::Result<Done> {
    let suite = std::env::var("ZC_NEWER_SUITE").unwrap_or_else(|_| SUITE.to_owned());
    let folder = build_dir()?.join("newer-clients").join(&suite);
    let root = folder.join("root");
    if !folder.join(WHOLE).is_file() {
        if !install {
            return Ok(Done::Without(format!("the clients of {suite} are not there and may not be fetched")));
        }
        if let Err(error) = fetch(&folder, &suite) {
            return Ok(Done::Without(format!("the clients of {suite} cannot be had: {error:#}")));
        }
        unpack(&folder, &root)?;
    }
    // Without a package: with the features of the default members, whose build is there.
    run(cargo().args(["test", "--locked", "--test", "newer_clients"]).env("ZC_NEWER_CLIENTS", &root))?;
    Ok(Done::Whole)
}

/// Fetches the packages and their dependencies, down to the C library.
fn fetch(folder: &Path, suite: &str) -> anyhow::Result<()> {
    let apt = find("apt-get").context("this machine has no apt-get")?;
    let mirror = mirror(&apt)?;
    find("dpkg-deb").context("this machine has no dpkg-deb")?;
    anyhow::ensure!(Path::new(KEYS).is_file(), "{KEYS}, which proves the packages, is not there");
    let make = |name: &str| {
        let place = folder.join(name);
        std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))
    };
    for name in ["etc", "state/lists/partial", "cache/archives/partial"] {
        make(name)?;
    }
    let write = |name: &str, text: &str| {
        let place = folder.join(name);
        std::fs::write(&place, text).with_context(|| format!("cannot write {}", place.display()))
    };
    write("etc/sources.list", &format!("deb [signed-by={KEYS}] {mirror} {suite} main\n"))?;
    write("status", "")?;
    write("apt.conf", &settings(folder))?;
    let apt_get = |arguments: &[&str]| {
        run(Command::new(&apt).env("APT_CONFIG", folder.join("apt.conf")).args(arguments))
    };
    apt_get(&["update", "-q"])?;
    let mut wanted = vec!["install", "-q", "-y", "--download-only", "--no-install-recommends"];
    wanted.extend(PACKAGES);
    apt_get(&wanted)
}

/// Returns this machine's Debian mirror.
fn mirror(apt: &Path) -> anyhow::Result<String> {
    let output = Command::new(apt).args(["indextargets", "--format", "$(REPO_URI)"]).output();
    let listed = output.context("cannot start apt-get")?.stdout;
    let listed = String::from_utf8_lossy(&listed);
    let found = archive(&listed).context("this machine knows no mirror of Debian")?;
    Ok(found.to_owned())
}

/// The first archive of Debian proper in a list of repositories.
fn archive(listed: &str) -> Option<&str> {
    listed.lines().map(|line| line.trim_end_matches('/')).find(|line| line.ends_with("/debian"))
}

/// Returns settings of an apt without installed packages that writes nowhere else.
fn settings(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::Etc::SourceList \"{folder}/etc/sources.list\";\n\
         Dir::Etc::SourceParts \"/dev/null\";\n\
         Dir::Etc::Preferences \"/dev/null\";\n\
         Dir::Etc::PreferencesParts \"/dev/null\";\n\
         Dir::State \"{folder}/state\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Debug::NoLocking \"true\";\n\
         APT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\n"
    )
}

fn unpack(folder: &Path, root: &Path) -> anyhow::Result<()> {
    if root.exists() {
        std::fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    let archives = packages_in(&folder.join("cache/archives"))?;
    println!("    unpacking {} packages into {}", archives.len(), root.display());
    for archive in archives {
        let mut unpack = Command::new("dpkg-deb");
        let status = unpack.arg("--extract").arg(&archive).arg(root).status();
        let status = status.context("cannot start dpkg-deb")?;
        anyhow::ensure!(status.success(), "cannot unpack {}: {status}", archive.display());
    }
    std::fs::write(folder.join(WHOLE), "").with_context(|| format!("cannot write to {}", folder.display()))
}

/// Every package file of a folder.
fn packages_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in listed {
        let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    anyhow::ensure!(!found.is_empty(), "{} holds no package", folder.display());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_is_told_to_stay_in_the_folder() {
        let text = settings(Path::new("/f"));
        for key in ["SourceList", "State \"", "State::status", "Cache"] {
            let line = text.lines().find(|line| line.contains(key)).unwrap();
            assert!(line.contains("\"/f/"), "{line}");
        }
        assert!(text.lines().all(|line| line.ends_with("\";")), "{text}");
    }

    #[test]
    fn the_mirror_is_that_of_debian_proper() {
        let listed = "https://x.example/apt/\nhttp://m.example/debian-security/\nhttp://m.example/debian/\n";
        assert_eq!(archive(listed), Some("http://m.example/debian"));
        assert_eq!(archive("http://m.example/ubuntu/\n"), None);
    }

    #[test]
    fn only_packages_are_unpacked_and_none_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(packages_in(dir.path()).unwrap_err().to_string().contains("no package"));
        for name in ["a_1_amd64.deb", "lock", "partial"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(packages_in(dir.path()).unwrap(), [dir.path().join("a_1_amd64.deb")]);
    }
}
