//! Times of day of idle destaging.
//!
//! Invariant: a window is not empty. It does not read a clock.

use core::fmt;
use core::str::FromStr;

const DAY_MINUTES: u16 = 24 * 60;

/// Part of each day, in minutes since midnight. It spans midnight if its end is not after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestageWindow {
    from_minute: u16,
    /// Exclusive end. At most the minutes of a day.
    until_minute: u16,
}

impl DestageWindow {
    /// Returns `true` if it contains this minute since midnight.
    #[must_use]
    pub const fn contains(&self, minute: u16) -> bool {
        if self.from_minute < self.until_minute {
            self.from_minute <= minute && minute < self.until_minute
        } else {
            self.from_minute <= minute || minute < self.until_minute
        }
    }

    /// Returns the longest gap between windows in minutes; `None` without windows.
    #[must_use]
    pub fn longest_gap_minutes(windows: &[Self]) -> Option<u16> {
        if windows.is_empty() {
            return None;
        }
        let is_open = |minute: u16| windows.iter().any(|window| window.contains(minute % DAY_MINUTES));
        let (mut longest, mut run) = (0_u16, 0_u16);
        // Two days, for a gap across midnight.
        for minute in 0..2 * DAY_MINUTES {
            run = if is_open(minute) { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        Some(longest.min(DAY_MINUTES))
    }
}

/// Invalid window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAWindow;

impl fmt::Display for NotAWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a time of day such as 22:00-06:00")
    }
}

impl FromStr for DestageWindow {
    type Err = NotAWindow;

    fn from_str(text: &str) -> Result<Self, NotAWindow> {
        let (from, until) = text.split_once('-').ok_or(NotAWindow)?;
        let window = Self { from_minute: minute(from)?, until_minute: minute(until)? };
        let is_empty = window.from_minute == window.until_minute;
        if is_empty || window.from_minute == DAY_MINUTES { Err(NotAWindow) } else { Ok(window) }
    }
}

/// Minutes since midnight, up to 24:00.
fn minute(text: &str) -> Result<u16, NotAWindow> {
    let (hours, minutes) = text.trim().split_once(':').ok_or(NotAWindow)?;
    let two = |digits: &str| -> Result<u16, NotAWindow> {
        let plain = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse().ok().filter(|_| plain).ok_or(NotAWindow)
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    Some(hours * 60 + minutes).filter(|minute| minutes < 60 && *minute <= DAY_MINUTES).ok_or(NotAWindow)
}

impl fmt::Display for DestageWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = |minute: u16| (minute / 60, minute % 60);
        let ((from_h, from_m), (until_h, until_m)) = (parts(self.from_minute), parts(self.until_minute));
        write!(f, "{from_h:02}:{from_m:02}-{until_h:02}:{until_m:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> DestageWindow {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_may_go_past_midnight() {
        let night = window("22:00-06:00");
        let inside = [22 * 60, 23 * 60 + 59, 0, 5 * 60 + 59];
        let outside = [6 * 60, 12 * 60, 21 * 60 + 59];
        assert!(inside.iter().all(|minute| night.contains(*minute)));
        assert!(!outside.iter().any(|minute| night.contains(*minute)));
        let noon = window("12:00-13:30");
        assert!(noon.contains(12 * 60) && noon.contains(13 * 60 + 29) && !noon.contains(13 * 60 + 30));
        assert!((0..DAY_MINUTES).all(|minute| window("00:00-24:00").contains(minute)));
    }

    #[test]
    fn windows_are_written_as_they_are_read() {
        for text in ["22:00-06:00", "00:00-24:00", "09:05-09:06"] {
            assert_eq!(window(text).to_string(), text);
        }
        for wrong in [
            "",
            "22-06",
            "9:00-10:00",
            "10:00-10:00",
            "24:00-06:00",
            "10:60-11:00",
            "25:00-26:00",
            "+1:00-02:00",
        ] {
            assert_eq!(wrong.parse::<DestageWindow>(), Err(NotAWindow), "{wrong}");
        }
    }

    #[test]
    fn the_longest_gap_may_go_past_midnight() {
        let gap = |texts: &[&str]| {
            let windows: Vec<_> = texts.iter().map(|text| window(text)).collect();
            DestageWindow::longest_gap_minutes(&windows)
        };
        assert_eq!(gap(&[]), None);
        assert_eq!(gap(&["22:00-06:00"]), Some(16 * 60));
        assert_eq!(gap(&["06:00-22:00"]), Some(8 * 60));
        assert_eq!(gap(&["00:00-24:00"]), Some(0));
        assert_eq!(gap(&["00:00-01:00", "12:00-13:00"]), Some(11 * 60));
    }
}
