//! Sockets that a service manager passed at the start (sd_listen_fds(3)).
//!
//! Invariants: the descriptors are taken once per process; they are ours alone because whoever set `LISTEN_PID` to this
//! process made them for it, and nothing else here opens a descriptor at their numbers: they were there at the start.
//!
//! It does not look at what they are.
#![expect(unsafe_code, reason = "descriptors come as numbers")]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// The first passed descriptor.
const FIRST: RawFd = 3;
/// More than any service has.
const PASSED_MAX: RawFd = 256;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// How many descriptors the variables promise to the process `pid`.
fn promised(for_pid: Option<&str>, count: Option<&str>, pid: u32) -> RawFd {
    if for_pid.and_then(|text| text.parse().ok()) != Some(pid) {
        return 0;
    }
    count.and_then(|text| text.parse().ok()).filter(|count| (1..=PASSED_MAX).contains(count)).unwrap_or(0)
}

/// The sockets passed to this process, in their order; none at the second call.
#[must_use]
pub fn take_passed_sockets() -> Vec<OwnedFd> {
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let (pid, count) = (std::env::var("LISTEN_PID").ok(), std::env::var("LISTEN_FDS").ok());
    let count = promised(pid.as_deref(), count.as_deref(), std::process::id());
    (FIRST..FIRST + count).filter_map(take).collect()
}

fn take(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: the number is not -1, and the borrow ends with the call below, which fails for a closed descriptor.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    // Also not for children of ours.
    fcntl_setfd(passed, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open (the call above succeeded), was passed to this process for its own use, and `TAKEN` sees to it
    // that it is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_promised_to_this_process_counts() {
        assert_eq!(promised(Some("7"), Some("2"), 7), 2);
        for (pid, count) in [
            (Some("8"), Some("2")),
            (None, Some("2")),
            (Some("7"), None),
            (Some("7"), Some("-1")),
            (Some("x"), Some("1")),
        ] {
            assert_eq!(promised(pid, count, 7), 0, "{pid:?} {count:?}");
        }
        assert_eq!(promised(Some("7"), Some("100000"), 7), 0);
        assert!(take_passed_sockets().is_empty() && take_passed_sockets().is_empty());
    }
}
