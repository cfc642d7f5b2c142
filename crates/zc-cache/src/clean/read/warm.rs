//! Warm-up of ranges on an operator's request.
//!
//! Reads the absent extents of a range, and replies when the origin reads have completed.
//!
//! Invariants: each request is answered once, after its last origin read, with the first error. Extents that are
//! cached or being inserted cost no read. Out of scope: bounding the reads in progress (the driver does, by
//! `Reads::has_room_to_warm`), and waiting for the insertion.

use zc_core::{ErrorKind, Map, ReqId};

use crate::expect_held::ExpectHeld;

/// A request with origin reads in progress.
#[derive(Debug)]
struct Warm {
    pending: u32,
    error: Option<ErrorKind>,
}

#[derive(Debug, Default)]
pub(crate) struct Warms(Map<ReqId, Warm>);

impl Warms {
    /// Begins a request, which its lookup keeps pending.
    pub(crate) fn begin(&mut self, req: ReqId) {
        self.0.insert(req, Warm { pending: 1, error: None });
    }

    pub(crate) fn add_part(&mut self, req: ReqId) {
        self.0.get_mut(&req).expect_held().pending += 1;
    }

    /// Completes a part. Returns the result of the request if it was the last.
    pub(super) fn part_done(
        &mut self,
        req: ReqId,
        result: Result<(), ErrorKind>,
    ) -> Option<Result<(), ErrorKind>> {
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
