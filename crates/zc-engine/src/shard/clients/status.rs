//! BLOCK_STATUS: states of a range in cache and origin.
//!
//! Job: the extents of two metadata contexts. `base:allocation` (NBD protocol, "Metadata querying") reports holes of
//! the origin (3: hole and zero), known zeros in the cache (2: zero) and anything else (0). `x-zcached:residency`
//! reports the source of a read: 0 the origin, 1 the cache, 2 the cache of the zcached that exports the origin.
//!
//! Invariants: a reply begins at the request's offset and may end before its end, as the protocol allows. It is a
//! snapshot: it holds for ranges that no client writes. A zero is reported only if cache or origin guarantees it, and
//! the origin guarantees nothing for dirty ranges (write-back): the cache is queried first, because data destaged
//! afterwards cannot be missing on the origin. The range of a reply is bounded, and charged to its connection's share
//! of a turn.
//!
//! It does not query block devices for holes. A volume of a store is queried for unallocated chunks, the server of a
//! remote origin for its block status.

use zc_cache::{Residency, ResidencyRun};
use zc_core::{Map, VolumeId};
use zc_io::Waker;
use zc_nbd::proto::{STATE_CACHED, STATE_CACHED_BEHIND, STATE_HOLE, STATE_ZERO};
use zc_nbd::server::Request;
use zc_nbd::wire::StatusExtent;

use crate::origin::Origin;
use crate::origin::map::{
    Allocation, Answers, CachedRun, MapAsker, Mapped, OriginMap, OriginRun, has_holes, reopen,
};
use crate::shard::clients::asked::{SECTOR, floor};
use crate::shard::volumes::Volume;

/// Status bits of `base:allocation`.
const HOLE: u64 = STATE_HOLE as u64;
const ZERO: u64 = STATE_ZERO as u64;

/// Returns `base:allocation` of a range, from the states in origin (unknown beyond its runs) and cache. The cache was
/// queried first: ranges it did not report as dirty were on the origin before the origin was queried.
fn allocation(origin: &[OriginRun], cache: &[ResidencyRun]) -> Vec<StatusExtent> {
    // Unknown beyond the cache's reply.
    let cached = cache.iter().map(|run| (run.len_bytes, run.residency));
    joined(origin.iter().map(|run| (run.len_bytes, run.allocation)), cached, Residency::OriginOnly)
        .map(|(length, allocation, residency)| {
            let flags = match (residency, allocation) {
                (Residency::Dirty, _) => 0,
                (_, Allocation::Hole) => HOLE | ZERO,
                (_, Allocation::Zeros) | (Residency::Zero, _) => ZERO,
                (Residency::Cached | Residency::OriginOnly, Allocation::Data) => 0,
            };
            StatusExtent { length, flags }
        })
        .collect()
}

/// Returns the sources of a range, from the states in the cache and at the zcached that exports the origin, if any.
fn residency(cache: &[ResidencyRun], behind: &[CachedRun]) -> Vec<StatusExtent> {
    let behind = behind.iter().map(|run| (run.len_bytes, run.is_cached));
    joined(cache.iter().map(|run| (run.len_bytes, run.residency)), behind, false)
        .map(|(length, residency, is_behind)| {
            let flags = match residency {
                Residency::OriginOnly if is_behind => STATE_CACHED_BEHIND,
                Residency::OriginOnly => 0,
                Residency::Cached | Residency::Zero | Residency::Dirty => STATE_CACHED,
            };
            StatusExtent { length, flags: flags.into() }
        })
        .collect()
}

/// Refines runs by those of another list, whose state is `beyond` after its end.
fn joined<A: Copy, B: Copy>(
    runs: impl Iterator<Item = (u64, A)>,
    mut others: impl Iterator<Item = (u64, B)>,
    beyond: B,
) -> impl Iterator<Item = (u64, A, B)> {
    let (mut left, mut other) = (0, beyond);
    runs.flat_map(move |(len_bytes, state)| {
        let (mut rest, mut parts) = (len_bytes, Vec::new());
        while rest > 0 {
            while left == 0 {
                (left, other) = others.next().unwrap_or((u64::MAX, beyond));
            }
            let length = rest.min(left);
            parts.push((length, state, other));
            rest -= length;
            left -= length;
        }
        parts
    })
}

/// Returns the whole sectors that a request overlaps, the granularity of cache and origin.
pub(crate) fn sectors(request: &Request) -> (u64, u64) {
    let (start, end) = (request.offset(), request.offset() + request.length());
    (floor(start), end.next_multiple_of(SECTOR))
}

/// Returns the part of `extents`, which begin at a sector, in the `length` bytes after their first `skip` bytes.
fn part_of(extents: Vec<StatusExtent>, skip: u64, length: u64) -> Vec<StatusExtent> {
    let (mut skip, mut left) = (skip, length);
    let mut part = |extent: StatusExtent| {
        let behind = extent.length - extent.length.min(skip);
        skip -= extent.length - behind;
        let length = behind.min(left);
        left -= length;
        (length > 0).then_some(StatusExtent { length, ..extent })
    };
    extents.into_iter().filter_map(&mut part).collect()
}

/// Returns the extents of every requested context, by context id. `wanted`: the contexts, with `true` for
/// `base:allocation`.
pub(crate) fn extents(
    wanted: Vec<(u32, bool)>,
    request: &Request,
    cache: &[ResidencyRun],
    origin: &Mapped,
) -> Vec<(u32, Vec<StatusExtent>)> {
    let skip = request.offset() - sectors(request).0;
    let of = |(id, is_allocation)| {
        let extents =
            if is_allocation { allocation(&origin.runs, cache) } else { residency(cache, &origin.cached) };
        (id, part_of(extents, skip, request.length()))
    };
    wanted.into_iter().map(of).collect()
}

