//! The clients: what they ask, and whether what they are told is legal.

use core::ops::Range;

use rand::RngExt as _;
use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Event, Request, RequestKind};
use zc_core::{Ack, BufId, Destage, ErrorKind, Mode, ReqId, VolumeId};

use crate::content;
use crate::coverage::{KNOWN_CONTENTS, NEW_CONTENTS};
use crate::pins;
use crate::pooled::Pooled;
use crate::setup;
use crate::shares;
use crate::world::{PATIENCE, SECTOR, World};
use crate::zone::Zone;

/// Steps after which an operator looks why requests are not answered.
const OPERATOR_PATIENCE: u32 = 2_000;
/// A volume grows no further.
const VOLUME_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Client {
    volume: usize,
    offset: usize,
    len: usize,
    kind: ClientKind,
    start: u64,
    /// The volume may have written back when it was submitted.
    buffered: bool,
    /// The volume's settings, if they say that an answer means durable.
    settled: Option<u64>,
}

pub(crate) enum ClientKind {
    Read(BufId),
    Write { fua: bool },
    Clear { trim: bool, fua: bool },
    Flush,
    Hint,
}

impl Client {
    /// Whether it may change contents of a volume.
    pub(crate) fn may_write(&self, volume: usize) -> bool {
        self.volume == volume && !matches!(self.kind, ClientKind::Read(_) | ClientKind::Hint)
    }
}

impl World {
    pub(crate) fn replied(&mut self, req: ReqId, result: Result<(), ErrorKind>) {
        let Some(client) = self.clients.remove(&req.0) else {
            self.violation.get_or_insert_with(|| format!("{req:?} is answered a second time"));
            return;
        };
        let reads = self.clients.values().filter(|c| matches!(c.kind, ClientKind::Read(_)));
        let oldest = reads.map(|c| c.start).min().unwrap_or(u64::MAX);
        self.oracles.iter_mut().for_each(|oracle| oracle.oldest_read = oldest);
        let now = self.now;
        if let Err(error) = result {
            self.refused(req, &client, error);
            return;
        }
        let first = client.offset / SECTOR;
        let sectors = first..first + client.len / SECTOR;
        let in_memory = client.buffered || self.writes_back(client.volume);
        let settled = client.settled == Some(self.settings[client.volume])
            && self.manager.as_ref().is_some_and(CacheManager::is_healthy);
        let (oracle, judge) = (&mut self.oracles[client.volume], &mut self.judges[client.volume]);
        match client.kind {
            ClientKind::Read(buf) => {
                let data = self.bufs[&buf].clone();
                for (sector, bytes) in sectors.zip(data.chunks(SECTOR)) {
                    let Some(value) = content::identify(bytes) else {
                        let text = format!(
                            "volume {} sector {sector}: bytes that no client wrote (G1, G3)",
                            client.volume
                        );
                        self.violation = Some(text);
                        return;
                    };
                    if !oracle.may_see(sector, client.start, value) {
                        let legal = oracle.describe(sector);
                        let text = format!(
                            "volume {} sector {sector}: read {req:?} saw {value}, legal: {legal}",
                            client.volume
                        );
                        self.violation = Some(text);
                        return;
                    }
                    oracle.saw(sector, client.start, value, now);
                    self.digest = self.digest.rotate_left(5) ^ value ^ now;
                }
            }
            ClientKind::Clear { trim: true, .. } => sectors.for_each(|s| {
                oracle.end_uncertain(s, client.start, now, in_memory);
                judge.end(s, client.start, now, false, false);
            }),
            ClientKind::Write { fua } | ClientKind::Clear { fua, .. } => sectors.for_each(|s| {
                oracle.end(s, client.start, now, fua || settled, in_memory);
                judge.end(s, client.start, now, true, fua || settled);
            }),
            ClientKind::Flush => {
                oracle.flushed(client.start);
                judge.flushed(client.start);
                self.flush_succeeded(client.volume);
                self.aim_crash();
            }
            ClientKind::Hint => {}
        }
    }

    /// Whether the manager holds that dirty data of the volume is out of reach.
    fn is_fenced(&self, volume: usize) -> bool {
        self.dirty(volume).is_some_and(|dirty| dirty.fenced)
    }

