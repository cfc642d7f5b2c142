//! BLOCK_STATUS: what cache and origin know of a range.
//!
//! Job: the extents of two metadata contexts. `base:allocation` (NBD protocol, "Metadata querying") says holes of the
//! origin (3: hole and zero), zeros that the cache knows (2: zero) and anything else (0). `x-zcached:residency` says
//! what a read would be served from: 0 the origin, 1 the cache.
//!
//! Invariants: an answer begins at the request's offset and may end before its end, as the protocol allows. It is a
//! moment's: it holds for ranges that nobody writes. A zero is said only where the cache or the origin vouches for it.
//!
//! What it does not do: ask block devices for holes.

use zc_cache::{Residency, ResidencyRun};
use zc_nbd::server::Request;
use zc_nbd::wire::StatusExtent;

use crate::front::Body;
use crate::origin_map::{Mapped, OriginMap, OriginRun, has_holes, reopen};
use crate::shard::Shard;
use zc_core::VolumeId;

/// The context of the cache's own knowledge.
pub(crate) const RESIDENCY_CONTEXT: &str = "x-zcached:residency";
/// Status bits of `base:allocation`.
const HOLE: u64 = 1;
const ZERO: u64 = 2;

/// `base:allocation` of a range, from what the origin (nothing known behind the end of its runs) and the cache say.
fn allocation(origin: &[OriginRun], cache: &[ResidencyRun]) -> Vec<StatusExtent> {
    let mut extents = Vec::new();
    let mut cached = cache.iter().map(|run| (run.len_bytes, run.residency == Residency::Zero));
    let (mut left, mut is_zero) = (0, false);
    for run in origin {
        let mut rest = run.len_bytes;
        while rest > 0 {
            if left == 0 {
                // Behind what the cache told, nothing is known of it.
                (left, is_zero) = cached.next().unwrap_or((u64::MAX, false));
            }
            let length = rest.min(left);
            let flags = if run.is_hole {
                HOLE | ZERO
            } else if is_zero {
                ZERO
            } else {
                0
            };
            extents.push(StatusExtent { length, flags });
            rest -= length;
            left -= length;
        }
    }
    extents
}

fn residency(cache: &[ResidencyRun]) -> Vec<StatusExtent> {
    let extent = |run: &ResidencyRun| {
        let flags = u64::from(run.residency != Residency::OriginOnly);
        StatusExtent { length: run.len_bytes, flags }
    };
    cache.iter().map(extent).collect()
}

impl Shard {
    /// A BLOCK_STATUS from a session.
    pub(crate) fn begin_status(&mut self, conn: u64, volume: VolumeId, request: Request) {
        let (start, end) = (request.offset(), request.offset() + request.length());
        let wants_origin = self.wanted(conn, &request).iter().any(|(_, is_allocation)| *is_allocation);
        let id = self.add_status(conn, volume, request, Body::Status { origin: Vec::new() });
        if wants_origin && self.ask_origin(volume, id, start, end) {
            return;
        }
        let runs = vec![OriginRun { len_bytes: end - start, is_hole: false }];
        self.origin_mapped(Mapped { client: id, runs });
    }

    /// The contexts a request asks for: id, and whether it is `base:allocation`.
    fn wanted(&self, conn: u64, request: &Request) -> Vec<(u32, bool)> {
        let contexts = self.conns.get(&conn).map_or(&[][..], |conn| conn.session.contexts());
        let wanted = contexts.iter().filter(|(id, _)| request.wants_context(*id));
        wanted.map(|(id, name)| (*id, name == zc_nbd::proto::BASE_ALLOCATION)).collect()
    }

    fn ask_origin(&mut self, volume: VolumeId, client: u64, start: u64, end: u64) -> bool {
        if !self.maps.contains_key(&volume) {
            let origin = &self.volume_mut(volume).origin;
            if !has_holes(origin.fd()) {
                return false;
            }
            let (answers, waker) = (self.mapped.clone(), self.event.waker());
            let started = reopen(self.volume_mut(volume).origin.fd())
                .map_err(|error| error.to_string())
                .and_then(|fd| OriginMap::start(fd, answers, waker).map_err(|error| error.to_string()));
            match started {
                Ok(map) => self.maps.insert(volume, map),
                Err(error) => {
                    tracing::debug!("the holes of an origin stay unknown: {error}");
                    return false;
                }
            };
        }
        self.maps.get(&volume).is_some_and(|map| map.ask(client, start, end))
    }

    /// The origin's part of a status is known.
    pub(crate) fn origin_mapped(&mut self, mapped: Mapped) {
        if let Some(client) = self.clients.get_mut(&mapped.client) {
            client.body = Body::Status { origin: mapped.runs };
        }
        self.answer(mapped.client);
    }

    /// The extents of every context a status asks for, by context id.
    pub(crate) fn status_extents(
        &self,
        conn: u64,
        volume: VolumeId,
        request: &Request,
        origin: &[OriginRun],
    ) -> Vec<(u32, Vec<StatusExtent>)> {
        let mut cache = Vec::new();
        self.manager.residency(volume, request.offset(), request.length(), &mut cache);
        let wanted = self.wanted(conn, request).into_iter();
        wanted
            .map(|(id, is_allocation)| {
                (id, if is_allocation { allocation(origin, &cache) } else { residency(&cache) })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_joins_holes_and_known_zeros() {
        let run = |len_bytes, residency| ResidencyRun { len_bytes, residency };
        let part = |len_bytes, is_hole| OriginRun { len_bytes, is_hole };
        let cache =
            [run(1000, Residency::Cached), run(1000, Residency::Zero), run(500, Residency::OriginOnly)];
        let origin = [part(500, true), part(1000, false), part(2500, true), part(100, false)];
        let told: Vec<_> =
            allocation(&origin, &cache).iter().map(|extent| (extent.length, extent.flags)).collect();
        assert_eq!(told, [(500, 3), (500, 0), (500, 2), (500, 3), (500, 3), (1500, 3), (100, 0)]);
        let told: Vec<_> = residency(&cache).iter().map(|extent| (extent.length, extent.flags)).collect();
        assert_eq!(told, [(1000, 1), (1000, 1), (500, 0)]);
    }
}
