//! The shipped programs, linked without libraries of the machine.
//!
//! Job: build them in a profile, stripped, into a separate folder, for the archive and the RPM package.
//!
//! Invariants: the usual programs are unchanged. It does not build for another processor or C library; the toolchain
//! has everything needed.

use anyhow::Context as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use zc_rig::host::run::{build_dir, cargo, run};

use crate::deb::{PROGRAMS, folder_of};

/// Stands between cargo and the compiler.
const RUSTC: &str = include_str!("rustc.sh");

/// Builds the programs in a profile, and returns the folder where they are.
///
/// # Errors
/// They cannot be built.
pub(crate) fn programs(profile: &str) -> anyhow::Result<PathBuf> {
    let compiler = build_dir()?.join("static-rustc.sh");
    write_program(&compiler, RUSTC)?;
    let mut build = cargo();
    build.args(["build", "--locked", "--profile", profile]).env("RUSTC_WRAPPER", &compiler);
    // To cargo they are the usual programs without symbols. For a flag it would compile every other crate again.
    for program in PROGRAMS {
        build.args(["--package", program, "--config"]);
        build.arg(format!("profile.{profile}.package.{program}.strip = true"));
    }
    run(&mut build)?;
    let built = folder_of(profile)?;
    let place = built.join("static");
    std::fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    for program in PROGRAMS {
        let (from, to) = (built.join(program), place.join(program));
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    // Cargo keeps both, and has one name for them.
    crate::deb::programs(profile)?;
    Ok(place)
}

fn write_program(place: &Path, text: &str) -> anyhow::Result<()> {
    let written = std::fs::write(place, text)
        .and_then(|()| std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)));
    written.with_context(|| format!("cannot write {}", place.display()))
}
