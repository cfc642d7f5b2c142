//! Requests of the cache to its store, and starts and crashes of the pool with the daemon.

use rand_pcg::Pcg64Mcg;
use zc_cache::seam::{Action, Event};
use zc_core::{BufSlice, DedupDomain, ErrorKind, OpId, VolumeId};
use zc_pool::{Answer, KnownChunk, PoolError, RequestKind};
use zc_store::RootId;
use zc_store::seam::StoreError;

use super::Pooled;
use crate::bench::Bench;
use crate::queue::Queue;

/// Recipient of a pool answer.
#[derive(Debug)]
pub(crate) enum Waits {
    /// Request of the cache; `fua`: a flush has to follow.
    Origin { action: Action, fua: bool },
    /// The simulation itself, which waits for it.
    World,
}

/// Returns operation, volume and buffer of a request to an origin.
fn parts(action: &Action) -> Option<(OpId, VolumeId, Option<BufSlice>)> {
    Some(match action {
        Action::OriginRead { op, volume, dest, .. } => (*op, *volume, Some(*dest)),
        Action::OriginWrite { op, volume, .. }
        | Action::OriginTrim { op, volume, .. }
        | Action::OriginZero { op, volume, .. }
        | Action::OriginFlush { op, volume }
        | Action::WantRecipe { op, volume, .. } => (*op, *volume, None),
        _ => return None,
    })
}

impl Pooled {
    /// Returns the root of the volume that an action addresses, if it is in the store.
    fn root_asked(&self, action: &Action) -> Option<RootId> {
        let (_, volume, _) = parts(action)?;
        self.root(usize::from(volume.0))
    }

    /// Submits an action to the store. Returns the action if its volume is not in the store.
    pub(crate) fn ask(&mut self, cx: &mut Bench<'_>, queue: &mut Queue, action: Action) -> Option<Action> {
        let Some(root) = self.root_asked(&action) else { return Some(action) };
        let (is_strong, extent_bytes) = (self.is_strong, self.extent_bytes);
        let (kind, fua) = match &action {
            Action::OriginRead { op, offset_bytes, dest, .. } => {
                let inside = self.root_bytes(root).saturating_sub(*offset_bytes).min(dest.len_bytes.into());
                cx.memory.put(cx.env, *dest, &vec![0; dest.len_bytes as usize]);
                if inside == 0 {
                    queue.hear(Event::OriginDone { op: *op, result: Ok(()) });
                    return None;
                }
                (RequestKind::Read { root, offset_bytes: *offset_bytes, len_bytes: inside as u32 }, false)
            }
            Action::OriginWrite { offset_bytes, src, fua, .. } => {
                let data = cx.memory.slice(*src).into();
                let known = self.known_chunks(cx, *offset_bytes, *src);
                (RequestKind::Write { root, offset_bytes: *offset_bytes, data, known }, *fua)
            }
            Action::OriginTrim { offset_bytes, len_bytes, fua, .. } => {
                (RequestKind::Discard { root, offset_bytes: *offset_bytes, len_bytes: *len_bytes }, *fua)
            }
            Action::OriginZero { offset_bytes, len_bytes, fua, .. } => {
                (RequestKind::Zero { root, offset_bytes: *offset_bytes, len_bytes: *len_bytes }, *fua)
            }
            Action::WantRecipe { op, first, count, domain, .. } => {
                let shift = self.chunk_shift;
                let inside = (self.root_bytes(root) >> shift).saturating_sub(first.0);
                let count = (*count).min(inside as u32);
                if !is_strong || *domain != DedupDomain::COMMON || extent_bytes != 1 << shift || count == 0 {
                    queue.hear(Event::RecipeArrived { op: *op, prints: Vec::new() });
                    return None;
                }
                (RequestKind::Recipe { root, first: first.0, count }, false)
            }
            _ => (RequestKind::Flush, false),
        };
        self.submit(kind, Waits::Origin { action, fua });
        self.tell(cx, queue);
        None
    }

    /// Returns the values kept for extents written to the store, if extents are chunks there.
    fn known_chunks(&self, cx: &mut Bench<'_>, offset_bytes: u64, src: BufSlice) -> Vec<(u64, KnownChunk)> {
        let known = cx.memory.known_in(cx.env, src);
        let shift = self.chunk_shift;
        if known.is_empty() || self.extent_bytes != 1 << shift {
            return Vec::new();
        }
        cx.env.note("store: chunks known");
        known.into_iter().map(|(at, known)| ((offset_bytes + u64::from(at)) >> shift, known)).collect()
    }

    pub(crate) fn root_bytes(&self, root: RootId) -> u64 {
        let store = self.pool.as_ref().map(zc_pool::Pool::store);
        let root = store.and_then(|store| store.root(root));
        root.map_or(0, |root| root.size_chunks << root.chunk_shift)
    }

