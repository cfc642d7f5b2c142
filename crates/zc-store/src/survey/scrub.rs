//! The scrub: every page and chunk that a volume or snapshot refers to is read and verified.
//!
//! Job: walk the maps, have each chunk checked once, tell what cannot be read for every address that refers to it.
//! Invariants: lists are bounded; the answer says where to go on, so a scrub can be taken in pieces, also across
//! restarts. A page that is in memory was verified when it came there, and is not read again. What it does not do: mend.

use std::collections::BTreeSet;

use zc_core::{ErrorKind, OpId};

use super::walk::{Frozen, Item, ScrubPoint, Walk};
use super::{Step, Surveyed};
use crate::ids::{ChunkNo, Place, RootId};
use crate::limits;
use crate::media::batch::Stored;
use crate::numbers::Bitmap;
use crate::pager::Missing;
use crate::seam::{Action, FetchPart, FetchTo, StoreError};
use crate::store::Open;
use crate::trees::Trees;

/// Addresses that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Of this volume or snapshot,
    pub root: RootId,
    /// from this address on, in chunks,
    pub first: u64,
    /// so many: one for contents, more for a page of a map.
    pub count: u64,
    /// What is wrong, and where on the device.
    pub error: StoreError,
}

/// What a scrub found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubReport {
    /// Addresses that were looked at.
    pub addresses: u64,
    /// Chunks that were read and checked, each once.
    pub chunks: u64,
    /// Stored bytes of them.
    pub stored_bytes: u64,
    /// Pages of maps.
    pub pages: u64,
    /// Segments that are neither free nor referred to, and that nothing will free: a fault of the store itself.
    pub lost_segments: u64,
    /// What cannot be read, at most [`limits::DAMAGE_MAX`] and what one read adds.
    pub damage: Vec<Damage>,
    /// Where to go on; `None`: all was looked at.
    pub next: Option<ScrubPoint>,
}

/// A chunk to be checked, and the addresses that refer to it.
#[derive(Debug)]
struct Candidate {
    number: ChunkNo,
    stored: Stored,
    points: Vec<ScrubPoint>,
}

/// A scrub in progress.
#[derive(Debug)]
pub(super) struct Scrubbing {
    walk: Walk,
    addresses_max: u64,
    held: Option<Item>,
    seen: Bitmap,
    /// Chunks that failed.
    bad: BTreeSet<ChunkNo>,
    batch: Vec<Candidate>,
    op: Option<OpId>,
    is_walked: bool,
    report: ScrubReport,
}

impl Scrubbing {
    pub(super) fn new(mut roots: Vec<Frozen>, from: Option<ScrubPoint>, addresses_max: u64) -> Self {
        let mut address = 0;
        if let Some(from) = from {
            roots.retain(|root| root.id >= from.root);
            if roots.first().is_some_and(|root| root.id == from.root) {
                address = from.address;
            }
        }
        Self {
            walk: Walk::new(roots, address),
            addresses_max: addresses_max.max(1),
            held: None,
            seen: Bitmap::default(),
            bad: BTreeSet::new(),
            batch: Vec::new(),
            op: None,
            is_walked: false,
            report: ScrubReport::default(),
        }
    }

    pub(super) fn walk(&self) -> &Walk {
        &self.walk
    }

    pub(super) fn step(&mut self, trees: &mut Trees) -> Result<Step, Missing> {
        if self.op.is_some() || self.batch.len() >= limits::MOVES_MAX {
            return Ok(Step::Fetch);
        }
        if self.is_walked {
            if self.batch.is_empty() {
                self.report.lost_segments = zc_core::u64_from_usize(trees.segments.lost_segments());
                return Ok(Step::Done(Surveyed::Scrub(core::mem::take(&mut self.report))));
            }
            return Ok(Step::Fetch);
        }
        let item = match self.held {
            Some(item) => item,
            None => self.walk.next(trees)?,
        };
        self.held = Some(item);
        match item {
            Item::Root => {}
            Item::Page(..) => self.report.pages += 1,
            Item::Chunk(root, address, number) => {
                let point = ScrubPoint { root: self.walk.roots()[root].id, address };
                let is_full = self.report.addresses >= self.addresses_max
                    || self.report.damage.len() >= limits::DAMAGE_MAX;
                if is_full {
                    self.report.next = Some(point);
                    self.is_walked = true;
                } else {
                    self.look_at(trees, point, number)?;
                    self.report.addresses += 1;
                }
            }
            Item::Lost(root, address, count) => self.pass_lost(root, address, count),
            Item::End => self.is_walked = true,
        }
        self.held = None;
        Ok(Step::Again)
    }

