//! The way of a write in write-back (Nitro section 3.1, dirty list): taken in at once, reduced, placed in a *dirty
//! unit*, made durable by a commit (see `commit`), brought to the origin later (see `destage`).
//!
//! Two layers, kept apart. The clean layer (both indexes, staging, read buffer) caches what the origin holds, by the
//! rules of write-through; nothing here changes it. The dirty layer is an overlay of versions (see `versions`) that
//! readers look at first. So a crash cannot mix them up: what is not committed is gone, and the clean layer was true
//! all along.
//!
//! Dirty extents fill units of their own (paper: dirty and clean extents are kept in separate WEUs). A unit grows in
//! pieces, is read from memory until it is full and written, and is pinned by every version in it until that is clean.
//!
//! Back-pressure: a write waits when units of dirty data reach the high watermark, when too much is in memory alone,
//! or when the journal is nearly full (see `admission`; `shares` divides the room among volumes).

pub(crate) mod admission;
mod clearing;
pub(crate) mod commit;
pub(crate) mod destage;
pub(crate) mod dirty_jobs;
pub(crate) mod flushes;
pub(crate) mod install;
pub(crate) mod overlay;
pub(crate) mod phase;
pub(crate) mod proof;
pub(crate) mod records;
pub(crate) mod requests;
pub(crate) mod scrub;
pub(crate) mod shares;
mod state;
pub(crate) mod summary;
pub(crate) mod unreadable;
pub(crate) mod versions;
pub(crate) mod volumes;

pub(crate) use crate::ops::dirty::Op;

use std::collections::VecDeque;

use smallvec::SmallVec;
use zc_core::{Ack, BufId, BufSlice, ErrorKind, ExtentKey, JournalSeq, Map, Mode, ReqId, VolumeId, WeuSlot};
use zc_format::Record;

use crate::base::Base;
use crate::base::rate::ByteRate;
use crate::base::volume::Volume;
use crate::clean::Clean;
use crate::clean::read::{portions, sector_range};
use crate::config::{OnLoss, VolumeConfig};
use crate::device::Core;
use crate::dirty::admission::Turns;
use crate::dirty::commit::Commit;
use crate::dirty::destage::{Destaging, Gather};
use crate::dirty::dirty_jobs::DirtyJob;
use crate::dirty::phase::{Dropping, Phase};
use crate::dirty::proof::Unproved;
use crate::dirty::scrub::DirtyScrub;
use crate::dirty::summary::{Chain, SummaryWrite};
use crate::dirty::unreadable::Unreadable;
use crate::dirty::versions::{Body, DirtyVolume, EpochState, Visible};
use crate::dirty::volumes::DirtyVolumes;
use crate::expect_held::ExpectHeld;
use crate::seam::{Action, Note, Request, RequestKind};

/// Fewer slots than this make no cache for dirty data.
const SLOTS_MIN: u32 = 4;

/// Dirty data of all volumes, and what is under way for it.
#[derive(Debug, Default)]
pub(crate) struct DirtyLayer {
    volumes: DirtyVolumes,
    jobs: Map<u64, DirtyJob>,
    /// Jobs that are reduced, to be placed in this order.
    ready: VecDeque<u64>,
    /// The summaries that continue the journal.
    chain: Option<Chain>,
    /// Slots with summaries, and the journal blocks that will repeat them.
    chain_pins: VecDeque<(JournalSeq, WeuSlot)>,
    /// One on its way.
    summary: Option<SummaryWrite>,
    /// When a commit that a client waited for was last written.
    awaited_commit_ms: Option<u64>,
    /// The last commit, as long as nothing durable says that it ended.
    unproved: Option<Unproved>,
    /// Bytes in memory alone.
    memory_bytes: u64,
    /// Until so many records are in blocks, only commits before `proved_before` are vouched for.
    resets_until: u64,
    proved_before: JournalSeq,
    /// Requests wait until the journal is durable to here: what the start decided must not be decided anew.
    deferred_until: Option<u64>,
    deferred: VecDeque<Request>,
    /// Bound on what destaging writes in a second.
    rate: ByteRate,
    /// Reads dirty data back, to find what rots.
    scrub: DirtyScrub,
    /// Order in which waiting writes are admitted.
    turns: Turns,
    /// Reads of dirty data that is to be written to its origin.
    gathers: Map<u64, Gather>,
}

