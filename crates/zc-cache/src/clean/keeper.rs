//! Keeper: reads pinned extents into the cache, where they stay (see `device::slots::kept`).
//!
//! It walks over all pinned extents. Absent extents are read from the origin and inserted, regardless of the volume's
//! admission. Extents stored outside pinned units are read from the cache device and relocated. Walks repeat until one
//! finds all extents safe; the next one then starts after a change.
//!
//! Bounds: a walk checks [`LOOKUPS_PER_TICK`] extents per tick. It reads at most [`BYTES_PER_S`], or
//! [`BYTES_PER_S_BUSY`] while client requests are pending. It has at most [`IN_FLIGHT_BYTES`] of reads in flight, and
//! leaves half of the capacity for client insertions. Walks without progress are repeated at increasing intervals.
//!
//! Invariants: each extent has at most one relocation in progress, and its slot is not evicted during the read.
//! Extents written since are not inserted. Out of scope: choosing the place of extents.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use zc_core::{BufSlice, ErrorKind, ExtentKey, ExtentNo, Map, VolumeId};

use crate::base::rate::ByteRate;
use crate::base::tracks::Guard;
use crate::clean::copies::Copies;
use crate::clean::insert::{InsertOptions, Inserts};
use crate::clean::read::ahead::{Reason, admits};
use crate::clean::read::reads::Reads;
use crate::device::Core;
use crate::device::catalog::pinned::Keeping;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Mapping, Place};
use crate::ops::read::Op;
use crate::seam::Action;
use crate::seam::{ExtentRead, Note, PartResults, Purpose};

const LOOKUPS_PER_TICK: u64 = 4096;
/// Bytes per second that are read from origins or relocated while no client request is pending.
const BYTES_PER_S: u64 = 64 << 20;
/// Bytes per second while client requests are pending.
const BYTES_PER_S_BUSY: u64 = 16 << 20;
/// Maximum length of one origin read.
const RUN_BYTES: u64 = 256 << 10;
const IN_FLIGHT_BYTES: u64 = 1 << 20;
/// Pause between walks.
const PAUSE_MS: u64 = 500;
/// Maximum pause, after walks without progress.
const PAUSE_MAX_MS: u64 = 64_000;

/// An extent being relocated.
#[derive(Debug)]
struct Move {
    guard: Guard,
    src: BufSlice,
    mapping: Mapping,
    place: Place,
}

#[derive(Debug)]
struct Walk {
    next: ExtentKey,
    safe: BTreeMap<VolumeId, u64>,
    /// Extents that are not safe yet.
    missing: u64,
    changes: u64,
}

#[derive(Debug)]
pub(crate) struct Keeper {
    walk: Option<Walk>,
    /// Change count at the beginning of the last walk that found all extents safe or made no progress.
    seen_changes: u64,
    /// Unsafe extents found by the last walk.
    missing: u64,
    ended_ms: u64,
    pause_ms: u64,
    rate: ByteRate,
    in_flight_bytes: u64,
    moves: Map<u64, Move>,
    moving: BTreeSet<ExtentKey>,
}

impl Default for Keeper {
    fn default() -> Self {
        Self {
            walk: None,
            seen_changes: 0,
            missing: 0,
            ended_ms: 0,
            pause_ms: PAUSE_MS,
            rate: ByteRate::default(),
            in_flight_bytes: 0,
            moves: Map::default(),
            moving: BTreeSet::new(),
        }
    }
}

impl Keeper {
    pub(crate) const fn fetched(&mut self, bytes: u64) {
        self.in_flight_bytes -= bytes;
    }

    /// Returns `true` if work is due soon; walks without progress do not count.
    fn is_at_work(&self, changes: u64) -> bool {
        !self.is_done(changes)
            && (self.pause_ms == PAUSE_MS || self.walk.is_some() || changes != self.seen_changes)
    }

    /// Returns `true` if the last walk found all extents safe and nothing has changed since it began.
    fn is_done(&self, changes: u64) -> bool {
        self.walk.is_none() && self.missing == 0 && self.seen_changes == changes
    }

