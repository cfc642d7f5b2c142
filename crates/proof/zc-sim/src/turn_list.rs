//! List of the turns of a run, as used by a shortened run.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

/// Ascending list of turns: `0-4,9,12-13`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turns(Vec<u64>);

impl Turns {
    pub(crate) const fn new(turns: Vec<u64>) -> Self {
        Self(turns)
    }

    /// Returns the turns in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of turns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for turn in self.iter() {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == turn => *last = *last.start()..=turn,
                _ => ranges.push(turn..=turn),
            }
        }
        ranges
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges().into_iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

/// Error of parsing a list of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnsError;

impl fmt::Display for TurnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("turns are written as 0-4,9,12-13: ascending, below 16777216")
    }
}

impl core::error::Error for TurnsError {}

/// Largest turn in a list.
const TURN_MAX: u64 = (1 << 24) - 1;

impl FromStr for Turns {
    type Err = TurnsError;

    fn from_str(text: &str) -> Result<Self, TurnsError> {
        let mut turns: Vec<u64> = Vec::new();
        for piece in text.split(',') {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
                return Err(TurnsError);
            };
            if first > last || last > TURN_MAX || turns.last().is_some_and(|turn| *turn >= first) {
                return Err(TurnsError);
            }
            turns.extend(first..=last);
        }
        Ok(Self(turns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_and_read_alike() {
        let turns: Turns = "0-4,9,12-13".parse().unwrap();
        assert_eq!(turns.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 9, 12, 13]);
        assert_eq!(turns.to_string(), "0-4,9,12-13");
        for bad in ["", "4-3", "5,5", "9,1", "x", "0-99999999999"] {
            assert_eq!(bad.parse::<Turns>(), Err(TurnsError), "{bad}");
        }
    }
}