/// Write-back of one volume.
#[derive(Debug)]
pub(crate) struct VolumeDirty {
    data: DirtyVolume,
    commit: Option<Commit>,
    /// Requests that wait for the commit after that one.
    next_waiters: Vec<ReqId>,
    commit_again: bool,
    /// Writes that wait for room.
    waiting: VecDeque<WaitingWrite>,
    /// Since when no write finds room because the origin has none, in milliseconds.
    full_since_ms: Option<u64>,
    destaging: Destaging,
    /// What of it the device does not give back.
    unreadable: Unreadable,
    phase: Phase,
    last_request_ms: u64,
    /// Dirty bytes that came to the origin since the manager knows the volume.
    destaged_bytes: u64,
}

/// A write that is being taken in.
#[derive(Debug)]
pub(crate) struct WaitingWrite {
    request: Request,
    done_bytes: u64,
    /// Arrival time, in milliseconds.
    since_ms: u64,
    /// A clearing that has waited without success for the origin to have what is dirty.
    has_waited: bool,
}

impl DirtyLayer {
    pub(crate) fn new(proved_before: JournalSeq) -> Self {
        Self { proved_before, ..Self::default() }
    }

    pub(crate) fn ids(&self) -> Vec<VolumeId> {
        self.volumes.ids()
    }

    fn commits(&self) -> impl Iterator<Item = &Commit> {
        self.volumes.awake().filter_map(|dirty| dirty.commit.as_ref())
    }

    /// Changes each of them.
    fn each_commit(&mut self, mut change: impl FnMut(&mut Commit)) {
        self.volumes.each_awake(|dirty| {
            if let Some(commit) = &mut dirty.commit {
                change(commit);
            }
        });
    }

    /// Whether writes wait for room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.volumes.awake().any(|dirty| !dirty.waiting.is_empty())
    }

    /// Whether reduced dirty data waits to be placed.
    pub(crate) fn is_placing(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether there is work that stopping has to wait for.
    fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
            || !self.deferred.is_empty()
            || self.is_waiting()
            || self.commits().next().is_some()
    }
}

impl VolumeDirty {
    pub(crate) fn new(clean: u64) -> Self {
        Self {
            data: DirtyVolume::new(clean),
            commit: None,
            next_waiters: Vec::new(),
            commit_again: false,
            waiting: VecDeque::new(),
            full_since_ms: None,
            destaging: Destaging::default(),
            unreadable: Unreadable::default(),
            phase: Phase::default(),
            last_request_ms: 0,
            destaged_bytes: 0,
        }
    }

    /// Takes on other settings once nothing is dirty.
    pub(crate) fn leave(&mut self, cfg: VolumeConfig, now_ms: u64) {
        self.phase.leave(cfg, now_ms);
    }

    /// Returns `true` if some of it is destaged without a pause.
    fn is_draining(&self) -> bool {
        self.phase.is_draining()
    }

    /// Returns `true` if an epoch is destaged without a pause.
    fn drains(&self, epoch: u64) -> bool {
        self.phase.drains_until().is_some_and(|until| epoch <= until)
    }

    /// Returns `true` if its oldest epoch is destaged without a pause, whatever bounds the rate.
    fn is_urgent(&self) -> bool {
        self.is_in_step() || self.data.epochs.front().is_some_and(|oldest| self.drains(oldest.number))
    }

    /// Its oldest epoch belongs to a step that goes on without a pause.
    fn is_in_step(&self) -> bool {
        self.data.epochs.front().is_some_and(|oldest| self.destaging.is_in_step(oldest.number))
    }

    /// Epochs have become clean: a drain may have ended.
    fn drained(&mut self) {
        self.phase.drained(self.data.clean);
    }

    /// Journal and checkpoint may not tell everything, or the origin is not what it was: it waits for an operator.
    fn is_incomplete(&self) -> bool {
        self.phase.is_fenced()
    }

    /// Whether it is being dropped, given up in part, or decided about.
    fn is_settling(&self) -> bool {
        self.phase.dropping().is_some() || self.phase.is_unrecorded() || self.unreadable.is_wanted()
    }

    fn has_committed(&self) -> bool {
        self.data.epochs.iter().any(|epoch| epoch.state == EpochState::Committed)
    }

    /// Whether something of it is in flight, or is being decided.
    fn is_busy(&self) -> bool {
        self.commit.is_some() || self.destaging.is_busy() || self.phase.is_leaving() || self.is_settling()
    }

    /// Whether losing the cache device would lose anything that was acknowledged.
    fn is_dirty(&self) -> bool {
        !self.data.is_empty()
            || !self.waiting.is_empty()
            || self.phase.is_fenced()
            || self.phase.is_unrecorded()
    }
}

