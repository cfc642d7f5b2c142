//! Misdirected reads, which return the bytes of another place.

use core::ops::Range;

use zc_core::ErrorKind;

use super::{Fault, Strike};

#[derive(Debug)]
pub(super) struct Misread;

impl Fault for Misread {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self)
    }

    fn reads(&mut self, at: &mut Strike<'_, '_>, bytes: Range<usize>) -> Result<Range<usize>, ErrorKind> {
        if !at.cx.env.happens(at.cx.faults.misread) {
            return Ok(bytes);
        }
        at.cx.env.note("reads misdirected");
        at.cx.trouble.session = true;
        let start = at.other_place(bytes.len());
        Ok(start..start + bytes.len())
    }
}