    fn begin_if_due(&mut self, changes: u64, now_ms: u64) {
        if self.walk.is_some() || self.is_done(changes) {
            return;
        }
        if changes != self.seen_changes {
            self.pause_ms = PAUSE_MS;
        }
        if now_ms < self.ended_ms + self.pause_ms {
            return;
        }
        let next = ExtentKey { volume: VolumeId(0), extent: ExtentNo(0) };
        self.walk = Some(Walk { next, safe: BTreeMap::new(), missing: 0, changes });
    }

    /// Ends a walk; returns the safe extents by volume.
    fn end_walk(&mut self, now_ms: u64) -> BTreeMap<VolumeId, u64> {
        let walk = self.walk.take().expect_held();
        let gained = walk.missing == 0 || walk.missing < self.missing || walk.changes != self.seen_changes;
        self.pause_ms = if gained { PAUSE_MS } else { (self.pause_ms * 2).min(PAUSE_MAX_MS) };
        self.missing = walk.missing;
        self.seen_changes = walk.changes;
        self.ended_ms = now_ms;
        walk.safe
    }
}

impl Keeper {
    /// Returns `true` if the keeper has work, so that ticks stay frequent.
    pub(crate) fn is_keeping(&self, core: &Core) -> bool {
        core.device.catalog.slots().kept().is_used()
            && self.is_at_work(core.device.catalog.slots().kept().changes())
    }

    /// Continues the walk on a tick.
    pub(crate) fn keep(&mut self, is_busy: bool, reads: &mut Reads, copies: &mut Copies, core: &mut Core) {
        if !core.device.catalog.slots().kept().is_used() || !core.base.is_good() || core.base.is_stopping() {
            return;
        }
        if core.device.catalog.change_kept(LOOKUPS_PER_TICK, &mut core.base) || !core.base.is_loaded() {
            return;
        }
        core.device.catalog.slots_mut().empty_units(&mut core.base);
        let now_ms = core.base.now_ms();
        self.begin_if_due(core.device.catalog.slots().kept().changes(), now_ms);
        let mut left = LOOKUPS_PER_TICK;
        while let Some(next) = self.walk.as_ref().map(|walk| walk.next)
            && left > 0
            && self.may_read(is_busy, copies, core)
        {
            let Some((volume, run)) = core.device.catalog.slots().kept().next(next) else {
                let safe = self.end_walk(now_ms);
                core.device.catalog.slots_mut().kept_mut().set_safe(&safe);
                return;
            };
            let first = ExtentKey { volume, extent: ExtentNo(run.start) };
            let whole = core.base.volume(volume).map_or(0, |volume| volume.whole_extents());
            let run = run.start..run.end.min(whole);
            let is_admitted = admits(first, Reason::Kept, &core.base);
            if run.is_empty() || !is_admitted {
                self.skip_volume(volume, is_admitted);
                continue;
            }
            left -= self.walk_run((volume, run), left, reads, copies, core);
        }
    }

    fn may_read(&mut self, is_busy: bool, copies: &Copies, core: &Core) -> bool {
        let bytes_per_s = if is_busy { BYTES_PER_S_BUSY } else { BYTES_PER_S };
        self.in_flight_bytes < IN_FLIGHT_BYTES
            && self.rate.allows(bytes_per_s, core.base.now_ms())
            && Reads::has_room_to_warm(self.in_flight_bytes + RUN_BYTES, copies, core)
    }

    fn skip_volume(&mut self, volume: VolumeId, is_behind_end: bool) {
        if let Some(walk) = &mut self.walk {
            walk.missing += u64::from(!is_behind_end);
            walk.next = ExtentKey { volume: VolumeId(volume.0 + 1), extent: ExtentNo(0) };
        }
    }

