//! Core dumps of this process.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Allows or forbids core dumps. Where they are forbidden, only root can attach a debugger or read the memory of the
/// process. The limit on their size cannot be lifted again.
///
/// # Errors
/// The kernel refuses.
pub fn set_core_dumps(allowed: bool) -> io::Result<()> {
    if allowed {
        return Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?);
    }
    // A handler of core dumps that is a program (core(5)) is called whatever the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}
