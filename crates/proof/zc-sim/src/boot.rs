//! Starts, stops, kills and power cuts, and what the machine keeps beside the cache device: the state directory's
//! session number and the intent log.
//!
//! A start may itself be cut off between any two of its I/Os, by a power cut or a kill, and again; so may the marking
//! of a clean stop. While no daemon serves it the device may be replaced by an older image of itself.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use zc_cache::CacheManager;
use zc_cache::seam::{Action, Event};
use zc_cache::startup::{self, Media, OpenOptions, Opened, StartError};
use zc_core::{ErrorKind, JournalSeq, Mode, VolumeId};
use zc_format::{Geometry, Record};

use crate::canary::DriverBug;
use crate::disk::{self, Disk, PAGE};
use crate::oracle::Oracle;
use crate::pins;
use crate::pooled::PoolStart;
use crate::setup;
use crate::shares;
use crate::world::{PATIENCE, World};
use crate::write_back::Trouble;

/// I/Os of a start among which one is chosen to be the last.
pub(crate) const START_IOS: u32 = 24;
/// Turns after a start in which a crash finds it still at work.
const HASTY_TURNS: u32 = 40;
/// Turns after a flush in which a crash finds what it promised as it was then.
const AIMED_TURNS: u32 = 6;

/// Steps after which an operator kills a daemon whose origins are gone.
const STOP_PATIENCE: u32 = 2_000;

/// The state directory and the intent log.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    /// The newest session that the state directory knows.
    pub(crate) session: u64,
    /// The newest session of all, as a clock would tell.
    pub(crate) newest: u64,
    pub(crate) intents: Vec<Record>,
    /// The newest journal block of the session that was written, as far as the manager was told.
    pub(crate) journal_written: JournalSeq,
    /// The newest journal block as of the last trim of the intent log: the log was trimmed up to there.
    journal_needed: JournalSeq,
    forgotten: u64,
    ready: bool,
    lost: bool,
    /// The session whose intents they are.
    owner: u64,
    boot: u8,
    /// The boot in which that session began.
    owner_boot: u8,
    /// Volumes of which a start could not tell all dirty data, and the operator has not accepted that since.
    pub(crate) incomplete: BTreeSet<usize>,
    /// Epochs to here were given up while the cache could not be told, by volume.
    pub(crate) given_up: BTreeMap<usize, u64>,
    /// An older image of the cache device, with its session.
    pub(crate) image: Option<(u64, Vec<u8>)>,
}

impl Files {
    pub(crate) fn trim_intents(&mut self, records: u64) {
        let count = usize::try_from(records - self.forgotten).expect("small");
        self.intents.drain(..count);
        self.forgotten = records;
        self.journal_needed = self.journal_written;
    }

    pub(crate) fn intents_ready(&mut self) {
        self.ready = !self.lost;
    }

    pub(crate) fn lose_intents(&mut self) {
        self.lost = true;
        self.ready = false;
    }

    /// Returns `true` if the next start has the intent log.
    pub(crate) fn has_intents(&self) -> bool {
        self.ready && self.boot == self.owner_boot
    }

    pub(crate) fn reboot(&mut self) {
        self.boot = self.boot.wrapping_add(1);
    }

    fn new_log(&mut self, owner: u64) -> Vec<Record> {
        self.forgotten = 0;
        self.ready = false;
        self.lost = false;
        self.owner = owner;
        self.owner_boot = self.boot;
        self.journal_written = JournalSeq(0);
        self.journal_needed = JournalSeq(0);
        core::mem::take(&mut self.intents)
    }
}

/// The cache device as a start sees it.
pub(crate) struct Raw<'a> {
    disk: &'a mut Disk,
    geometry: &'a Geometry,
    /// I/Os after which it is cut off.
    left: Option<u32>,
    /// The start was cut off: nothing that came back after that moment counts.
    cut: bool,
    /// The device acknowledges writes and forgets them.
    forgets: bool,
}

impl<'a> Raw<'a> {
    pub(crate) fn whole(disk: &'a mut Disk, geometry: &'a Geometry) -> Self {
        Self::new(disk, geometry, None, false)
    }

    pub(crate) fn new(disk: &'a mut Disk, geometry: &'a Geometry, left: Option<u32>, forgets: bool) -> Self {
        Self { disk, geometry, left, cut: false, forgets }
    }

