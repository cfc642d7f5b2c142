//! Checks answers to clients: the values read against the legal ones, and errors against the faults that explain
//! them.

use core::ops::Range;

use zc_cache::CacheManager;
use zc_core::{ErrorKind, Mode, ReqId, VolumeId};

use crate::clients::{Client, ClientKind};
use crate::content::{self, SECTOR};
use crate::world::World;

impl World {
    pub(crate) fn replied(&mut self, req: ReqId, result: Result<(), ErrorKind>) {
        let Some(client) = self.clients.take(req) else {
            self.env.violate(format!("{req:?} is answered a second time"));
            return;
        };
        let oldest = self.clients.oldest_read();
        self.models.oldest_read(oldest);
        let now = self.env.now();
        if let Err(error) = result {
            self.refused(req, &client, error);
            return;
        }
        let sectors = client.sectors();
        let in_memory = client.is_buffered() || self.writes_back(client.volume());
        let settled = client.settled() == Some(self.volumes.changes(client.volume()))
            && self.manager.as_ref().is_some_and(CacheManager::is_healthy);
        let (oracle, judge) = self.models.both(client.volume());
        match client.kind() {
            ClientKind::Read(buf) => {
                let data = self.memory.bytes(buf).to_vec();
                for (sector, bytes) in sectors.zip(data.chunks(SECTOR)) {
                    let Some(value) = content::identify(bytes) else {
                        let text = format!(
                            "volume {} sector {sector}: bytes that no client wrote (G1, G3)",
                            client.volume()
                        );
                        self.env.violate(text);
                        return;
                    };
                    if !oracle.may_see(sector, client.start(), value) {
                        let legal = oracle.describe(sector);
                        let text = format!(
                            "volume {} sector {sector}: read {req:?} saw {value}, legal: {legal}",
                            client.volume()
                        );
                        self.env.violate(text);
                        return;
                    }
                    oracle.saw(sector, client.start(), value, now);
                    self.env.saw(value);
                }
            }
            ClientKind::Clear { trim: true, .. } => sectors.for_each(|s| {
                oracle.end_uncertain(s, client.start(), now, in_memory);
                judge.end(s, client.start(), now, false, false);
            }),
            ClientKind::Write { fua } | ClientKind::Clear { fua, .. } => sectors.for_each(|s| {
                oracle.end(s, client.start(), now, fua || settled, in_memory);
                judge.end(s, client.start(), now, true, fua || settled);
            }),
            ClientKind::Flush => {
                oracle.flushed(client.start());
                judge.flushed(client.start());
                if let Some(text) = self.losses.flush_succeeded(client.volume()) {
                    self.env.violate(text);
                }
                self.crashes.flushed(&mut self.env, self.plan.habits.crash_after_flush);
            }
            ClientKind::Hint => {}
        }
    }

    /// Returns `true` if the manager reports dirty data of the volume as out of reach.
    fn is_fenced(&self, volume: usize) -> bool {
        self.dirty(volume).is_some_and(|dirty| dirty.fenced)
    }

