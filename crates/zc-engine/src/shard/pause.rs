//! A pause of the data plane, in which its manager can be exchanged (see `reattach`).
//!
//! Job: hold back what clients ask of the manager until everything that it is at has ended; then `dispatch` puts another
//! one in its place, or lets things go on.
//!
//! Invariants: while requests are held back none is lost, answered or reordered; their number is bounded as that of
//! requests in flight is. Connections, ranges and origins are the same before and after. A pause whose asker has gone
//! ends, and one in which what is under way does not end either.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{BufId, Set, VolumeId};
use zc_io::BlockFile;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::PAUSE_MAX_MS;
use crate::origin::Facing;
use crate::shard::device::Device;
use crate::state::intent::IntentLog;
use crate::state::risk::RiskFile;

/// What the data plane has open.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) cache: Arc<BlockFile>,
    pub(crate) journal: Option<Arc<BlockFile>>,
    pub(crate) facing: Vec<(VolumeId, Facing)>,
    /// Volumes whose clients have to be told that acknowledged writes are lost.
    pub(crate) lost: Vec<VolumeId>,
}

/// What takes the place of a manager that lost its cache device.
pub(crate) struct Replacement {
    pub(crate) manager: CacheManager,
    pub(crate) device: Device,
    pub(crate) intent: IntentLog,
    pub(crate) risk: RiskFile,
    pub(crate) volumes: Vec<VolumeConfig>,
    pub(crate) bytes_read: u64,
}

impl std::fmt::Debug for Replacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Replacement")
    }
}

type Reply = oneshot::Sender<Result<Looked, EngineError>>;

/// What is held back, and who is told when nothing else is left.
#[derive(Debug)]
struct Paused {
    events: VecDeque<Event>,
    since_ms: u64,
    reply: Option<Reply>,
}

/// Whether requests are held back, and which.
#[derive(Debug, Default)]
pub(crate) struct Pause(Option<Paused>);

impl Pause {
    /// Requests are held back from now on; who asked for that is told when nothing else is left.
    pub(crate) fn begin(&mut self, reply: Reply, now_ms: u64) {
        self.0 = Some(Paused { events: VecDeque::new(), since_ms: now_ms, reply: Some(reply) });
    }

    /// Whether requests are held back.
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Requests that are held back.
    pub(crate) fn waiting(&self) -> usize {
        self.0.as_ref().map_or(0, |paused| paused.events.len())
    }

    /// The event, unless it has to wait.
    pub(crate) fn passes(&mut self, event: Event) -> Option<Event> {
        match &mut self.0 {
            Some(paused) if matches!(event, Event::Submit(_)) => {
                paused.events.push_back(event);
                None
            }
            _ => Some(event),
        }
    }

    /// Buffers of what is held back.
    pub(crate) fn buffers(&self) -> Set<BufId> {
        let buf = |event: &Event| match event {
            Event::Submit(request) => match request.kind {
                RequestKind::Read { buf } | RequestKind::Write { buf, .. } => Some(buf),
                _ => None,
            },
            _ => None,
        };
        self.0.iter().flat_map(|paused| &paused.events).filter_map(buf).collect()
    }

    /// Nothing but what is held back is left: tells the asker, once. True: the asker has gone, and the pause is over.
    pub(crate) fn is_reached(&mut self, looked: impl FnOnce() -> Result<Looked, EngineError>) -> bool {
        let Some(reply) = self.0.as_mut().and_then(|paused| paused.reply.take()) else { return false };
        reply.send(looked()).is_err()
    }

    /// Whether what is held back has waited long enough: what is under way does not end, or the asker has gone. The
    /// asker is told.
    pub(crate) fn is_given_up(&mut self, now_ms: u64) -> bool {
        let Some(paused) = &mut self.0 else { return false };
        let is_late = now_ms.saturating_sub(paused.since_ms) > PAUSE_MAX_MS;
        let Some(reply) = paused.reply.take_if(|reply| is_late || reply.is_closed()) else { return false };
        let refusal = Refusal::NotPaused { seconds: PAUSE_MAX_MS / 1000 };
        let _asker_left = reply.send(Err(EngineError::refused(refusal)));
        true
    }

    /// The pause is over: what was held back, in order.
    pub(crate) fn end(&mut self) -> VecDeque<Event> {
        self.0.take().map(|paused| paused.events).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_cache::seam::Request;
    use zc_core::ReqId;

    fn read(number: u64) -> Event {
        let kind = RequestKind::Read { buf: BufId(number) };
        Event::Submit(Request {
            req: ReqId(number),
            volume: VolumeId(1),
            offset_bytes: 0,
            len_bytes: 512,
            kind,
        })
    }

    #[test]
    fn requests_wait_in_order_and_the_rest_passes() {
        let mut pause = Pause::default();
        assert!(pause.passes(read(1)).is_some(), "no pause");
        let (reply, mut answer) = oneshot::channel();
        pause.begin(reply, 0);
        assert!(pause.passes(read(2)).is_none() && pause.passes(read(3)).is_none());
        assert!(pause.passes(Event::Tick { now_ms: 1 }).is_some());
        assert_eq!((pause.waiting(), pause.buffers().len()), (2, 2));
        assert!(!pause.is_given_up(PAUSE_MAX_MS));
        assert!(pause.is_given_up(PAUSE_MAX_MS + 1) && answer.try_recv().unwrap().is_err());
        let held: Vec<_> = pause.end().into_iter().collect();
        assert!(matches!(&held[..], [Event::Submit(first), Event::Submit(second)]
            if first.req == ReqId(2) && second.req == ReqId(3)));
        assert!(!pause.is_on());
    }

    #[test]
    fn an_asker_that_has_gone_ends_the_pause() {
        let mut pause = Pause::default();
        let (reply, answer) = oneshot::channel();
        pause.begin(reply, 0);
        drop(answer);
        assert!(pause.is_given_up(1));
        assert!(!pause.is_given_up(1), "once");
    }
}
