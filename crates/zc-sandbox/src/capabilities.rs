//! Capabilities that the daemon keeps.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Capability that the daemon may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// ublk devices.
    SysAdmin,
    /// Origins with other owners.
    DacOverride,
    /// `nbd.unix_group`.
    Chown,
    /// Modes of files with other owners.
    Fowner,
    /// Registered memory beyond `ulimit -l`.
    IpcLock,
    /// More file descriptors than the hard limit.
    SysResource,
    /// TCP ports below 1024.
    NetBindService,
}

impl Capability {
    const ALL: [(Self, CapabilitySet, &'static str); 7] = [
        (Self::SysAdmin, CapabilitySet::SYS_ADMIN, "SYS_ADMIN"),
        (Self::DacOverride, CapabilitySet::DAC_OVERRIDE, "DAC_OVERRIDE"),
        (Self::Chown, CapabilitySet::CHOWN, "CHOWN"),
        (Self::Fowner, CapabilitySet::FOWNER, "FOWNER"),
        (Self::IpcLock, CapabilitySet::IPC_LOCK, "IPC_LOCK"),
        (Self::SysResource, CapabilitySet::SYS_RESOURCE, "SYS_RESOURCE"),
        (Self::NetBindService, CapabilitySet::NET_BIND_SERVICE, "NET_BIND_SERVICE"),
    ];
}

fn set_of(keep: &[Capability]) -> CapabilitySet {
    let kept = Capability::ALL.into_iter().filter(|(capability, ..)| keep.contains(capability));
    kept.fold(CapabilitySet::empty(), |all, (_, bit, _)| all | bit)
}

/// Restricts the bounding set, so that executing a program cannot regain other capabilities. A process without the
/// right to change it has no capabilities to lose.
pub(crate) fn bound(keep: &[Capability]) -> Result<()> {
    let keep = set_of(keep);
    if !capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // The kernel has no capability of this number, nor a larger one.
        let Ok(is_bounded) = capability_is_in_bounding_set(capability) else { break };
        if is_bounded && !keep.contains(capability) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}

/// Drops all capabilities except these.
pub(crate) fn keep_only(keep: &[Capability]) -> Result<()> {
    let have = capabilities(None)?;
    let wanted = have.permitted & set_of(keep);
    if have.permitted != wanted || have.effective != wanted || !have.inheritable.is_empty() {
        set_capabilities(
            None,
            CapabilitySets { effective: wanted, permitted: wanted, inheritable: CapabilitySet::empty() },
        )?;
    }
    match clear_ambient_capability_set() {
        // A kernel without ambient capabilities.
        Err(Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// Returns the names of remaining capabilities; `others` stands for those that the daemon never needs.
pub(crate) fn left() -> Vec<&'static str> {
    let Ok(have) = capabilities(None) else { return vec!["unknown"] };
    let known = Capability::ALL.into_iter();
    let mut names: Vec<_> =
        known.filter(|(_, bit, _)| have.permitted.contains(*bit)).map(|(.., name)| name).collect();
    let all = Capability::ALL.into_iter().fold(CapabilitySet::empty(), |all, (_, bit, _)| all | bit);
    if !(have.permitted - all).is_empty() {
        names.push("others");
    }
    names
}
