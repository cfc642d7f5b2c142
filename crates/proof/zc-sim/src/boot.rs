//! Starts, stops, kills and power cuts, with the state kept outside the cache device: the state directory's session
//! number and the intent log.
//!
//! A start may be cut off between any two of its I/Os by a power cut or a kill, repeatedly; so may the clean mark of
//! a stop. While no daemon serves the device, it may be replaced by an older image of itself.

use zc_cache::CacheManager;
use zc_cache::startup::{self, OpenOptions, Opened, StartError};
use zc_core::{Mode, VolumeId};
use zc_format::Record;

use crate::canary::DriverBug;
use crate::disk::{self, PAGE};
use crate::ends::{cut_off, decay_while_off, gone, lose_power, process_dies};
use crate::forgive::{forgive, forgive_lies, forgive_slots};
use crate::judges::{pins, shares};
use crate::judging::judge_origins;
use crate::settings::draw_settings;
use crate::setup;
use crate::stored::{PoolStart, open_pool, pool_dies};
use crate::trouble::Trouble;
use crate::twin::compare_starts;
use crate::world::World;

/// I/Os of a start, one of which may be drawn as the last.
pub(crate) const START_IOS: u32 = 24;
/// Starts the daemon, repeating starts that are cut off.
pub(crate) fn start(world: &mut World) {
    swap_image(world);
    look_for_state(world);
    replace_journal(world);
    let mut records = Vec::new();
    let opened = loop {
        let opened = open_cache(world, &mut records);
        match open_pool(world) {
            PoolStart::Serves => break opened,
            PoolStart::Again(why) => cut_off_start(world, why),
            PoolStart::Never => return,
        }
    };
    world.late.serve(world.volumes.len());
    serve(world, opened, &records);
    world.crashes.started(&mut world.env, world.plan.habits.crash_after_start);
}

/// Opens the cache, repeating attempts that are cut off.
fn open_cache(world: &mut World, records: &mut Vec<Record>) -> Opened {
    loop {
        records.clear();
        match open(world, records) {
            None => cut_off_start(world, "cut off while opening"),
            Some(Ok(opened)) => return opened,
            Some(Err(error)) => {
                // All copies of the superblock are damaged: the cache is formatted.
                world.env.trace(|| format!("formatted anew: {error}"));
                world.env.note("formatted anew");
                world.promise.forget();
                world.losses.forget();
                world.state.begin_anew();
                world.format();
                world.trouble = Trouble::default();
                for volume in 0..world.volumes.len() {
                    if world.state.take_dirty(volume) {
                        forgive(world, volume);
                    }
                }
            }
        }
    }
}

/// Returns `true` if the crash that follows a start or a flush is due.
pub(crate) fn crashes_early(world: &mut World) -> bool {
    let due = world.crashes.turn();
    if due {
        world.env.note("crashes soon after a start or a flush");
        if world.env.random_bool(0.5) {
            power_cut(world);
        } else {
            kill(world);
        }
    }
    due
}

/// Opens the cache. Returns `None` if the attempt was cut off.
pub(crate) fn open(world: &mut World, records: &mut Vec<Record>) -> Option<Result<Opened, StartError>> {
    let before = match startup::read_superblock(&mut world.cache.raw(None, false)) {
        Ok(before) => before,
        Err(error) => return Some(Err(error)),
    };
    world.losses.found(before.session, world.state.session(), world.state.log().boot());
    if before.session < world.state.session() {
        world.env.note("older images noticed");
        world.state.distrust_all();
    }
    // Also checked when the intent log completes the journal: until that is durable, the new session relies on the
    // marks that it found.
    let broken = world.promise.is_broken_unseen(&world.cache.disk().seen, world.cache.geometry());
    if broken {
        world.env.note("lost region maps that nothing tells of");
    }
    let options = OpenOptions {
        boot_id: [world.state.log().boot(); 16],
        cold: broken || begins_cold(world) || world.env.random_bool(0.01),
        session_floor: world.state.session(),
        intent_session: world.state.log().session(),
        intents: if world.env.has_bug(DriverBug::ForgetProofs) { &[] } else { world.state.log().records() },
        intent_journal: world.state.log().journal_needed(),
        #[cfg(zc_canary)]
        canary: world.env.manager_bug(),
    };
    let left =
        (!world.env.is_mended() && world.env.random_bool(0.1)).then(|| world.env.random_range(0..START_IOS));
    let left = world.crashes.take_start_cut().or(left);
    let forgets = world.faults.lost > 0.0 && world.env.random_bool(0.03);
    let mut raw = world.cache.raw(left, forgets);
    let found = startup::look(&mut raw, &options, &mut |record| records.push(*record));
    let is_incomplete = found.as_ref().is_ok_and(|found| !found.start.dirty_complete);
    if is_incomplete && !raw.is_cut() {
        // First, because the session continues the journal as if nothing were missing.
        world.state.fence_dirty();
    }
    let opened = found.and_then(|found| startup::begin(&mut raw, &found).map(|()| found));
    if raw.is_cut() {
        return None;
    }
    if opened.is_ok() && forgets {
        world.trouble.lie(false);
        world.env.note("writes lost: superblock");
    }
    Some(opened)
}

