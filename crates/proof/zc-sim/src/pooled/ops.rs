//! The cache's requests to its store, and the pool's life beside the daemon's.

use rand::RngExt as _;
use zc_cache::seam::{Action, Event};
use zc_core::{BufSlice, Codec, DedupDomain, ErrorKind, FingerprintKind, OpId, VolumeId};
use zc_pool::{Answer, KnownChunk, PoolError, RequestKind};
use zc_store::seam::StoreError;
use zc_store::{CatalogChange, CatalogOp, FLAG_DEDUP, RootId};

use super::{Pooled, STEPS_MAX};
use crate::canary::DriverBug;
use crate::world::World;

/// A start is cut off while the store recovers, among so many steps.
const RECOVERY_STEPS: u32 = 60;

/// What waits for an answer of the pool.
#[derive(Debug)]
pub(crate) enum Waits {
    /// The cache's request; `fua`: a flush has to follow.
    Origin { action: Action, fua: bool },
    /// The simulation, in [`World::ask_pool`].
    World,
}

/// How a start of the store came out.
pub(crate) enum PoolStart {
    /// The store serves, or the world has none.
    Serves,
    /// Not this time, and why: the daemon is started again.
    Again(&'static str),
    /// The store does not open, which ends the seed.
    Never,
}

/// The parts of a request to an origin.
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

impl World {
    /// The root of the volume that an action asks, if it is in a store.
    fn root_asked(&self, action: &Action) -> Option<RootId> {
        let (_, volume, _) = parts(action)?;
        self.pooled.as_ref()?.root(usize::from(volume.0))
    }

    /// Gives an action to the store, or back if it is not for one.
    pub(crate) fn ask_store(&mut self, action: Action) -> Option<Action> {
        let Some(root) = self.root_asked(&action) else { return Some(action) };
        let is_strong = self.config.fingerprint == FingerprintKind::Blake3;
        let extent_bytes = self.geometry.extent_bytes;
        let (kind, fua) = match &action {
            Action::OriginRead { op, offset_bytes, dest, .. } => {
                let inside = self.root_bytes(root).saturating_sub(*offset_bytes).min(dest.len_bytes.into());
                self.put(*dest, &vec![0; dest.len_bytes as usize]);
                if inside == 0 {
                    self.unheard.push(Event::OriginDone { op: *op, result: Ok(()) });
                    return None;
                }
                (RequestKind::Read { root, offset_bytes: *offset_bytes, len_bytes: inside as u32 }, false)
            }
            Action::OriginWrite { offset_bytes, src, fua, .. } => {
                let data = self.slice(*src).into();
                let known = self.known_chunks(*offset_bytes, *src);
                (RequestKind::Write { root, offset_bytes: *offset_bytes, data, known }, *fua)
            }
            Action::OriginTrim { offset_bytes, len_bytes, fua, .. } => {
                (RequestKind::Discard { root, offset_bytes: *offset_bytes, len_bytes: *len_bytes }, *fua)
            }
            Action::OriginZero { offset_bytes, len_bytes, fua, .. } => {
                (RequestKind::Zero { root, offset_bytes: *offset_bytes, len_bytes: *len_bytes }, *fua)
            }
            Action::WantRecipe { op, first, count, domain, .. } => {
                let shift = self.pooled.as_ref().map_or(0, |pooled| pooled.chunk_shift);
                let inside = (self.root_bytes(root) >> shift).saturating_sub(first.0);
                let count = (*count).min(inside as u32);
                if !is_strong || *domain != DedupDomain::COMMON || extent_bytes != 1 << shift || count == 0 {
                    self.unheard.push(Event::RecipeArrived { op: *op, prints: Vec::new() });
                    return None;
                }
                (RequestKind::Recipe { root, first: first.0, count }, false)
            }
            _ => (RequestKind::Flush, false),
        };
        if let Some(pooled) = &mut self.pooled {
            pooled.submit(kind, Waits::Origin { action, fua });
        }
        self.hear_pool();
        None
    }

    /// What is kept of extents that go to the store, if they are chunks there.
    fn known_chunks(&mut self, offset_bytes: u64, src: BufSlice) -> Vec<(u64, KnownChunk)> {
        let known = self.known_in(src);
        let shift = self.pooled.as_ref().map_or(0, |pooled| pooled.chunk_shift);
        if known.is_empty() || self.geometry.extent_bytes != 1 << shift {
            return Vec::new();
        }
        self.coverage.note("store: chunks known");
        known.into_iter().map(|(at, known)| ((offset_bytes + u64::from(at)) >> shift, known)).collect()
    }

    pub(super) fn root_bytes(&self, root: RootId) -> u64 {
        let store = self.pooled.as_ref().and_then(|pooled| pooled.pool.as_ref()).map(zc_pool::Pool::store);
        let root = store.and_then(|store| store.root(root));
        root.map_or(0, |root| root.size_chunks << root.chunk_shift)
    }

