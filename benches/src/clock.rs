//! The one clock of the benchmarks, and that of a thread's processor time.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

static START: LazyLock<Instant> = LazyLock::new(now);

#[expect(clippy::disallowed_methods, reason = "the one clock of this crate: measuring is its job")]
fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since the first call.
#[must_use]
pub fn now_ns() -> u64 {
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the run time of this thread in nanoseconds, without other load of the machine.
#[must_use]
pub fn thread_ns() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits between attempts to reach a starting server.
pub fn pause(time: Duration) {
    let timeout = rustix::event::Timespec::try_from(time).ok();
    // An interruption ends the pause early, which does no harm.
    let _interrupted = rustix::event::poll(&mut [], timeout.as_ref());
}
