//! Dirty data: per volume and epoch, the sectors that clients have written and the origin lacks.
//!
//! Nitro's dirty list (section 3.1), with versions. An extent has a list of *versions*, oldest first; each covers a
//! run of its sectors and belongs to an *epoch*. Within an epoch a newer version replaces the parts of older ones that
//! it covers; a version of an older epoch that is not on the origin yet remains until that epoch is clean (G6), hidden
//! from readers.
//!
//! Invariants: versions of one epoch and extent do not overlap; a list is in the order of the writes; every version of
//! an extent is in its epoch's set. A version that was split is listed twice with one body; a stored body pins its
//! slot once. A method that removes versions returns each body once, with its last listing, and the caller must unpin
//! the slot.
//!
//! Out of scope: I/O, pinning, journal records, and deciding when an epoch ends.

use core::ops::{Range, RangeInclusive};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use smallvec::SmallVec;
use zc_core::{BufSlice, ExtentNo, SECTOR_BYTES, SectorMap};

use crate::index::file_index::Place;

/// Maximum epochs of a run for which the next extent is looked up per epoch; for longer runs all dirty extents are
/// scanned.
const EPOCHS_ASKED_MAX: u64 = 16;

/// Location of the bytes of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// In memory only, with the job that will store it.
    Memory {
        /// Bytes of `stored`.
        src: BufSlice,
        /// Its job.
        job: u64,
    },
    /// In a slot, pinned by it.
    Stored {
        place: Place,
        /// The entry is not shared with another extent, so identity is verified.
        own: bool,
    },
    Zero {
        /// The origin must keep space allocated: a client wrote it as data, or requested that.
        no_hole: bool,
    },
}

impl Body {
    /// Returns `true` if a client discarded it.
    const fn discards(&self) -> bool {
        matches!(self, Self::Zero { no_hole: false })
    }

    /// For zeros: `Some(true)` if the origin must keep space allocated for them.
    pub(crate) const fn zeros(&self) -> Option<bool> {
        match self {
            Self::Zero { no_hole } => Some(*no_hole),
            Self::Memory { .. } | Self::Stored { .. } => None,
        }
    }
}

/// Sectors of an extent after one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(super) epoch: u64,
    pub(super) span: Range<u32>,
    /// Sectors in the body, a superset.
    pub(super) stored: Range<u32>,
    pub(super) body: Body,
}

/// A run of sectors, and the version that readers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Visible {
    pub(super) first: u32,
    pub(super) count: u32,
    /// First sector in the body, and their number.
    pub(super) stored_first: u32,
    pub(super) stored_count: u32,
    pub(super) body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EpochState {
    /// The epoch accepts writes.
    Open,
    /// The epoch is complete; its commit is in progress.
    Closed,
    /// Durable on the cache device.
    Committed,
}

/// Cause of the end of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A flush, or a durable write: later writes must not reach the origin first. Also the value for an unknown cause.
    ByFlush,
    /// Age or size: the next epoch continues it.
    ByItself,
}

/// Writes between two commits.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(super) number: u64,
    pub(super) state: EpochState,
    pub(super) extents: BTreeSet<ExtentNo>,
    /// Versions that are only in memory.
    pub(super) unplaced: u32,
    /// Client bytes admitted.
    pub(super) bytes: u64,
    /// Writes admitted; at most twice as many records.
    pub(super) writes: u64,
    /// Time of its first write.
    pub(super) began_ms: u64,
    /// A client received the completion of a write of this epoch before the epoch is durable.
    pub(super) acknowledged: bool,
    /// Cause of its end; unused while it is open.
    ended: Ended,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RunBounds {
    pub(super) epochs: usize,
    /// Maximum client bytes of a run of more than one epoch.
    pub(super) bytes: u64,
    pub(super) past_flushes: bool,
    /// Last epoch of the run, unless the oldest one is later.
    pub(super) last: u64,
}

#[derive(Debug)]
pub(crate) struct DirtyVolume {
    extents: BTreeMap<ExtentNo, SmallVec<[Version; 1]>>,
    /// Oldest first, with increasing numbers; the last one is open.
    pub(super) epochs: VecDeque<Epoch>,
    /// Last epoch that is on the origin.
    pub(super) clean: u64,
    sectors: u64,
    count: u64,
    /// Discarded extents among the versions.
    discards: u64,
}