    fn step(&mut self) -> Result<(), ErrorKind> {
        match &mut self.left {
            Some(0) => {
                self.cut = true;
                Err(ErrorKind::Io)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Media for Raw<'_> {
    fn len_bytes(&self) -> u64 {
        self.geometry.device_bytes
    }
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        self.step()?;
        let at = disk::address(self.geometry, offset);
        if self.disk.is_unreadable(at, buf.len()) {
            return Err(ErrorKind::Io);
        }
        buf.copy_from_slice(&self.disk.seen[at..at + buf.len()]);
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ErrorKind> {
        self.step()?;
        if !self.forgets {
            self.disk.write_now(disk::address(self.geometry, offset), data);
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), ErrorKind> {
        self.step()?;
        self.disk.settle();
        Ok(())
    }
}

impl World {
    /// Starts, however often it takes.
    pub(crate) fn start(&mut self) {
        self.swap_image();
        self.look_for_state();
        self.replace_journal();
        let mut records = Vec::new();
        let opened = loop {
            let opened = self.open_cache(&mut records);
            match self.open_pool() {
                PoolStart::Serves => break opened,
                PoolStart::Again(why) => self.cut_off_start(why),
                PoolStart::Never => return,
            }
        };
        self.serve(opened, &records);
        let soon = self.hasty && self.rng.random_bool(self.habits.crash_after_start);
        self.crash_in = soon.then(|| self.rng.random_range(0..HASTY_TURNS));
    }

    /// Opens the cache, however often it takes.
    fn open_cache(&mut self, records: &mut Vec<Record>) -> Opened {
        loop {
            records.clear();
            match self.open(records) {
                None => self.cut_off_start("cut off while opening"),
                Some(Ok(opened)) => return opened,
                Some(Err(error)) => {
                    // All copies of the superblock are damaged: a new cache.
                    self.trace(|| format!("formatted anew: {error}"));
                    self.coverage.note("formatted anew");
                    self.promise.forget();
                    self.losses.forget();
                    self.files.session = self.files.newest + 1;
                    self.format();
                    self.trouble = Trouble::default();
                    self.files.incomplete.clear();
                    self.files.given_up.clear();
                    for volume in 0..self.volumes.len() {
                        if core::mem::take(&mut self.maybe_dirty[volume]) {
                            self.forgive(volume);
                        }
                    }
                }
            }
        }
    }

    /// A flush has ended: what it promised is put to the test soon, before anything else makes it true.
    pub(crate) fn aim_crash(&mut self) {
        if self.crash_in.is_none() && self.happens(self.habits.crash_after_flush) {
            self.coverage.note("crashes aimed behind a flush");
            self.crash_in = Some(self.rng.random_range(0..AIMED_TURNS));
        }
    }

    /// The crash that follows a start or a flush, if it is its turn.
    pub(crate) fn crashes_early(&mut self) -> bool {
        let due = self.crash_in == Some(0);
        self.crash_in = self.crash_in.and_then(|turns| turns.checked_sub(1));
        if due {
            self.coverage.note("crashes soon after a start or a flush");
            if self.rng.random_bool(0.5) {
                self.power_cut();
            } else {
                self.kill();
            }
        }
        due
    }

    /// Opens the cache; `None` if that was cut off.
    pub(crate) fn open(&mut self, records: &mut Vec<Record>) -> Option<Result<Opened, StartError>> {
        let before = match startup::read_superblock(&mut Raw::whole(&mut self.cache, &self.geometry)) {
            Ok(before) => before,
            Err(error) => return Some(Err(error)),
        };
        self.losses.found(before.session, self.files.session, self.files.boot);
        if before.session < self.files.session {
            self.coverage.note("older images noticed");
            self.distrusted.fill(true);
        }
        // Also when the intent log completes the journal: until that is durable, the session that begins now relies on
        // the marks that it found.
        let broken = self.promise.is_broken_unseen(&self.cache.seen, &self.geometry);
        if broken {
            self.coverage.note("lost region maps that nothing tells of");
        }
        let options = OpenOptions {
            boot_id: [self.files.boot; 16],
            cold: broken || self.begins_cold() || self.rng.random_bool(0.01),
            session_floor: self.files.session,
            intent_session: self.files.ready.then_some(self.files.owner),
            intents: if self.has_bug(DriverBug::ForgetProofs) { &[] } else { &self.files.intents },
            intent_journal: self.files.journal_needed,
            #[cfg(zc_canary)]
            canary: match self.canary {
                Some(crate::canary::Canary::Manager(bug)) => Some(bug),
                _ => None,
            },
        };
        let left = (!self.mended && self.rng.random_bool(0.1)).then(|| self.rng.random_range(0..START_IOS));
        let left = self.cut_start_at.take().or(left);
        let forgets = self.faults.lost > 0.0 && self.rng.random_bool(0.03);
        let mut raw = Raw::new(&mut self.cache, &self.geometry, left, forgets);
        let opened = startup::open(&mut raw, &options, &mut |record| records.push(*record));
        if raw.cut {
            return None;
        }
        if opened.is_ok() && forgets {
            self.trouble.lie(false);
            self.coverage.note("writes lost: superblock");
        }
        Some(opened)
    }

    /// The start ends here: the power goes, or the process dies.
    pub(crate) fn cut_off_start(&mut self, what: &'static str) {
        self.trace(|| what.to_owned());
        self.coverage.note(what);
        self.now += 1;
        self.pool_dies();
        if self.rng.random_bool(0.6) {
            self.lose_power();
        }
        // The session may have begun, and the intent log is that of the one before it.
        if self.trouble.lied_slots {
            self.forgive_slots(false);
        }
        self.now += 1;
    }

    pub(crate) fn serve(&mut self, mut opened: Opened, records: &[Record]) {
        self.trace(|| format!("started: {:?} distrust {:?}", opened.start, opened.distrust));
        self.coverage.note("starts");
        if opened.superblock.geometry != self.geometry {
            self.violate("the device that is opened has another layout than the world knows".to_owned());
        }
        if opened.distrust.is_some() {
            self.coverage.note("starts without trust");
        }
        if !opened.start.unjournaled.is_empty() {
            self.coverage.note("starts by summaries");
        }
        let by_intent = opened.start.intact && !opened.was_clean;
        if by_intent {
            self.coverage.note("starts by intent log");
        }
        self.trouble.undecided = !opened.was_clean;
        self.superblock = Some(opened.superblock.clone());
        self.files.session = opened.start.session;
        self.files.newest = self.files.newest.max(opened.start.session);
        let mut intents = self.files.new_log(opened.start.session);
        if by_intent {
            intents = startup::drop_incomplete_intents(
                &mut Raw::whole(&mut self.cache, &self.geometry),
                &mut opened,
                intents,
            );
        }
        if by_intent && self.has_bug(DriverBug::ForgetProofs) {
            intents.retain(|record| !matches!(record, Record::Durable { .. }));
        }
        self.losses.dropped(opened.start.doubtful_drops());
        self.remember_fences(&mut opened);
        self.configure_all(opened.was_clean);
        let served = self.volumes.iter().zip(&self.served).filter(|(_, served)| **served);
        let volumes: Vec<_> = served.map(|(volume, _)| volume.clone()).collect();
        let unproved = opened.start.unproved_commits.clone();
        let unjournaled = core::mem::take(&mut opened.start.unjournaled);
        let records = if self.has_bug(DriverBug::ForgetSummaries) {
            &records[..records.len() - unjournaled.len()]
        } else {
            opened.start.unjournaled = unjournaled;
            records
        };
        let differs = self.compare_starts(&opened.start, records, &volumes);
        self.violation = self.violation.take().or(differs);
        let mut manager = CacheManager::new(self.config.clone(), volumes, opened.start);
        #[cfg(zc_canary)]
        if let Some(crate::canary::Canary::Manager(bug)) = self.canary {
            manager.set_canary(Some(bug));
        }
        records.iter().for_each(|record| manager.replay(record));
        if by_intent {
            intents.iter().for_each(|record| manager.replay_intent(record));
        }
        for (volume, epoch) in &self.files.given_up {
            manager.replay_intent(&Record::Clean { volume: VolumeId(*volume as u16), epoch: *epoch });
        }
        self.shares.forget();
        self.pins.forget();
        self.losses.own(self.files.session, self.files.boot);
        self.losses.note(&manager);
        self.kept.session_began(&unproved);
        let mut actions = Vec::new();
        manager.begin(self.now_ms, &mut actions);
        self.manager = Some(manager);
        self.carry_out(actions);
    }

    /// The settings of all volumes for the manager that begins.
    fn configure_all(&mut self, was_clean: bool) {
        let exchanges = self.exchange.is_under_way();
        if !exchanges {
            self.change_settings_while_stopped();
        }
        for volume in 0..self.volumes.len() {
            if exchanges {
                self.configure_again(volume, was_clean);
            } else {
                self.configure_start(volume, was_clean);
            }
        }
    }

    /// What a start decides about a volume before the manager hears of it.
    fn configure_start(&mut self, volume: usize, was_clean: bool) {
        if self.sharing && self.rng.random_bool(0.2) {
            self.volumes[volume].share = shares::draw(&mut self.rng, &self.geometry);
        }
        if self.pins.are_drawn() && self.rng.random_bool(0.2) {
            let size_bytes = self.volumes[volume].size_bytes;
            self.volumes[volume].pins = pins::draw(&mut self.rng, size_bytes);
        }
        let config = &mut self.volumes[volume];
        // Who is not served may be written elsewhere; its change time tells, where it matters.
        self.served[volume] = volume == 0 || self.rng.random_bool(0.93);
        self.free[volume] &= !self.served[volume];
        let is_known = !self.maybe_dirty[volume] && !self.free[volume];
        self.distrusted[volume] |= !self.served[volume] && is_known;
        if self.pooled.as_ref().is_some_and(|pooled| pooled.is_older_than_cache(volume)) {
            self.distrusted[volume] = true;
            self.coverage.note("store: volumes cold after a commit was lost");
        }
        // What was given up without the device is told again before it is called clean, and lies in the old domain.
        let may_move = self.moving && !self.maybe_dirty[volume] && !self.files.given_up.contains_key(&volume);
        if may_move && self.rng.random_bool(0.2) {
            let before = core::mem::replace(&mut config.domain, setup::domain(&mut self.rng));
            if before != config.domain {
                self.distrusted[volume] = true;
                self.coverage.note("volumes that changed their domain");
            }
        }
        config.trusted = !self.distrusted[volume];
        config.may_be_dirty = self.maybe_dirty[volume];
        if self.served[volume] {
            config.lost_writes = self.losses.begin(volume, config, config.may_be_dirty, was_clean);
        } else {
            self.losses.put_aside(volume, config.may_be_dirty, was_clean);
        }
        self.maybe_dirty[volume] |= config.mode == Mode::WriteBack;
    }

    /// The configuration file says something else than the last session heard.
    fn change_settings_while_stopped(&mut self) {
        for volume in 0..self.volumes.len() {
            if !self.mended && self.rng.random_bool(0.03) {
                self.draw_settings(volume);
                self.settings[volume] += 1;
                self.coverage.note("settings that changed between two sessions");
            }
        }
    }

    /// What the device does not remember of fences is told to the session, and kept for the next.
    fn remember_fences(&mut self, opened: &mut Opened) {
        let dirty = (0..self.volumes.len()).filter(|volume| self.maybe_dirty[*volume]);
        if !opened.start.dirty_complete {
            self.files.incomplete.extend(dirty.clone());
        }
        self.files.incomplete.retain(|volume| self.maybe_dirty[*volume]);
        opened.start.fenced = self.files.incomplete.iter().map(|volume| VolumeId(*volume as u16)).collect();
        if !opened.start.fenced.is_empty() {
            self.coverage.note("starts that know of a fence");
        }
    }

    /// The journal's device has failed, and another one is put in its place.
    fn replace_journal(&mut self) {
        if !self.is_journal_gone() || self.mended {
            return;
        }
        self.faults.journal_gone = None;
        let range = disk::journal_range(&self.geometry);
        // The label before the ring.
        let at = range.start - PAGE;
        self.cache.damage(at, &vec![0; range.end - at]);
        self.promise.forget();
        self.trouble.damage();
        self.coverage.note("journal devices replaced");
    }

    /// An image of the device is kept, or one that was kept takes its place.
    fn swap_image(&mut self) {
        // A daemon that knows of dirty data refuses an older image; here no older image is put in its place.
        if !self.faults.rollback || self.maybe_dirty.contains(&true) {
            return;
        }
        let older = self.files.image.as_ref().is_some_and(|(session, _)| *session < self.files.session);
        if older && self.rng.random_bool(0.2) {
            if let Some((_, image)) = self.files.image.take() {
                self.cache.restore(&image);
                self.promise.forget();
                self.borders.forget();
                self.coverage.note("device rolled back");
            }
        } else if self.files.image.is_none() {
            self.files.image = Some((self.files.session, self.cache.seen.clone()));
        }
    }

    /// The process ends, one way or another. After a `clean` stop it is known which volumes have dirty data.
    pub(crate) fn gone(&mut self, clean: bool) {
        self.session_ends(clean);
        self.exchange.call_off();
        self.bufs.clear();
        self.clients.clear();
    }

    /// The session is over.
    pub(crate) fn session_ends(&mut self, clean: bool) {
        for volume in 0..self.volumes.len() {
            let stays = self.maybe_dirty[volume] && !clean;
            let is_unknown = !self.served[volume] && !self.free[volume];
            self.maybe_dirty[volume] = stays || self.dirty(volume).is_some() || is_unknown;
        }
        if let Some(manager) = self.manager.take() {
            self.losses.over(&manager, clean);
            self.trouble.left_out |= manager.stats().checkpoint_left_out > 0;
            if !manager.is_loaded() {
                self.coverage.note("crashes while the index loads");
            }
            if let Some((_, to)) = self.faults.dead.filter(|(from, _)| self.now > *from) {
                let came_back = to < self.now;
                self.coverage.note(if came_back { "device gone and back" } else { "device died" });
                self.faults.dead = None;
            }
            if !manager.is_healthy() {
                self.coverage.note("sessions that ended without the cache");
            }
            for (name, value) in manager.stats().named() {
                self.coverage.add(name, value);
            }
        }
        self.known.clear();
        self.unheard.clear();
        self.stopped = None;
        self.stalled = None;
        self.promise.session_over();
        self.kept.session_over();
        self.excuses.forget();
        self.trouble.session = false;
        self.trouble.failed_at = None;
        self.trouble.unrecorded_ms = None;
        self.cache.all_ended();
        self.origins.iter_mut().for_each(Disk::all_ended);
    }

    /// Some of what is in flight happens, wholly or in part, and the manager does not hear of it.
    fn cut_off(&mut self) {
        let pending = core::mem::take(&mut self.pending);
        for (action, issued) in pending {
            let writes = matches!(
                action,
                Action::OriginWrite { .. }
                    | Action::OriginTrim { .. }
                    | Action::OriginZero { .. }
                    | Action::WriteWeu { .. }
                    | Action::WritePart { .. }
                    | Action::WriteJournal { .. }
                    | Action::WriteRegionMap { .. }
                    | Action::WriteCheckpoint { .. }
                    | Action::CommitCheckpoint { .. }
                    | Action::WriteImage { .. }
                    | Action::FlushCache { .. }
                    | Action::OriginFlush { .. }
                    | Action::Distrust { .. }
            );
            if writes && self.rng.random_bool(0.5) {
                let _event = self.perform(&action, issued);
            }
        }
    }

    /// Volatile memory is lost, everywhere.
    fn lose_power(&mut self) {
        self.cache.power_cut(&mut self.rng);
        self.pool_loses_power();
        for origin in &mut self.origins {
            origin.power_cut(&mut self.rng);
        }
        let now = self.now;
        self.oracles.iter_mut().for_each(|oracle| oracle.power_cut(now));
        self.judges.iter_mut().for_each(|judge| judge.crashed(now));
        self.files.reboot();
        self.losses.reboot(self.now.is_multiple_of(2));
        self.decay_while_off();
    }

    /// What is in the memory of the process is lost.
    pub(crate) fn process_dies(&mut self) {
        let now = self.now;
        self.losses.kill();
        for (volume, oracle) in self.oracles.iter_mut().enumerate() {
            if self.losses.is_safe(volume) {
                oracle.acknowledged_is_safe();
            }
            oracle.killed(now);
        }
        self.judges.iter_mut().for_each(|judge| judge.crashed(now));
    }

    fn decay_while_off(&mut self) {
        if self.rng.random_bool(0.2) {
            self.rot_metadata();
        }
    }

    pub(crate) fn power_cut(&mut self) {
        self.trace(|| "power cut".to_owned());
        self.coverage.note("power cuts");
        self.now += 1;
        self.cut_off();
        self.judge_origins();
        self.gone(false);
        self.lose_power();
        self.forgive_lies(true);
        self.now += 1;
        self.start();
    }

    pub(crate) fn kill(&mut self) {
        self.trace(|| "killed".to_owned());
        self.coverage.note("kills");
        self.now += 1;
        self.cut_off();
        self.judge_origins();
        self.gone(false);
        self.pool_dies();
        self.process_dies();
        self.decay_while_off();
        self.forgive_lies(true);
        self.now += 1;
        self.start();
    }

    pub(crate) fn stop_and_start(&mut self) {
        self.drain();
        if self.violation.is_some() {
            return;
        }
        self.trace(|| "stop".to_owned());
        self.coverage.note("clean stops");
        self.event(Event::Stop);
        let Some(clean) = self.wait_for_stop() else { return };
        self.close_pool();
        if !self.bufs.is_empty() || self.is_busy() {
            let left = format!("left over after the stop: {:?} {:?}", self.bufs.keys(), self.pending);
            self.violation = Some(left);
            return;
        }
        if clean && !self.mark_clean() {
            self.gone(false);
            self.oracles.iter_mut().for_each(Oracle::nothing_in_memory);
            self.cut_off_start("cut off while marking a clean stop");
            self.forgive_lies(true);
            return self.start();
        }
        self.gone(clean);
        if clean {
            self.oracles.iter_mut().for_each(Oracle::nothing_in_memory);
        } else {
            self.process_dies();
        }
        self.decay_while_off();
        self.forgive_lies(!clean);
        if clean && self.rng.random_bool(0.1) {
            self.write_behind_our_back();
        }
        if self.rng.random_bool(0.5) {
            self.files.reboot();
            self.losses.reboot(self.now.is_multiple_of(2));
        }
        self.start();
        if self.pins.are_drawn() && !self.mended && self.rng.random_bool(0.5) {
            self.change_pins_early();
        }
    }

    /// Whether the stop was clean; `None` if it did not come to an end.
    pub(crate) fn wait_for_stop(&mut self) -> Option<bool> {
        let cut_off = (!self.mended && self.rng.random_bool(0.2)).then(|| self.rng.random_range(0..60));
        for turn in 0..PATIENCE {
            if self.violation.is_some() {
                return None;
            }
            if let Some(clean) = self.stopped {
                if self.mended && !clean {
                    self.violation = Some("the stop is not clean though nothing fails".to_owned());
                    return None;
                }
                return Some(clean);
            }
            let in_the_way = (0..self.volumes.len()).any(|volume| self.is_pool_in_the_way(volume));
            let held_up = turn > STOP_PATIENCE && (self.are_origins_gone() || in_the_way);
            if held_up {
                self.coverage.note("stops that an origin held up");
                self.kill();
                return None;
            }
            if cut_off == Some(turn) {
                self.coverage.note("crashes while stopping");
                self.power_cut();
                return None;
            }
            if self.is_busy() {
                self.step();
            } else {
                self.tick();
            }
        }
        self.violation = Some("the manager does not stop".to_owned());
        None
    }

    /// False if it was cut off.
    pub(crate) fn mark_clean(&mut self) -> bool {
        let superblock = self.superblock.clone().expect("opened");
        let left = (!self.mended && self.rng.random_bool(0.1)).then(|| self.rng.random_range(0..6));
        let forgets = self.faults.lost > 0.0 && self.rng.random_bool(0.03);
        let manager = self.manager.as_ref().expect("runs");
        let (journal_next, image) = (manager.journal_next(), manager.index_image());
        if self.is_state_failing() {
            // The origins' marks are noted first.
            self.coverage.note("stops that the state directory did not hear of");
            return false;
        }
        let mut media = Raw::new(&mut self.cache, &self.geometry, left, forgets);
        let done = startup::mark_clean(&mut media, &superblock, journal_next, image).is_ok();
        if done {
            self.distrusted.fill(false);
            self.files.given_up.clear();
        }
        done
    }
}