    /// Completes an operation or job of the pool.
    pub(crate) fn step_under(&mut self, cx: &mut Bench<'_>, queue: &mut Queue) {
        self.step(cx.env.rng(), cx.memory.reducer());
        self.tell(cx, queue);
    }

    pub(crate) fn tick_under(&mut self, cx: &mut Bench<'_>, queue: &mut Queue) {
        self.tick(cx.env.now_ms());
        self.tell(cx, queue);
    }

    /// Queues answers as completions for the manager, which is notified later.
    pub(crate) fn tell(&mut self, cx: &mut Bench<'_>, queue: &mut Queue) {
        while let Some((req, result)) = self.answered.pop() {
            match self.waiting.remove(&req) {
                Some(Waits::Origin { action, fua: true }) if result.is_ok() => {
                    self.submit(RequestKind::Flush, Waits::Origin { action, fua: false });
                }
                Some(Waits::Origin { action, .. }) => self.origin_answered(cx, queue, &action, result),
                Some(Waits::World) => self.heard = Some((req, result)),
                None => cx.env.violate(format!("the pool answered {req:?} twice")),
            }
        }
    }

    fn origin_answered(
        &mut self,
        cx: &mut Bench<'_>,
        queue: &mut Queue,
        action: &Action,
        result: Result<Answer, PoolError>,
    ) {
        let Some((op, _, dest)) = parts(action) else { return };
        let result = match result {
            Ok(Answer::Bytes(pieces)) => {
                let bytes = pieces.concat();
                if let Some(dest) = dest {
                    cx.memory.put(cx.env, BufSlice { len_bytes: bytes.len() as u32, ..dest }, &bytes);
                }
                Ok(())
            }
            Ok(Answer::Recipe(prints)) => {
                cx.env.note("store: recipes");
                return queue.hear(Event::RecipeArrived { op, prints });
            }
            Ok(_) => Ok(()),
            Err(error) => {
                self.judge_error(cx, &error);
                cx.excuses.note_failed(action);
                Err(error.kind())
            }
        };
        queue.hear(Event::OriginDone { op, result });
    }

    /// Checks that an error of the store has a reason.
    pub(crate) fn judge_error(&mut self, cx: &mut Bench<'_>, error: &PoolError) {
        if error.error == StoreError::NoSpace {
            self.is_full = true;
            for volume in (0..self.roots.len()).filter(|volume| self.has(*volume)) {
                cx.excuses.no_space(volume);
                cx.models.origin_mut(volume).discards_overtake();
            }
        }
        let (name, is_excused) = match error.error {
            StoreError::NoSpace => ("store: full", !self.snaps.is_empty() || self.is_rotten),
            StoreError::Device(ErrorKind::Io) => ("store: device errors", self.is_fenced),
            StoreError::Damaged(_) | StoreError::Device(ErrorKind::Corrupt) => {
                ("store: damage told", self.is_rotten)
            }
            // The log's end was torn when it was opened. The runs of the store alone check that.
            StoreError::Dropped => ("store: dropped commits told", true),
            _ => ("store: other errors", false),
        };
        cx.env.note(name);
        if !is_excused {
            let space = self.pool.as_ref().map(|pool| (pool.store().space(), pool.store().stats()));
            cx.env.violate(format!("the store failed without a reason: {error}; {space:?}"));
        }
    }

    /// Returns `true` if the volume is in the store.
    pub(crate) fn has(&self, volume: usize) -> bool {
        self.root(volume).is_some()
    }

    /// Ends the pool's process; the device keeps its power.
    pub(crate) fn be_killed(&mut self, rng: &mut Pcg64Mcg) {
        self.die(rng);
        self.lost_power = false;
    }

    /// Ends the pool's process and cuts the power.
    pub(crate) fn lose_power(&mut self, rng: &mut Pcg64Mcg) {
        self.die(rng);
        self.disk.power_cut(rng);
        self.lost_power = true;
    }

    /// Returns `true` if the store keeps a volume's dirty data from being destaged.
    pub(crate) fn is_in_the_way(&self, volume: usize) -> bool {
        self.has(volume) && (self.is_fenced || self.is_rotten || self.is_full)
    }

    /// Returns `true` if the store recovered without its newest commits although its device kept its power: the cache
    /// may hold newer data of the volume.
    pub(crate) fn is_older_than_cache(&self, volume: usize) -> bool {
        let dropped = self.pool.as_ref().map_or(0, |pool| pool.store().dropped_commits());
        self.has(volume) && !self.lost_power && dropped > 0
    }

    /// Describes the current work, for messages.
    pub(crate) fn describe(&self) -> String {
        let store = self.pool.as_ref().map(|pool| {
            let store = pool.store();
            (pool.requests(), store.is_busy(), store.failure(), store.space(), store.stats())
        });
        format!("waiting {:?}, in progress {:?}, store {store:?}", self.waiting.keys(), self.busy)
    }
}
