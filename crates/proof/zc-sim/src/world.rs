//! The world: the manager, simulated devices, and operations that end in random order.

use std::collections::{BTreeMap, VecDeque};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_cache::seam::{Action, Event, Note};
use zc_cache::startup::{self, FormatOptions};
use zc_core::{
    BufId, BufSlice, Destage, ErrorKind, ExtentNo, SECTOR_BYTES, SectorSpan, VolumeId, usize_from_u32,
};
use zc_format::{Geometry, Record, Salt};
use zc_reduce::Reducer;

use crate::action_digest::ActionDigest;
use crate::boot::{Files, Raw};
use crate::borders::{self, Borders};
use crate::canary::{Canary, DriverBug};
use crate::clients::Client;
use crate::content;
use crate::coverage::Coverage;
use crate::disk::{self, Disk, PAGE};
use crate::epochs::OriginJudge;
use crate::exchange::Exchange;
use crate::excuses::Excuses;
use crate::kept::Kept;
use crate::known::Known;
use crate::losses::Losses;
use crate::oracle::Oracle;
use crate::pins::Pins;
use crate::pooled::Pooled;
use crate::profile::{Habits, Profile};
use crate::promise::Promise;
use crate::rot::Placed;
use crate::run::Options;
use crate::setup::{Faults, Setup};
use crate::shares::Shares;
use crate::twin;
use crate::write_back::Trouble;
use crate::zone::{self, Zone};

/// As the lengths of slices are counted.
pub(crate) const SECTOR: usize = usize_from_u32(SECTOR_BYTES);
/// Steps after which whoever still waits waits for ever.
pub(crate) const PATIENCE: u32 = 20_000;
/// The cache's identity.
const UUID: [u8; 16] = [1; 16];

pub(crate) struct World {
    pub(crate) rng: Pcg64Mcg,
    pub(crate) seed: u64,
    pub(crate) now: u64,
    pub(crate) now_ms: u64,
    pub(crate) manager: Option<CacheManager>,
    pub(crate) cache: Disk,
    /// Of volumes in a store: what that held when it was last looked into.
    pub(crate) origins: Vec<Disk>,
    /// The store that has some of the volumes.
    pub(crate) pooled: Option<Pooled>,
    /// What rotted keeps the store from opening: the run ends here, and the violation is none.
    pub(crate) is_over: bool,
    pub(crate) oracles: Vec<Oracle>,
    pub(crate) judges: Vec<OriginJudge>,
    pub(crate) geometry: Geometry,
    pub(crate) config: ManagerConfig,
    pub(crate) volumes: Vec<VolumeConfig>,
    /// Volumes that the manager knows.
    pub(crate) served: Vec<bool>,
    /// Volumes that were replaced and have not been served since: nothing is known of their numbers.
    pub(crate) free: Vec<bool>,
    /// One that is being removed.
    pub(crate) leaving: Option<usize>,
    /// A removal that ended.
    pub(crate) removed: Option<(usize, Result<(), ErrorKind>)>,
    /// Operations that have not taken effect, with the moment of issue for flushes and changes of the state directory.
    pub(crate) pending: Vec<(Action, u64)>,
    /// Operations that have taken effect and whose end the manager has not heard of.
    pub(crate) unheard: Vec<Event>,
    /// Operations of this zone take no effect until then.
    pub(crate) stalled: Option<(Zone, u64)>,
    pub(crate) bufs: BTreeMap<BufId, Vec<u8>>,
    /// What is kept of whole extents in buffers, by the place in the buffer.
    pub(crate) known: Known,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) next: u64,
    pub(crate) next_content: u64,
    pub(crate) files: Files,
    pub(crate) superblock: Option<zc_format::Superblock>,
    /// Volumes whose contents on the cache device are not to be believed, as recorded elsewhere.
    pub(crate) distrusted: Vec<bool>,
    /// Volumes that may have data that only the cache device has, as recorded elsewhere.
    pub(crate) maybe_dirty: Vec<bool>,
    /// How often a volume's settings changed.
    pub(crate) settings: Vec<u64>,
    /// Volumes write back in this seed.
    pub(crate) write_back: bool,
    pub(crate) trouble: Trouble,
    pub(crate) excuses: Excuses,
    /// The next start is cut off after so many I/Os.
    pub(crate) cut_start_at: Option<u32>,
    /// Some starts are followed by a crash,
    pub(crate) hasty: bool,
    /// after so many turns.
    pub(crate) crash_in: Option<u32>,
    /// At times one client syncs after each write, and no other client is there.
    pub(crate) syncing: bool,
    /// At times a volume grows.
    pub(crate) growing: bool,
    pub(crate) habits: Habits,
    pub(crate) stopped: Option<bool>,
    pub(crate) faults: Faults,
    /// The run is at its end: nothing fails and nothing is cut off any more.
    pub(crate) mended: bool,
    pub(crate) promise: Promise,
    pub(crate) losses: Losses,
    pub(crate) kept: Kept,
    pub(crate) borders: Borders,
    pub(crate) shares: Shares,
    /// Volumes have shares of the cache, which change.
    pub(crate) sharing: bool,
    pub(crate) pins: Pins,
    /// At times a volume comes back in another domain.
    pub(crate) moving: bool,
    /// At times another volume takes the number of one.
    pub(crate) replacing: bool,
    pub(crate) exchange: Exchange,
    pub(crate) reducer: Reducer,
    pub(crate) canary: Option<Canary>,
    pub(crate) out: Option<fn(&str)>,
    pub(crate) coverage: Coverage,
    pub(crate) digest: u64,
    pub(crate) actions: ActionDigest,
    pub(crate) newest_journal: u64,
    pub(crate) violation: Option<String>,
    pub(crate) snapshots: Vec<(usize, Vec<u8>)>,
    pub(crate) replays: Vec<(Zone, usize, Vec<u8>)>,
    /// Extents that were placed last.
    pub(crate) placed: VecDeque<Placed>,
    /// Sectors that an operator gives up, and since when.
    pub(crate) given_up: Vec<(usize, u64)>,
}