/// Cuts the start off by a power cut or a kill.
pub(crate) fn cut_off_start(world: &mut World, what: &'static str) {
    world.env.trace(|| what.to_owned());
    world.env.note(what);
    world.env.advance();
    pool_dies(world);
    if world.env.random_bool(0.6) {
        lose_power(world);
    }
    // The session may have begun, and the intent log is that of the previous session.
    if world.trouble.lied_slots {
        forgive_slots(world, false);
    }
    world.env.advance();
}

pub(crate) fn serve(world: &mut World, mut opened: Opened, records: &[Record]) {
    world.env.trace(|| format!("started: {:?} distrust {:?}", opened.start, opened.distrust));
    world.env.note("starts");
    if opened.superblock.geometry != *world.cache.geometry() {
        world.env.violate("the device that is opened has another layout than the world knows".to_owned());
    }
    if opened.distrust.is_some() {
        world.env.note("starts without trust");
    }
    if !opened.start.unjournaled.is_empty() {
        world.env.note("starts by summaries");
    }
    let by_intent = opened.start.intact && !opened.was_clean;
    if by_intent {
        world.env.note("starts by intent log");
    }
    world.trouble.undecided = !opened.was_clean;
    world.superblock = Some(opened.superblock.clone());
    world.state.begin(opened.start.session);
    let mut intents = world.state.log_mut().begin(opened.start.session);
    if by_intent {
        intents = startup::drop_incomplete_intents(&mut world.cache.raw(None, false), &mut opened, intents);
    }
    if by_intent && world.env.has_bug(DriverBug::ForgetProofs) {
        intents.retain(|record| !matches!(record, Record::Durable { .. }));
    }
    world.losses.dropped(opened.start.doubtful_drops());
    remember_fences(world, &mut opened);
    configure_all(world, opened.was_clean);
    let volumes = world.volumes.served();
    let unproved = opened.start.unproved_commits.clone();
    let unjournaled = core::mem::take(&mut opened.start.unjournaled);
    let records = if world.env.has_bug(DriverBug::ForgetSummaries) {
        &records[..records.len() - unjournaled.len()]
    } else {
        opened.start.unjournaled = unjournaled;
        records
    };
    let differs = compare_starts(world, &opened.start, records, &volumes);
    if let Some(text) = differs {
        world.env.violate(text);
    }
    let mut manager = CacheManager::new(world.config.clone(), volumes, opened.start);
    #[cfg(zc_canary)]
    manager.set_canary(world.env.manager_bug());
    records.iter().for_each(|record| manager.replay(record));
    if by_intent {
        intents.iter().for_each(|record| manager.replay_intent(record));
    }
    for (volume, epoch) in world.state.given_up() {
        manager.replay_intent(&Record::Clean { volume: VolumeId(*volume as u16), epoch: *epoch });
    }
    world.judges.begins();
    world.losses.own(world.state.session(), world.state.log().boot());
    world.losses.note(&manager);
    world.kept.session_began(&unproved);
    let mut actions = Vec::new();
    manager.begin(world.env.now_ms(), &mut actions);
    world.manager = Some(manager);
    world.carry_out(actions);
}

/// Writes the settings of all volumes for the new manager.
fn configure_all(world: &mut World, was_clean: bool) {
    let exchanges = world.exchange.is_under_way();
    if !exchanges {
        change_settings_while_stopped(world);
    }
    for volume in 0..world.volumes.len() {
        if exchanges {
            configure_again(world, volume, was_clean);
        } else {
            configure_start(world, volume, was_clean);
        }
    }
}

/// Draws the changes to a volume that precede the manager's start.
fn configure_start(world: &mut World, volume: usize, was_clean: bool) {
    if world.plan.sharing && world.env.random_bool(0.2) {
        world.volumes[volume].share = shares::draw(world.env.rng(), world.cache.geometry());
    }
    if world.plan.pinning && world.env.random_bool(0.2) {
        let size_bytes = world.volumes[volume].size_bytes;
        world.volumes[volume].pins = pins::draw(world.env.rng(), size_bytes);
    }
    // A volume that is not served may be written by another program; its change time reveals that where it matters.
    let is_served = volume == 0 || world.env.random_bool(0.93);
    world.volumes.serve(volume, is_served);
    let is_known = !world.state.may_be_dirty(volume) && !world.volumes.is_free(volume);
    if !world.volumes.is_served(volume) && is_known {
        world.state.distrust(volume);
    }
    if world.pooled.as_ref().is_some_and(|pooled| pooled.is_older_than_cache(volume)) {
        world.state.distrust(volume);
        world.env.note("store: volumes cold after a commit was lost");
    }
    // Data given up while the device was absent is repeated to the device before the volume is called clean. It lies
    // in the old domain.
    let may_move =
        world.plan.moving && !world.state.may_be_dirty(volume) && !world.state.was_given_up(volume);
    if may_move && world.env.random_bool(0.2) {
        let domain = setup::domain(world.env.rng());
        if core::mem::replace(&mut world.volumes[volume].domain, domain) != domain {
            world.state.distrust(volume);
            world.env.note("volumes that changed their domain");
        }
    }
    let config = &mut world.volumes[volume];
    config.trusted = !world.state.is_distrusted(volume);
    config.may_be_dirty = world.state.may_be_dirty(volume);
    if is_served {
        config.lost_writes = world.losses.begin(volume, config, config.may_be_dirty, was_clean);
    } else {
        world.losses.put_aside(volume, config.may_be_dirty, was_clean);
    }
    world.state.note_dirty(volume, config.mode == Mode::WriteBack);
}

