//! I/O logs of fio (`write_iolog`, `read_iolog`), versions 2 and 3.
//!
//! Invariants: the first line has the version. Files are devices, numbered in the order of their first appearance; their
//! number is bounded ([`IOLOG_FILES_MAX`]).

use crate::fields::Fields;
use crate::limits::IOLOG_FILES_MAX;
use crate::request::Op;
use crate::values::{Parsed, request, times};

/// Parses the lines of one log.
#[derive(Debug, Default)]
pub(crate) struct Iolog {
    version: Option<Version>,
    files: Vec<String>,
    /// Total of the waits so far (version 2).
    waited_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// `FILE ACTION OFFSET LENGTH`; `wait` has a time in place of the offset.
    Two,
    /// `MICROSECONDS FILE ACTION OFFSET LENGTH`.
    Three,
}

impl Iolog {
    /// The name of a file by its number.
    pub(crate) fn file(&self, number: u32) -> Option<&str> {
        self.files.get(usize::try_from(number).ok()?).map(String::as_str)
    }

    /// Parses a line; further fields are left in `fields`.
    pub(crate) fn parse(&mut self, fields: &mut Fields<'_>, text: &str) -> Parsed {
        let Some(version) = self.version else {
            self.version = Some(match text {
                "fio version 2 iolog" => Version::Two,
                "fio version 3 iolog" => Version::Three,
                _ => return Err("the first line is not `fio version 2 iolog` or `fio version 3 iolog`"),
            });
            return fields.skip(4).map(|()| None);
        };
        let time_us = match version {
            Version::Two => self.waited_us,
            Version::Three => fields.number()?,
        };
        let file = fields.text()?;
        let op = match fields.text()? {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Discard,
            "sync" | "datasync" => Op::Flush,
            "add" | "open" | "close" => return Ok(None),
            "wait" if version == Version::Two => return self.wait(fields).map(|()| None),
            _ => {
                return Err("an action is none of read, write, trim, sync, datasync, wait, add, open, close");
            }
        };
        let (offset, len) = (fields.number()?, fields.number()?);
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, len) };
        request(times(time_us, 1000)?, self.number(file)?, op, offset, len).map(Some)
    }

    fn wait(&mut self, fields: &mut Fields<'_>) -> Result<(), &'static str> {
        let (wait_us, _) = (fields.number()?, fields.number()?);
        self.waited_us = self.waited_us.checked_add(wait_us).ok_or("a number is out of range")?;
        Ok(())
    }

    fn number(&mut self, file: &str) -> Result<u64, &'static str> {
        let known = self.files.iter().position(|name| name == file);
        if known.is_none() && self.files.len() == IOLOG_FILES_MAX {
            return Err("the log has too many files");
        }
        let number = known.unwrap_or_else(|| {
            self.files.push(file.to_owned());
            self.files.len() - 1
        });
        Ok(zc_core::u64_from_usize(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn read(lines: &[&str]) -> Vec<Request> {
        let mut log = Iolog::default();
        let parsed = lines.iter().map(|line| log.parse(&mut Fields::words(line), line).unwrap());
        parsed.flatten().collect()
    }

    #[test]
    fn version_3_has_a_time_in_each_line() {
        let lines = [
            "fio version 3 iolog",
            "16 /f add",
            "203 /f open",
            "208 /f read 57344 8192",
            "19347 /f sync 950272 0",
            "20000 /g trim 0 4096",
            "27855 /f close",
        ];
        let wanted = [
            Request::new(208_000, Op::Read, 57344, 8192),
            Request::new(19_347_000, Op::Flush, 0, 0),
            Request::new(20_000_000, Op::Discard, 0, 4096).on(1),
        ];
        assert_eq!(read(&lines), wanted);
    }

    #[test]
    fn waits_of_version_2_add_up() {
        let lines = [
            "fio version 2 iolog",
            "/dev/sdb add",
            "/dev/sdb write 0 4096",
            "/dev/sdb wait 500 0",
            "/dev/sdb wait 200 0",
            "/dev/sdb read 4096 4096",
        ];
        let times: Vec<u64> = read(&lines).iter().map(|request| request.time_ns).collect();
        assert_eq!(times, [0, 700_000]);
    }

    #[test]
    fn a_log_without_its_first_line_is_refused() {
        let line = "208 /f read 57344 8192";
        Iolog::default().parse(&mut Fields::words(line), line).unwrap_err();
        let mut log = Iolog::default();
        for line in ["fio version 3 iolog", "1 /f wait 5 0"] {
            let _parsed = log.parse(&mut Fields::words(line), line);
        }
        assert_eq!(log.file(0), None, "version 3 has no wait");
    }

    #[test]
    fn files_are_bounded() {
        let mut log = Iolog::default();
        let parse = |log: &mut Iolog, line: &str| log.parse(&mut Fields::words(line), line);
        parse(&mut log, "fio version 2 iolog").unwrap();
        for number in 0..IOLOG_FILES_MAX {
            parse(&mut log, &format!("/f{number} read 0 512")).unwrap();
        }
        parse(&mut log, "/f0 read 0 512").unwrap();
        assert_eq!(parse(&mut log, "/more read 0 512"), Err("the log has too many files"));
    }
}