    /// Walks over neighbouring extents until a read is needed. Returns the number of extents checked.
    fn walk_run(
        &mut self,
        (volume, run): (VolumeId, Range<u64>),
        most: u64,
        reads: &mut Reads,
        copies: &mut Copies,
        core: &mut Core,
    ) -> u64 {
        let most_absent = RUN_BYTES / u64::from(core.base.extent_bytes());
        let (mut safe, mut missing) = (0, 0);
        let mut absent: Option<Range<u64>> = None;
        let mut at = run.start;
        while at < run.end && at - run.start < most {
            let key = ExtentKey { volume, extent: ExtentNo(at) };
            let keeping = core.device.catalog.keeping(key);
            let is_to_be_read = keeping == Keeping::Absent && reads.is_quiet_extent(key, copies, core);
            if absent.as_ref().is_some_and(|run| !is_to_be_read || run.end - run.start >= most_absent) {
                break;
            }
            at += 1;
            match keeping {
                Keeping::Safe => safe += 1,
                Keeping::Absent => {
                    missing += 1;
                    copies.insert_prefetched(key, core);
                    if is_to_be_read {
                        absent = Some(absent.map_or(at - 1..at, |run| run.start..at));
                    }
                }
                Keeping::Astray(mapping, place) => {
                    missing += 1;
                    if reads.is_quiet_extent(key, copies, core) && self.place_anew(key, mapping, place, core)
                    {
                        break;
                    }
                }
            }
        }
        if let Some(absent) = absent {
            let bytes = (absent.end - absent.start) * u64::from(core.base.extent_bytes());
            self.spend(bytes);
            reads.fetch_extents(volume, absent, Reason::Kept, None, copies, core);
        }
        if let Some(walk) = &mut self.walk {
            *walk.safe.entry(volume).or_default() += safe;
            walk.missing += missing;
            walk.next = ExtentKey { volume, extent: ExtentNo(at) };
        }
        (at - run.start).max(1)
    }

    fn spend(&mut self, bytes: u64) {
        self.rate.spend(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.in_flight_bytes += bytes;
    }

    /// Reads a stored extent in order to relocate it. Returns `true` if the read has started.
    fn place_anew(&mut self, key: ExtentKey, mapping: Mapping, place: Place, core: &mut Core) -> bool {
        if self.moving.contains(&key) || !core.device.is_past_gate(key.volume, mapping, &core.base) {
            return false;
        }
        let Some(guard) = core.base.tracks.guard(key) else { return false };
        let len_bytes = core.base.extent_bytes();
        let src = BufSlice { buf: core.base.port.alloc(len_bytes), start_bytes: 0, len_bytes };
        core.device.catalog.table_mut().pin(place.slot);
        let id = core.base.port.number();
        let expected = core.device.catalog.slots().expected(&mapping, &place, key, &core.base);
        // The extent is stored under the fingerprint of the bytes read.
        let proof = core.device.units.proof(key.volume, &place, &core.base.whole_sectors(), &core.base);
        let part = ExtentRead { expected, skip_bytes: 0, dest: src, proof, keep: false };
        core.device.units.read_stored_extent(Op::Move(id), &place, part, &mut core.base);
        self.spend(len_bytes.into());
        self.moving.insert(key);
        self.moves.insert(id, Move { guard, src, mapping, place });
        true
    }

    /// Handles the read of a stored extent for relocation.
    pub(crate) fn moved(
        &mut self,
        id: u64,
        result: Result<PartResults, ErrorKind>,
        inserts: &mut Inserts,
        core: &mut Core,
    ) {
        let Move { guard, src, mapping, place } = self.moves.remove(&id).expect_held();
        let key = guard.key;
        self.moving.remove(&key);
        self.in_flight_bytes -= u64::from(src.len_bytes);
        core.device.catalog.table_mut().unpin(place.slot);
        let fault = match result {
            Ok(parts) => {
                core.base.device_read_worked();
                parts.into_iter().find_map(Result::err)
            }
            Err(error) => {
                core.base.tracks.release(&guard);
                core.base.port.release(src.buf);
                core.base.device_read_failed(Purpose::ExtentRead, error);
                return;
            }
        };
        if let Some(fault) = fault {
            core.base.stats.failed_hits += 1;
            core.device.catalog.slots_mut().note_damaged(&mapping);
            if core.device.catalog.mapping(key) == Some(mapping) {
                core.device.catalog.forget(key, &mut core.base);
            }
            core.base.port.emit(Action::Note(Note::ExtentDropped { slot: place.slot, fault }));
            core.base.tracks.release(&guard);
            core.base.port.release(src.buf);
            return;
        }
        core.base.stats.pinned_extents_moved += 1;
        let batch = inserts.begin_batch(None, core);
        inserts.insert(batch, guard, src, InsertOptions { only_if_duplicate: false }, core);
        inserts.end_batch(batch);
    }
}
