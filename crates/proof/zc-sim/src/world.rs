//! The machine: a manager, the devices under it, and the judges of its behaviour.
//!
//! Job: pass events to the manager and its actions to the devices; execute and complete operations in random order;
//! report everything to the judges. Each part keeps its own state, in a file of its own.
//!
//! It does not choose the next step (`turns`), or begin and end sessions (`boot`, `ends`).

use zc_cache::config::ManagerConfig;
use zc_cache::seam::{Action, Event, ImageFault, Note, Request};
use zc_cache::startup::{self, FormatOptions};
use zc_cache::{CacheManager, DirtyState};
use zc_core::{ErrorKind, ExtentNo, Mode, OpId, SectorSpan, VolumeId};
use zc_format::{Record, Salt, Superblock};
use zc_pool::PoolError;

use crate::action_digest::ActionDigest;
use crate::bench::Bench;
use crate::canary::DriverBug;
use crate::clients::Clients;
use crate::content::SECTOR;
use crate::crashes::Crashes;
use crate::device::CacheDevice;
use crate::disk::PAGE;
use crate::drawn::Faults;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::excuses::Excuses;
use crate::judges::{Judges, Sight};
use crate::kept::Kept;
use crate::late::Late;
use crate::losses::Losses;
use crate::memory::Memory;
use crate::models::Models;
use crate::origin::Origins;
use crate::plan::Plan;
use crate::pooled::Pooled;
use crate::promise::Promise;
use crate::queue::Queue;
use crate::setup::Setup;
use crate::state::StateDir;
use crate::trouble::Trouble;
use crate::volumes::Volumes;
use crate::zone::{self, Zone};

/// Steps after which an unfinished wait counts as hung.
pub(crate) const PATIENCE: u32 = 20_000;
/// Identity of the cache.
const UUID: [u8; 16] = [1; 16];
/// Time that the driver waits for a change of the state directory. The daemon waits for 5 s, in which little else
/// would happen here.
const CHANGE_MS: u64 = 500;
/// Time that the manager waits for a distrust to be recorded before it fails writes that need it.
const RECORD_PATIENCE_MS: u64 = 30_000;

/// Devices that execute operations, and the operations.
pub(crate) struct Devices<'a> {
    cache: &'a mut CacheDevice,
    pub(crate) origins: &'a mut Origins,
    pooled: Option<&'a mut Pooled>,
    queue: &'a mut Queue,
}

pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) plan: Plan,
    pub(crate) faults: Faults,
    pub(crate) crashes: Crashes,
    // Process state.
    pub(crate) config: ManagerConfig,
    pub(crate) manager: Option<CacheManager>,
    pub(crate) superblock: Option<Superblock>,
    pub(crate) stopped: Option<bool>,
    pub(crate) volumes: Volumes,
    pub(crate) clients: Clients,
    pub(crate) memory: Memory,
    pub(crate) queue: Queue,
    pub(crate) exchange: Exchange,
    // Devices.
    pub(crate) cache: CacheDevice,
    pub(crate) origins: Origins,
    /// Operations of origins that last too long.
    pub(crate) late: Late,
    /// Store of some of the volumes.
    pub(crate) pooled: Option<Pooled>,
    pub(crate) state: StateDir,
    // Judges, and excuses.
    pub(crate) actions: ActionDigest,
    pub(crate) models: Models,
    pub(crate) judges: Judges,
    pub(crate) promise: Promise,
    pub(crate) losses: Losses,
    pub(crate) kept: Kept,
    pub(crate) trouble: Trouble,
    pub(crate) excuses: Excuses,
}

