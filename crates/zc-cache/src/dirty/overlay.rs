//! Overlay: reads dirty sectors of an extent from the dirty layer, and the others from the clean layer or the origin.
//!
//! Invariant: a dirty sector is never read from another source. If its bytes fail verification, the client gets an
//! error.

use core::ops::Range;

use zc_core::{ExtentKey, SECTOR_BYTES};

use crate::clean::Clean;
use crate::clean::read::portion::{Portion, SectorSource, StoredPart, StoredParts, Waiter, sector_range};
use crate::device::Core;
use crate::dirty::versions::{Body, Visible};
use crate::index::file_index::Mapping;
use crate::residency::{Residency, ResidencyRun, push};
use crate::seam::Action;

/// Reads a portion with dirty sectors from the dirty layer, and the runs between them one by one.
pub(super) fn read_overlaid(
    read: u64,
    portion: &Portion,
    visible: &[Visible],
    stored: &mut StoredParts,
    core: &mut Core,
    clean: &mut Clean,
) {
    let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
    let mut next = sectors.start;
    for run in visible {
        read_beneath(read, &part_of(portion, next..run.first), stored, core, clean);
        next = run.first + run.count;
        let part = part_of(portion, run.first..next);
        let skip_bytes = (run.first - run.stored_first) * SECTOR_BYTES;
        match run.body {
            Body::Zero { .. } => {
                core.base.stats.extent_hits_zero += 1;
                core.base.port.emit(Action::Zero { dest: part.dest });
            }
            Body::Memory { src, .. } => {
                core.base.stats.extent_hits_memory += 1;
                core.base
                    .port
                    .emit(Action::Copy { from: src.part(skip_bytes, part.len_bytes), to: part.dest });
            }
            Body::Stored { place, own } => {
                let mapping = if own { Mapping::Base(place) } else { Mapping::Duplicate(place) };
                let dirty = Some(run.stored_first..run.stored_first + run.stored_count);
                stored.push(StoredPart { place, mapping, portion: part, dirty });
            }
        }
    }
    read_beneath(read, &part_of(portion, next..sectors.end), stored, core, clean);
}

/// Reads the sectors of an extent between dirty ones, from the clean layer.
fn read_beneath(read: u64, portion: &Portion, stored: &mut StoredParts, core: &mut Core, clean: &mut Clean) {
    if portion.len_bytes == 0 {
        return;
    }
    let (reads, copies) = clean.reads_and_copies();
    match reads.find(portion, copies, core) {
        SectorSource::Copy(from) => {
            core.base.stats.extent_hits_memory += 1;
            core.base.port.emit(Action::Copy { from, to: portion.dest });
        }
        SectorSource::Zero => {
            core.base.stats.extent_hits_zero += 1;
            core.base.port.emit(Action::Zero { dest: portion.dest });
        }
        SectorSource::Stored(mapping, place) => {
            stored.push(StoredPart { place, mapping, portion: *portion, dirty: None });
        }
        SectorSource::Filling(fill) => {
            core.base.stats.extent_joins += 1;
            reads.wait_for_origin(read);
            reads.join_fill(fill, Waiter { read, portion: *portion }, copies, core);
        }
        SectorSource::Nothing => {
            reads.goes_to_origin(read);
            reads.read_missing(read, &[*portion], None, copies, core);
        }
    }
}

/// The part of a portion that consists of these sectors; an empty run yields an empty part.
fn part_of(portion: &Portion, sectors: Range<u32>) -> Portion {
    let skip_bytes = sectors.start * SECTOR_BYTES;
    let len_bytes = (sectors.end - sectors.start) * SECTOR_BYTES;
    let dest = portion.dest.part(skip_bytes - portion.skip_bytes, len_bytes);
    Portion { key: portion.key, skip_bytes, len_bytes, dest }
}

/// Reports the residency of sectors of an extent with dirty sectors.
pub(crate) fn residency_overlaid(
    key: ExtentKey,
    sectors: &Range<u32>,
    visible: &[Visible],
    runs: &mut Vec<ResidencyRun>,
    core: &Core,
    clean: &Clean,
) {
    let bytes = |count: u32| u64::from(count) * u64::from(SECTOR_BYTES);
    let beneath = |range: Range<u32>, runs: &mut Vec<ResidencyRun>| {
        if !range.is_empty() {
            let (skip, len) = (range.start * SECTOR_BYTES, (range.end - range.start) * SECTOR_BYTES);
            push(runs, len.into(), clean.copies().residency_of(key, skip, len, core));
        }
    };
    let mut next = sectors.start;
    for run in visible {
        beneath(next..run.first, runs);
        push(runs, bytes(run.count), Residency::Dirty);
        next = run.first + run.count;
    }
    beneath(next..sectors.end, runs);
}
