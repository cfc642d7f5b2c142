//! Sockets that a service manager passed at the start (sd_listen_fds(3)).
//!
//! Invariants: the descriptors are taken once per process. They belong to us, because the setter of `LISTEN_PID` made
//! them for this process, and no other code opens descriptors with their numbers: they were open at the start.
//!
//! It does not inspect their kind.
#![expect(unsafe_code, reason = "descriptors come as numbers")]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// The first passed descriptor.
const FIRST: RawFd = 3;
/// Upper bound, above any service's number.
const PASSED_MAX: RawFd = 256;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Returns the number of descriptors that the variables announce to the process `pid`.
fn promised(for_pid: Option<&str>, count: Option<&str>, pid: u32) -> RawFd {
    if for_pid.and_then(|text| text.parse().ok()) != Some(pid) {
        return 0;
    }
    count.and_then(|text| text.parse().ok()).filter(|count| (1..=PASSED_MAX).contains(count)).unwrap_or(0)
}

/// Returns the sockets passed to this process, in order; none at the second call.
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
    // Children must not inherit them either.
    fcntl_setfd(passed, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open (the call above succeeded), was passed to this process for its own use, and `TAKEN` ensures
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