impl World {
    /// Creates a new cache with these settings, not served yet.
    pub(crate) fn build(env: Env, setup: Setup) -> Self {
        let plan = setup.plan();
        let (mut config, volumes) = (setup.config, setup.volumes);
        config.geometry.salt = Salt::of(&UUID);
        let mut world = Self {
            actions: ActionDigest::new(env.seed()),
            env,
            plan,
            faults: setup.faults,
            crashes: Crashes::new(setup.hasty),
            manager: None,
            superblock: None,
            stopped: None,
            clients: Clients::new(),
            memory: Memory::new(config.geometry.extent_bytes),
            queue: Queue::default(),
            exchange: Exchange::new(setup.exchanging),
            cache: CacheDevice::new(config.geometry.clone()),
            origins: Origins::new(&volumes),
            late: Late::new(setup.patience),
            pooled: setup.pool.as_ref().map(|pool| Pooled::new(pool, volumes.len(), &config)),
            state: StateDir::new(volumes.len()),
            models: Models::new(&volumes),
            judges: Judges::new(&config.geometry),
            promise: Promise::default(),
            losses: Losses::new(volumes.len()),
            kept: Kept::default(),
            trouble: Trouble::default(),
            excuses: Excuses::default(),
            config,
            volumes: Volumes::new(volumes),
        };
        world.env.note(setup.profile.note());
        world.format();
        world
    }

    /// Returns a copy of the machine with the same media, in which nothing runs yet. It has no store.
    pub(crate) fn fork(&self, out: Option<fn(&str)>) -> Self {
        Self {
            env: self.env.fork(out),
            plan: self.plan,
            faults: self.faults,
            crashes: self.crashes,
            config: self.config.clone(),
            manager: None,
            superblock: self.superblock.clone(),
            stopped: self.stopped,
            volumes: self.volumes.clone(),
            clients: self.clients.fork(),
            memory: Memory::new(self.config.geometry.extent_bytes),
            queue: Queue::default(),
            exchange: Exchange::default(),
            cache: self.cache.fork(),
            origins: self.origins.clone(),
            late: Late::default(),
            pooled: None,
            state: self.state.clone(),
            actions: self.actions.clone(),
            models: self.models.clone(),
            judges: self.judges.fork(),
            promise: self.promise.clone(),
            losses: self.losses.clone(),
            kept: self.kept.clone(),
            trouble: self.trouble,
            excuses: Excuses::default(),
        }
    }

    pub(crate) fn format(&mut self) {
        self.format_cut_off(None);
    }

    /// Formats the cache device, which is cut off after `left` I/Os. Returns `false` if that is too early.
    pub(crate) fn format_cut_off(&mut self, left: Option<u32>) -> bool {
        self.kept.forget();
        let format = FormatOptions {
            geometry: self.cache.geometry().clone(),
            uuid: UUID,
            fingerprint_kind: self.config.fingerprint,
            label: String::new(),
            now_unix_s: self.state.next_session(),
        };
        let formatted = startup::format(&mut self.cache.raw(left, false), &format);
        assert!(left.is_some() || formatted.is_ok(), "formats: {formatted:?}");
        formatted.is_ok()
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.env.advance();
        self.cache.disk_mut().now = self.env.now();
        self.env.trace(|| format!("> {event:?}"));
        self.env.note(event_name(&event));
        match &event {
            Event::DeviceDone { op, result } => {
                self.cache.disk_mut().ended(op.0);
                self.promise.ended(*op, result.is_ok());
                self.kept.ended(*op, result.is_ok());
            }
            Event::OriginDone { op, result } => {
                self.origin_reports(*op, *result);
                self.excuses.heard(*op, self.env.now());
                self.origins.iter_mut().for_each(|origin| origin.ended(op.0));
            }
            Event::RecipeArrived { op, .. } => self.origin_reports(*op, Ok(())),
            _ => {}
        }
        self.withdraw_files();
        self.judges.comes(&event);
        let mut actions = Vec::new();
        self.manager.as_mut().expect("runs").handle(event, &mut actions);
        self.carry_out(actions);
        if let Some(manager) = &self.manager {
            self.losses.note(manager);
            if !manager.is_healthy() && !self.trouble.session {
                let text = "the cache is out of order though none of its operations failed (G4)";
                self.env.violate(text);
            }
            self.judges.handled(&mut self.env, manager);
        }
    }

