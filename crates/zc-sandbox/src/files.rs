//! Restricts files and TCP ports with Landlock.
//!
//! Invariants: nothing can be executed. TCP connections go to named ports alone. A rule covers a folder and its
//! present and future contents: files of a configuration may be replaced, and new ones may be created beside them.
//!
//! It does not restrict open descriptors (such as sockets of a service manager) or Unix sockets.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
};

/// Newest Landlock ABI whose rights are all handled here. Rights of later ABIs, such as to Unix sockets, stay
/// unrestricted.
const KNOWN: ABI = ABI::V5;

/// Files and ports that stay accessible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    /// Folders in which files may be created, changed, renamed and removed.
    pub written: Vec<PathBuf>,
    /// Folders or files that may be read.
    pub read: Vec<PathBuf>,
    /// Devices that may be read, written and controlled.
    pub devices: Vec<PathBuf>,
    /// TCP ports that may be listened on; `None`: any.
    pub ports: Option<Vec<u16>>,
    /// TCP ports, of any host, to which connections may be made.
    pub connect: Vec<u16>,
}

fn written() -> BitFlags<AccessFs> {
    AccessFs::from_all(KNOWN) & !(AccessFs::Execute | AccessFs::MakeBlock | AccessFs::MakeChar)
}

fn devices() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
}

/// Restricts access to these. Missing paths are skipped; other irregularities are added to `notes`.
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

/// Adds a rule for a path and its contents, if it exists.
fn allow(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(created) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    created.add_rule(PathBeneath::new(fd, access))
}
