//! Store of the volumes as an operator uses it: opening, closing, synchronous requests and snapshots (S1 to S3).

use zc_core::{Codec, ErrorKind};
use zc_pool::{Answer, PoolError, RequestKind};
use zc_store::seam::StoreError;
use zc_store::{CatalogChange, CatalogOp, FLAG_DEDUP, RootId};

use crate::canary::DriverBug;
use crate::content::{self, SECTOR};
use crate::forgive::forgive;
use crate::pooled::{Pooled, STEPS_MAX, Waits};
use crate::world::World;

/// Steps of a store recovery before a start is cut off; an upper bound.
const RECOVERY_STEPS: u32 = 60;
/// Bytes of a volume read at once.
const READ_BYTES: u64 = 1 << 20;

/// Result of a start of the store.
pub(crate) enum PoolStart {
    /// The store serves, or the world has none.
    Serves,
    /// The start failed for this reason: the daemon is started again.
    Again(&'static str),
    /// The store does not open, which ends the seed.
    Never,
}

/// Ends the pool's process.
pub(crate) fn pool_dies(world: &mut World) {
    if world.env.has_bug(DriverBug::KillTakesStore) {
        return pool_loses_power(world);
    }
    if let Some(pooled) = &mut world.pooled {
        pooled.be_killed(world.env.rng());
    }
}

pub(crate) fn pool_loses_power(world: &mut World) {
    if let Some(pooled) = &mut world.pooled {
        pooled.lose_power(world.env.rng());
    }
}

fn root_bytes(world: &World, root: RootId) -> u64 {
    world.pooled.as_ref().map_or(0, |pooled| pooled.root_bytes(root))
}

/// Sends a request to the pool, and waits while all other parts are stopped.
fn ask_pool(world: &mut World, kind: RequestKind) -> Result<Answer, PoolError> {
    let pooled = world.pooled.as_mut().expect("the seed has a store");
    pooled.take_heard();
    let asked = pooled.submit(kind, Waits::World);
    for _ in 0..STEPS_MAX {
        world.hear_pool();
        let pooled = world.pooled.as_mut().expect("the seed has a store");
        match pooled.take_heard() {
            Some((req, result)) if req == asked => return result,
            _ if (pooled.busy() == 0) => {
                let ms = 20;
                world.env.pass_ms(ms);
                world.tick_pool();
            }
            _ => pooled.step(world.env.rng(), world.memory.reducer()),
        }
    }
    let text = world.pooled.as_ref().map(Pooled::describe);
    world.env.violate(format!("the pool does not answer: {text:?}"));
    Err(PoolError { error: StoreError::Device(ErrorKind::TimedOut), root: RootId(0), offset_bytes: 0 })
}

fn catalog_change(world: &mut World, op: CatalogOp, id: RootId, source: RootId) -> CatalogChange {
    let (chunk_shift, name) = match &mut world.pooled {
        Some(pooled) => (pooled.chunk_shift(), pooled.new_name()),
        None => (12, String::new()),
    };
    let volume = usize::from(source.0);
    let size = if volume < world.volumes.len() { world.volumes[volume].size_bytes } else { 0 };
    let size_chunks = size.div_ceil(1 << chunk_shift);
    CatalogChange { op, id, source, codec: Codec::Lz4, chunk_shift, size_chunks, flags: FLAG_DEDUP, name }
}

/// Opens the store, unless the machine or the daemon is cut off first.
pub(crate) fn open_pool(world: &mut World) -> PoolStart {
    if world.pooled.is_none() {
        return PoolStart::Serves;
    }
    let cut = !world.env.is_mended() && world.env.random_bool(0.1);
    let cut_at = cut.then(|| world.env.random_range(0..RECOVERY_STEPS));
    let Some(pooled) = &mut world.pooled else { return PoolStart::Serves };
    match pooled.open(world.env.rng(), world.memory.reducer(), cut_at) {
        Some(Ok(())) => {}
        Some(Err(StoreError::Device(ErrorKind::Io))) if pooled.is_fenced() => {
            return PoolStart::Again("store: recoveries that failed");
        }
        Some(Err(error)) => {
            world.env.note("store: refused to open");
            if pooled.is_rotten() {
                world.env.end();
            }
            world.env.violate(format!("the store does not open: {error}"));
            return PoolStart::Never;
        }
        None if cut => return PoolStart::Again("store: power cuts in a recovery"),
        None => {
            world.env.violate("the store does not come to an end of opening".to_owned());
            return PoolStart::Never;
        }
    }
    forgive_rotten_log(world);
    if !make_roots(world) {
        return PoolStart::Again("store: volumes not made");
    }
    judge_snapshots(world);
    if world.env.is_violated() { PoolStart::Never } else { PoolStart::Serves }
}

/// Creates the volumes at the first start. Returns `false` if the device failed; they are empty then, and are created
/// at the next start.
fn make_roots(world: &mut World) -> bool {
    for volume in 0..world.volumes.len() {
        let root = world.pooled.as_ref().and_then(|pooled| pooled.root(volume));
        if let Some(root) = root.filter(|root| root_bytes(world, *root) == 0) {
            let change = catalog_change(world, CatalogOp::Create, root, root);
            let made = ask_pool(world, RequestKind::Catalog(change));
            let flushed = made.and_then(|_| ask_pool(world, RequestKind::Sync));
            if flushed.is_err() {
                return false;
            }
            world.env.note("store: volumes");
        }
    }
    true
}

/// Closes the pool after an orderly end of the daemon.
pub(crate) fn close_pool(world: &mut World) {
    let Some(pooled) = &mut world.pooled else { return };
    pooled.stop();
    for _ in 0..STEPS_MAX {
        if pooled.is_stopped() {
            pooled.die(world.env.rng());
            return;
        }
        if pooled.busy() == 0 {
            let ms = 20;
            world.env.pass_ms(ms);
            pooled.tick(world.env.now_ms());
        }
        pooled.step(world.env.rng(), world.memory.reducer());
    }
    world.env.violate("the pool does not stop".to_owned());
}

/// Grows the root behind a volume of the cache.
pub(crate) fn grow_root(world: &mut World, volume: usize, bytes: u64) -> bool {
    let Some(root) = world.pooled.as_ref().and_then(|pooled| pooled.root(volume)) else { return true };
    let change = catalog_change(world, CatalogOp::Grow, root, root);
    let size_chunks = bytes.div_ceil(1 << change.chunk_shift);
    if size_chunks << change.chunk_shift <= root_bytes(world, root) {
        return true;
    }
    let grown = ask_pool(world, RequestKind::Catalog(CatalogChange { size_chunks, ..change }));
    let flushed = grown.and_then(|_| ask_pool(world, RequestKind::Flush));
    if let Err(error) = &flushed {
        world.judge_pool_error(error);
    }
    flushed.is_ok()
}

pub(crate) fn take_snapshot(world: &mut World) {
    let Some(pooled) = &world.pooled else { return };
    let roots: Vec<RootId> = pooled.roots().collect();
    let source = roots[world.env.random_range(0..roots.len())];
    let Some(id) = pooled.snaps().next_number() else { return };
    let change = catalog_change(world, CatalogOp::Snapshot, id, source);
    let name = change.name.clone();
    if ask_pool(world, RequestKind::Catalog(change)).is_err() {
        return;
    }
    let Some(bytes) = read_root(world, id) else { return };
    let known = bytes.chunks(SECTOR).all(|sector| content::identify(sector).is_some());
    if !known {
        return world.env.violate(format!("the snapshot {id:?} holds what no client wrote (S2)"));
    }
    let is_durable = world.env.random_bool(0.5) && ask_pool(world, RequestKind::Flush).is_ok();
    world.env.note("store: snapshots");
    if let Some(pooled) = &mut world.pooled {
        pooled.snaps_mut().keep(id, name, bytes, is_durable);
    }
}

pub(crate) fn delete_snapshot(world: &mut World) {
    let Some(pooled) = &mut world.pooled else { return };
    let Some(id) = pooled.snaps_mut().take_first() else { return };
    let change = catalog_change(world, CatalogOp::Delete, id, id);
    match ask_pool(world, RequestKind::Catalog(change)) {
        Ok(_) => {
            world.env.note("store: snapshots deleted");
            if let Some(pooled) = &mut world.pooled {
                pooled.has_room();
            }
        }
        Err(error) => violate_unless_fenced(world, &format!("{id:?} cannot be deleted: {error}")),
    }
}

fn violate_unless_fenced(world: &mut World, text: &str) {
    if world.pooled.as_ref().is_some_and(|pooled| !pooled.is_fenced() && !pooled.is_rotten()) {
        world.env.violate(text.to_owned());
    }
}

/// Deletes all snapshots, as an operator would, if the store is full.
pub(crate) fn make_room_in_pool(world: &mut World) {
    if world.pooled.as_ref().is_some_and(|pooled| pooled.is_full()) {
        delete_all_snapshots(world);
    }
}

pub(crate) fn delete_all_snapshots(world: &mut World) {
    while !world.env.is_violated()
        && world.pooled.as_ref().is_some_and(|pooled| !pooled.snaps().is_empty() && !pooled.is_fenced())
    {
        delete_snapshot(world);
    }
}

/// Checks that snapshots keep their contents, and that flushed ones exist (S3, S1).
pub(crate) fn judge_snapshots(world: &mut World) {
    let Some(pooled) = &world.pooled else { return };
    for (id, snapshot) in pooled.snaps().list() {
        let is_there = world.pooled.as_ref().is_some_and(|pooled| pooled.has_snapshot(id, &snapshot));
        if !is_there {
            if let Some(pooled) = &mut world.pooled {
                pooled.snaps_mut().forget(id);
            }
            if snapshot.is_durable() {
                return world.env.violate(format!("the snapshot {id:?} was flushed and is gone (S1)"));
            }
            continue;
        }
        let Some(bytes) = read_root(world, id) else { continue };
        if bytes[..] != *snapshot.bytes() {
            let at = bytes.iter().zip(snapshot.bytes()).position(|(now, then)| now != then);
            return world.env.violate(format!("the snapshot {id:?} has changed at byte {at:?} (S3)"));
        }
        world.env.note("store: snapshots judged");
    }
    forget_strangers(world);
}

/// Forgives a start that took a corrupt batch for one torn by a power cut: volumes, and the set of snapshots, may be
/// in an earlier state.
fn forgive_rotten_log(world: &mut World) {
    let Some(pooled) = &mut world.pooled else { return };
    if !pooled.takes_rotten_log() {
        return;
    }
    world.env.note("store: logs that rotted");
    pooled.snaps_mut().distrust();
    for volume in 0..world.volumes.len() {
        if world.pooled.as_ref().is_some_and(|pooled| pooled.has(volume)) {
            forgive(world, volume);
        }
    }
}

/// Accepts snapshots whose deletion was not durable at the power cut.
fn forget_strangers(world: &mut World) {
    let Some(pooled) = &world.pooled else { return };
    let strange = pooled.strangers();
    for id in strange {
        let change = catalog_change(world, CatalogOp::Delete, id, id);
        if let Err(error) = ask_pool(world, RequestKind::Catalog(change)) {
            violate_unless_fenced(world, &format!("{id:?} cannot be deleted: {error}"));
        }
    }
}

/// Returns all bytes of a root, or `None` if damage is reported.
fn read_root(world: &mut World, root: RootId) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let len = root_bytes(world, root);
    for offset_bytes in (0..len).step_by(READ_BYTES as usize) {
        let len_bytes = (len - offset_bytes).min(READ_BYTES) as u32;
        match ask_pool(world, RequestKind::Read { root, offset_bytes, len_bytes }) {
            Ok(Answer::Bytes(pieces)) => pieces.iter().for_each(|piece| bytes.extend_from_slice(piece)),
            Ok(_) => return None,
            Err(error) => {
                if !world.pooled.as_ref().is_some_and(|pooled| pooled.is_rotten()) {
                    world.env.violate(format!("{root:?} cannot be read: {error} (S2)"));
                }
                return None;
            }
        }
    }
    Some(bytes)
}