    /// Withdraws files written without a flush if they cannot be written.
    fn withdraw_files(&mut self) {
        if self.faults.is_state_failing(self.env.now()) {
            self.state.log_mut().lose();
            self.losses.lose_risks();
        }
    }

    /// Submits a client's request to the manager, or holds it until a pause ends.
    pub(crate) fn submitted(&mut self, request: Request) {
        if let Some(request) = self.exchange.hold(request) {
            self.event(Event::Submit(request));
        }
    }

    pub(crate) fn tick(&mut self) {
        let ms = self.env.random_range(1..40);
        self.env.pass_ms(ms);
        let now_ms = self.env.now_ms();
        self.end_late_changes();
        self.event(Event::Tick { now_ms });
        if let Some(manager) = &self.manager {
            let sight = Sight { manager, volumes: &self.volumes, clients: &self.clients };
            self.judges.ticked(&mut self.env, &sight);
        }
        self.look_at_proofs();
        self.tick_pool();
        self.tick_late();
        // Mostly the manager detects the failure itself.
        if self.faults.is_dead(self.env.now()) && now_ms.is_multiple_of(8) {
            self.trouble.session = true;
            self.event(Event::DeviceLost);
        }
    }

    /// Ends the wait for hung state directory changes. They may still be executed.
    fn end_late_changes(&mut self) {
        let now_ms = self.env.now_ms();
        let is_late = |action: &Action, asked_ms: u64| {
            matches!(action, Action::Distrust { .. }) && now_ms.saturating_sub(asked_ms) >= CHANGE_MS
        };
        while let Some(Action::Distrust { op, volume }) = self.queue.take_if(is_late) {
            self.env.note("changes of the state directory that hung");
            self.trouble.unrecorded_ms.get_or_insert(now_ms);
            if self.env.random_bool(0.5) {
                self.state.record_now(volume);
            }
            self.event(Event::DeviceDone { op, result: Err(ErrorKind::TimedOut) });
        }
    }

    /// Returns `true` if a write may fail because neither cache device nor state directory can record it for the next
    /// start.
    pub(crate) fn is_unrecordable(&self) -> bool {
        let is_pending = self.manager.as_ref().is_some_and(CacheManager::is_distrust_pending);
        let waited_ms = self.trouble.unrecorded_ms.map_or(0, |since_ms| self.env.now_ms() - since_ms);
        is_pending && waited_ms + 2 * CHANGE_MS >= RECORD_PATIENCE_MS
    }

