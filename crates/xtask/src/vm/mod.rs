//! `cargo xtask vm`: a virtual machine with a kernel that has ublk, NBD and real file systems.
//!
//! Job: QEMU in software emulation boots Debian's kernel from backports with a small Debian root, our programs, an SSD
//! and a throttled slow disk, and runs a scenario. Kernel and root are made once from packages and kept in the user's
//! cache directory.
//!
//! Invariants: what a scenario reports is judged here: a check that failed, or a machine that went away before the end,
//! fails the run, and what it wrote to its console is shown. The root disk is never changed. A machine has a time limit.
//!
//! What it does not do: measure speed. Software emulation makes computing five to ten times dearer than it is.

mod machine;
mod report;
mod scenarios;
mod setup;

use clap::Subcommand;

/// What to do with the virtual machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Make kernel and root from packages, if they are not there; about two minutes.
    Setup {
        /// Make them anew.
        #[arg(long)]
        again: bool,
    },
    /// Attach, partition, make, check and trim file systems, detach.
    Functional {
        /// Times to attach and detach.
        #[arg(long, value_name = "N", default_value_t = 20)]
        cycles: u32,
    },
    /// Kill the daemon again and again under a verified load.
    Crash {
        /// How often.
        #[arg(long, value_name = "N", default_value_t = 10)]
        kills: u32,
    },
    /// Switch the machine off at random moments while files are made durable.
    PowerCut {
        /// How often.
        #[arg(long, value_name = "N", default_value_t = 3)]
        cuts: u32,
    },
    /// All of them, at length.
    All,
    /// What is quick.
    Quick,
    /// A shell on the console; `poweroff -f` or ctrl-a x ends it.
    Shell,
}

/// `cargo xtask vm`.
///
/// # Errors
/// Something is missing, or a scenario failed.
pub(crate) fn run(task: &Task, install: bool) -> anyhow::Result<()> {
    let again = matches!(task, Task::Setup { again: true });
    let image = setup::ensure(again, install)?;
    match task {
        Task::Setup { .. } => Ok(()),
        Task::Functional { cycles } => scenarios::functional(&image, *cycles),
        Task::Crash { kills } => scenarios::crash(&image, *kills),
        Task::PowerCut { cuts } => scenarios::power_cut(&image, *cuts),
        Task::All => {
            scenarios::functional(&image, 100)?;
            scenarios::crash(&image, 50)?;
            scenarios::power_cut(&image, 100)
        }
        Task::Quick => {
            scenarios::functional(&image, 20)?;
            scenarios::crash(&image, 10)
        }
        Task::Shell => scenarios::shell(&image),
    }
}
