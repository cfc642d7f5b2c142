//! Rest: waits for all answers, reads everything, and stops and restarts the daemon in order.

use zc_cache::seam::{Event, RequestKind};
use zc_cache::startup;

use crate::boot::{cut_off_start, kill, power_cut, start};
use crate::clients::ClientKind;
use crate::content::{self, SECTOR};
use crate::ends::{decay_while_off, gone, process_dies};
use crate::forgive::forgive_lies;
use crate::pooled::Pooled;
use crate::requests::{submit, write};
use crate::settings::{change_pins_early, serve_volume};
use crate::stored::{close_pool, make_room_in_pool};
use crate::world::{PATIENCE, World};

/// Steps after which an operator investigates unanswered requests.
const OPERATOR_PATIENCE: u32 = 2_000;
/// Steps after which an operator kills a daemon whose origins are gone.
const STOP_PATIENCE: u32 = 2_000;

/// Judge of a wait for answers. A store that is nearly full cleans before each write, and a schedule may leave more
/// than a hundred writes waiting, so only steps without any answer count.
struct Patience {
    waiting: usize,
    /// Steps since the last answer.
    steps: u32,
}

impl Patience {
    const fn new(waiting: usize) -> Self {
        Self { waiting, steps: 0 }
    }

    /// Counts a step. Returns `false` if [`PATIENCE`] steps in a row brought no answer.
    const fn lasts(&mut self, waiting: usize) -> bool {
        if waiting < self.waiting {
            self.waiting = waiting;
            self.steps = 0;
        }
        self.steps += 1;
        self.steps <= PATIENCE
    }
}

pub(crate) fn drain(world: &mut World) {
    let mut patience = Patience::new(world.clients.len());
    let mut turn = 0;
    while patience.lasts(world.clients.len()) {
        if world.clients.is_empty() || world.env.is_violated() {
            return;
        }
        if turn > OPERATOR_PATIENCE && world.pooled.as_ref().is_some_and(Pooled::is_fenced) {
            // Writes wait for capacity held by dirty data that the store rejects: an operator restarts it.
            return kill(world);
        }
        if turn > OPERATOR_PATIENCE {
            make_room_in_pool(world);
        }
        if world.is_busy() {
            world.step();
        } else {
            world.tick();
        }
        turn += 1;
    }
    // If a damaged page keeps the store's cleaner from freeing anything, the wait never ends.
    if world.is_pool_rotten() {
        world.env.end();
    }
    let pool = world.pooled.as_ref().map(Pooled::describe);
    let dirty: Vec<_> = (0..world.volumes.len()).map(|volume| world.dirty(volume)).collect();
    let count = world.clients.len();
    world.env.violate(format!("{count} requests are never answered; dirty {dirty:?}, pool {pool:?}"));
}