/// Whether a volume's dirty data is not to be written to its origin.
fn is_held_back(volume: VolumeId, dirty: &VolumeDirty, base: &Base) -> bool {
    let mode = base.volume(volume).map_or(Mode::ReadOnly, |entry| entry.cfg().mode);
    mode == Mode::ReadOnly || dirty.is_incomplete()
}

/// Bodies of a volume that are not needed any more.
fn let_go(volume: VolumeId, bodies: &[Body], core: &mut Core) {
    for body in bodies {
        if let Body::Stored { place, own } = *body {
            core.device.catalog.slots_mut().remove_dirty(volume, place.slot, own, &mut core.base);
        }
    }
}

impl DirtyLayer {
    /// Whether the volume takes writes in write-back now.
    fn writes_back(&self, volume: VolumeId, core: &Core) -> bool {
        core.device.catalog.table().len() >= SLOTS_MIN
            && core.base.volume(volume).is_some_and(|volume| volume.cfg().mode == Mode::WriteBack)
            && (core.base.is_good() || self.fence(volume, core).is_some())
    }

    /// Whether the volume has anything in the dirty layer.
    pub(crate) fn has_dirty(&self, volume: VolumeId) -> bool {
        self.volumes.get(&volume).is_some_and(VolumeDirty::is_dirty)
    }

    /// What to do instead of serving, while dirty data is out of reach.
    fn fence(&self, volume: VolumeId, core: &Core) -> Option<OnLoss> {
        let dirty = self.volumes.get(&volume)?;
        let config = core.base.volume(volume).map(Volume::cfg);
        let lost = !core.base.is_good();
        // Where it is known elsewhere that nothing is dirty, no start believes a device that says otherwise.
        let believed = config.is_none_or(|config| config.may_be_dirty || config.mode == Mode::WriteBack);
        if dirty.is_incomplete() || (lost && dirty.phase.is_unrecorded() && believed) {
            // Which sectors the origin has is what is not known: none can be read from there.
            return Some(OnLoss::Error);
        }
        let needed = lost && !(dirty.data.is_empty() && dirty.waiting.is_empty());
        needed.then(|| config.map_or(OnLoss::Error, |config| config.write_back.on_loss))
    }

    /// Whether requests have to wait until what the start decided is durable, or until dirty data is given up, as it was
    /// when an operator asked for that.
    pub(crate) fn defer(&mut self, request: &Request) -> bool {
        let undecided = self.deferred_until.is_some();
        let dirty = self.volumes.get(&request.volume);
        let is_deferred = dirty.is_some_and(|dirty| undecided || dirty.phase.dropping().is_some());
        if is_deferred {
            self.deferred.push_back(request.clone());
        }
        is_deferred
    }

    /// What was recorded so far decides about dirty data of these volumes: until it is durable their requests wait.
    fn decide(&mut self, volume: VolumeId, bodies: Vec<Body>, core: &mut Core) {
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        dirty.phase.decide(bodies);
        self.deferred_until = Some(core.device.catalog.meta_mut().journal_mut().want_all());
    }

    /// Lets go of the requests that waited for a decision to be durable. If the device failed before, the volumes that
    /// it is about are fenced.
    pub(crate) fn pump_deferred(&mut self, core: &mut Core, clean: &mut Clean) {
        if let Some(position) = self.deferred_until {
            let good = core.base.is_good();
            if good && !core.device.catalog.meta().journal().is_durable(position) {
                return;
            }
            self.deferred_until = None;
            for volume in self.ids() {
                let dirty = self.volumes.get_mut(&volume).expect_held();
                if good && let Some(bodies) = dirty.phase.recorded() {
                    let_go(volume, &bodies, core);
                }
            }
        }
        // Those of a volume that is still to be dropped are held again.
        for request in core::mem::take(&mut self.deferred) {
            if !self.defer(&request) {
                self.submit(&request, core, clean);
            }
        }
    }

    /// A write, trim or zeroing of a volume in write-back; its buffer has been adopted.
    fn submit_write_back(&mut self, request: &Request, core: &mut Core) {
        if self.fence(request.volume, core).is_some() {
            core.base.answer_write(request, Err(ErrorKind::Io));
            return;
        }
        let clean = self.volumes.get(&request.volume).map_or(0, |dirty| dirty.data.clean);
        let dirty = self.volumes.get_or_insert(request.volume, || VolumeDirty::new(clean));
        dirty.last_request_ms = core.base.now_ms();
        let since_ms = core.base.now_ms();
        dirty.waiting.push_back(WaitingWrite {
            request: request.clone(),
            done_bytes: 0,
            since_ms,
            has_waited: false,
        });
    }

