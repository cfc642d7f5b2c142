//! A machine whose root file system is on a volume, booted by an initramfs of Debian's initramfs-tools.
//!
//! Job: one machine installs the package on its root disk, makes that disk the origin, and builds the initramfs.
//! Further machines boot with it: cold, warm, without zcached, with zcached after that, and without the SSD. In
//! write-back one also lacks an SSD with dirty data: it must not boot. Finally `e2fsck` checks the root disk alone.

use anyhow::{Context, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::boot::Packages;
use crate::host::packages::find;
use crate::host::run::run_quietly;
use crate::machine::{Bench, Hardware, Packed, ROOT, SSD};
use crate::mode::Mode;
use crate::report::judge;
use crate::scenarios::show;
use crate::setup::Image;

/// Far more than a boot and its checks take.
const LIMIT: Duration = Duration::from_secs(900);
const INSTALL: &[&str] = &["install", "cache", "state", "configure", "initramfs"];

/// A boot from the initramfs.
struct Boot {
    /// Name in the guest.
    name: &'static str,
    /// The kernel's root=; the UUID of the file system if `None`.
    root: Option<&'static str>,
    /// A further word of the kernel's command line.
    word: &'static str,
    has_ssd: bool,
    /// None: it does not get as far as that.
    checks: &'static [&'static str],
    /// Expected texts on its console.
    says: &'static [&'static str],
}

const USUAL: Boot = Boot { name: "", root: None, word: "", has_ssd: true, checks: &[], says: &[] };

const BOOTS: [Boot; 6] = [
    Boot {
        name: "cold",
        checks: &["on-volume", "one-daemon", "hits", "kill", "stop", "package", "keep"],
        ..USUAL
    },
    Boot {
        name: "warm",
        root: Some("/dev/disk/by-id/zcached-root"),
        checks: &["on-volume", "one-daemon", "ended-in-order", "warm", "settle"],
        ..USUAL
    },
    Boot { name: "without", word: "zcached.off", checks: &["on-origin"], ..USUAL },
    Boot { name: "after", checks: &["on-volume", "out-of-date"], ..USUAL },
    // All data is on the origin, in write-back by ZCACHED_FLUSH=yes.
    Boot {
        name: "missing",
        has_ssd: false,
        checks: &["on-volume", "without-ssd"],
        says: &[
            "zcached: the cache /dev/vdd does not exist; waiting",
            "zcached: WARNING: the cache is missing",
        ],
        ..USUAL
    },
    Boot { name: "back", checks: &["on-volume", "back"], ..USUAL },
];

/// In write-back `back` ends with dirty data, as by a power cut.
const DIRTY_BOOTS: [Boot; 2] = [
    Boot {
        name: "lost",
        has_ssd: false,
        says: &[
            "zcached: the daemon does not start",
            "has dirty data of volume \"root\"",
            "echo zcached.drop-dirty=VOLUME > /run/zcached-system/words",
        ],
        ..USUAL
    },
    Boot { name: "found", checks: &["on-volume", "found"], ..USUAL },
];

/// Installs and boots.
///
/// # Errors
/// A check failed, or the root disk is not in order at the end.
pub(crate) fn root(image: &Image, packages: &Packages, mode: Mode) -> anyhow::Result<()> {
    let dirty_boots: &[Boot] = if mode == Mode::WriteBack { &DIRTY_BOOTS } else { &[] };
    let mode = mode.name();
    println!("    root on a volume, {mode}");
    let packed = [("zcached.deb", &packages.now), ("zcached-newer.deb", &packages.newer)];
    let packed = packed.map(|(name, path)| Packed { name, path: path.clone() }).to_vec();
    let mut hardware = Hardware { keeps_root: true, packed, ..Hardware::usual() };
    // The SSD comes last: without it the others keep their names.
    hardware.disks.rotate_left(1);
    let bench = Bench::with(image, hardware)?;
    let disk = bench.path(ROOT);
    let mut machine = bench.boot(image, "install-root", &[("mode", mode.as_str())])?;
    let lines = machine.follow(LIMIT, show, |_| false)?;
    judge(&lines, INSTALL).inspect_err(|_| machine.show_console())?;
    let initramfs = bench.path("initramfs");
    let dump = format!("dump /boot/initrd.img {}", initramfs.display());
    run_quietly(Command::new(tool("debugfs")?).args(["-R", &dump]).arg(&disk), &[0])?;
    let by_uuid = format!("UUID={}", uuid_of(&disk)?);
    for boot in BOOTS.iter().chain(dirty_boots) {
        println!("    boot: {}", boot.name);
        let words = [("root", boot.root.unwrap_or(&by_uuid)), ("mode", &mode), ("stage", boot.name)];
        let missing = (!boot.has_ssd).then_some(SSD);
        let mut machine = bench.boot_from(image, &initramfs, &words, boot.word, missing)?;
        if !boot.checks.is_empty() {
            let lines = machine.follow(LIMIT, show, |_| false)?;
            judge(&lines, boot.checks).inspect_err(|_| machine.show_console())?;
        }
        machine.until_said(boot.says, LIMIT)?;
    }
    // With write-back the last shutdown flushed: ZCACHED_FLUSH=yes.
    run_quietly(Command::new(tool("e2fsck")?).arg("-fn").arg(&disk), &[0])
}

fn tool(name: &str) -> anyhow::Result<std::path::PathBuf> {
    find(name).with_context(|| format!("there is no {name}"))
}

/// The UUID of the file system on a disk.
fn uuid_of(disk: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(tool("blkid")?);
    command.args(["-p", "-o", "value", "-s", "UUID"]).arg(disk);
    let output = command.output().context("cannot start blkid")?;
    ensure!(output.status.success(), "{} has no file system", disk.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
