//! Kernel and root of the machine, built once from packages.
//!
//! Invariants: existing images are complete (a stamp with all their sources is written last) or rebuilt. This
//! machine's own package sources are unchanged.

use anyhow::Context;
use clap::ValueEnum;
use std::path::{Path, PathBuf};

use crate::host::packages::{self, Set, as_root, find};
use crate::host::run::run;

const SCRIPT: &str = include_str!("guest/setup.sh");
const META_PACKAGE: &str = "linux-image-cloud-amd64";
const PACKAGES: &str = "e2fsprogs,xfsprogs,btrfs-progs,fio,nbd-client,udev,kmod,fdisk,util-linux,mount,procps,jq,bash-completion,\
    bcache-tools,dmsetup,nbdkit,systemd,initramfs-tools,busybox";

/// Kernel of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Kernel {
    /// From the backports of this machine's own release.
    #[default]
    Stable,
    /// From those of Debian 13, 6.16 or later.
    Newer,
}

impl Kernel {
    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The release, if it is not this machine's.
    fn release(self) -> &'static str {
        match self {
            Self::Stable => "",
            Self::Newer => "trixie",
        }
    }

    /// Packages that come from the kernel's backports, too: tools for parts of the kernel that are newer than the root.
    fn tools(self) -> &'static str {
        match self {
            Self::Stable => "vdo",
            // They would be for another release than the root's.
            Self::Newer => "",
        }
    }

    /// The folder in the user's cache directory.
    fn folder(self) -> &'static str {
        match self {
            Self::Stable => "zcached-vm",
            Self::Newer => "zcached-vm-newer",
        }
    }
}

/// Files of the machine.
#[derive(Debug)]
pub(crate) struct Image {
    dir: PathBuf,
}

impl Image {
    pub(crate) fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root.img")
    }

    /// The driver of the disks, for the initial memory.
    pub(crate) fn driver(&self) -> PathBuf {
        self.dir.join("virtio_blk.ko")
    }
}

/// Makes sure that the parts are there.
///
/// # Errors
/// A package cannot be had.
pub(crate) fn ensure(kernel: Kernel, again: bool, install: bool) -> anyhow::Result<Image> {
    packages::ensure(&[Set::Vm], install)?;
    let dir = cache_dir()?.join(kernel.folder());
    let stamp = dir.join("stamp");
    let (release, tools) = (kernel.release(), kernel.tools());
    let wanted = format!("{META_PACKAGE}\n{release}\n{PACKAGES}\n{tools}\n{SCRIPT}");
    if !again && std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Image { dir });
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    // Half made is not made.
    if stamp.exists() {
        std::fs::remove_file(&stamp).with_context(|| format!("cannot remove {}", stamp.display()))?;
    }
    let script = dir.join("setup.sh");
    std::fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
    let shell = find("sh").context("there is no sh")?;
    run(as_root(&shell)?.arg(&script).arg(&dir).args([META_PACKAGE, release, PACKAGES, tools]))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Image { dir })
}

fn cache_dir() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let at_home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    named.or_else(at_home).context("neither XDG_CACHE_HOME nor HOME is set")
}
