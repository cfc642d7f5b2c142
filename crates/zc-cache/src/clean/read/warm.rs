//! Ranges that an operator wants in the cache.
//!
//! Job: read what is absent of a range, and answer when the origin has been read.
//!
//! Invariants: an answer comes once, after the last read of the origin, with the first error. Extents that are cached, or
//! on their way into the cache, cost no read. What it does not do: bound what is under way (the driver does, by
//! [`Clean::has_room_to_warm`]), or wait for the insertion.

use zc_core::{ErrorKind, Map, ReqId};

use crate::clean::Clean;
use crate::clean::read::read_ahead::Reason;
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::seam::{Action, Request};

/// A request that reads of the origin are under way for.
#[derive(Debug)]
struct Warm {
    pending: u32,
    error: Option<ErrorKind>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Warms(Map<ReqId, Warm>);

impl Warms {
    /// Another read of the origin begins for a request.
    pub(crate) fn add_part(&mut self, req: ReqId) {
        self.0.get_mut(&req).expect_held().pending += 1;
    }

    /// A part has ended; the outcome of the whole if it was the last.
    fn part_done(&mut self, req: ReqId, result: Result<(), ErrorKind>) -> Option<Result<(), ErrorKind>> {
        let warm = self.0.get_mut(&req).expect_held();
        warm.error = warm.error.or_else(|| result.err());
        warm.pending -= 1;
        if warm.pending > 0 {
            return None;
        }
        let error = self.0.remove(&req).expect_held().error;
        Some(error.map_or(Ok(()), Err))
    }
}

impl Clean {
    /// An operator asks for a range to be brought into the cache.
    pub(crate) fn submit_warm(&mut self, request: &Request, core: &mut Core) {
        // The lookup holds it until that is through.
        self.warms.0.insert(request.req, Warm { pending: 1, error: None });
        let extent = u64::from(core.base.extent_bytes());
        if let Some(volume) = core.base.volume(request.volume) {
            let end = (request.offset_bytes + request.len_bytes).div_ceil(extent).min(volume.whole_extents());
            let extents = request.offset_bytes / extent..end;
            self.fetch_extents(request.volume, extents, Reason::Warm(request.req), None, core);
        }
        self.warm_part_done(request.req, Ok(()), core);
    }

    /// A read of the origin has ended.
    pub(crate) fn warm_part_done(&mut self, req: ReqId, result: Result<(), ErrorKind>, core: &mut Core) {
        if let Some(result) = self.warms.part_done(req, result) {
            core.base.port.emit(Action::Reply { req, result });
        }
    }

    /// Whether so many bytes more would be inserted, and leave at least half of the room to what clients ask for.
    pub(crate) fn has_room_to_warm(&self, len_bytes: u64, core: &Core) -> bool {
        let most = u64::from(core.base.cfg().insert_bytes_max) / 2;
        core.base.is_good()
            && !core.device.catalog.meta().is_pressed()
            && self.inserts.bytes().saturating_add(len_bytes) <= most.max(len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_that_of_all_parts() {
        let (mut warms, req) = (Warms::default(), ReqId(7));
        warms.0.insert(req, Warm { pending: 1, error: None });
        warms.add_part(req);
        warms.add_part(req);
        assert_eq!(warms.part_done(req, Ok(())), None);
        assert_eq!(warms.part_done(req, Err(ErrorKind::Io)), None);
        assert_eq!(warms.part_done(req, Err(ErrorKind::NoSpace)), Some(Err(ErrorKind::Io)));
        assert!(warms.0.is_empty());
    }
}