/// Threads that query holes of origins, and their results.
#[derive(Debug)]
pub(crate) struct Holes {
    maps: Map<VolumeId, OriginMap>,
    answers: Answers,
    waker: Waker,
}

impl Holes {
    /// Creates the state without information; replies wake `waker`.
    pub(crate) fn new(waker: Waker) -> Self {
        Self { maps: Map::default(), answers: Answers::default(), waker }
    }

    /// Queries the holes of a range for a client's request. Returns `false` if they stay unknown.
    pub(crate) fn ask(
        &mut self,
        (id, volume): (VolumeId, &Volume),
        client: u64,
        start: u64,
        end: u64,
    ) -> bool {
        let asker = || MapAsker { client, answers: self.answers.clone(), waker: self.waker.clone() };
        match &volume.origin {
            Origin::Store(store) => {
                store.map(start, end, asker());
                return true;
            }
            Origin::Remote(remote) => {
                remote.map(start, end, asker());
                return true;
            }
            Origin::Raw(_) => {}
        }
        if !self.maps.contains_key(&id) {
            let Some(fd) = volume.origin.fd().filter(|fd| has_holes(*fd)) else { return false };
            let started = reopen(fd).map_err(|error| error.to_string()).and_then(|fd| {
                let map = OriginMap::start(fd, self.answers.clone(), self.waker.clone());
                map.map_err(|error| error.to_string())
            });
            match started {
                Ok(map) => self.maps.insert(id, map),
                Err(error) => {
                    tracing::debug!("the holes of an origin stay unknown: {error}");
                    return false;
                }
            };
        }
        self.maps.get(&id).is_some_and(|map| map.ask(client, start, end))
    }

    pub(crate) fn take(&self) -> Vec<Mapped> {
        self.answers.take()
    }

    /// A volume is served no more.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        drop(self.maps.remove(&volume));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_joins_holes_and_known_zeros() {
        let run = |len_bytes, residency| ResidencyRun { len_bytes, residency };
        let part = OriginRun::of;
        let cache =
            [run(1000, Residency::Cached), run(1000, Residency::Zero), run(500, Residency::OriginOnly)];
        let origin = [part(500, true), part(1000, false), part(2500, true), part(100, false)];
        let answer: Vec<_> =
            allocation(&origin, &cache).iter().map(|extent| (extent.length, extent.flags)).collect();
        assert_eq!(answer, [(500, 3), (500, 0), (500, 2), (500, 3), (500, 3), (1500, 3), (100, 0)]);
        let zeros = [OriginRun { len_bytes: 2500, allocation: Allocation::Zeros }];
        let answer: Vec<_> =
            allocation(&zeros, &cache).iter().map(|extent| (extent.length, extent.flags)).collect();
        assert_eq!(answer, [(1000, 2), (1000, 2), (500, 2)], "allocated zeros of a server stay allocated");
    }

    #[test]
    fn residency_passes_through() {
        let run = |len_bytes, residency| ResidencyRun { len_bytes, residency };
        let part = |len_bytes, is_cached| CachedRun { len_bytes, is_cached };
        let cache = [
            run(1000, Residency::Cached),
            run(1000, Residency::OriginOnly),
            run(500, Residency::Dirty),
            run(500, Residency::OriginOnly),
        ];
        let answer = |behind: &[CachedRun]| -> Vec<_> {
            residency(&cache, behind).iter().map(|extent| (extent.length, extent.flags)).collect()
        };
        assert_eq!(answer(&[]), [(1000, 1), (1000, 0), (500, 1), (500, 0)]);
        let behind = [part(500, true), part(700, false), part(1500, true)];
        let expected = [(500, 1), (500, 1), (200, 0), (800, 2), (500, 1), (200, 2), (300, 0)];
        assert_eq!(answer(&behind), expected, "unknown beyond the server's answer");
    }

    #[test]
    fn a_hole_beneath_dirty_data_is_data() {
        let run = |len_bytes, residency| ResidencyRun { len_bytes, residency };
        let cache =
            [run(1000, Residency::OriginOnly), run(500, Residency::Dirty), run(500, Residency::OriginOnly)];
        let origin = [OriginRun::of(2000, true)];
        let answer: Vec<_> =
            allocation(&origin, &cache).iter().map(|extent| (extent.length, extent.flags)).collect();
        assert_eq!(answer, [(1000, 3), (500, 0), (500, 3)]);
    }

    #[test]
    fn a_request_within_sectors_gets_its_part_of_them() {
        let extent = |length, flags| StatusExtent { length, flags };
        let answer = |skip, length| {
            let all = vec![extent(512, 0), extent(1024, 2), extent(512, 3)];
            part_of(all, skip, length).iter().map(|part| (part.length, part.flags)).collect::<Vec<_>>()
        };
        assert_eq!(answer(100, 1900), [(412, 0), (1024, 2), (464, 3)]);
        assert_eq!(answer(100, 20), [(20, 0)]);
        assert_eq!(answer(0, 2048), [(512, 0), (1024, 2), (512, 3)]);
        assert_eq!(answer(511, 4000), [(1, 0), (1024, 2), (512, 3)], "it may end early");
    }
}