    /// Makes versions of a piece of a request.
    fn take_in(&mut self, request: &Request, done_bytes: u64, len_bytes: u64, core: &mut Core) {
        let volume = request.volume;
        let src = match request.kind {
            RequestKind::Write { buf, .. } => {
                let start_bytes = u32::try_from(done_bytes).unwrap_or(u32::MAX);
                Some(BufSlice { buf, start_bytes, len_bytes: u32::try_from(len_bytes).unwrap_or(u32::MAX) })
            }
            _ => None,
        };
        let len = u32::try_from(len_bytes).unwrap_or(u32::MAX);
        let range = src.unwrap_or(BufSlice { buf: BufId(0), start_bytes: 0, len_bytes: len });
        for portion in portions(volume, request.offset_bytes + done_bytes, range, core.base.extent_bytes()) {
            let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
            let body = match src {
                None => Body::Zero {
                    no_hole: matches!(request.kind, RequestKind::WriteZeroes { no_hole: true, .. }),
                },
                Some(_) => self.start_job(portion.key, &sectors, portion.dest, core),
            };
            let now_ms = core.base.now_ms();
            let dirty = self.volumes.get_mut(&volume).expect_held();
            let replaced = dirty.data.write(portion.key.extent, sectors, body, now_ms);
            let_go(volume, &replaced, core);
        }
        core.base.stats.dirty_written_bytes += len_bytes;
    }

    /// A request is taken in as a whole: answers it, now or after a commit.
    fn taken_in(&mut self, request: &Request, core: &mut Core) {
        let fua = match request.kind {
            RequestKind::Write { fua, .. } | RequestKind::Trim { fua } => fua,
            RequestKind::WriteZeroes { fua, .. } => fua,
            RequestKind::Read { .. } | RequestKind::Flush | RequestKind::Prefetch | RequestKind::Warm => {
                false
            }
        };
        let ack = core.base.volume(request.volume).map_or(Ack::Durable, |volume| volume.cfg().write_back.ack);
        if let RequestKind::Write { buf, .. } = request.kind {
            core.base.port.release(buf);
        }
        let clears = !matches!(request.kind, RequestKind::Write { .. });
        let makes_space = clears && self.destaging(request.volume).discards();
        if fua || ack == Ack::Durable {
            self.request_commit(request.volume, Some(request.req), core);
        } else {
            if let Some(dirty) = self.volumes.get_mut(&request.volume) {
                dirty.data.acknowledge();
            }
            core.base.port.emit(Action::Reply { req: request.req, result: Ok(()) });
            if makes_space {
                self.request_commit(request.volume, None, core);
            }
        }
    }

    /// Changes a volume's settings, now or when it has nothing dirty any more.
    pub(crate) fn leave_write_back(&mut self, cfg: &VolumeConfig, core: &mut Core) -> bool {
        let Some(dirty) = self.volumes.get_mut(&cfg.id) else { return false };
        dirty.phase.stay();
        let volume = core.base.volume_mut(cfg.id);
        if cfg.mode == Mode::WriteBack || !dirty.is_dirty() {
            return false;
        }
        let decided = dirty.data.is_empty() && dirty.waiting.is_empty() && !dirty.is_incomplete();
        match volume {
            // What a start decided about it waits to be durable, and its requests with it, in any mode: it is not dirty.
            Some(volume) if decided && volume.cfg().mode != Mode::WriteBack => return false,
            // Nothing is written to the origin of a volume that is read-only: its dirty data waits.
            Some(volume) if volume.cfg().mode == Mode::ReadOnly && cfg.mode == Mode::ReadOnly => {
                return false;
            }
            Some(volume) => volume.set_mode(Mode::WriteBack),
            None => {}
        }
        dirty.leave(cfg.clone(), core.base.now_ms());
        true
    }

    /// The volume is clean: takes on the settings that were waiting, and the writes, or a clearing and the writes behind
    /// it.
    fn finish_leaving(&mut self, volume: VolumeId, core: &mut Core, clean: &mut Clean) {
        let now_ms = core.base.now_ms();
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        dirty.phase.press(dirty.data.record_count(), now_ms);
        if !dirty.data.is_empty() || dirty.is_incomplete() || dirty.phase.is_unrecorded() {
            return;
        }
        let clears = dirty.phase.is_clearing();
        let cfg = dirty.phase.arrive();
        if cfg.is_none() && !clears {
            return;
        }
        let waiting = core::mem::take(&mut dirty.waiting);
        if let Some(cfg) = cfg {
            core.apply_config(cfg);
        }
        for write in waiting {
            // Nothing of it was taken in that is not on the origin: it is done again as a whole.
            self.submit_adopted(&write.request, core, clean);
        }
    }