fn judge(volume: &VolumeConfig) -> OriginJudge {
    let mut judge = OriginJudge::new(volume.size_bytes as usize / SECTOR);
    if volume.write_back.destage == Destage::Coalesce {
        judge.excuse();
    }
    judge
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut setup = Setup::random(seed, &mut rng, options.profile);
        if let Some(replacement) = options.replacement {
            setup.config.replacement = replacement;
        }
        if let Some(packer) = options.packer {
            setup.config.packer = packer;
        }
        Self::build(seed, rng, setup, options)
    }

    /// A new cache under these settings, served.
    pub(crate) fn build(seed: u64, rng: Pcg64Mcg, setup: Setup, options: &Options) -> Self {
        let (mut config, volumes) = (setup.config, setup.volumes);
        config.geometry.salt = Salt::of(&UUID);
        let world = Self {
            rng,
            seed,
            now: 1,
            now_ms: 0,
            manager: None,
            pins: Pins::new(setup.pinning, &config.geometry),
            cache: Disk::new(disk::device_bytes(&config.geometry)),
            pooled: setup.pool.as_ref().map(|pool| Pooled::new(pool, volumes.len())),
            is_over: false,
            origins: volumes.iter().map(|v| Disk::new(v.size_bytes as usize)).collect(),
            oracles: volumes.iter().map(|v| Oracle::new(v.size_bytes as usize / SECTOR)).collect(),
            judges: volumes.iter().map(judge).collect(),
            geometry: config.geometry.clone(),
            config,
            served: vec![true; volumes.len()],
            free: vec![false; volumes.len()],
            leaving: None,
            removed: None,
            distrusted: vec![false; volumes.len()],
            maybe_dirty: vec![false; volumes.len()],
            settings: vec![0; volumes.len()],
            losses: Losses::new(volumes.len()),
            kept: Kept::default(),
            write_back: setup.write_back,
            trouble: Trouble::default(),
            excuses: Excuses::default(),
            cut_start_at: None,
            hasty: setup.hasty,
            syncing: setup.syncing,
            growing: setup.growing,
            habits: setup.habits,
            crash_in: None,
            volumes,
            pending: Vec::new(),
            unheard: Vec::new(),
            stalled: None,
            bufs: BTreeMap::new(),
            known: Known::new(),
            clients: BTreeMap::new(),
            next: 1,
            next_content: content::POOL,
            files: Files::default(),
            superblock: None,
            stopped: None,
            faults: setup.faults,
            mended: false,
            promise: Promise::default(),
            borders: Borders::default(),
            shares: Shares::default(),
            sharing: setup.sharing,
            moving: setup.moving,
            replacing: setup.replacing,
            exchange: Exchange::new(setup.exchanging),
            reducer: Reducer::new(),
            canary: options.canary,
            out: options.trace,
            coverage: Coverage::default(),
            digest: 0,
            actions: ActionDigest::new(seed),
            newest_journal: 0,
            violation: None,
            snapshots: Vec::new(),
            replays: Vec::new(),
            placed: VecDeque::new(),
            given_up: Vec::new(),
        };
        world.begun(setup.profile)
    }

    /// The cache is made, and served.
    fn begun(mut self, profile: Profile) -> Self {
        self.coverage.note(profile.note());
        self.format();
        self.start();
        self
    }

    pub(crate) fn format(&mut self) {
        self.format_cut_off(None);
    }

    /// Formats the cache device, which is cut off after so many I/Os. Returns `false` if that is too early.
    pub(crate) fn format_cut_off(&mut self, left: Option<u32>) -> bool {
        self.kept.forget();
        let format = FormatOptions {
            geometry: self.geometry.clone(),
            uuid: UUID,
            fingerprint_kind: self.config.fingerprint,
            label: String::new(),
            now_unix_s: self.files.newest.max(self.files.session) + 1,
        };
        let mut raw = Raw::new(&mut self.cache, &self.geometry, left, false);
        let formatted = startup::format(&mut raw, &format);
        assert!(left.is_some() || formatted.is_ok(), "formats: {formatted:?}");
        formatted.is_ok()
    }

    /// From here on chance depends on the seed and the turn alone: turns can be left out of a run.
    pub(crate) fn begin_turn(&mut self, turn: u64) {
        let mixed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn.wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.rng = Pcg64Mcg::seed_from_u64(mixed);
    }

    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        if let Some(out) = self.out {
            out(&format!("{:6} {}", self.now, text()));
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.now += 1;
        self.cache.now = self.now;
        self.trace(|| format!("> {event:?}"));
        self.coverage.note(event_name(&event));
        match &event {
            Event::DeviceDone { op, result } => {
                self.cache.ended(op.0);
                self.promise.ended(*op, result.is_ok());
                self.kept.ended(*op, result.is_ok());
            }
            Event::HeaderRead { result: Ok(Some(header)), .. } => {
                self.borders.header(header.slot, header.weu_seq);
            }
            Event::OriginDone { op, .. } => {
                self.excuses.heard(*op, self.now);
                self.origins.iter_mut().for_each(|origin| origin.ended(op.0));
            }
            _ => {}
        }
        self.withdraw_files();
        self.pins.comes(&event);
        let mut actions = Vec::new();
        self.manager.as_mut().expect("runs").handle(event, &mut actions);
        self.carry_out(actions);
        if let Some(manager) = &self.manager {
            self.losses.note(manager);
            if !manager.is_healthy() && !self.trouble.session {
                let text = "the cache is out of order though none of its operations failed (G4)";
                self.violation.get_or_insert_with(|| text.to_owned());
            }
            if let Some(breach) = self.shares.note(manager) {
                self.violation.get_or_insert(breach);
            }
            if let Some(breach) = self.pins.handled(manager) {
                self.violation.get_or_insert(breach);
            }
        }
    }

    pub(crate) fn tick(&mut self) {
        self.now_ms += self.rng.random_range(1..40);
        let now_ms = self.now_ms;
        self.end_late_changes();
        self.event(Event::Tick { now_ms });
        self.look_at_pins();
        self.look_at_proofs();
        self.tick_pool();
        // Mostly the manager finds out by itself.
        if self.is_dead() && now_ms.is_multiple_of(8) {
            self.trouble.session = true;
            self.event(Event::DeviceLost);
        }
    }

    fn look_at_pins(&mut self) {
        let Some(manager) = self.manager.as_ref().filter(|_| self.pins.are_drawn()) else { return };
        let is_written = |id: VolumeId| {
            let dirty = manager.dirty(id).unwrap_or_default();
            dirty.bytes > 0
                || dirty.waiting > 0
                || dirty.fenced
                || self.clients.values().any(|client| client.may_write(usize::from(id.0)))
        };
        if self.pins.look(manager, &self.volumes, is_written) > 0 {
            self.coverage.note("pinned extents that are safe");
        }
    }

    /// Whether the driver has this deliberate bug.
    pub(crate) fn has_bug(&self, bug: DriverBug) -> bool {
        self.canary == Some(Canary::Driver(bug))
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.pending.is_empty() || !self.unheard.is_empty() || self.pool_operations() > 0
    }

    fn pool_operations(&self) -> usize {
        self.pooled.as_ref().map_or(0, Pooled::busy)
    }

    pub(crate) fn slice(&self, s: BufSlice) -> Vec<u8> {
        let at = s.start_bytes as usize;
        self.bufs.get(&s.buf).unwrap_or_else(|| panic!("{:?} is not there", s.buf))
            [at..at + s.len_bytes as usize]
            .to_vec()
    }

    pub(crate) fn put(&mut self, s: BufSlice, data: &[u8]) {
        self.keeps_nothing_of(s);
        let at = s.start_bytes as usize;
        let buf = self.bufs.get_mut(&s.buf).unwrap_or_else(|| panic!("{:?} is not there", s.buf));
        buf[at..at + s.len_bytes as usize].copy_from_slice(data);
    }

    pub(crate) fn carry_out(&mut self, actions: Vec<Action>) {
        self.actions.add(&actions);
        for action in actions {
            self.trace(|| format!("  < {action:?}"));
            match action {
                Action::Reply { req, result } => self.replied(req, result),
                Action::Alloc { buf, len_bytes } => {
                    assert!(self.bufs.insert(buf, vec![0xee; len_bytes as usize]).is_none());
                }
                Action::Free { buf } => {
                    self.bufs.remove(&buf).expect("freed once");
                    self.known.remove(&buf);
                }
                Action::Copy { from, to } => {
                    let data = self.slice(from);
                    self.put(to, &data);
                }
                Action::Zero { dest } => self.put(dest, &vec![0; dest.len_bytes as usize]),
                Action::Place { weu, offset_bytes, header, payload } => {
                    let payload = self.slice(payload);
                    let domain = self.volumes[usize::from(header.key.volume.0)].domain;
                    self.borders.place(&header, offset_bytes, domain);
                    self.note_placed(header, offset_bytes);
                    let buf = self.bufs.get_mut(&weu).expect("a WEU's buffer");
                    header.seal(
                        offset_bytes,
                        &payload,
                        &mut buf[offset_bytes as usize..],
                        self.geometry.salt,
                    );
                }
                Action::Summarize { weu, place, summary } => {
                    self.kept.summarized(weu, &place, &summary);
                    let at = place.page as usize * PAGE;
                    let buf = self.bufs.get_mut(&weu).expect("a WEU's buffer");
                    summary.encode_into(&place, &mut buf[at..at + PAGE]);
                }
                Action::Intent { record } => self.intent(record),
                Action::IntentTrim { .. } if self.has_bug(DriverBug::RepeatIntents) => {}
                Action::IntentTrim { records } => self.files.trim_intents(records),
                Action::IntentReady => self.files.intents_ready(),
                Action::Note(note) => self.noted(&note),
                Action::Abandon { op } => self.abandon(op),
                Action::Stopped { clean } => self.stopped = Some(clean),
                other => {
                    if let Some(other) = self.ask_store(other) {
                        self.start_operation(other);
                    }
                }
            }
        }
        if let Some(breach) = self.borders.breach() {
            self.violation.get_or_insert(breach);
        }
    }

    fn start_operation(&mut self, action: Action) {
        let issued = match &action {
            Action::FlushCache { op } => {
                self.promise.flush_issued(*op);
                self.kept.flush_issued(*op);
                self.cache.flush_issued()
            }
            Action::OriginFlush { volume, .. } => self.origins[usize::from(volume.0)].flush_issued(),
            Action::Distrust { .. } => self.now_ms,
            _ => 0,
        };
        self.pending.push((action, issued));
    }

    fn noted(&mut self, note: &Note) {
        if matches!(note, Note::CacheFailed { .. }) {
            self.trouble.failed_at.get_or_insert(self.now);
        }
        match note {
            // The device is as good as gone, which the manager has found out first.
            Note::CacheFailed { error: ErrorKind::TimedOut, .. } => {
                self.coverage.note("cache devices that did not answer");
                self.trouble.session = true;
            }
            Note::DirtyUnreadable { .. } => self.coverage.note("dirty data unreadable"),
            Note::DirtySkipped { volume, extent, sectors } => {
                let sectors = self.sectors_of(*extent, *sectors);
                self.left_out(usize::from(volume.0), sectors);
            }
            Note::DirtyGivenUp { volume, extent, sectors } => {
                let sectors = self.sectors_of(*extent, *sectors);
                self.zeros_began(usize::from(volume.0), sectors);
            }
            Note::DestageFailed { .. } => self.coverage.note("destaging failed"),
            Note::Removed { volume, result } => self.removed = Some((usize::from(volume.0), *result)),
            Note::Fenced { .. } => self.coverage.note("volumes fenced"),
            Note::ImageRefused { fault } => self.coverage.note(twin::refused(*fault)),
            Note::ImageOmitted { .. } => self.coverage.note("index images omitted"),
            Note::CommitsDropped { .. } => self.coverage.note("tentative commits dropped"),
            _ => {}
        }
    }

    /// Sectors of an extent, counted from the begin of its volume.
    fn sectors_of(&self, extent: ExtentNo, sectors: SectorSpan) -> impl Iterator<Item = usize> + use<> {
        let first = extent.0 as usize * self.geometry.extent_bytes as usize / SECTOR;
        sectors.range().map(move |sector| first + sector as usize)
    }

    fn intent(&mut self, record: Record) {
        // A slot's generation has outgrown the bits that index entries keep.
        if let Record::SlotSealed { generation, .. } = record
            && generation.0 >> self.config.generation_bits > 0
        {
            self.coverage.note("generation wraps");
        }
        if self.rng.random_bool(0.0002) {
            self.files.lose_intents();
            self.coverage.note("intent log lost");
        }
        if let Record::SlotDirty { slot, weu_seq, .. } | Record::SlotSealed { slot, weu_seq, .. } = record {
            self.borders.unit(slot, weu_seq);
        } else if let Some(volume) = borders::volume_of(&record) {
            self.borders.record(&record, self.volumes[volume].domain);
        }
        self.keep_record(&record);
        self.files.intents.push(record);
    }

    /// Lets one operation take effect or end, chosen at random: between the two anything may happen. Operations of a
    /// slow zone wait while others pass; when nothing else is left, time does.
    pub(crate) fn step(&mut self) {
        let own = self.pending.len() + self.unheard.len();
        let count = own + self.pool_operations();
        if count == 0 {
            return;
        }
        let mut index = self.rng.random_range(0..count);
        if index >= own {
            return self.step_pool();
        }
        if index < self.pending.len() && self.is_stalled(index) {
            match (0..self.pending.len()).find(|index| !self.is_stalled(*index)) {
                Some(other) => index = other,
                None if self.unheard.is_empty() && self.pool_operations() > 0 => return self.step_pool(),
                None if self.unheard.is_empty() => return self.tick(),
                None => index = self.pending.len(),
            }
        }
        if let Some(heard) = index.checked_sub(self.pending.len()) {
            let event = self.unheard.swap_remove(heard);
            self.event(event);
            return;
        }
        let (action, issued) = self.pending.swap_remove(index);
        let event = self.perform(&action, issued);
        // What a failed flush loses is lost when it is said.
        let lost = matches!(
            (&action, &event),
            (Action::OriginFlush { .. }, Event::OriginDone { result: Err(_), .. })
        );
        if !lost && self.rng.random_bool(0.4) {
            self.trace(|| format!("  effect of what ends as {event:?}"));
            self.unheard.push(event);
        } else {
            self.event(event);
        }
    }

    /// Whether something is under way that does not hang.
    pub(crate) fn can_step(&self) -> bool {
        !self.unheard.is_empty() || (0..self.pending.len()).any(|index| !self.is_stalled(index))
    }

    fn is_stalled(&self, index: usize) -> bool {
        let of = Zone::of(&self.pending[index].0);
        if of == Zone::State && self.is_state_hanging() {
            return true;
        }
        let Some((zone, until)) = self.stalled else { return false };
        // Where pieces hang, flushes do for a while behind them: what was written is there, and not durable.
        let behind = zone == Zone::DirtyWrite && self.habits.hangs == Some(zone) && of == Zone::Flush;
        (self.now < until && of == zone) || (behind && (until..until.saturating_add(60)).contains(&self.now))
    }

    /// A zone becomes slow for a while.
    pub(crate) fn stall(&mut self) {
        if self.faults.slow {
            let any = zone::SLOW[self.rng.random_range(0..zone::SLOW.len())];
            let zone = self.habits.hangs.filter(|_| self.rng.random_bool(0.6)).unwrap_or(any);
            let longest = if self.habits.hangs.is_some() { 200 } else { 600 };
            self.stalled = Some((zone, self.now + self.rng.random_range(50..longest)));
            self.coverage.note(zone.stalled());
        }
    }

    /// Carries out an operation and says how it ended. It does not share the interpreter of `zc-drive`: that begins each
    /// operation in order and ends it at once, while seeds choose here when one takes effect and what is left of it.
    pub(crate) fn perform(&mut self, action: &Action, issued: u64) -> Event {
        match action {
            Action::OriginRead { .. }
            | Action::OriginWrite { .. }
            | Action::OriginTrim { .. }
            | Action::OriginZero { .. }
            | Action::OriginFlush { .. } => self.perform_origin(action, issued),
            Action::WantRecipe { .. }
            | Action::Hash { .. }
            | Action::Compress { .. }
            | Action::Compare { .. } => self.perform_reduce(action),
            Action::Distrust { op, volume } => self.record_distrust(*op, *volume),
            other => self.perform_cache(other, issued),
        }
    }

    /// What happened, all told.
    pub(crate) fn finish(&mut self) -> Coverage {
        self.gone(false);
        self.coverage.clone()
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
