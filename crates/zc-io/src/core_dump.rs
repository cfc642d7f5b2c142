//! Core dumps of this process.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Allows or forbids core dumps. While they are forbidden, only root can attach a debugger or read the memory of the
/// process. The size limit cannot be raised again.
///
/// # Errors
/// When the kernel refuses.
pub fn set_core_dumps(allowed: bool) -> io::Result<()> {
    if allowed {
        return Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?);
    }
    // The limit does not apply to a core dump handler that is a program (core(5)).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}
