//! Failing operations, because the device is dead or full, or without a cause.

use core::ops::Range;

use zc_core::ErrorKind;

use super::{Fault, Strike, Write};
use crate::content::SECTOR;
use crate::zone::Zone;

#[derive(Debug)]
pub(super) struct Errors;

impl Errors {
    /// Fails a write, of which each sector is written or not.
    fn fail(at: &mut Strike<'_, '_>, write: &Write<'_>) -> ErrorKind {
        let keep = [0.0, 0.5, 1.0][at.cx.env.random_range(0..3)];
        for (index, sector) in write.data.chunks(SECTOR).enumerate() {
            if at.cx.env.random_bool(keep) {
                at.disk.write(write.at + index * SECTOR, sector, write.op.0);
            }
        }
        if at.cx.env.random_bool(0.5) {
            at.cx.env.note("cache device full");
            ErrorKind::NoSpace
        } else {
            ErrorKind::Io
        }
    }
}

impl Fault for Errors {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self)
    }

    fn writes(&mut self, at: &mut Strike<'_, '_>, write: &Write<'_>) -> Option<Result<(), ErrorKind>> {
        let now = at.cx.env.now();
        if at.cx.faults.is_dead(now) {
            at.cx.trouble.session = true;
            return Some(Err(ErrorKind::Io));
        }
        if write.zone == Zone::Journal && at.cx.faults.is_journal_gone(now) {
            at.cx.env.note("journal devices died");
            at.cx.trouble.session = true;
            return Some(Err(ErrorKind::Io));
        }
        if at.cx.faults.is_full(now) {
            at.cx.env.note("cache device and state directory full together");
            at.cx.trouble.session = true;
            let _error = Self::fail(at, write);
            return Some(Err(ErrorKind::NoSpace));
        }
        let (rate, name) = match write.zone {
            Zone::SlotWrite => (at.cx.faults.write_errors, "WEU write errors"),
            Zone::DirtyWrite => (at.cx.faults.write_errors, "write errors of dirty extents"),
            _ => (at.cx.faults.meta_errors, "metadata write errors"),
        };
        if !at.cx.env.happens(rate) {
            return None;
        }
        at.cx.env.note(name);
        at.cx.trouble.session = true;
        Some(Err(Self::fail(at, write)))
    }

    fn reads(&mut self, at: &mut Strike<'_, '_>, bytes: Range<usize>) -> Result<Range<usize>, ErrorKind> {
        if at.cx.faults.is_dead(at.cx.env.now()) || at.cx.env.happens(at.cx.faults.read_errors) {
            at.cx.trouble.session = true;
            return Err(ErrorKind::Io);
        }
        Ok(bytes)
    }

    fn flushes(&mut self, at: &mut Strike<'_, '_>) -> bool {
        let now = at.cx.env.now();
        let fails = at.cx.faults.is_dead(now)
            || at.cx.faults.is_journal_gone(now)
            || at.cx.env.happens(at.cx.faults.meta_errors);
        at.cx.trouble.session |= fails;
        fails
    }
}