/// Changes configuration files between sessions.
fn change_settings_while_stopped(world: &mut World) {
    for volume in 0..world.volumes.len() {
        if !world.env.is_mended() && world.env.random_bool(0.03) {
            draw_settings(world, volume);
            world.volumes.changed(volume);
            world.env.note("settings that changed between two sessions");
        }
    }
}

/// Passes fences that the device does not record to the session, and keeps them for the next one.
fn remember_fences(world: &mut World, opened: &mut Opened) {
    opened.start.fenced = world.state.fenced();
    if !opened.start.fenced.is_empty() {
        world.env.note("starts that know of a fence");
    }
}

/// Replaces the journal's device after it failed.
fn replace_journal(world: &mut World) {
    if !world.faults.is_journal_gone(world.env.now()) || world.env.is_mended() {
        return;
    }
    world.faults.journal_gone = None;
    let range = disk::journal_range(world.cache.geometry());
    // The label precedes the ring.
    let at = range.start - PAGE;
    world.cache.disk_mut().damage(at, &vec![0; range.end - at]);
    world.promise.forget();
    world.trouble.damage();
    world.env.note("journal devices replaced");
}

/// Saves an image of the device, or restores a saved one.
fn swap_image(world: &mut World) {
    // A daemon with a record of dirty data refuses an older image, so none is restored here.
    if !world.faults.rollback || world.state.any_dirty() {
        return;
    }
    if world.cache.swap_image(&mut world.env, world.state.session()) {
        world.promise.forget();
        world.judges.medium_changed();
        world.env.note("device rolled back");
    }
}

pub(crate) fn power_cut(world: &mut World) {
    world.env.trace(|| "power cut".to_owned());
    world.env.note("power cuts");
    world.env.advance();
    cut_off(world);
    judge_origins(world);
    gone(world, false);
    lose_power(world);
    forgive_lies(world, true);
    world.env.advance();
    start(world);
}

pub(crate) fn kill(world: &mut World) {
    world.env.trace(|| "killed".to_owned());
    world.env.note("kills");
    world.env.advance();
    cut_off(world);
    judge_origins(world);
    gone(world, false);
    pool_dies(world);
    process_dies(world);
    decay_while_off(world);
    forgive_lies(world, true);
    world.env.advance();
    start(world);
}

/// Writes the settings of a volume for the next manager, unchanged.
fn configure_again(world: &mut World, volume: usize, was_clean: bool) {
    let begins_cold = begins_cold(world);
    let is_served = world.volumes.is_served(volume);
    let config = &mut world.volumes[volume];
    config.trusted = !begins_cold;
    config.may_be_dirty = world.state.may_be_dirty(volume);
    if !is_served {
        world.losses.put_aside(volume, config.may_be_dirty, was_clean);
    } else if world.exchange.is_empty_cache() {
        config.lost_writes = world.losses.begin_empty(volume, config);
    } else {
        config.lost_writes = world.losses.begin(volume, config, config.may_be_dirty, was_clean);
    }
    world.state.note_dirty(volume, config.mode == Mode::WriteBack);
    if world.env.has_bug(DriverBug::ExchangeForgets) {
        world.volumes[volume].lost_writes = false;
    }
}

/// Returns `true` if the new session trusts no mapping, because the origins were written without it.
fn begins_cold(world: &World) -> bool {
    world.exchange.is_same_cache() && !world.env.has_bug(DriverBug::ExchangeTrusts)
}

/// Provides the state directory that a start needs: repairs it, or loses it.
fn look_for_state(world: &mut World) {
    if world.faults.is_state_failing(world.env.now()) {
        world.env.note("starts that waited for the state directory");
        world.faults.mend_state();
    }
    if world.faults.state_lost && !world.env.is_mended() && world.env.random_bool(0.1) {
        lose_state(world);
    }
}

fn lose_state(world: &mut World) {
    world.env.trace(|| "the state directory is lost".to_owned());
    world.env.note("state directories lost");
    world.state.lose();
    for volume in 0..world.volumes.len() {
        let was_given_up = world.state.forget_given_up_of(volume);
        let was_fenced = world.state.complete(volume);
        // The device still records that the volume may be dirty.
        world.state.note_dirty(volume, was_given_up);
        if was_given_up || was_fenced {
            forgive(world, volume);
        }
        world.trouble.old_records |= was_fenced;
        world.losses.lose(volume, world.state.may_be_dirty(volume));
    }
}