    /// What explains that a request failed, if anything does.
    fn explain(&mut self, client: &Client, error: ErrorKind) -> Option<&'static str> {
        let volume = client.volume;
        let extent = self.geometry.extent_bytes as usize;
        let (start, end) = match client.kind {
            ClientKind::Flush => (0, usize::MAX),
            _ => (client.offset / extent * extent, (client.offset + client.len).next_multiple_of(extent)),
        };
        let owes = self.manager.as_ref().is_some_and(|manager| manager.owes_loss(VolumeId(volume as u16)));
        let is_reported = matches!(client.kind, ClientKind::Flush)
            && self.excuses.explains_flush(volume, client.start, self.now, owes);
        if is_reported || self.excuses.has_origin_failed(volume, start as u64, end as u64, client.start) {
            return Some("requests failed: the origin did");
        }
        let writes = matches!(client.kind, ClientKind::Write { .. } | ClientKind::Clear { .. });
        if writes && self.is_unrecordable() {
            return Some("writes failed: their distrust cannot be recorded");
        }
        if writes && self.excuses.has_flush_failed() {
            return Some("writes failed: an origin does not flush, and regions stay marked");
        }
        let healthy = self.manager.as_ref().is_some_and(CacheManager::is_healthy);
        if healthy && !self.is_fenced(volume) {
            return self.explain_in_order(client, error);
        }
        // A cache that is out of order fails what it was asked for before, and what meets dirty data that it has.
        let was_under_way = self.trouble.failed_at.is_some_and(|at| client.start <= at);
        let is_out_of_reach = was_under_way || self.is_out_of_reach(volume);
        (client.buffered && is_out_of_reach && (self.is_excused(volume) || self.trouble.forged))
            .then_some("requests failed: dirty data out of reach")
    }

    /// The reason why a request may fail where the cache is in order and the volume is not fenced.
    fn explain_in_order(&mut self, client: &Client, error: ErrorKind) -> Option<&'static str> {
        match client.kind {
            ClientKind::Read(buf) => {
                let faults = self.excuses.take_unread(buf);
                let explains = |(bytes, since): &(Range<u32>, u64)| {
                    let first = (client.offset + bytes.start as usize) / SECTOR;
                    let end = (client.offset + bytes.end as usize).div_ceil(SECTOR);
                    // Damage that is older than all that the sector may hold is not damage of its own copy.
                    let oracle = &self.oracles[client.volume];
                    (first..end).any(|sector| oracle.written_by(sector, *since))
                };
                faults.iter().any(explains).then_some("reads failed: dirty data damaged")
            }
            ClientKind::Write { .. } | ClientKind::Clear { .. } if client.buffered => match error {
                ErrorKind::NoSpace => self.is_crowded(client.volume).then_some("writes crowded out"),
                _ => self.is_stuck(client.volume).then_some("writes failed: destaging is stuck"),
            },
            _ => None,
        }
    }

    /// Whether dirty data of the volume cannot be read and stands in the way of what comes after it.
    fn is_stuck(&self, volume: usize) -> bool {
        let troubled = self.trouble.session || self.trouble.damaged || self.trouble.rotten;
        troubled && self.dirty(volume).is_some_and(|state| state.stuck_bytes > 0)
    }

    /// Returns `true` if another volume occupies room with dirty data that its origin does not take, or the volume's own
    /// origin had no space.
    fn is_crowded(&self, volume: usize) -> bool {
        if self.excuses.had_no_space(volume) {
            return true;
        }
        (0..self.volumes.len()).filter(|other| *other != volume).any(|other| {
            let held_back = self.volumes[other].mode == Mode::ReadOnly || !self.served[other];
            self.dirty(other).is_some_and(|state| held_back || state.fenced) || self.is_stuck(other)
        })
    }

    /// A request failed: only the origin or the volume's mode may be the reason. What it wrote, if anything, is
    /// uncertain; a refused one wrote nothing.
    fn refused(&mut self, req: ReqId, client: &Client, error: ErrorKind) {
        let writes = matches!(client.kind, ClientKind::Write { .. } | ClientKind::Clear { .. });
        // A write that waited while its volume left write-back may have been taken in before, in part.
        let refused = error == ErrorKind::ReadOnly && writes;
        let read_only = refused && !client.buffered;
        let is_told =
            matches!(client.kind, ClientKind::Flush) && self.flush_failed(client.volume, client.start);
        if is_told {
            // What it was for.
        } else if refused {
            self.coverage.note("writes refused: read-only");
        } else if let Some(why) = self.explain(client, error) {
            self.coverage.note(why);
        } else {
            self.violation.get_or_insert_with(|| format!("request {req:?} failed: {error} (G4)"));
        }
        if self.trouble.rotten {
            // What was to take the place of a rotten extent has found no room for that: it stays rotten.
            self.trouble.lie(true);
        }
        if writes {
            let first = client.offset / SECTOR;
            // A part of what a store refused may be in its memory, and shows until it is opened again.
            let is_in_store = self.pooled.as_ref().is_some_and(|pooled| pooled.has(client.volume));
            let in_memory = client.buffered || self.writes_back(client.volume) || is_in_store;
            let (oracle, judge, now) =
                (&mut self.oracles[client.volume], &mut self.judges[client.volume], self.now);
            let sectors = first..first + client.len / SECTOR;
            if read_only {
                sectors.for_each(|s| {
                    oracle.withdraw(s, client.start);
                    judge.withdraw(s, client.start);
                });
            } else {
                sectors.for_each(|s| {
                    oracle.end_uncertain(s, client.start, now, in_memory);
                    judge.end(s, client.start, now, false, false);
                });
            }
        }
    }

    pub(crate) fn span(&mut self, volume: usize, max: usize) -> (usize, usize) {
        let size = self.volumes[volume].size_bytes as usize;
        let extent = self.geometry.extent_bytes as usize;
        let (align, len) = match self.rng.random_range(0..10) {
            0..=3 => (extent, extent * self.rng.random_range(1..=(max / extent).max(1))),
            4..=6 => (4096, 4096),
            _ => (SECTOR, SECTOR * self.rng.random_range(1..=(max / SECTOR).min(40))),
        };
        let hot = if self.rng.random_bool(0.6) { size / 3 } else { size };
        let hot = self.habits.hot_bytes.map_or(hot, |most| hot.min(most));
        let offset = self.rng.random_range(0..hot) / align * align;
        (offset, len.min(size - offset))
    }

    pub(crate) fn submit(
        &mut self,
        volume: usize,
        offset: usize,
        len: usize,
        kind: RequestKind,
        client: ClientKind,
    ) {
        self.now += 1;
        let req = self.next;
        self.next += 1;
        let start = self.now;
        let buffered = self.writes_back(volume) || self.maybe_dirty[volume];
        let config = &self.volumes[volume];
        let settled = (config.mode == Mode::WriteBack && config.write_back.ack == Ack::Durable)
            .then_some(self.settings[volume]);
        self.clients.insert(req, Client { volume, offset, len, kind: client, start, buffered, settled });
        self.submitted(Request {
            req: ReqId(req),
            volume: VolumeId(volume as u16),
            offset_bytes: offset as u64,
            len_bytes: len as u64,
            kind,
        });
    }

    /// A request that no manager had begins under the next one: it counts as issued now.
    pub(crate) fn begin_again(&mut self, req: ReqId) {
        self.now += 1;
        let now = self.now;
        let client = self.clients.get_mut(&req.0).expect("held back");
        let (volume, issued) = (client.volume, core::mem::replace(&mut client.start, now));
        let sectors = client.offset / SECTOR..(client.offset + client.len) / SECTOR;
        let buffered = self.writes_back(volume) || self.maybe_dirty[volume];
        self.clients.get_mut(&req.0).expect("held back").buffered |= buffered;
        for sector in sectors {
            self.oracles[volume].issue_again(sector, issued, now);
            self.judges[volume].issue_again(sector, issued, now);
        }
    }

    pub(crate) fn random_request(&mut self) {
        let volume = self.rng.random_range(0..self.volumes.len());
        self.request_of(volume);
    }

    /// A request of any volume but one, if there is another.
    pub(crate) fn request_of_another(&mut self, volume: usize) {
        let others: Vec<usize> = (0..self.volumes.len()).filter(|other| *other != volume).collect();
        if others.is_empty() {
            return self.step_or_tick();
        }
        let other = others[self.rng.random_range(0..others.len())];
        let before = self.settings[volume];
        self.request_of(other);
        debug_assert_eq!(before, self.settings[volume], "a volume that goes is not configured");
    }

    fn request_of(&mut self, volume: usize) {
        self.serve_volume(volume);
        let (offset, len) = self.span(volume, 128 << 10);
        if len == 0 {
            return;
        }
        self.request(volume, offset, len);
    }

    fn request(&mut self, volume: usize, offset: usize, len: usize) {
        self.next += 1;
        let buf = BufId(self.next);
        let flushes = self.habits.flushes;
        match self.rng.random_range(0..95 + flushes) {
            0..50 => {
                self.bufs.insert(buf, vec![0xaa; len]);
                self.submit(volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
            }
            50..86 => self.write(volume, offset, len, buf),
            86..89 => self.clear(volume, offset, len, true),
            89..92 => self.clear(volume, offset, len, false),
            92 => {
                let warms = self.next.is_multiple_of(2);
                let kind = if warms { RequestKind::Warm } else { RequestKind::Prefetch };
                self.submit(volume, offset, len, kind, ClientKind::Hint);
            }
            93..95 => self.reconfigure(),
            _ => self.submit(volume, 0, 0, RequestKind::Flush, ClientKind::Flush),
        }
    }

    /// A request that changes no settings.
    pub(crate) fn client_request(&mut self, volume: usize, offset: usize, len: usize) {
        self.next += 1;
        let buf = BufId(self.next);
        match self.rng.random_range(0..10) {
            _ if len == 0 => {}
            0..4 => {
                self.bufs.insert(buf, vec![0xaa; len]);
                self.submit(volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
            }
            4..8 => self.write(volume, offset, len, buf),
            8 => self.clear(volume, offset, len, true),
            _ => self.submit(volume, 0, 0, RequestKind::Flush, ClientKind::Flush),
        }
    }

    fn reconfigure(&mut self) {
        if self.is_state_failing() {
            // That a volume may become dirty has to be known there first.
            self.coverage.note("settings refused: the state directory fails");
            return;
        }
        let volume = self.rng.random_range(0..self.volumes.len());
        if self.leaving == Some(volume) {
            return;
        }
        self.serve_volume(volume);
        self.draw_settings(volume);
        self.reconfigured(volume);
    }

    /// Pins change while a start reads headers, or the index image in their place.
    pub(crate) fn change_pins_early(&mut self) {
        for _ in 0..self.rng.random_range(0..8) {
            self.step();
        }
        if self.manager.as_ref().is_some_and(|manager| !manager.is_loaded()) {
            self.coverage.note("pins changed while the index is loaded");
            self.reconfigure();
            self.tick();
        }
    }

    /// Other settings for a volume, which the manager does not know yet.
    pub(crate) fn draw_settings(&mut self, volume: usize) {
        setup::reconfigure(&mut self.rng, &mut self.volumes[volume]);
        if self.sharing {
            self.volumes[volume].share = shares::draw(&mut self.rng, &self.geometry);
        }
        if self.pins.are_drawn() {
            let size_bytes = self.volumes[volume].size_bytes;
            self.volumes[volume].pins = pins::draw(&mut self.rng, size_bytes);
            self.coverage.note("pins changed");
        }
        if self.write_back {
            setup::reconfigure_write_back(&mut self.rng, &mut self.volumes[volume]);
            if self.volumes[volume].write_back.destage == Destage::Coalesce {
                self.judges[volume].excuse();
            }
        }
    }

    /// A volume's settings are others from now on.
    pub(crate) fn reconfigured(&mut self, volume: usize) {
        self.settings[volume] += 1;
        let to = self.volumes[volume].mode;
        if to == Mode::WriteBack {
            // What waits or is flushed meanwhile may be served in write-back.
            let clients = self.clients.values_mut().filter(|client| client.volume == volume);
            clients.for_each(|client| client.buffered = true);
            // A cache that is out of order takes nothing dirty, and nothing is noted.
            self.maybe_dirty[volume] |= self.manager.as_ref().is_some_and(CacheManager::is_healthy);
            self.coverage.note("changes to write-back");
        } else if self.dirty(volume).is_some() {
            self.coverage.note("changes from write-back while dirty");
        }
        let config = self.volumes[volume].clone();
        self.configure(config);
    }

    /// A volume is served, and its origin may be written.
    pub(crate) fn make_writable(&mut self, volume: usize) {
        self.serve_volume(volume);
        if self.volumes[volume].mode == Mode::ReadOnly {
            self.volumes[volume].mode = Mode::WriteThrough;
            self.settings[volume] += 1;
            self.configure(self.volumes[volume].clone());
        }
    }

    fn configure(&mut self, config: VolumeConfig) {
        self.losses.configured(usize::from(config.id.0), &config);
        self.event(Event::Configure(Box::new(config)));
    }

    /// A volume's origin becomes longer, and then the volume, while requests are under way. Often its end cuts an extent,
    /// before or after. Mostly another volume used the room before.
    pub(crate) fn grow(&mut self) {
        let volume = self.rng.random_range(0..self.volumes.len());
        self.serve_volume(volume);
        let old = self.volumes[volume].size_bytes as usize;
        let new = old + self.rng.random_range(1..64) * SECTOR;
        if new > VOLUME_BYTES_MAX {
            return;
        }
        let cut = old % self.geometry.extent_bytes as usize;
        if cut > 0 && self.rng.random_bool(0.5) {
            self.coverage.note("requests under way where a volume ended");
            self.request(volume, old - cut, cut);
        }
        if !self.grow_root(volume, new as u64) {
            return;
        }
        let mut rest = vec![0; new - old];
        // A store's volume holds nothing where it was never written.
        let in_store = self.pooled.as_ref().is_some_and(|pooled| pooled.has(volume));
        let was_used = self.rng.random_bool(0.7) && !in_store;
        for sector in rest.chunks_mut(SECTOR) {
            self.next_content += u64::from(was_used);
            let value = if was_used { self.next_content } else { 0 };
            content::fill(value, sector);
            self.oracles[volume].grow(value);
            self.judges[volume].grow(value);
        }
        self.origins[volume].grow(&rest);
        self.volumes[volume].size_bytes = new as u64;
        self.coverage.note("volumes grown while serving");
        let config = self.volumes[volume].clone();
        self.configure(config);
    }

    /// A volume that is not served is added.
    pub(crate) fn serve_volume(&mut self, volume: usize) {
        if !self.served[volume] {
            self.served[volume] = true;
            self.free[volume] = false;
            self.volumes[volume].may_be_dirty = self.maybe_dirty[volume];
            self.volumes[volume].lost_writes = self.losses.taken_up(volume);
            let healthy = self.manager.as_ref().is_some_and(CacheManager::is_healthy);
            self.maybe_dirty[volume] |= healthy && self.volumes[volume].mode == Mode::WriteBack;
            self.coverage.note("volumes added while serving");
            let config = self.volumes[volume].clone();
            self.configure(config);
        }
    }

    /// Clients never wait for writes of WEUs (G8): while these take for ever, everything is answered.
    pub(crate) fn clients_do_not_wait_for_weus(&mut self) {
        if self.maybe_dirty.contains(&true) {
            return;
        }
        self.stalled = Some((Zone::SlotWrite, u64::MAX));
        for _ in 0..self.rng.random_range(1..30) {
            self.random_request();
            self.step();
        }
        // A volume that has gone to write-back meanwhile does wait: its flushes are for the cache device.
        if self.maybe_dirty.contains(&true) {
            self.stalled = None;
        }
        self.drain();
        self.stalled = None;
        self.coverage.note("requests answered while WEU writes hang");
    }

    pub(crate) fn write(&mut self, volume: usize, offset: usize, len: usize, buf: BufId) {
        self.fill(volume, offset, len, buf);
        let fua = self.rng.random_bool(self.habits.fua);
        self.submit(volume, offset, len, RequestKind::Write { buf, fua }, ClientKind::Write { fua });
    }

    /// Makes the bytes of a write, and tells those who judge of them.
    fn fill(&mut self, volume: usize, offset: usize, len: usize, buf: BufId) {
        let extent = self.geometry.extent_bytes as usize;
        let start = self.now + 1;
        let shared = self.rng.random_bool(self.habits.duplicates);
        let zero = self.rng.random_bool(0.05);
        let turned = self.next.checked_div(self.habits.pool_turns).unwrap_or(0) % 1000;
        let pool = 12 * turned as usize;
        let mut data = vec![0; len];
        for (index, sector) in data.chunks_mut(SECTOR).enumerate() {
            let at = offset + index * SECTOR;
            let within = (at % extent / SECTOR) as u64;
            let id = if zero {
                0
            } else if shared {
                // Whole extents with one of 12 contents.
                let pick = (at / extent * 7 + self.next as usize / 3) % 12 + pool;
                64 * (1 + pick as u64) + within
            } else {
                self.next_content += 1;
                self.next_content
            };
            content::fill(id, sector);
            self.oracles[volume].issue(at / SECTOR, id, start);
            self.judges[volume].issue(at / SECTOR, id, start);
        }
        self.coverage.note(if zero || shared { KNOWN_CONTENTS } else { NEW_CONTENTS });
        self.bufs.insert(buf, data);
    }

    /// Writes these sectors, then flushes, and hears of both.
    pub(crate) fn write_anew(&mut self, volume: usize, offset: usize, len: usize) {
        self.next += 1;
        let buf = BufId(self.next);
        self.write(volume, offset, len, buf);
        self.drain();
        self.flush_if_served(volume);
        self.drain();
    }

    /// A flush, unless the daemon has been started since without the volume.
    fn flush_if_served(&mut self, volume: usize) {
        if self.served[volume] {
            self.submit(volume, 0, 0, RequestKind::Flush, ClientKind::Flush);
        }
    }

    pub(crate) fn clear(&mut self, volume: usize, offset: usize, len: usize, trim: bool) {
        let start = self.now + 1;
        for sector in offset / SECTOR..(offset + len) / SECTOR {
            self.oracles[volume].issue(sector, 0, start);
            self.judges[volume].discard(sector, start);
        }
        let fua = self.rng.random_bool(0.1);
        let kind =
            if trim { RequestKind::Trim { fua } } else { RequestKind::WriteZeroes { no_hole: false, fua } };
        self.submit(volume, offset, len, kind, ClientKind::Clear { trim, fua });
    }

    /// One client writes and syncs, again and again, and no other client is there. Often it is cut off.
    pub(crate) fn sync_often(&mut self) {
        self.drain();
        let volume = self.rng.random_range(0..self.volumes.len());
        self.serve_volume(volume);
        self.coverage.note("runs of one client that syncs");
        for _ in 0..self.rng.random_range(1..40) {
            self.write_and_sync(volume);
            if self.rng.random_bool(0.03) {
                for _ in 0..self.rng.random_range(0..12) {
                    self.step();
                }
                if self.rng.random_bool(0.7) {
                    self.power_cut();
                } else {
                    self.kill();
                }
                return;
            }
            self.drain();
            // A start that cut it off may have left the volume out.
            if self.violation.is_some() || !self.served[volume] {
                return;
            }
        }
    }

    /// A small write that is durable when it ends, or one with a flush behind it.
    fn write_and_sync(&mut self, volume: usize) {
        let (offset, len) = self.span(volume, 8 << 10);
        if len == 0 {
            return;
        }
        self.next += 1;
        let buf = BufId(self.next);
        let fua = self.rng.random_bool(0.5);
        self.fill(volume, offset, len, buf);
        self.submit(volume, offset, len, RequestKind::Write { buf, fua }, ClientKind::Write { fua });
        if !fua {
            self.drain();
            self.flush_if_served(volume);
        }
    }

    pub(crate) fn drain(&mut self) {
        for turn in 0..PATIENCE {
            if self.clients.is_empty() || self.violation.is_some() {
                return;
            }
            if turn > OPERATOR_PATIENCE && self.is_pool_fenced() {
                // Writes wait for room that dirty data takes which the store does not: an operator starts it anew.
                return self.kill();
            }
            if turn > OPERATOR_PATIENCE {
                self.make_room_in_pool();
            }
            if self.is_busy() {
                self.step();
            } else {
                self.tick();
            }
        }
        // Where a damaged page keeps the store's cleaner from freeing anything, that goes on for ever.
        self.is_over = self.is_pool_rotten();
        let pool = self.pooled.as_ref().map(Pooled::describe);
        let dirty: Vec<_> = (0..self.volumes.len()).map(|volume| self.dirty(volume)).collect();
        let count = self.clients.len();
        self.violation = Some(format!("{count} requests are never answered; dirty {dirty:?}, pool {pool:?}"));
    }

    /// Reads every volume from end to end.
    pub(crate) fn read_all(&mut self) {
        for volume in 0..self.volumes.len() {
            self.serve_volume(volume);
            let size = self.volumes[volume].size_bytes as usize;
            if self.violation.is_some() {
                return;
            }
            for offset in (0..size).step_by(64 << 10) {
                let len = (size - offset).min(64 << 10);
                self.next += 1;
                let buf = BufId(self.next);
                self.bufs.insert(buf, vec![0xaa; len]);
                self.submit(volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
                self.drain();
            }
        }
    }
}