    /// Brings everything that is dirty now to the origin, without a pause. Later writes do not extend the drain, so it
    /// ends while clients write. An attempt that waited out a failure is made again at once.
    pub(crate) fn drain(&mut self, volume: VolumeId) {
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        let until = dirty.data.dirty_until();
        if until > dirty.data.clean {
            dirty.phase.drain(until);
            dirty.destaging.retry_now();
        }
    }

    /// Forgets what only the cache has. `remembered`: outside the device, which need not be told then.
    pub(crate) fn drop_dirty(&mut self, volume: VolumeId, remembered: bool, core: &mut Core) {
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        dirty.phase.drop_data(Dropping { is_remembered: remembered });
        self.finish_dropping(volume, core);
    }

    /// Forgets it, unless something of it is still in flight, or the device that has to be told is lost. Whether it
    /// did.
    fn finish_dropping(&mut self, volume: VolumeId, core: &mut Core) -> bool {
        let good = core.base.is_good();
        let Some(dirty) = self.volumes.get_mut(&volume) else { return false };
        let Some(how) = dirty.phase.dropping() else { return false };
        let busy = dirty.commit.is_some() || dirty.destaging.is_busy();
        if (busy && good) || dirty.destaging.is_writing() {
            return false;
        }
        if !good && !how.is_remembered {
            dirty.phase.drop_failed();
            return false;
        }
        let (was_fenced, undecided) = dirty.phase.dropped();
        let loses = was_fenced || !dirty.data.is_empty();
        dirty.commit = None;
        dirty.destaging.give_up();
        dirty.unreadable = Unreadable::default();
        // Of a write that waits for room the pieces that were taken in go, too: it begins again.
        dirty.waiting.iter_mut().for_each(|write| write.done_bytes = 0);
        let mut bodies = dirty.data.forget_all();
        bodies.extend(undecided);
        dirty.drained();
        let epoch = dirty.data.clean;
        core.device.catalog.record(Record::Clean { volume, epoch }, &mut core.base);
        if loses {
            core.base.owe_loss(volume);
        }
        if let Some(entry) = core.base.volume_mut(volume) {
            // What was destaged of it can be read from the origin now: to be flushed, and missed, as what clients write.
            entry.origin_mut().count_all_as_direct();
        }
        if good {
            self.decide(volume, bodies, core);
        } else {
            let_go(volume, &bodies, core);
        }
        true
    }

    /// The cache device is lost: no client's write can become durable any more.
    pub(crate) fn device_failed(&mut self, error: ErrorKind, core: &mut Core) {
        self.fail_commits(error, core);
        for volume in self.ids() {
            let fenced = self.fence(volume, core).is_some();
            let dirty = self.volumes.get_mut(&volume).expect_held();
            let lost = fenced && dirty.phase.tell_fence();
            self.refuse_waiting(volume, error, core);
            self.finish_dropping(volume, core);
            if lost {
                core.base.port.emit(Action::Note(Note::Fenced { volume }));
            }
        }
    }

    /// Journal and checkpoint may not tell everything of the volume.
    pub(crate) fn fence_incomplete(&mut self, volume: VolumeId, core: &mut Core) {
        let dirty = self.volumes.get_or_insert(volume, || VolumeDirty::new(0));
        dirty.phase.fence();
        self.refuse_waiting(volume, ErrorKind::Io, core);
        core.base.port.emit(Action::Note(Note::Fenced { volume }));
    }

    /// Goes on with what journal and checkpoint tell; what they do not tell is void from now on.
    pub(crate) fn accept_loss(&mut self, volume: VolumeId, core: &mut Core) {
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        if !dirty.phase.accept_loss() {
            return;
        }
        let epoch = dirty.data.open().number - 1;
        core.device.catalog.record(Record::DirtyReset { volume, epoch }, &mut core.base);
        core.base.owe_loss(volume);
        self.decide(volume, Vec::new(), core);
    }

    /// What readers of the sectors of an extent get from the dirty layer.
    pub(crate) fn overlay(&self, key: ExtentKey, sectors: &core::ops::Range<u32>) -> SmallVec<[Visible; 2]> {
        match self.volumes.get(&key.volume) {
            Some(dirty) => dirty.data.visible(key.extent, sectors),
            None => SmallVec::new(),
        }
    }
}

impl DirtyLayer {
    /// Whether a start could not tell all dirty data of the volume.
    pub(crate) fn is_doubtful(&self, volume: &VolumeConfig, core: &Core) -> bool {
        volume.may_be_dirty && !core.device.recovery.knows_dirty_data(volume.id)
    }
}