    /// Returns the fault that explains a failed request, if any.
    fn explain(&mut self, client: &Client, error: ErrorKind) -> Option<&'static str> {
        let volume = client.volume();
        let extent = self.cache.geometry().extent_bytes as usize;
        let (start, end) = match client.kind() {
            ClientKind::Flush => (0, usize::MAX),
            _ => (client.offset() / extent * extent, client.bytes().end.next_multiple_of(extent)),
        };
        let owes = self.manager.as_ref().is_some_and(|manager| manager.owes_loss(VolumeId(volume as u16)));
        let is_reported = matches!(client.kind(), ClientKind::Flush)
            && self.excuses.explains_flush(volume, client.start(), self.env.now(), owes);
        if is_reported || self.excuses.has_origin_failed(volume, start as u64, end as u64, client.start()) {
            return Some("requests failed: the origin did");
        }
        let writes = client.kind().writes();
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
        // A failed cache fails requests issued before the failure, and requests that overlap its dirty data.
        let was_under_way = self.trouble.failed_at.is_some_and(|at| client.start() <= at);
        let is_out_of_reach = was_under_way || self.is_out_of_reach(volume);
        (client.is_buffered() && is_out_of_reach && (self.is_excused(volume) || self.trouble.forged))
            .then_some("requests failed: dirty data out of reach")
    }

    /// Returns the reason for which a request may fail while the cache is healthy and the volume is not fenced.
    fn explain_in_order(&mut self, client: &Client, error: ErrorKind) -> Option<&'static str> {
        match client.kind() {
            ClientKind::Read(buf) => {
                let faults = self.excuses.take_unread(buf);
                let explains = |(bytes, since): &(Range<u32>, u64)| {
                    let first = (client.offset() + bytes.start as usize) / SECTOR;
                    let end = (client.offset() + bytes.end as usize).div_ceil(SECTOR);
                    // Damage older than every version that the sector may hold is not damage of its own copy.
                    let oracle = self.models.oracle(client.volume());
                    (first..end).any(|sector| oracle.written_by(sector, *since))
                };
                faults.iter().any(explains).then_some("reads failed: dirty data damaged")
            }
            ClientKind::Write { .. } | ClientKind::Clear { .. } if client.is_buffered() => match error {
                ErrorKind::NoSpace => self.is_crowded(client.volume()).then_some("writes crowded out"),
                _ => self.is_stuck(client.volume()).then_some("writes failed: destaging is stuck"),
            },
            _ => None,
        }
    }

    /// Returns `true` if dirty data of the volume cannot be read and blocks later writes.
    fn is_stuck(&self, volume: usize) -> bool {
        let troubled = self.trouble.session || self.trouble.damaged || self.trouble.rotten;
        troubled && self.dirty(volume).is_some_and(|state| state.stuck_bytes > 0)
    }

    /// Returns `true` if capacity is held by dirty data of another volume that its origin rejects, or if the volume's
    /// own origin had no space.
    fn is_crowded(&self, volume: usize) -> bool {
        if self.excuses.had_no_space(volume) {
            return true;
        }
        (0..self.volumes.len()).filter(|other| *other != volume).any(|other| {
            let held_back = self.volumes[other].mode == Mode::ReadOnly || !self.volumes.is_served(other);
            self.dirty(other).is_some_and(|state| held_back || state.fenced) || self.is_stuck(other)
        })
    }

    /// Records a failed flush. Returns `true` if a loss explains it.
    fn told_loss(&mut self, client: &Client) -> bool {
        let (volume, now) = (client.volume(), self.env.now());
        let owes = self.manager.as_ref().is_some_and(|manager| manager.owes_loss(VolumeId(volume as u16)));
        let (is_explained, tells) = self.losses.flush_failed(volume, client.start(), owes, now);
        if tells {
            self.env.note("losses told by a flush");
        }
        is_explained
    }

    /// Records a failed request, which only the origin or the volume's mode may explain. Its written sectors become
    /// uncertain, unless it was refused: a refused write changes nothing.
    fn refused(&mut self, req: ReqId, client: &Client, error: ErrorKind) {
        let writes = client.kind().writes();
        // A write that waited while its volume left write-back may already have been accepted in part.
        let refused = error == ErrorKind::ReadOnly && writes;
        let read_only = refused && !client.is_buffered();
        let is_told = matches!(client.kind(), ClientKind::Flush) && self.told_loss(client);
        if is_told {
        } else if refused {
            self.env.note("writes refused: read-only");
        } else if let Some(why) = self.explain(client, error) {
            self.env.note(why);
        } else {
            self.env.violate(format!("request {req:?} failed: {error} (G4)"));
        }
        if self.trouble.rotten {
            // The rewrite of a corrupt extent found no capacity, so the extent stays corrupt.
            self.trouble.lie(true);
        }
        if writes {
            // A store may keep a part of a rejected write in memory, and serve it until it is reopened.
            let is_in_store = self.pooled.as_ref().is_some_and(|pooled| pooled.has(client.volume()));
            let in_memory = client.is_buffered() || self.writes_back(client.volume()) || is_in_store;
            let now = self.env.now();
            let (oracle, judge) = self.models.both(client.volume());
            let sectors = client.sectors();
            if read_only {
                sectors.for_each(|s| {
                    oracle.withdraw(s, client.start());
                    judge.withdraw(s, client.start());
                });
            } else {
                sectors.for_each(|s| {
                    oracle.end_uncertain(s, client.start(), now, in_memory);
                    judge.end(s, client.start(), now, false, false);
                });
            }
        }
    }
}