/// Reads every volume completely.
pub(crate) fn read_all(world: &mut World) {
    for volume in 0..world.volumes.len() {
        serve_volume(world, volume);
        let size = world.volumes[volume].size_bytes as usize;
        if world.env.is_violated() {
            return;
        }
        for offset in (0..size).step_by(64 << 10) {
            let len = (size - offset).min(64 << 10);
            let buf = world.clients.new_buf();
            world.memory.insert(buf, vec![0xaa; len]);
            submit(world, volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
            drain(world);
        }
    }
}

/// Rewrites these sectors and flushes, and waits for both answers.
pub(crate) fn write_anew(world: &mut World, volume: usize, offset: usize, len: usize) {
    let buf = world.clients.new_buf();
    write(world, volume, offset, len, buf);
    drain(world);
    flush_if_served(world, volume);
    drain(world);
}

/// Flushes, unless the daemon has been restarted without the volume.
pub(crate) fn flush_if_served(world: &mut World, volume: usize) {
    if world.volumes.is_served(volume) {
        submit(world, volume, 0, 0, RequestKind::Flush, ClientKind::Flush);
    }
}

pub(crate) fn stop_and_start(world: &mut World) {
    drain(world);
    if world.env.is_violated() {
        return;
    }
    world.env.trace(|| "stop".to_owned());
    world.env.note("clean stops");
    world.late.begin_stop();
    world.event(Event::Stop);
    let Some(clean) = wait_for_stop(world) else { return };
    close_pool(world);
    if !world.memory.is_empty() || world.is_busy() {
        let left = format!(
            "left over after the stop: {:?} {:?}",
            world.memory.bufs().collect::<Vec<_>>(),
            world.queue.pending()
        );
        world.env.violate(left);
        return;
    }
    if clean && !mark_clean(world) {
        gone(world, false);
        world.models.nothing_in_memory();
        cut_off_start(world, "cut off while marking a clean stop");
        forgive_lies(world, true);
        return start(world);
    }
    gone(world, clean);
    if clean {
        world.models.nothing_in_memory();
    } else {
        process_dies(world);
    }
    decay_while_off(world);
    if world.env.random_bool(0.5) {
        // The intent log is the previous boot's from now on, and proves no commit any more.
        world.state.reboot();
        world.losses.reboot(world.env.now().is_multiple_of(2));
    }
    forgive_lies(world, !clean);
    if clean && world.env.random_bool(0.1) {
        write_behind_our_back(world);
    }
    start(world);
    if world.plan.pinning && !world.env.is_mended() && world.env.random_bool(0.5) {
        change_pins_early(world);
    }
}

/// Waits for the end of a stop. Returns `true` if it was clean, `None` if it did not end.
pub(crate) fn wait_for_stop(world: &mut World) -> Option<bool> {
    let cut_off =
        (!world.env.is_mended() && world.env.random_bool(0.2)).then(|| world.env.random_range(0..60));
    let since = world.env.now();
    for turn in 0..PATIENCE {
        if world.env.is_violated() {
            return None;
        }
        if let Some(clean) = world.stopped {
            // A store that was opened behind a torn log fails its first flush, which may be that of the stop.
            if world.env.is_mended() && !clean && !world.excuses.has_flush_failed_since(since) {
                world.env.violate("the stop is not clean though nothing fails");
                return None;
            }
            return Some(clean);
        }
        let in_the_way = (0..world.volumes.len()).any(|volume| world.is_pool_in_the_way(volume));
        let held_up = turn > STOP_PATIENCE && (world.faults.are_origins_gone(world.env.now()) || in_the_way);
        if held_up {
            world.env.note("stops that an origin held up");
            kill(world);
            return None;
        }
        if cut_off == Some(turn) {
            world.env.note("crashes while stopping");
            power_cut(world);
            return None;
        }
        if world.is_busy() {
            world.step();
        } else {
            world.tick();
        }
    }
    world.env.violate("the manager does not stop");
    None
}

/// Marks a clean stop. Returns `false` if that was cut off.
pub(crate) fn mark_clean(world: &mut World) -> bool {
    let superblock = world.superblock.clone().expect("opened");
    let left = (!world.env.is_mended() && world.env.random_bool(0.1)).then(|| world.env.random_range(0..6));
    let forgets = world.faults.lost > 0.0 && world.env.random_bool(0.03);
    let manager = world.manager.as_ref().expect("runs");
    let (journal_next, image) = (manager.journal_next(), manager.index_image());
    if world.faults.is_state_failing(world.env.now()) {
        // The origins' marks are recorded first.
        world.env.note("stops that the state directory did not hear of");
        return false;
    }
    let mut media = world.cache.raw(left, forgets);
    let done = startup::mark_clean(&mut media, &superblock, journal_next, image).is_ok();
    if done {
        world.state.trust_all();
        world.state.forget_given_up();
    }
    done
}

/// Writes to a file as another program while it is not served; its change time reveals that.
fn write_behind_our_back(world: &mut World) {
    let volume = world.env.random_range(0..world.volumes.len());
    let in_store = world.pooled.as_ref().is_some_and(|pooled| pooled.has(volume));
    if world.state.may_be_dirty(volume) || in_store {
        return;
    }
    let sectors = world.volumes[volume].size_bytes as usize / SECTOR;
    for _ in 0..world.env.random_range(1..40) {
        let sector = world.env.random_range(0..sectors);
        world.env.advance();
        let value = world.clients.new_content();
        let mut bytes = [0; SECTOR];
        content::fill(value, &mut bytes);
        world.origins[volume].write_now(sector * SECTOR, &bytes);
        world.models.oracle_mut(volume).issue(sector, value, world.env.now());
        let started = world.env.now();
        world.env.advance();
        world.models.oracle_mut(volume).end(sector, started, world.env.now(), true, false);
        world.models.origin_mut(volume).set(sector, value);
    }
    world.origins[volume].settle();
    world.models.oracle_mut(volume).flushed(world.env.now());
    world.state.distrust(volume);
    world.env.note("origins changed while stopped");
}

#[cfg(test)]
mod tests {
    use super::{PATIENCE, Patience};

    #[test]
    fn a_wait_is_hung_only_without_answers() {
        let mut patience = Patience::new(3);
        assert!((0..PATIENCE).all(|_| patience.lasts(3)));
        assert!((0..PATIENCE).all(|_| patience.lasts(2)), "an answer came");
        assert!(!patience.lasts(2), "no answer came for as long");
    }
}
