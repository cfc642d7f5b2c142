//! Metadata decay: bit rot, lost or unreadable pages. A start must detect them.

use super::{Fault, Strike};
use crate::disk::{self, PAGE};

/// Decay of metadata, also while no session serves the device.
#[derive(Debug)]
pub(super) struct Metadata;

impl Metadata {
    fn strike(at: &mut Strike<'_, '_>) {
        let copy = at.cx.env.random_range(0..2);
        let (start, end) = match at.cx.env.random_range(0..5) {
            0 => (at.geometry.region_map[copy], at.geometry.region_map[copy] + 4096),
            1 => (at.geometry.checkpoint[copy], at.geometry.checkpoint[copy] + 3 * 4096),
            2 => {
                let offsets = zc_format::Superblock::offsets(at.geometry.device_bytes);
                let offset = offsets[at.cx.env.random_range(0..offsets.len())];
                (offset, offset + 4096)
            }
            _ => {
                let journal = disk::journal_range(at.geometry);
                (journal.start as u64, journal.end as u64)
            }
        };
        let byte = at.cx.env.random_range(start..end) as usize;
        match at.cx.env.random_range(0..4) {
            0 if at.cx.faults.latent => {
                at.cx.trouble.damage();
                at.disk.make_unreadable(byte);
                at.cx.env.note("metadata became unreadable");
            }
            1 if at.cx.faults.latent => {
                at.cx.trouble.lie(false);
                let len = if at.cx.env.random_bool(0.5) { PAGE } else { 4 * PAGE };
                let page = byte / PAGE * PAGE;
                at.disk.damage(page, &vec![0; len.min(at.disk.seen.len() - page)]);
                at.cx.env.note("metadata became zero");
            }
            _ if at.cx.faults.rot => {
                at.cx.trouble.lie(false);
                at.flip(byte);
                at.cx.env.note("metadata rotted");
            }
            _ => {}
        }
    }
}

impl Fault for Metadata {
    fn fork(&self) -> Box<dyn Fault> {
        Box::new(Self)
    }

    fn decays(&mut self, at: &mut Strike<'_, '_>, drawn: u32) -> bool {
        let is_due = drawn == 11 && (at.cx.faults.rot || at.cx.faults.latent);
        if is_due {
            Self::strike(at);
        }
        is_due
    }

    fn rests(&mut self, at: &mut Strike<'_, '_>) {
        if at.cx.env.random_bool(0.2) {
            Self::strike(at);
        }
    }
}
