//! Pauses of a start. It polls for changes without kernel events: a file that is no longer in use, a device that has
//! appeared.

use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the next poll.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel sends no event when it has closed the files of a killed process, or found a device"
)]
pub(crate) fn pause() {
    std::thread::sleep(PAUSE);
}

/// Returns the number of calls of [`pause`] in this time.
pub(crate) fn pauses(time_ms: u64) -> u128 {
    u128::from(time_ms) / PAUSE.as_millis()
}
