//! The loop: actions to the backend, ends to the manager, until nothing is left to do.

use std::collections::VecDeque;

use zc_cache::seam::{Action, Event};

use crate::Backend;

/// Queues between a manager and its backend; reused to save allocations.
#[derive(Debug, Default)]
pub struct Turns {
    /// Actions of the manager.
    actions: Vec<Action>,
    /// Events for the manager.
    events: VecDeque<Event>,
}

impl Turns {
    /// Starts the manager. [`Self::settle`] executes its first actions.
    pub fn begin(&mut self, backend: &mut impl Backend, now_ms: u64) {
        backend.manager().begin(now_ms, &mut self.actions);
    }

    /// Passes an event to the manager, and executes the resulting actions.
    pub fn handle(&mut self, backend: &mut impl Backend, event: Event) {
        backend.manager().handle(event, &mut self.actions);
        self.settle(backend);
    }

    /// Executes actions and passes their completions on until none is left.
    pub fn settle(&mut self, backend: &mut impl Backend) {
        loop {
            for action in self.actions.drain(..) {
                self.events.extend(backend.act(action));
            }
            let Some(event) = self.events.pop_front() else { return };
            backend.manager().handle(event, &mut self.actions);
        }
    }
}

#[cfg(test)]
mod tests {
    use zc_cache::CacheManager;
    use zc_cache::config::{ManagerConfig, VolumeConfig};
    use zc_cache::seam::{Digest, Request, RequestKind};
    use zc_cache::startup::StartState;
    use zc_core::{BufId, BufSlice, Codec, DedupDomain, FingerprintKind, ReqId, VolumeId};
    use zc_format::{Geometry, PlanOptions};

    use super::*;
    use crate::{Ended, OriginOp};

    /// Counts actions; only the origin has an effect.
    struct Counting {
        manager: CacheManager,
        replies: Vec<(ReqId, Ended)>,
        origin: Vec<OriginOp>,
    }

    impl Backend for Counting {
        fn manager(&mut self) -> &mut CacheManager {
            &mut self.manager
        }
        fn reply(&mut self, req: ReqId, result: Ended) {
            self.replies.push((req, result));
        }
        fn hash(&mut self, _: BufSlice, _: &DedupDomain) -> Digest {
            Digest::Zero
        }
        fn compress(&mut self, _: BufSlice, _: Codec, _: u32, _: BufId) -> Option<u32> {
            None
        }
        fn origin(&mut self, _: VolumeId, op: OriginOp) -> Ended {
            self.origin.push(op);
            Ok(())
        }
    }

    #[test]
    fn a_request_is_answered_before_the_next() {
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes: 64 << 20,
            weu_bytes: 1 << 20,
            extent_bytes: 8192,
            align_bytes: 0,
            journal_blocks: None,
        })
        .unwrap();
        let config = ManagerConfig::new(geometry, FingerprintKind::Blake3, 4096);
        let volumes = vec![VolumeConfig::new(VolumeId(0), 1 << 20, 64 << 10)];
        let manager = CacheManager::new(config, volumes, StartState::fresh());
        let mut counting = Counting { manager, replies: Vec::new(), origin: Vec::new() };
        let mut turns = Turns::default();
        turns.begin(&mut counting, 0);
        turns.settle(&mut counting);
        for number in 1..=2 {
            let kind = RequestKind::Read { buf: BufId(number) };
            let (req, volume) = (ReqId(number), VolumeId(0));
            let read = Request { req, volume, offset_bytes: 8192, len_bytes: 8192, kind };
            turns.handle(&mut counting, Event::Submit(read));
            assert_eq!(counting.replies.last(), Some(&(ReqId(number), Ok(()))));
        }
        assert_eq!(counting.replies.len(), 2);
        let reads = counting.origin.iter().filter(|op| matches!(op, OriginOp::Read { .. }));
        assert_eq!(reads.count(), 1, "the second read finds zeros in the cache");
        assert!(turns.actions.is_empty() && turns.events.is_empty());
    }
}
