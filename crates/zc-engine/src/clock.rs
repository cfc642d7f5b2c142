//! The one clock of the daemon. All other code receives the time as an argument.

use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Counts from the moment it was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock.
    #[expect(clippy::disallowed_methods, reason = "the one clock of the daemon")]
    #[expect(clippy::new_without_default, reason = "a default clock would count from an arbitrary moment")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Monotonic time since the clock was created.
    #[expect(clippy::disallowed_methods, reason = "the one clock of the daemon")]
    fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(self.start)
    }

    /// Nanoseconds since the clock was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since the clock was made.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Seconds since 1970; 0 if the machine's clock is earlier.
#[expect(clippy::disallowed_methods, reason = "the one clock of the daemon")]
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Minutes since midnight, by the machine's clock and its time zone as it is now; by UTC if no zone can be read.
pub fn minute_of_day() -> u16 {
    let now = i64::try_from(unix_s()).ok().and_then(|unix_s| Timestamp::from_second(unix_s).ok());
    let time = now.unwrap_or_default().to_zoned(TimeZone::system()).time();
    let minutes = i32::from(time.hour()) * 60 + i32::from(time.minute());
    u16::try_from(minutes).unwrap_or(0)
}
