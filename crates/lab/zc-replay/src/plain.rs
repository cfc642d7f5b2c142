//! A trace through a reference policy: one access per extent that a request touches, reads and writes alike.
//!
//! Writes enter the cache as reads do (write-through with allocation). Flushes and discards are passed over. Memory is
//! the policy's, except under Belady's: there all accesses are held, twelve bytes each.

use zc_policy::{Kind, Policy};
use zc_trace::{Op, Request, TraceError};

use crate::error::ReplayError;
use crate::extents::Extents;

/// Most accesses for Belady's policy.
const FUTURE_MAX: usize = u32::MAX as usize - 1;
/// Set in the key of a write, where accesses are held.
const WRITE_BIT: u64 = 1 << 63;

/// Result of a run. Counts are of extents, except `requests`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests, all kinds.
    pub requests: u64,
    /// Accesses by reads, and by references of unknown kind.
    pub read_accesses: u64,
    /// Hits of those.
    pub read_hits: u64,
    /// Accesses by writes.
    pub write_accesses: u64,
    /// Hits of those.
    pub write_hits: u64,
    /// Extents that had to leave.
    pub evictions: u64,
    /// Bytes of RAM held at the end.
    pub ram_bytes: u64,
}

impl Outcome {
    /// Hits over accesses, of reads.
    #[must_use]
    pub fn read_hit_ratio(&self) -> f64 {
        share(self.read_hits, self.read_accesses)
    }

    /// Hits over accesses.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        share(self.read_hits + self.write_hits, self.read_accesses + self.write_accesses)
    }

    fn count(&mut self, is_write: bool, hit: bool) {
        let (accesses, hits) = if is_write {
            (&mut self.write_accesses, &mut self.write_hits)
        } else {
            (&mut self.read_accesses, &mut self.read_hits)
        };
        *accesses += 1;
        *hits += u64::from(hit);
    }

    fn end(&mut self, policy: &dyn Policy) {
        let entered = self.read_accesses + self.write_accesses - self.read_hits - self.write_hits;
        self.evictions = entered - zc_core::u64_from_usize(policy.len());
        self.ram_bytes += policy.ram_bytes();
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Runs a trace through a policy of `capacity` extents.
///
/// # Errors
/// Errors of the trace, or a trace too long for Belady's policy.
///
/// # Panics
/// If the capacity or the extent size is out of bounds.
pub fn run(
    requests: impl Iterator<Item = Result<Request, TraceError>>,
    kind: Kind,
    capacity: usize,
    extent_bytes: u32,
) -> Result<Outcome, ReplayError> {
    if kind == Kind::Belady {
        return run_with_future(requests, kind, capacity, extent_bytes);
    }
    let mut outcome = Outcome::default();
    let mut policy = kind.build(capacity, Vec::new);
    each_access(requests, extent_bytes, &mut outcome, |outcome, key, is_write| {
        outcome.count(is_write, policy.access(key));
        Ok(())
    })?;
    outcome.end(&*policy);
    Ok(outcome)
}

fn run_with_future(
    requests: impl Iterator<Item = Result<Request, TraceError>>,
    kind: Kind,
    capacity: usize,
    extent_bytes: u32,
) -> Result<Outcome, ReplayError> {
    let mut outcome = Outcome::default();
    let mut all = Vec::new();
    each_access(requests, extent_bytes, &mut outcome, |_, key, is_write| {
        if all.len() >= FUTURE_MAX {
            return Err(ReplayError::TooLong { max: FUTURE_MAX });
        }
        all.push(if is_write { key | WRITE_BIT } else { key });
        Ok(())
    })?;
    let mut policy = kind.build(capacity, || all.iter().map(|key| key & !WRITE_BIT).collect());
    for key in &all {
        outcome.count(key & WRITE_BIT != 0, policy.access(key & !WRITE_BIT));
    }
    outcome.ram_bytes = zc_core::u64_from_usize(all.capacity() * size_of::<u64>());
    outcome.end(&*policy);
    Ok(outcome)
}

fn each_access(
    requests: impl Iterator<Item = Result<Request, TraceError>>,
    extent_bytes: u32,
    outcome: &mut Outcome,
    mut access: impl FnMut(&mut Outcome, u64, bool) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    let mut extents = Extents::new(extent_bytes);
    let mut last = None;
    for request in requests {
        let request = request?;
        outcome.requests += u64::from(!request.continues);
        let is_write = match request.op {
            Op::Read | Op::Access => false,
            Op::Write => true,
            Op::Flush | Op::Discard => continue,
        };
        // A request in pieces accesses an extent once.
        let accessed = last.take().filter(|_| request.continues);
        for key in extents.keys(&request)? {
            last = Some(key);
            if accessed != last {
                access(outcome, key, is_write)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(op: Op, extent: u64, extents: u32) -> Request {
        let (offset_bytes, len_bytes) = (extent * 4096, extents * 4096);
        Request::new(0, op, offset_bytes, len_bytes)
    }

    #[test]
    fn reads_and_writes_are_told_apart() {
        let all = [
            request(Op::Write, 0, 2),
            request(Op::Read, 0, 1),
            request(Op::Flush, 0, 0),
            request(Op::Discard, 0, 1),
            request(Op::Access, 5, 1),
            request(Op::Write, 1, 1),
            request(Op::Read, 0, 1),
        ];
        for kind in [Kind::Lru, Kind::Belady] {
            let outcome = run(all.into_iter().map(Ok), kind, 2, 4096).unwrap();
            assert_eq!(outcome.requests, 7);
            assert_eq!((outcome.read_accesses, outcome.write_accesses), (3, 3));
            let wanted = if kind == Kind::Lru { (1, 0, 3) } else { (1, 1, 2) };
            assert_eq!((outcome.read_hits, outcome.write_hits, outcome.evictions), wanted, "{kind:?}");
            assert!(outcome.ram_bytes > 0);
        }
    }

    #[test]
    fn an_empty_trace_has_no_hits() {
        let outcome = run(std::iter::empty(), Kind::Arc, 1, 4096).unwrap();
        assert_eq!((outcome.read_hit_ratio(), outcome.hit_ratio()), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn what_enters_stays_or_leaves(extents in proptest::collection::vec((0..50_u64, 1..4_u32), 0..100)) {
            let requests = || extents.iter().map(|(extent, len)| Ok(request(Op::Read, *extent, *len)));
            for kind in Kind::ALL {
                let outcome = run(requests(), kind, 7, 4096).unwrap();
                let misses = outcome.read_accesses - outcome.read_hits;
                prop_assert_eq!(outcome.read_accesses, extents.iter().map(|(_, len)| u64::from(*len)).sum::<u64>());
                prop_assert_eq!(misses - outcome.evictions, misses.min(7));
            }
        }
    }
}
