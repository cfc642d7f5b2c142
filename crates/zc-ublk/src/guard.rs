//! Prevents a process that serves a file system's device from waiting for itself.
//!
//! Job: an allocation of such a process may make the kernel write pages back to the very device it serves. Therefore
//! allocations must not start I/O (PR_SET_IO_FLUSHER), memory must not be swapped out, and the process must be the
//! last one that the OOM killer chooses. Each needs rights that a container may lack; failures are returned as text
//! and the process continues.
//!
//! Invariant: called before threads are started; they inherit the first two.
//!
//! Out of scope: a mount namespace (the service manager provides it: PrivateMounts), without which the exit of the
//! process may wait for the unmounting of a file system on its own device.
#![expect(unsafe_code, reason = "prctl and mlockall have no safe wrapper")]

use std::io;

/// PR_SET_IO_FLUSHER of linux/prctl.h (Linux 5.6).
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Returns `true` if this machine can have ublk devices; otherwise no guard is needed.
#[must_use]
pub fn is_wanted() -> bool {
    std::path::Path::new("/dev/ublk-control").exists()
}

/// Applies the guards; returns failures.
#[must_use]
pub fn stand_below_file_systems() -> Vec<String> {
    let mut failed = Vec::new();
    let mut note = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            failed.push(format!("{what}: {error}"));
        }
    };
    note("allocations that start no I/O (PR_SET_IO_FLUSHER, needs CAP_SYS_RESOURCE)", set_io_flusher());
    note("locked memory (mlockall, needs CAP_IPC_LOCK or LimitMEMLOCK=infinity)", lock_memory());
    note(
        "being the last to be killed for memory (oom_score_adj)",
        std::fs::write("/proc/self/oom_score_adj", "-1000"),
    );
    failed
}

fn set_io_flusher() -> io::Result<()> {
    // SAFETY: this prctl takes integers only and changes a flag of the calling thread.
    let result = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn lock_memory() -> io::Result<()> {
    // Pages are locked on first access, so that unused address space costs nothing.
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: this changes the residency of the process's pages, not their contents.
    let result = unsafe { libc::mlockall(flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