    /// Something in progress at the pool ends.
    pub(crate) fn step_pool(&mut self) {
        if let Some(pooled) = &mut self.pooled {
            pooled.step(&mut self.rng, &mut self.reducer);
        }
        self.hear_pool();
    }

    pub(crate) fn tick_pool(&mut self) {
        let now_ms = self.now_ms;
        if let Some(pooled) = &mut self.pooled {
            pooled.tick(now_ms);
        }
        self.hear_pool();
    }

    /// Takes answers: the manager hears of them some time later.
    fn hear_pool(&mut self) {
        while let Some(pooled) = &mut self.pooled
            && let Some((req, result)) = pooled.answered.pop()
        {
            match pooled.waiting.remove(&req) {
                Some(Waits::Origin { action, fua: true }) if result.is_ok() => {
                    pooled.submit(RequestKind::Flush, Waits::Origin { action, fua: false });
                }
                Some(Waits::Origin { action, .. }) => self.origin_answered(&action, result),
                Some(Waits::World) => pooled.heard = Some((req, result)),
                None => self.violate(format!("the pool answered {req:?} twice")),
            }
        }
    }

    fn origin_answered(&mut self, action: &Action, result: Result<Answer, PoolError>) {
        let Some((op, _, dest)) = parts(action) else { return };
        let result = match result {
            Ok(Answer::Bytes(pieces)) => {
                let bytes = pieces.concat();
                if let Some(dest) = dest {
                    self.put(BufSlice { len_bytes: bytes.len() as u32, ..dest }, &bytes);
                }
                Ok(())
            }
            Ok(Answer::Recipe(prints)) => {
                self.coverage.note("store: recipes");
                return self.unheard.push(Event::RecipeArrived { op, prints });
            }
            Ok(_) => Ok(()),
            Err(error) => {
                self.judge_pool_error(&error);
                self.note_failed(action);
                Err(error.kind())
            }
        };
        self.unheard.push(Event::OriginDone { op, result });
    }

    /// An error of the store has a reason.
    fn judge_pool_error(&mut self, error: &PoolError) {
        let Some(pooled) = &mut self.pooled else { return };
        if error.error == StoreError::NoSpace {
            pooled.is_full = true;
            for volume in (0..self.volumes.len()).filter(|volume| pooled.has(*volume)) {
                self.excuses.no_space(volume);
                self.judges[volume].discards_overtake();
            }
        }
        let (name, is_excused) = match error.error {
            StoreError::NoSpace => ("store: full", !pooled.snaps.is_empty() || pooled.is_rotten),
            StoreError::Device(ErrorKind::Io) => ("store: device errors", pooled.is_fenced),
            StoreError::Damaged(_) | StoreError::Device(ErrorKind::Corrupt) => {
                ("store: damage told", pooled.is_rotten)
            }
            // The end of its log was torn when it was opened. Whether it was is judged by the runs of the store alone.
            StoreError::Dropped => ("store: dropped commits told", true),
            _ => ("store: other errors", false),
        };
        self.coverage.note(name);
        if !is_excused {
            let space = pooled.pool.as_ref().map(|pool| (pool.store().space(), pool.store().stats()));
            self.violate(format!("the store failed without a reason: {error}; {space:?}"));
        }
    }

    pub(crate) fn violate(&mut self, text: String) {
        self.trace(|| format!("VIOLATION {text}"));
        self.violation.get_or_insert(text);
    }

    /// Asks the pool, and waits while nothing but the pool goes on.
    pub(crate) fn ask_pool(&mut self, kind: RequestKind) -> Result<Answer, PoolError> {
        let pooled = self.pooled.as_mut().expect("the seed has a store");
        pooled.heard = None;
        let asked = pooled.submit(kind, Waits::World);
        for _ in 0..STEPS_MAX {
            self.hear_pool();
            let pooled = self.pooled.as_mut().expect("the seed has a store");
            match pooled.heard.take() {
                Some((req, result)) if req == asked => return result,
                _ if pooled.busy.is_empty() => {
                    self.now_ms += 20;
                    self.tick_pool();
                }
                _ => pooled.step(&mut self.rng, &mut self.reducer),
            }
        }
        let text = self.pooled.as_ref().map(Pooled::describe);
        self.violate(format!("the pool does not answer: {text:?}"));
        Err(PoolError { error: StoreError::Device(ErrorKind::TimedOut), root: RootId(0), offset_bytes: 0 })
    }

    pub(crate) fn catalog_change(&mut self, op: CatalogOp, id: RootId, source: RootId) -> CatalogChange {
        let (chunk_shift, name) = match &mut self.pooled {
            Some(pooled) => {
                pooled.next_name += 1;
                (pooled.chunk_shift, format!("root {}", pooled.next_name))
            }
            None => (12, String::new()),
        };
        let size = self.volumes.get(usize::from(source.0)).map_or(0, |volume| volume.size_bytes);
        let size_chunks = size.div_ceil(1 << chunk_shift);
        CatalogChange { op, id, source, codec: Codec::Lz4, chunk_shift, size_chunks, flags: FLAG_DEDUP, name }
    }

