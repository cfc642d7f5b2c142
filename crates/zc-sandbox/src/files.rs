//! Files and TCP ports, by Landlock.
//!
//! Invariants: nothing can be executed. TCP connections go to named ports alone. A rule is about a folder and all that
//! is in it, now or later: files of a configuration may be replaced, and new ones may come beside them.
//!
//! What it does not do: bound what is open already, the sockets of service managers among it; Unix sockets.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
};

/// The newest kernel interface whose rights are all handled here. Rights of newer ones, such as to Unix sockets, stay as
/// they are.
const KNOWN: ABI = ABI::V5;

/// What stays in reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    /// Files may be made, changed, renamed and removed.
    pub written: Vec<PathBuf>,
    /// Files may be read; these may be single files.
    pub read: Vec<PathBuf>,
    /// Devices may be read, written and controlled.
    pub devices: Vec<PathBuf>,
    /// TCP ports that may be listened on; `None`: any.
    pub ports: Option<Vec<u16>>,
    /// TCP ports of other machines, or of this one, to which connections may be made.
    pub connect: Vec<u16>,
}

fn written() -> BitFlags<AccessFs> {
    AccessFs::from_all(KNOWN) & !(AccessFs::Execute | AccessFs::MakeBlock | AccessFs::MakeChar)
}

fn devices() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
}

/// Leaves these alone in reach. What is not there is left out; notes tell what else is not as it should be.
pub(crate) fn restrict(folders: &Folders, notes: &mut Vec<String>) -> Result<(), String> {
    let text = |error: landlock::RulesetError| error.to_string();
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    ruleset = ruleset.handle_access(AccessFs::from_all(KNOWN)).map_err(text)?;
    ruleset = ruleset.handle_access(AccessNet::ConnectTcp).map_err(text)?;
    if folders.ports.is_some() {
        ruleset = ruleset.handle_access(AccessNet::BindTcp).map_err(text)?;
    }
    let mut created = ruleset.create().map_err(text)?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let all = [(&folders.written, written()), (&folders.read, read), (&folders.devices, devices())];
    for (paths, access) in all {
        for path in paths {
            created = allow(created, path, access).map_err(text)?;
            if path == Path::new("/") {
                notes.push(
                    "landlock: a file of the configuration lies in /, so that all files are in reach"
                        .to_owned(),
                );
            }
        }
    }
    for port in folders.ports.iter().flatten() {
        created = created.add_rule(NetPort::new(*port, AccessNet::BindTcp)).map_err(text)?;
    }
    for port in &folders.connect {
        created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).map_err(text)?;
    }
    match created.restrict_self().map_err(text)?.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced => {
            notes.push("landlock: this kernel knows a part of it only; Linux 6.10 knows all".to_owned());
            Ok(())
        }
        RulesetStatus::NotEnforced => {
            Err("the kernel has no Landlock, or it is not among those that were chosen at boot (lsm=)"
                .to_owned())
        }
    }
}

/// What lies at a path, or below it, if it is there.
fn allow(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(created) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    created.add_rule(PathBeneath::new(fd, access))
}
