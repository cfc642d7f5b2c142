//! The clock of the program: how long a run took. Simulations have clocks of their own.

use std::time::Instant;

/// The time on the machine's clock.
#[expect(clippy::disallowed_methods, reason = "the program's one clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