    /// Checks after time has passed that an idle device proves the last commits.
    fn look_at_proofs(&mut self) {
        let works = self.manager.as_ref().is_some_and(CacheManager::is_healthy);
        if !works || self.is_busy() || self.trouble.lied_metadata || self.queue.is_stalling() {
            return;
        }
        if let Some(text) = self.kept.late(self.env.now_ms()) {
            self.env.violate(text);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.pool_operations() > 0
    }

    fn pool_operations(&self) -> usize {
        self.pooled.as_ref().map_or(0, Pooled::busy)
    }

    /// Returns the devices, and the machine state that their operations use.
    pub(crate) fn split(&mut self) -> (Devices<'_>, Bench<'_>) {
        let devices = Devices {
            cache: &mut self.cache,
            origins: &mut self.origins,
            pooled: self.pooled.as_mut(),
            queue: &mut self.queue,
        };
        let bench = Bench {
            env: &mut self.env,
            faults: &mut self.faults,
            trouble: &mut self.trouble,
            memory: &mut self.memory,
            state: &mut self.state,
            models: &mut self.models,
            excuses: &mut self.excuses,
            kept: &mut self.kept,
            promise: &mut self.promise,
        };
        (devices, bench)
    }

    /// Runs `act` on the store, if there is one.
    fn at_pool<T>(&mut self, act: impl FnOnce(&mut Pooled, &mut Bench<'_>, &mut Queue) -> T) -> Option<T> {
        let (devices, mut bench) = self.split();
        devices.pooled.map(|pooled| act(pooled, &mut bench, devices.queue))
    }

    /// Lets the cache device decay independently of the manager's requests.
    pub(crate) fn decay(&mut self) {
        let (devices, mut bench) = self.split();
        devices.cache.decay(&mut bench);
    }

    /// Lets the cache device decay while no session serves it.
    pub(crate) fn rest_device(&mut self) {
        let (devices, mut bench) = self.split();
        devices.cache.rest(&mut bench);
    }

    /// Completes an operation or job of the store.
    fn step_pool(&mut self) {
        self.at_pool(|pooled, bench, queue| pooled.step_under(bench, queue));
    }

    pub(crate) fn tick_pool(&mut self) {
        self.at_pool(|pooled, bench, queue| pooled.tick_under(bench, queue));
    }

    /// Takes answers of the store.
    pub(crate) fn hear_pool(&mut self) {
        self.at_pool(|pooled, bench, queue| pooled.tell(bench, queue));
    }

    /// Checks that an error of the store has a reason.
    pub(crate) fn judge_pool_error(&mut self, error: &PoolError) {
        self.at_pool(|pooled, bench, _| pooled.judge_error(bench, error));
    }

    /// Submits an action to the store. Returns the action if it is not for the store.
    fn ask_store(&mut self, action: Action) -> Option<Action> {
        if self.pooled.is_none() {
            return Some(action);
        }
        self.at_pool(|pooled, bench, queue| pooled.ask(bench, queue, action)).flatten()
    }

    pub(crate) fn is_pool_in_the_way(&self, volume: usize) -> bool {
        self.pooled.as_ref().is_some_and(|pooled| pooled.is_in_the_way(volume))
    }

    pub(crate) fn is_pool_rotten(&self) -> bool {
        self.pooled.as_ref().is_some_and(Pooled::is_rotten)
    }

    pub(crate) fn carry_out(&mut self, actions: Vec<Action>) {
        self.actions.add(&actions);
        for action in actions {
            self.env.trace(|| format!("  < {action:?}"));
            self.judges.wants(&action, &self.volumes);
            self.take_up(action);
        }
        self.judges.took(&mut self.env);
    }

    fn take_up(&mut self, action: Action) {
        match action {
            Action::Reply { req, result } => self.replied(req, result),
            Action::Alloc { buf, len_bytes } => self.memory.insert(buf, vec![0xee; len_bytes as usize]),
            Action::Free { buf } => self.memory.free(buf),
            Action::Copy { from, to } => {
                let data = self.memory.slice(from);
                self.memory.put(&mut self.env, to, &data);
            }
            Action::Zero { dest } => {
                self.memory.put(&mut self.env, dest, &vec![0; dest.len_bytes as usize]);
            }
            Action::Place { weu, offset_bytes, header, payload } => {
                let payload = self.memory.slice(payload);
                self.cache.placed_mut().note(header, offset_bytes);
                let buf = &mut self.memory.bytes_mut(weu)[offset_bytes as usize..];
                header.seal(offset_bytes, &payload, buf, self.cache.geometry().salt);
            }
            Action::Summarize { weu, place, summary } => {
                self.kept.summarized(weu, &place, &summary);
                let at = place.page as usize * PAGE;
                summary.encode_into(&place, &mut self.memory.bytes_mut(weu)[at..at + PAGE]);
            }
            Action::Intent { record } => self.intent(record),
            Action::IntentTrim { .. } if self.env.has_bug(DriverBug::RepeatIntents) => {}
            Action::IntentTrim { records } => self.state.log_mut().trim(records),
            Action::IntentReady => self.state.log_mut().ready(),
            Action::Note(note) => self.noted(&note),
            Action::Abandon { op } => self.abandon(op),
            Action::Stopped { clean } => self.stopped = Some(clean),
            other => {
                let other = self.ask_store(other);
                if let Some(other) = other.and_then(|other| self.ask_origin(other)) {
                    self.start_operation(other);
                }
            }
        }
    }

    pub(crate) fn start_operation(&mut self, action: Action) {
        let issued = match &action {
            Action::FlushCache { op } => {
                self.promise.flush_issued(*op);
                self.kept.flush_issued(*op);
                self.cache.disk_mut().flush_issued()
            }
            Action::OriginFlush { volume, .. } => self.origins[usize::from(volume.0)].flush_issued(),
            Action::Distrust { .. } => self.env.now_ms(),
            _ => 0,
        };
        self.queue.push(action, issued);
    }

    /// Abandons an operation that the manager no longer waits for. An executed one keeps its result. A write may
    /// still reach the device.
    fn abandon(&mut self, op: OpId) {
        let Some((action, issued)) = self.queue.take_op(op) else { return };
        self.trouble.session = true;
        let late = ErrorKind::TimedOut;
        let event = match &action {
            Action::ReadExtents { parts, .. } => {
                parts.iter().for_each(|part| self.excuses.unreadable(part));
                Event::ExtentsRead { op, result: Err(late) }
            }
            Action::ReadHeader { .. } => Event::HeaderRead { op, result: Err(late) },
            Action::ReadImage { .. } => Event::ImageRead { op, result: Err(late) },
            _ => {
                self.env.note("abandoned: writes");
                if self.env.random_bool(0.5) {
                    self.env.note("abandoned: writes that reached the device");
                    let (devices, mut bench) = self.split();
                    let _event = devices.cache.perform(&mut bench, &action, issued);
                }
                self.queue.hear(Event::DeviceDone { op, result: Err(late) });
                return;
            }
        };
        self.env.note("abandoned: reads");
        self.queue.hear(event);
    }

    fn noted(&mut self, note: &Note) {
        if matches!(note, Note::CacheFailed { .. }) {
            let now = self.env.now();
            self.trouble.failed_at.get_or_insert(now);
        }
        match note {
            // The device counts as gone; the manager detected it first.
            Note::CacheFailed { error: ErrorKind::TimedOut, .. } => {
                self.env.note("cache devices that did not answer");
                self.trouble.session = true;
            }
            Note::DirtyUnreadable { .. } => self.env.note("dirty data unreadable"),
            Note::DirtySkipped { volume, extent, sectors } => {
                let sectors = self.sectors_of(*extent, *sectors);
                self.models.left_out(usize::from(volume.0), sectors, self.env.now());
                self.env.note("rotten dirty data left out");
            }
            Note::DirtyGivenUp { volume, extent, sectors } => {
                let sectors = self.sectors_of(*extent, *sectors);
                self.models.zeros_began(&mut self.env, usize::from(volume.0), sectors);
            }
            Note::DestageFailed { .. } => self.env.note("destaging failed"),
            Note::Removed { volume, result } => {
                if result.is_ok() {
                    self.forget_origin(*volume);
                }
                self.volumes.removed(*result);
            }
            Note::Fenced { .. } => self.env.note("volumes fenced"),
            Note::ImageRefused { fault } => self.env.note(refused(*fault)),
            Note::ImageOmitted { .. } => self.env.note("index images omitted"),
            Note::CommitsDropped { .. } => self.env.note("tentative commits dropped"),
            _ => {}
        }
    }

    /// Returns sectors of an extent, counted from the start of its volume.
    fn sectors_of(&self, extent: ExtentNo, sectors: SectorSpan) -> impl Iterator<Item = usize> + use<> {
        let first = extent.0 as usize * self.cache.geometry().extent_bytes as usize / SECTOR;
        sectors.range().map(move |sector| first + sector as usize)
    }

    fn intent(&mut self, record: Record) {
        // The slot's generation exceeds the bits that index entries keep.
        if let Record::SlotSealed { generation, .. } = record
            && generation.0 >> self.config.generation_bits > 0
        {
            self.env.note("generation wraps");
        }
        if self.env.random_bool(0.0002) {
            self.state.log_mut().lose();
            self.env.note("intent log lost");
        }
        self.kept.follow(&record, self.cache.geometry(), self.env.now_ms());
        self.state.log_mut().push(record);
    }

    /// Executes or completes one random operation; anything may happen between the two. Operations of a slow zone
    /// wait while others pass; when no other is left, time passes.
    pub(crate) fn step(&mut self) {
        let (pending, own) = (self.queue.pending().len(), self.queue.len());
        let count = own + self.pool_operations();
        if count == 0 {
            return;
        }
        if self.has_abandoned() && self.env.random_bool(0.03) {
            return self.end_late();
        }
        let mut index = self.env.random_range(0..count);
        if index >= own {
            return self.step_pool();
        }
        if index < pending && self.is_stalled(index) {
            match (0..pending).find(|index| !self.is_stalled(*index)) {
                Some(other) => index = other,
                None if own == pending && self.pool_operations() > 0 => return self.step_pool(),
                None if own == pending => return self.tick(),
                None => index = pending,
            }
        }
        if let Some(heard) = index.checked_sub(pending) {
            let event = self.queue.take_unheard(heard);
            self.event(event);
            return;
        }
        let (action, issued) = self.queue.take(index);
        let event = self.perform(&action, issued);
        // Data of a failed flush is lost when the failure is reported.
        let lost = matches!(
            (&action, &event),
            (Action::OriginFlush { .. }, Event::OriginDone { result: Err(_), .. })
        );
        if !lost && self.env.random_bool(0.4) {
            self.env.trace(|| format!("  effect of what ends as {event:?}"));
            self.queue.hear(event);
        } else {
            self.event(event);
        }
    }

    /// Advances one operation in progress, or time.
    pub(crate) fn step_or_tick(&mut self) {
        if self.is_busy() {
            self.step();
        } else {
            self.tick();
        }
    }

    /// Returns `true` if an operation is in progress that does not hang.
    pub(crate) fn can_step(&self) -> bool {
        !self.queue.unheard().is_empty()
            || (0..self.queue.pending().len()).any(|index| !self.is_stalled(index))
    }

    fn is_stalled(&self, index: usize) -> bool {
        let now = self.env.now();
        let is_state = Zone::of(&self.queue.pending()[index].0) == Zone::State;
        is_state && self.faults.is_state_hanging(now)
            || self.queue.is_stalled(index, now, self.plan.habits.hangs)
    }

    /// Slows a zone down for a while.
    pub(crate) fn stall(&mut self) {
        if self.faults.slow {
            let hangs = self.plan.habits.hangs;
            let any = zone::SLOW[self.env.random_range(0..zone::SLOW.len())];
            let zone = hangs.filter(|_| self.env.random_bool(0.6)).unwrap_or(any);
            let longest = if hangs.is_some() { 200 } else { 600 };
            let until = self.env.now() + self.env.random_range(50..longest);
            self.queue.stall(zone, until);
            self.env.note(zone.stalled());
        }
    }

    /// Executes an operation and returns its result. It does not share the interpreter of `zc-drive`, which begins
    /// operations in order and completes each at once. Here seeds choose the time of each effect and the remains
    /// after a crash.
    pub(crate) fn perform(&mut self, action: &Action, issued: u64) -> Event {
        let kind = self.config.fingerprint;
        let (devices, mut bench) = self.split();
        match action {
            Action::OriginRead { .. }
            | Action::OriginWrite { .. }
            | Action::OriginTrim { .. }
            | Action::OriginZero { .. }
            | Action::OriginFlush { .. } => {
                devices.origins.perform(&mut bench, devices.queue.pending(), action, issued)
            }
            Action::WantRecipe { .. } => {
                devices.origins.recipe(action, kind, devices.cache.geometry().extent_bytes as usize)
            }
            Action::Hash { .. } | Action::Compress { .. } | Action::Compare { .. } => {
                bench.memory.work(action, kind)
            }
            Action::Distrust { op, volume } => {
                bench.state.record(bench.env, bench.faults, bench.trouble, (*op, *volume))
            }
            other => devices.cache.perform(&mut bench, other, issued),
        }
    }

    /// Returns the dirty data of a volume, if it has or may have any.
    pub(crate) fn dirty(&self, volume: usize) -> Option<DirtyState> {
        let manager = self.manager.as_ref()?;
        manager.dirty(VolumeId(volume as u16)).filter(|state| state.bytes > 0 || state.fenced)
    }

    /// Returns `true` if writes of the volume may be acknowledged before the origin has them.
    pub(crate) fn writes_back(&self, volume: usize) -> bool {
        self.volumes[volume].mode == Mode::WriteBack || self.dirty(volume).is_some()
    }

    /// Returns `true` if dirty data of the volume is out of reach while the cache is failed, or may be as far as the
    /// device could be updated.
    pub(crate) fn is_out_of_reach(&self, volume: usize) -> bool {
        let unknown = self.trouble.undecided || self.state.is_incomplete(volume);
        self.dirty(volume).is_some_and(|state| state.fenced && (state.bytes > 0 || unknown))
    }

    /// Returns `true` if a request may fail: the cache device is in trouble, and may hold data that only it has. Or a
    /// corrupt store came back older than the cache's data of it, to which dirty data does not apply.
    pub(crate) fn is_excused(&self, volume: usize) -> bool {
        let troubled = self.trouble.session || self.trouble.damaged || self.trouble.rotten;
        let is_older = self.pooled.as_ref().is_some_and(|pooled| pooled.is_rotten() && pooled.has(volume));
        (troubled || is_older) && (self.state.may_be_dirty(volume) || self.writes_back(volume))
    }
}

/// Returns a name for the fault that refuses an image.
const fn refused(fault: ImageFault) -> &'static str {
    match fault {
        ImageFault::Slots => "index images refused: slots",
        ImageFault::Volumes => "index images refused: volumes",
        ImageFault::Overtaken => "index images refused: overtaken",
        ImageFault::Damaged => "index images refused: damage",
        ImageFault::Device(_) => "index images refused: read errors",
        ImageFault::Shape | ImageFault::NoRoom | ImageFault::Dirty => "index images refused: shape",
    }
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Submit(_) => "event Submit",
        Event::OriginDone { .. } => "event OriginDone",
        Event::DeviceDone { .. } => "event DeviceDone",
        Event::ExtentsRead { .. } => "event ExtentsRead",
        Event::HeaderRead { .. } => "event HeaderRead",
        Event::ImageRead { .. } => "event ImageRead",
        Event::Hashed { .. } => "event Hashed",
        Event::RecipeArrived { .. } => "event RecipeArrived",
        Event::Compressed { .. } => "event Compressed",
        Event::Compared { .. } => "event Compared",
        Event::Tick { .. } => "event Tick",
        Event::Configure(_) => "event Configure",
        Event::Destage { .. } => "event Destage",
        Event::DropDirty { .. } => "event DropDirty",
        Event::GiveUpUnreadable { .. } => "event GiveUpUnreadable",
        Event::AcceptLoss { .. } => "event AcceptLoss",
        Event::Remove { .. } => "event Remove",
        Event::Erase { .. } => "event Erase",
        Event::DeviceLost => "event DeviceLost",
        Event::Stop => "event Stop",
    }
}
