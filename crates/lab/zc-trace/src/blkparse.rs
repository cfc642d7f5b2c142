//! Text of blkparse: block layer events, of which Q events are requests.
//!
//! Invariants: text for people (names of input files, notes, the summary) is skipped. A request that one device of the
//! trace passes down to another counts once, at the upper device, unless both are kept. Memory is bounded
//! ([`REMAPS_MAX`], [`STACKED_DEVICES_MAX`]).

use std::collections::{BTreeSet, VecDeque};

use crate::fields::Fields;
use crate::limits::{REMAPS_MAX, STACKED_DEVICES_MAX};
use crate::request::Op;
use crate::values::{Parsed, SECTOR, device_number, request, times};

/// A range of sectors of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    device: u64,
    lba: u64,
    sectors: u64,
}

/// Parses events.
#[derive(Debug)]
pub(crate) struct Blkparse {
    keep_stacked: bool,
    /// Devices that had a request.
    queued: BTreeSet<u64>,
    /// Ranges that one of these passed down, whose own request follows.
    remapped: VecDeque<Range>,
    stacked: u64,
}

impl Blkparse {
    pub(crate) fn new(keep_stacked: bool) -> Self {
        Self { keep_stacked, queued: BTreeSet::new(), remapped: VecDeque::new(), stacked: 0 }
    }

    /// Requests left out because an upper device of the trace had them already.
    pub(crate) const fn stacked(&self) -> u64 {
        self.stacked
    }