    /// Addresses of which the map says that they are lost. Neighbours are reported together.
    fn pass_lost(&mut self, root: usize, address: u64, count: u64) {
        let Frozen { id: root, size_chunks, .. } = self.walk.roots()[root];
        let count = count.min(size_chunks.saturating_sub(address));
        self.report.addresses += 1;
        let error = StoreError::Damaged(Place::default());
        match self.report.damage.last_mut() {
            Some(last) if (last.root, last.first + last.count, last.error) == (root, address, error) => {
                last.count += count;
            }
            _ if count > 0 => self.tell(ScrubPoint { root, address }, count, error),
            _ => {}
        }
    }

    fn look_at(&mut self, trees: &mut Trees, point: ScrubPoint, number: ChunkNo) -> Result<(), Missing> {
        if let Some(candidate) = self.batch.iter_mut().find(|candidate| candidate.number == number) {
            candidate.points.push(point);
            return Ok(());
        }
        if self.seen.has(number.0) && !self.bad.contains(&number) {
            return Ok(());
        }
        let stored = trees.stored(number)?;
        self.seen.insert(number.0);
        match stored {
            Some(stored) => {
                // The cleaner may move the chunk; what was there stays until it was read.
                trees.segments.pin(stored.place.segment);
                self.batch.push(Candidate { number, stored, points: vec![point] });
            }
            None => self.tell(point, 1, StoreError::Damaged(Place::default())),
        }
        Ok(())
    }

    fn tell(&mut self, point: ScrubPoint, count: u64, error: StoreError) {
        self.report.damage.push(Damage { root: point.root, first: point.address, count, error });
    }

    /// A page that the present step needs cannot be read.
    pub(super) fn cannot_read(&mut self, error: StoreError) {
        if let Some(Item::Chunk(root, address, _)) = self.held.take() {
            let point = ScrubPoint { root: self.walk.roots()[root].id, address };
            self.report.addresses += 1;
            self.tell(point, 1, error);
        } else if let Some((root, address, count)) = self.walk.pass_page() {
            self.tell(ScrubPoint { root, address }, count, error);
        }
    }

    /// Contents were checked: the chunks and their places, which need not be pinned any more, if this scrub had asked.
    pub(super) fn fetched(
        &mut self,
        op: OpId,
        results: &[Result<(), ErrorKind>],
    ) -> Option<Vec<(ChunkNo, Place)>> {
        if self.op != Some(op) {
            return None;
        }
        self.op = None;
        let mut tried = Vec::new();
        for (candidate, result) in core::mem::take(&mut self.batch).into_iter().zip(results) {
            let place = candidate.stored.place;
            tried.push((candidate.number, place));
            self.report.chunks += 1;
            self.report.stored_bytes += u64::from(candidate.stored.stored_bytes);
            let Err(kind) = result else { continue };
            let error = match kind {
                ErrorKind::Corrupt => StoreError::Damaged(place),
                other => StoreError::Device(*other),
            };
            self.bad.insert(candidate.number);
            candidate.points.into_iter().for_each(|point| self.tell(point, 1, error));
        }
        Some(tried)
    }

    /// What was found so far. It goes on with what is not verified yet.
    pub(super) fn broken_off(mut self) -> ScrubReport {
        let unread = self.batch.iter().flat_map(|candidate| &candidate.points).min().copied();
        let held = match self.held {
            Some(Item::Chunk(root, address, _)) => {
                Some(ScrubPoint { root: self.walk.roots()[root].id, address })
            }
            _ => None,
        };
        let ahead = held.or_else(|| self.walk.point()).or(self.report.next);
        self.report.next = unread.or(ahead);
        self.report
    }
}

impl Open {
    /// Has the chunks of a scrub's batch read, unless they are being read.
    pub(super) fn fetch_for_scrub(&mut self, work: &mut Scrubbing) {
        if work.op.is_some() {
            return;
        }
        work.batch.sort_by_key(|candidate| candidate.stored.place);
        let part = |candidate: &Candidate| FetchPart {
            stored: candidate.stored,
            memory: self.log.memory(candidate.stored.place),
            dest_offset_bytes: 0,
        };
        let parts = work.batch.iter().map(part).collect();
        self.next_op += 1;
        let op = OpId(self.next_op);
        work.op = Some(op);
        self.out.push(Action::Fetch { op, parts, to: FetchTo::Nowhere, urgent: false });
    }
}
