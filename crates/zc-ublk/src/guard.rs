//! A process below a file system: what it needs so that it never waits for itself.
//!
//! Job: memory that such a process asks for may make the kernel write pages back, to the very device it serves. So its
//! allocations are told not to start I/O (PR_SET_IO_FLUSHER), its memory is kept from being swapped out, and it is the
//! last one to be killed when memory runs out. Each needs rights that a container may lack; what could not be done is
//! returned as text and the process goes on.
//!
//! Invariant: called before threads are started; they inherit the first two.
//!
//! Out of scope: a mount namespace of its own (the service manager does: PrivateMounts), without which the end
//! of the process may wait for the unmounting of a file system on its own device.
#![expect(unsafe_code, reason = "prctl and mlockall have no safe wrapper")]

use std::io;

/// PR_SET_IO_FLUSHER of linux/prctl.h (Linux 5.6).
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Returns `true` if this machine can have ublk devices at all: elsewhere nothing of this is needed.
#[must_use]
pub fn is_wanted() -> bool {
    std::path::Path::new("/dev/ublk-control").exists()
}

/// Makes the process fit; returns what could not be done.
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
    // Pages are locked when they are first touched, so that unused address space costs nothing.
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: this changes how the process's pages are kept, not what is in them.
    let result = unsafe { libc::mlockall(flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