    /// The store is opened, unless the machine or the daemon is cut off meanwhile.
    pub(crate) fn open_pool(&mut self) -> PoolStart {
        if self.pooled.is_none() {
            return PoolStart::Serves;
        }
        let cut = !self.mended && self.rng.random_bool(0.1);
        let cut_at = cut.then(|| self.rng.random_range(0..RECOVERY_STEPS));
        let Some(pooled) = &mut self.pooled else { return PoolStart::Serves };
        match pooled.open(&mut self.rng, &mut self.reducer, cut_at) {
            Some(Ok(())) => {}
            Some(Err(StoreError::Device(ErrorKind::Io))) if pooled.is_fenced => {
                return PoolStart::Again("store: recoveries that failed");
            }
            Some(Err(error)) => {
                self.coverage.note("store: refused to open");
                self.is_over = pooled.is_rotten;
                self.violate(format!("the store does not open: {error}"));
                return PoolStart::Never;
            }
            None if cut => return PoolStart::Again("store: power cuts in a recovery"),
            None => {
                self.violate("the store does not come to an end of opening".to_owned());
                return PoolStart::Never;
            }
        }
        self.forgive_rotten_log();
        if !self.make_roots() {
            return PoolStart::Again("store: volumes not made");
        }
        self.judge_snapshots();
        if self.violation.is_some() { PoolStart::Never } else { PoolStart::Serves }
    }

    /// The volumes are made, the first time. False if the device failed: they are empty, and made at the next start.
    fn make_roots(&mut self) -> bool {
        for volume in 0..self.volumes.len() {
            let root = self.pooled.as_ref().and_then(|pooled| pooled.root(volume));
            if let Some(root) = root.filter(|root| self.root_bytes(*root) == 0) {
                let change = self.catalog_change(CatalogOp::Create, root, root);
                let made = self.ask_pool(RequestKind::Catalog(change));
                let flushed = made.and_then(|_| self.ask_pool(RequestKind::Sync));
                if flushed.is_err() {
                    return false;
                }
                self.coverage.note("store: volumes");
            }
        }
        true
    }

    /// The process that has the pool is gone.
    pub(crate) fn pool_dies(&mut self) {
        if self.has_bug(DriverBug::KillTakesStore) {
            return self.pool_loses_power();
        }
        if let Some(pooled) = &mut self.pooled {
            pooled.die(&mut self.rng);
            pooled.lost_power = false;
        }
    }

    pub(crate) fn pool_loses_power(&mut self) {
        if let Some(pooled) = &mut self.pooled {
            pooled.die(&mut self.rng);
            pooled.disk.power_cut(&mut self.rng);
            pooled.lost_power = true;
        }
    }

    /// An orderly end of the daemon ends the pool behind it.
    pub(crate) fn close_pool(&mut self) {
        let Some(pooled) = &mut self.pooled else { return };
        pooled.with_pool(zc_pool::Pool::stop);
        for _ in 0..STEPS_MAX {
            if pooled.stopped {
                pooled.die(&mut self.rng);
                return;
            }
            if pooled.busy.is_empty() {
                self.now_ms += 20;
                pooled.tick(self.now_ms);
            }
            pooled.step(&mut self.rng, &mut self.reducer);
        }
        self.violate("the pool does not stop".to_owned());
    }

    /// The volume behind a cache's becomes longer.
    pub(crate) fn grow_root(&mut self, volume: usize, bytes: u64) -> bool {
        let Some(root) = self.pooled.as_ref().and_then(|pooled| pooled.root(volume)) else { return true };
        let change = self.catalog_change(CatalogOp::Grow, root, root);
        let size_chunks = bytes.div_ceil(1 << change.chunk_shift);
        if size_chunks << change.chunk_shift <= self.root_bytes(root) {
            return true;
        }
        let grown = self.ask_pool(RequestKind::Catalog(CatalogChange { size_chunks, ..change }));
        let flushed = grown.and_then(|_| self.ask_pool(RequestKind::Flush));
        if let Err(error) = &flushed {
            self.judge_pool_error(error);
        }
        flushed.is_ok()
    }
}

impl Pooled {
    /// Whether the volume is in the store.
    pub(crate) fn has(&self, volume: usize) -> bool {
        self.root(volume).is_some()
    }

    /// Returns `true` if the store recovered without its newest commits although its device kept its power: what the
    /// cache holds of the volume may be newer.
    pub(crate) fn is_older_than_cache(&self, volume: usize) -> bool {
        let dropped = self.pool.as_ref().map_or(0, |pool| pool.store().dropped_commits());
        self.has(volume) && !self.lost_power && dropped > 0
    }

    /// What it is at, for messages.
    pub(crate) fn describe(&self) -> String {
        let store = self.pool.as_ref().map(|pool| {
            let store = pool.store();
            (pool.requests(), store.is_busy(), store.failure(), store.space(), store.stats())
        });
        format!("waiting {:?}, in progress {:?}, store {store:?}", self.waiting.keys(), self.busy)
    }
}
