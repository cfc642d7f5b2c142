//! Latent page errors: slots with pages that fail to read or read as zeros.

use core::ops::Range;

use zc_core::ErrorKind;

use super::{Fault, Strike};
use crate::disk::PAGE;

#[derive(Debug)]
pub(super) struct Latent;

impl Fault for Latent {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self)
    }

    fn reads(&mut self, at: &mut Strike<'_, '_>, bytes: Range<usize>) -> Result<Range<usize>, ErrorKind> {
        if at.disk.is_unreadable(bytes.start, bytes.len()) {
            at.cx.trouble.session = true;
            at.cx.env.note("unreadable pages read");
            return Err(ErrorKind::Io);
        }
        Ok(bytes)
    }

    fn decays(&mut self, at: &mut Strike<'_, '_>, drawn: u32) -> bool {
        if !at.cx.faults.latent || !(6..8).contains(&drawn) {
            return false;
        }
        let slots = at.slots();
        let page = slots.start + at.cx.env.random_range(0..slots.len() / PAGE) * PAGE;
        if at.cx.env.random_bool(0.7) {
            at.cx.trouble.damage();
            at.disk.make_unreadable(page);
            at.cx.env.note("pages became unreadable");
        } else {
            at.cx.trouble.lie(true);
            at.disk.damage(page, &[0; PAGE]);
            at.cx.env.note("pages became zero");
        }
        true
    }
}