impl DirtyVolume {
    /// Creates a list without dirty data; `clean` is the last epoch on the origin.
    pub(crate) fn new(clean: u64) -> Self {
        let epochs = VecDeque::from([Epoch::new(clean + 1)]);
        Self { extents: BTreeMap::new(), epochs, clean, sectors: 0, count: 0, discards: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    pub(crate) fn extent_count(&self) -> usize {
        self.extents.len()
    }

    /// Number of records that describe all of it: one per version, and one per epoch.
    pub(crate) fn record_count(&self) -> u64 {
        self.count + zc_core::u64_from_usize(self.epochs.len())
    }

    /// Newest epoch with writes that may be missing on the origin, or the last clean one.
    pub(crate) fn dirty_until(&self) -> u64 {
        let newest = self.epochs.iter().rev().find(|epoch| !epoch.extents.is_empty());
        newest.map_or(self.clean, |epoch| epoch.number)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sectors * u64::from(SECTOR_BYTES)
    }

    /// The epoch that takes writes.
    pub(crate) fn open(&mut self) -> &mut Epoch {
        self.epochs.back_mut().unwrap_or_else(|| panic!("a volume has an open epoch"))
    }

    /// Returns an epoch that is not clean, by binary search.
    pub(crate) fn epoch(&self, number: u64) -> Option<&Epoch> {
        let at = self.epochs.binary_search_by_key(&number, |epoch| epoch.number).ok()?;
        self.epochs.get(at)
    }

    /// [`Self::epoch`], for changes.
    pub(crate) fn epoch_mut(&mut self, number: u64) -> Option<&mut Epoch> {
        let at = self.epochs.binary_search_by_key(&number, |epoch| epoch.number).ok()?;
        self.epochs.get_mut(at)
    }

    /// Ends the open epoch and begins the next; returns the number of the ended one.
    pub(crate) fn close(&mut self, ended: Ended) -> u64 {
        let open = self.open();
        open.state = EpochState::Closed;
        open.ended = ended;
        let number = open.number;
        self.epochs.push_back(Epoch::new(number + 1));
        number
    }

    /// Records the acknowledgement of an admitted write.
    pub(crate) fn acknowledge(&mut self) {
        self.open().acknowledged = true;
    }

    /// Records a flush without writes since the last epoch, which counts as ended by it.
    pub(crate) fn flushed(&mut self) {
        if let Some(last) = self.epochs.iter_mut().rev().find(|epoch| epoch.state != EpochState::Open) {
            last.ended = Ended::ByFlush;
        }
    }

    /// Returns the oldest epoch, if it is committed, with the following committed ones up to the first that a flush
    /// ended, within the bounds: the origin may hold any subset of their writes.
    pub(crate) fn oldest_run(&self, bounds: RunBounds) -> Option<RangeInclusive<u64>> {
        let mut committed = self.epochs.iter().take_while(|epoch| epoch.state == EpochState::Committed);
        let first = committed.next()?;
        let (mut last, mut bytes) = (first, first.bytes);
        for epoch in committed.take(bounds.epochs - 1) {
            bytes += epoch.bytes;
            let divided = last.ended == Ended::ByFlush && !bounds.past_flushes;
            if divided || bytes > bounds.bytes || epoch.number > bounds.last {
                break;
            }
            last = epoch;
        }
        Some(first.number..=last.number)
    }

    /// The first extent from `from` on with versions of these epochs.
    pub(crate) fn next_extent(&self, epochs: &RangeInclusive<u64>, from: ExtentNo) -> Option<ExtentNo> {
        if epochs.end() - epochs.start() < EPOCHS_ASKED_MAX {
            let own = epochs.clone().filter_map(|number| self.epoch(number));
            return own.filter_map(|epoch| epoch.extents.range(from..).next().copied()).min();
        }
        let of_run = |versions: &[Version]| versions.iter().any(|version| epochs.contains(&version.epoch));
        self.extents.range(from..).find(|(_, versions)| of_run(versions)).map(|(extent, _)| *extent)
    }

    /// At a restart: sets the number of the open epoch.
    pub(crate) fn restore(&mut self, number: u64) {
        let open = self.open();
        if open.extents.is_empty() {
            open.number = number;
        }
    }

    /// Adds a write to the open epoch. Returns the bodies that it replaced in that epoch.
    pub(crate) fn write(
        &mut self,
        extent: ExtentNo,
        span: Range<u32>,
        body: Body,
        now_ms: u64,
    ) -> SmallVec<[Body; 2]> {
        let epoch = self.open();
        if epoch.extents.is_empty() {
            epoch.began_ms = now_ms;
        }
        epoch.extents.insert(extent);
        epoch.bytes += u64::from(span.end - span.start) * u64::from(SECTOR_BYTES);
        epoch.writes += 1;
        epoch.unplaced += u32::from(matches!(body, Body::Memory { .. }));
        let number = epoch.number;
        let replaced = self.cut(extent, number, &span);
        self.sectors += u64::from(span.end - span.start);
        self.count += 1;
        self.discards += u64::from(body.discards());
        let version = Version { epoch: number, stored: span.clone(), span, body };
        self.extents.entry(extent).or_default().push(version);
        replaced
    }

    /// Removes the sectors in `span` from the versions of one epoch.
    fn cut(&mut self, extent: ExtentNo, epoch: u64, span: &Range<u32>) -> SmallVec<[Body; 2]> {
        let mut gone: SmallVec<[Body; 2]> = SmallVec::new();
        let Some(versions) = self.extents.get_mut(&extent) else { return gone };
        let mut kept: SmallVec<[Version; 2]> = SmallVec::new();
        for version in versions.drain(range_of(versions, &(epoch..=epoch))) {
            let overlaps = version.span.start < span.end && span.start < version.span.end;
            if !overlaps {
                kept.push(version);
                continue;
            }
            let overlap = version.span.start.max(span.start)..version.span.end.min(span.end);
            self.sectors -= u64::from(overlap.end - overlap.start);
            self.count -= 1;
            self.discards -= u64::from(version.body.discards());
            let before = version.span.start..overlap.start;
            let after = overlap.end..version.span.end;
            let parts = [before, after].into_iter().filter(|part| !part.is_empty());
            for span in parts {
                self.count += 1;
                self.discards += u64::from(version.body.discards());
                kept.push(Version { span, ..version.clone() });
            }
            gone.push(version.body);
        }
        gone.retain(|body| !kept.iter().any(|kept| kept.body == *body));
        versions.extend(kept);
        dedup(&mut gone);
        let jobs = gone.iter().filter(|body| matches!(body, Body::Memory { .. })).count();
        if let Some(epoch) = self.epoch_mut(epoch) {
            epoch.unplaced -= u32::try_from(jobs).unwrap_or(u32::MAX);
        }
        gone
    }

    /// Returns the versions that readers of the sectors see, in order; sectors that are not dirty are left out.
    pub(crate) fn visible(&self, extent: ExtentNo, sectors: &Range<u32>) -> SmallVec<[Visible; 2]> {
        let mut found = SmallVec::new();
        let Some(versions) = self.extents.get(&extent) else { return found };
        let mut wanted = SectorMap::from_range(sectors.clone());
        for version in versions.iter().rev() {
            if wanted.is_empty() {
                break;
            }
            let mut here = SectorMap::EMPTY;
            for run in wanted.runs(sectors.end, true) {
                let (start, end) = (run.start.max(version.span.start), run.end.min(version.span.end));
                if start < end {
                    here.insert(start..end);
                }
            }
            for run in here.runs(sectors.end, true) {
                wanted.remove(run.clone());
                found.push(Visible {
                    first: run.start,
                    count: run.end - run.start,
                    stored_first: version.stored.start,
                    stored_count: version.stored.end - version.stored.start,
                    body: version.body,
                });
            }
        }
        found.sort_unstable_by_key(|visible| visible.first);
        found
    }

    /// Returns the newest version among these epochs of each sector of an extent, in order of the sectors.
    pub(crate) fn of_epochs(&self, extent: ExtentNo, epochs: &RangeInclusive<u64>) -> SmallVec<[Version; 2]> {
        let mut left: SmallVec<[Version; 2]> = SmallVec::new();
        let mut hidden = SectorMap::EMPTY;
        for version in self.versions(extent, epochs).iter().rev() {
            let mut seen = SectorMap::from_range(version.span.clone());
            hidden.runs(version.span.end, true).for_each(|run| seen.remove(run));
            left.extend(seen.runs(version.span.end, true).map(|span| Version { span, ..version.clone() }));
            hidden.insert(version.span.clone());
        }
        left.sort_unstable_by_key(|version| version.span.start);
        left
    }

    /// Returns `true` if discards are missing on the origin.
    pub(crate) const fn has_discards(&self) -> bool {
        self.discards > 0
    }

    /// Sectors of an extent that clients discarded and did not write again within these epochs, in order.
    pub(crate) fn discarded(&self, extent: ExtentNo, epochs: &RangeInclusive<u64>) -> SmallVec<[Version; 2]> {
        let mut left = self.of_epochs(extent, epochs);
        left.retain(|version| version.body.discards());
        left
    }

    /// Returns the versions of an extent that a run writes, without the sectors discarded by the end of `ahead`: the
    /// origin has those discards already.
    pub(crate) fn of_run(
        &self,
        extent: ExtentNo,
        run: &RangeInclusive<u64>,
        ahead: u64,
    ) -> SmallVec<[Version; 2]> {
        let left = self.of_epochs(extent, run);
        if ahead < *run.start() {
            return left;
        }
        let mut gone = SectorMap::EMPTY;
        for version in self.discarded(extent, &(*run.start()..=ahead)) {
            gone.insert(version.span);
        }
        if gone.is_empty() {
            return left;
        }
        let mut kept = SmallVec::new();
        for version in left {
            let mut seen = SectorMap::from_range(version.span.clone());
            gone.runs(version.span.end, true).for_each(|run| seen.remove(run));
            kept.extend(seen.runs(version.span.end, true).map(|span| Version { span, ..version.clone() }));
        }
        kept
    }

    /// Returns `true` if nothing of these extents is dirty.
    pub(crate) fn is_clean(&self, extents: RangeInclusive<ExtentNo>) -> bool {
        self.extents.range(extents).next().is_none()
    }

    /// Last of the consecutive committed epochs from the oldest on.
    pub(crate) fn last_committed(&self) -> Option<u64> {
        let committed = self.epochs.iter().take_while(|epoch| epoch.state == EpochState::Committed);
        committed.last().map(|epoch| epoch.number)
    }

    /// The versions of an extent that belong to an epoch, in the order of the writes.
    pub(crate) fn in_write_order(&self, extent: ExtentNo, epoch: u64) -> impl Iterator<Item = &Version> {
        self.versions(extent, &(epoch..=epoch)).iter()
    }

    /// The versions of an extent that belong to these epochs, in the order of the writes.
    pub(crate) fn versions(&self, extent: ExtentNo, epochs: &RangeInclusive<u64>) -> &[Version] {
        self.extents.get(&extent).map_or(&[], |versions| &versions[range_of(versions, epochs)])
    }

    /// Replaces the memory body of a job by its stored body, which must still be needed (see [`DirtyVolume::awaits`]).
    pub(crate) fn placed(&mut self, extent: ExtentNo, job: u64, body: Body) {
        let mut of_epoch = None;
        // All versions of a job belong to one epoch, usually the newest.
        for version in self.extents.get_mut(&extent).into_iter().flatten().rev() {
            if of_epoch.is_some_and(|epoch| epoch != version.epoch) {
                break;
            }
            if matches!(version.body, Body::Memory { job: of, .. } if of == job) {
                version.body = body;
                of_epoch = Some(version.epoch);
            }
        }
        if let Some(epoch) = of_epoch.and_then(|number| self.epoch_mut(number)) {
            epoch.unplaced -= 1;
        }
    }

    /// Returns `true` if a version still waits for a job.
    pub(crate) fn awaits(&self, extent: ExtentNo, job: u64) -> bool {
        self.extents
            .get(&extent)
            .into_iter()
            .flatten()
            .rev()
            .any(|version| matches!(version.body, Body::Memory { job: of, .. } if of == job))
    }

    /// Returns `true` if the newest version waits for a job.
    pub(crate) fn newest_awaits(&self, extent: ExtentNo, job: u64) -> bool {
        let newest = self.extents.get(&extent).and_then(|versions| versions.last());
        newest.is_some_and(|version| matches!(version.body, Body::Memory { job: of, .. } if of == job))
    }

    /// Removes an epoch and all before it, which are on the origin. Returns their bodies.
    pub(crate) fn forget_until(&mut self, epoch: u64) -> Vec<Body> {
        let mut gone = Vec::new();
        while self
            .epochs
            .front()
            .is_some_and(|first| first.number <= epoch && first.state != EpochState::Open)
        {
            let Some(first) = self.epochs.pop_front() else { break };
            for extent in first.extents {
                self.remove_epoch(extent, first.number, &mut gone);
            }
        }
        self.clean = self.clean.max(epoch);
        gone
    }

    pub(crate) fn forget_all(&mut self) -> Vec<Body> {
        let mut gone = Vec::new();
        while let Some(epoch) = self.epochs.pop_front() {
            for extent in epoch.extents {
                self.remove_epoch(extent, epoch.number, &mut gone);
            }
            self.clean = epoch.number;
        }
        self.epochs.push_back(Epoch::new(self.clean + 1));
        gone
    }

    fn remove_epoch(&mut self, extent: ExtentNo, epoch: u64, gone: &mut Vec<Body>) {
        let Some(versions) = self.extents.get_mut(&extent) else { return };
        let mut bodies: SmallVec<[Body; 2]> = SmallVec::new();
        for version in versions.drain(range_of(versions, &(epoch..=epoch))) {
            self.sectors -= u64::from(version.span.end - version.span.start);
            self.count -= 1;
            self.discards -= u64::from(version.body.discards());
            bodies.push(version.body);
        }
        dedup(&mut bodies);
        gone.extend(bodies);
        if versions.is_empty() {
            self.extents.remove(&extent);
        }
    }

    /// Oldest epoch that is not clean and has writes.
    pub(crate) fn oldest(&self) -> Option<&Epoch> {
        self.epochs.iter().find(|epoch| !epoch.extents.is_empty())
    }
}

/// Range of an extent's versions of these epochs, by binary search: versions are ordered by epoch.
fn range_of(versions: &[Version], epochs: &RangeInclusive<u64>) -> Range<usize> {
    let start = versions.partition_point(|version| version.epoch < *epochs.start());
    let count = versions[start..].partition_point(|version| version.epoch <= *epochs.end());
    start..start + count
}

/// Removes duplicates: equal bodies of one epoch and extent are one body that was split.
fn dedup(bodies: &mut SmallVec<[Body; 2]>) {
    let mut at = 0;
    while at < bodies.len() {
        if bodies[..at].contains(&bodies[at]) {
            bodies.remove(at);
        } else {
            at += 1;
        }
    }
}

impl Epoch {
    fn new(number: u64) -> Self {
        Self {
            number,
            state: EpochState::Open,
            extents: BTreeSet::new(),
            unplaced: 0,
            bytes: 0,
            writes: 0,
            began_ms: 0,
            acknowledged: false,
            ended: Ended::ByItself,
        }
    }
}

/// Use of the capacity for dirty data of all volumes. Writes wait when either bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirtyFill {
    /// Units with dirty data.
    pub units: u64,
    /// The most there may be.
    pub units_max: u64,
    /// Records of dirty data in memory and journal.
    pub records: u64,
    /// The most there may be.
    pub records_max: u64,
}

/// The dirty data of a volume, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirtyState {
    /// Bytes that the origin does not have, older versions that are still dirty included.
    pub bytes: u64,
    /// Extents concerned.
    pub extents: u64,
    /// Epochs that are not on the origin.
    pub epochs: u64,
    /// Age of the oldest of them, in milliseconds: the cost of losing the cache now.
    pub oldest_age_ms: u64,
    /// Requests fail because dirty data is out of reach.
    pub fenced: bool,
    /// The origin refused it at the last attempt, which will be retried.
    pub refusing: bool,
    /// The last commit is durable, but its proof is not yet: a start could mistake corruption of it for an interrupted
    /// write.
    pub unproved: bool,
    /// Dirty data is being destaged without a pause.
    pub draining: bool,
    /// Writes that wait for capacity.
    pub waiting: u64,
    /// Wait of the oldest of them, in milliseconds.
    pub waiting_ms: u64,
    /// The origin has no space for the dirty data.
    pub no_space: bool,
    /// Newest epoch: data dropped now ends with it.
    pub newest_epoch: u64,
    /// Newest epoch with dirty data; the last clean one if nothing is dirty. All data that is dirty now is on the
    /// origin once `clean_epoch` reaches it.
    pub dirty_epoch: u64,
    /// The newest epoch that is on the origin with all before it.
    pub clean_epoch: u64,
    /// Dirty bytes destaged to the origin since the manager opened the volume. Dropped bytes are not counted.
    pub destaged_bytes: u64,
    /// Offset of the first data that the cache device fails to return and no later write covers; later data is not
    /// destaged.
    pub stuck_offset_bytes: u64,
    /// Contiguous unreadable bytes there; 0 if all data is readable.
    pub stuck_bytes: u64,
    /// All known unreadable bytes.
    pub unreadable_bytes: u64,
}

#[cfg(test)]
#[path = "versions_tests.rs"]
mod tests;
