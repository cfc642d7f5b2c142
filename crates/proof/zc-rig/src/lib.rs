//! `cargo xtask vm`: a virtual machine with a kernel that has ublk, NBD and real file systems.
//!
//! Job: QEMU in software emulation boots Debian's kernel from backports (6.12 of bookworm, 6.16 or later of trixie)
//! with a small Debian root, our programs, an SSD and a throttled slow disk, and runs a scenario. Kernel and root are
//! built once from packages and kept in the user's cache directory. `cut` and `loss` define the model of a power cut.
//!
//! Invariants: reports of a scenario are checked here: a failed check, or a machine that ends early, fails the run,
//! and its console output is shown. The root disk is never changed. A machine has a time limit. After a failed power
//! cut the disks are kept.
//!
//! It does not measure speed. Software emulation makes computation five to ten times slower.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "tasks of development report to their terminal")]

mod all;
mod boot;
mod chance;
mod cut;
pub mod host;
mod loss;
mod machine;
mod mode;
mod report;
pub mod rivals;
mod root;
mod scenarios;
mod setup;
pub mod stores;

pub use boot::Packages;
use clap::Subcommand;
use mode::{FileSystem, Mode};
use setup::Kernel;
use std::num::NonZero;

use crate::host::Done;

/// A task, and the machine for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The kernel of the machine.
    #[arg(long, global = true, default_value = "stable")]
    kernel: Kernel,
    #[command(subcommand)]
    task: Task,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Make kernel and root from packages, if they are not there; about two minutes.
    Setup {
        /// Rebuild them.
        #[arg(long)]
        again: bool,
    },
    /// Attach, partition, make, check and trim file systems, detach.
    Functional {
        /// Times to attach and detach.
        #[arg(long, value_name = "N", default_value_t = 20)]
        cycles: u32,
        /// Only this check, and its prerequisites (repeatable).
        #[arg(long, value_name = "CHECK")]
        only: Vec<String>,
        #[command(flatten)]
        modes: Modes,
    },
    /// Kill the daemon again and again under a verified load.
    Crash {
        /// Number of kills in each mode.
        #[arg(long, value_name = "N", default_value_t = 10)]
        kills: u32,
        #[command(flatten)]
        modes: Modes,
    },
    /// Cut the power at random times while files are made durable; the disks lose unflushed data.
    PowerCut(PowerCut),
    /// Disks that fail for a while, under the cache and under the origin.
    Faults {
        /// Only this check, and its prerequisites (repeatable).
        #[arg(long, value_name = "CHECK")]
        only: Vec<String>,
        #[command(flatten)]
        modes: Modes,
    },
    /// Install the Debian package, boot from fstab, upgrade, end, remove.
    Boot,
    /// Install the Debian package, and boot from a root file system on a volume.
    Root {
        #[command(flatten)]
        modes: Modes,
    },
    /// All of them at full length; about an hour. Reports duration and result of each, also as JSON.
    All,
    /// Some of each kind, in a few minutes; a step of `cargo xtask test`.
    Quick,
    /// A shell on the console; `poweroff -f` or ctrl-a x ends it.
    Shell,
}

/// In which modes of the volume.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Modes {
    /// In this mode only; otherwise in both, one after the other.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
}

impl Modes {
    fn each(self, run: impl Fn(Mode) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let all = [Mode::WriteThrough, Mode::WriteBack];
        all.into_iter().filter(|mode| self.mode.is_none_or(|wanted| wanted == *mode)).try_for_each(run)
    }
}

/// Options of power cuts.
#[derive(Debug, clap::Args)]
pub(crate) struct PowerCut {
    /// Number of cuts in each mode.
    #[arg(long, value_name = "N", default_value_t = NonZero::<u32>::MIN.saturating_add(9))]
    cuts: NonZero<u32>,
    #[command(flatten)]
    modes: Modes,
    /// The file system that is written.
    #[arg(long, default_value = "ext4")]
    fs: FileSystem,
    /// Seed of the times and losses; random by default.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Drop flushes on the way to the volume; good only if a loss is found.
    #[arg(long)]
    canary: bool,
}

fn power_cut(image: &setup::Image, args: &PowerCut) -> anyhow::Result<()> {
    let PowerCut { cuts, modes, fs, seed, canary } = *args;
    let seed = seed.unwrap_or_else(chance::fresh_seed);
    modes
        .each(|mode| cut::power_cut(image, cut::Plan { cuts: cuts.get(), mode, fs, seed, is_canary: canary }))
}

/// Cuts without a shutdown: the disks lose unflushed data.
fn cuts(image: &setup::Image, cuts: u32, mode: Mode, fs: FileSystem) -> anyhow::Result<()> {
    let seed = chance::fresh_seed();
    cut::power_cut(image, cut::Plan { cuts, mode, fs, seed, is_canary: false })
}

/// Some of each kind.
fn quick(image: &setup::Image) -> anyhow::Result<()> {
    Modes { mode: None }.each(|mode| {
        scenarios::functional(image, mode, QUICK_CYCLES, QUICK_CHECKS)?;
        scenarios::faults(image, mode, QUICK_FAULTS)?;
        scenarios::crash(image, mode, QUICK_KILLS)?;
        cuts(image, QUICK_CUTS, mode, FileSystem::Ext4)
    })
}

const QUICK_CHECKS: &[&str] = &[
    "bytes",
    "ext4",
    "discard",
    "stop-and-start",
    "attach-detach",
    "limits",
    "replace-cache",
    "added-volume",
    "without-ssd",
];
const QUICK_FAULTS: &[&str] = &["ssd-fails", "origin-fails"];
const QUICK_CYCLES: u32 = 5;
const QUICK_KILLS: u32 = 3;
const QUICK_CUTS: u32 = 3;

/// Runs the quick scenarios, for `cargo xtask test`. If the machine cannot be built, it reports the reason and does
/// not fail.
///
/// # Errors
/// When a scenario failed.
pub fn check(install: bool) -> anyhow::Result<Done> {
    match setup::ensure(Kernel::default(), false, install) {
        Ok(image) => quick(&image).map(|()| Done::Whole),
        Err(error) => Ok(Done::Without(format!("the virtual machine cannot be made here: {error:#}"))),
    }
}

/// Runs `cargo xtask vm`; `package` builds the Debian package if needed.
///
/// # Errors
/// When something is missing, or a scenario failed.
pub fn run(args: &Args, install: bool, package: impl Fn() -> anyhow::Result<Packages>) -> anyhow::Result<()> {
    let Args { kernel, task } = args;
    let again = matches!(task, Task::Setup { again: true });
    let image = setup::ensure(*kernel, again, install)?;
    match task {
        Task::Setup { .. } => Ok(()),
        Task::Functional { cycles, only, modes } => {
            let only: Vec<&str> = only.iter().map(String::as_str).collect();
            modes.each(|mode| scenarios::functional(&image, mode, *cycles, &only))
        }
        Task::Crash { kills, modes } => modes.each(|mode| scenarios::crash(&image, mode, *kills)),
        Task::PowerCut(args) => power_cut(&image, args),
        Task::Faults { only, modes } => {
            let only: Vec<&str> = only.iter().map(String::as_str).collect();
            modes.each(|mode| scenarios::faults(&image, mode, &only))
        }
        Task::Boot => boot::boot(&image, &package()?),
        Task::Root { modes } => {
            let packages = package()?;
            modes.each(|mode| root::root(&image, &packages, mode))
        }
        Task::All => all::all(&image, &kernel.name(), &package()?),
        Task::Quick => quick(&image),
        Task::Shell => scenarios::shell(&image),
    }
}