    /// `8,16 5 2 0.000001850 18615 Q R 1444645666 + 256 [java]`: device, CPU, number, time, process, action, kind, range.
    /// Lines that do not begin with a device are for people.
    pub(crate) fn parse(&mut self, fields: &mut Fields<'_>, text: &str) -> Parsed {
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(None);
        }
        let device = device(fields.text()?)?;
        fields.number()?;
        fields.number()?;
        let time_ns = fields.seconds()?;
        fields.number()?;
        match fields.text()? {
            "Q" => self.request(fields, time_ns, device),
            "A" => self.remap(fields, device).map(|()| None),
            _ => Ok(None),
        }
    }

    fn request(&mut self, fields: &mut Fields<'_>, time_ns: u64, device: u64) -> Parsed {
        let kind = fields.text()?;
        let has = |letter: char| kind.contains(letter);
        let op = match kind {
            // A preflush or an operation with data may carry an F as well; alone it is a flush.
            _ if has('R') => Op::Read,
            _ if has('W') => Op::Write,
            _ if has('D') => Op::Discard,
            _ if has('F') => return request(time_ns, device, Op::Flush, 0, 0).map(Some),
            _ => return Ok(None),
        };
        let (lba, sectors) = range(fields)?;
        if sectors == 0 && has('F') {
            return request(time_ns, device, Op::Flush, 0, 0).map(Some);
        }
        let found = request(time_ns, device, op, times(lba, SECTOR)?, times(sectors, SECTOR)?)?;
        if self.is_stacked(Range { device, lba, sectors }) {
            self.stacked += 1;
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// `8,0 1 2 0.5 9 A W 100 + 8 <- (253,0) 36`: a request of 253,0 goes to 8,0.
    fn remap(&mut self, fields: &mut Fields<'_>, to: u64) -> Result<(), &'static str> {
        fields.text()?;
        let (lba, sectors) = range(fields)?;
        fields.skip(1)?;
        let from = fields.text()?.trim_matches(['(', ')']);
        if self.keep_stacked || !self.queued.contains(&device(from)?) {
            return Ok(());
        }
        if self.remapped.len() == REMAPS_MAX {
            self.remapped.pop_front();
        }
        self.remapped.push_back(Range { device: to, lba, sectors });
        Ok(())
    }

    /// Records that a device had a request. Returns `true` if an upper device had the same one.
    fn is_stacked(&mut self, range: Range) -> bool {
        if self.queued.len() < STACKED_DEVICES_MAX {
            self.queued.insert(range.device);
        }
        let found = self.remapped.iter().position(|remapped| *remapped == range);
        found.and_then(|index| self.remapped.remove(index)).is_some()
    }
}

/// `MAJOR,MINOR`.
fn device(text: &str) -> Result<u64, &'static str> {
    const WHY: &str = "a device is not MAJOR,MINOR";
    let (major, minor) = text.split_once(',').ok_or(WHY)?;
    device_number(major.parse().map_err(|_| WHY)?, minor.parse().map_err(|_| WHY)?)
}

/// `START + LENGTH`, in sectors.
fn range(fields: &mut Fields<'_>) -> Result<(u64, u64), &'static str> {
    let lba = fields.number()?;
    if fields.text()? != "+" {
        return Err("a range is not START + LENGTH");
    }
    Ok((lba, fields.number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of 253,0 that goes to 8,0 and, as the second leg of a mirror, to 8,16.
    const STACK: [&str; 7] = [
        "253,0 1 1 0.1 9 Q W 36 + 8 [x]",
        "8,0 1 2 0.1 9 A W 100 + 8 <- (253,0) 36",
        "8,0 1 3 0.1 9 Q W 100 + 8 [x]",
        "8,16 1 4 0.1 9 A W 200 + 8 <- (253,0) 36",
        "8,16 1 5 0.1 9 Q W 200 + 8 [x]",
        "8,0 1 6 0.2 9 Q W 100 + 8 [y]",
        "8,0 1 7 0.3 9 A R 500 + 8 <- (8,1) 36",
    ];

    fn devices(parser: &mut Blkparse, lines: &[&str]) -> Vec<u32> {
        let parsed = lines.iter().map(|line| parser.parse(&mut Fields::words(line), line).unwrap());
        parsed.flatten().map(|request| request.device).collect()
    }

    #[test]
    fn a_request_that_was_passed_down_counts_once() {
        let mut parser = Blkparse::new(false);
        assert_eq!(devices(&mut parser, &STACK), [253 << 20, 8 << 20]);
        assert_eq!(parser.stacked(), 2);
    }

    #[test]
    fn stacked_devices_are_kept_on_request() {
        let mut parser = Blkparse::new(true);
        assert_eq!(devices(&mut parser, &STACK).len(), 4);
        assert_eq!(parser.stacked(), 0);
    }

    #[test]
    fn a_chain_of_devices_counts_at_its_top() {
        let lines = [
            "253,1 1 1 0.1 9 Q R 1 + 8 [x]",
            "253,0 1 2 0.1 9 A R 11 + 8 <- (253,1) 1",
            "253,0 1 3 0.1 9 Q R 11 + 8 [x]",
            "8,0 1 4 0.1 9 A R 21 + 8 <- (253,0) 11",
            "8,0 1 5 0.1 9 Q R 21 + 8 [x]",
        ];
        assert_eq!(devices(&mut Blkparse::new(false), &lines), [(253 << 20) + 1]);
    }

    #[test]
    fn a_partition_without_requests_of_its_own_hides_nothing() {
        let lines = ["8,0 1 1 0.1 9 A W 100 + 8 <- (8,1) 36", "8,0 1 2 0.1 9 Q W 100 + 8 [x]"];
        assert_eq!(devices(&mut Blkparse::new(false), &lines), [8 << 20]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut parser = Blkparse::new(false);
        let upper = "253,0 1 1 0.1 9 Q W 36 + 8 [x]";
        parser.parse(&mut Fields::words(upper), upper).unwrap();
        for lba in 0..3 * REMAPS_MAX {
            let line = format!("8,0 1 2 0.1 9 A W {lba} + 8 <- (253,0) 36");
            parser.parse(&mut Fields::words(&line), &line).unwrap();
        }
        assert_eq!(parser.remapped.len(), REMAPS_MAX);
    }

    #[test]
    fn lines_for_people_are_passed_over() {
        let mut parser = Blkparse::new(false);
        for line in ["Input file sda.blktrace.0 added", "CPU0 (sda):", " Reads Queued: 5, 20KiB", "==="] {
            assert_eq!(parser.parse(&mut Fields::words(line), line), Ok(None));
        }
        let note = "8,0 1 0 0.5 0 m N cfq workload slice:300";
        assert_eq!(parser.parse(&mut Fields::words(note), note), Ok(None));
    }
}
