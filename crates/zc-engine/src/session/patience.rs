//! Pauses of a start. It waits for what the kernel tells no program of: a file that is no longer in use, a device that
//! has been found.

use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

/// Waits until it is worth another look.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel sends no event when it has closed the files of a killed process, or found a device"
)]
pub(crate) fn pause() {
    std::thread::sleep(PAUSE);
}

/// How many times [`pause`] waits in so long.
pub(crate) fn pauses(time_ms: u64) -> u128 {
    u128::from(time_ms) / PAUSE.as_millis()
}
