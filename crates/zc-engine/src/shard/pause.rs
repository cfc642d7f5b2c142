//! A pause of the data plane, in which its manager can be exchanged (see `reattach` and `replace`).
//!
//! Job: hold back client requests to the manager until all its operations have completed; then `dispatch` lets it
//! close its cache, if requested, and replaces it, or resumes.
//!
//! Invariants: while requests are held back none is lost, answered or reordered; their number is bounded like that of
//! requests in flight. Connections, ranges and origins are the same before and after. A pause ends when its caller has
//! disconnected, or when the operations in flight do not complete. A manager that has closed its cache accepts no
//! requests: such a pause ends with another manager, or with the data plane. A manager is exchanged only while nothing
//! queued or in flight refers to it: requests that were queued in the same turn are held back first, in order, and its
//! own events and operations have completed. Commands after the exchange wait for it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{BufId, JournalSeq, Set, VolumeId};
use zc_io::BlockFile;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::PAUSE_MAX_MS;
use crate::origin::OriginStat;
use crate::shard::device::Device;
use crate::state::intent::IntentLog;
use crate::state::risk::RiskFile;

/// Open resources of the data plane.
#[derive(Debug)]
pub struct OpenResources {
    /// The cache file or device.
    pub cache: Arc<BlockFile>,
    /// Separate journal device, if any.
    pub journal: Option<Arc<BlockFile>>,
    /// The origins.
    pub origin_stats: Vec<(VolumeId, OriginStat)>,
    /// Volumes whose clients must be notified of lost acknowledged writes.
    pub lost: Vec<VolumeId>,
}

/// A manager that has closed its cache.
#[derive(Debug)]
pub struct Closed {
    /// The device has all of it, durably. Without that it has failed.
    pub is_whole: bool,
    /// The journal's end.
    pub journal_next: JournalSeq,
    /// The newest epoch of each volume. The origins have all of them.
    pub epochs: Vec<(VolumeId, u64)>,
    /// Volumes with a pending notification of an earlier loss.
    pub owes_loss: Vec<VolumeId>,
}

/// Replacement of a manager that lost its cache device, or closed it.
pub struct Replacement {
    /// The next manager, which has replayed its records.
    pub manager: CacheManager,
    /// Its cache device.
    pub device: Device,
    /// The intent log of its session.
    pub intent: IntentLog,
    /// The risk file of its session.
    pub risk: RiskFile,
    /// Settings of the volumes, as it has them.
    pub volumes: Vec<VolumeConfig>,
    /// Bytes that were read from the device to open it.
    pub bytes_read: u64,
}

impl std::fmt::Debug for Replacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Replacement")
    }
}

type Reply = oneshot::Sender<Result<OpenResources, EngineError>>;
/// Caller that waits for the cache to be closed.
pub(crate) type CloseReply = oneshot::Sender<Result<Closed, EngineError>>;

/// Progress of closing the cache.
#[derive(Debug, Default)]
enum Closing {
    #[default]
    No,
    Begun(CloseReply),
    /// The manager has closed its cache, and accepts no more requests.
    Done,
}

/// Held-back requests, and the caller to notify when no other work remains.
#[derive(Debug)]
struct Paused {
    events: VecDeque<Event>,
    since_ms: u64,
    reply: Option<Reply>,
    closing: Closing,
    /// The next manager, and the time of its arrival.
    replacement: Option<(Box<Replacement>, u64)>,
}

/// `Some` while requests are held back.
#[derive(Debug, Default)]
pub(crate) struct Pause(Option<Paused>);

impl Pause {
    /// Starts holding back requests; the caller is notified when no other work remains.
    pub(crate) fn begin(&mut self, reply: Reply, now_ms: u64) {
        let (events, closing) = (VecDeque::new(), Closing::No);
        self.0 = Some(Paused { events, since_ms: now_ms, reply: Some(reply), closing, replacement: None });
    }

    /// Returns `true` if requests are held back.
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Requests that are held back.
    pub(crate) fn waiting(&self) -> usize {
        self.0.as_ref().map_or(0, |paused| paused.events.len())
    }

    /// Returns the event unless it is held back.
    pub(crate) fn passes(&mut self, event: Event) -> Option<Event> {
        match &mut self.0 {
            Some(paused) if matches!(event, Event::Submit(_)) => {
                paused.events.push_back(event);
                None
            }
            _ => Some(event),
        }
    }

    /// Returns the buffers of the requests held back.
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

    /// Notifies the caller once the data plane has drained. Returns `true` if the caller has disconnected, which ends
    /// the pause.
    pub(crate) fn is_reached(&mut self, looked: impl FnOnce() -> Result<OpenResources, EngineError>) -> bool {
        let Some(reply) = self.0.as_mut().and_then(|paused| paused.reply.take()) else { return false };
        reply.send(looked()).is_err()
    }

    /// Returns `true` if the pause must end: the operations in flight do not complete, or the caller has disconnected.
    /// The caller is notified.
    pub(crate) fn is_given_up(&mut self, now_ms: u64) -> bool {
        let Some(paused) = &mut self.0 else { return false };
        let is_late = now_ms.saturating_sub(paused.since_ms) > PAUSE_MAX_MS;
        let Some(reply) = paused.reply.take_if(|reply| is_late || reply.is_closed()) else { return false };
        let refusal = Refusal::NotPaused { seconds: PAUSE_MAX_MS / 1000 };
        let _asker_left = reply.send(Err(EngineError::refused(refusal)));
        true
    }

    /// Records that the manager is closing its cache. Returns `reply` if nothing is held back, or operations are in
    /// flight.
    pub(crate) fn begin_closing(&mut self, reply: CloseReply) -> Result<(), CloseReply> {
        match &mut self.0 {
            Some(paused) if paused.reply.is_none() => {
                paused.closing = Closing::Begun(reply);
                Ok(())
            }
            _ => Err(reply),
        }
    }

    /// Processes the manager's report that it has closed its cache. Returns `false` if this was not requested by the
    /// pause, so the daemon is stopping.
    pub(crate) fn is_closed_by(&mut self, closed: impl FnOnce() -> Closed) -> bool {
        let Some(Paused { closing, .. }) = &mut self.0 else { return false };
        let Closing::Begun(reply) = std::mem::replace(closing, Closing::Done) else { return false };
        // If the caller has disconnected, the pause ends without an exchange.
        let _asker_left = reply.send(Ok(closed()));
        true
    }

    /// Returns `true` if the manager has closed its cache, and takes no request any more.
    pub(crate) fn has_closed(&self) -> bool {
        self.0.as_ref().is_some_and(|paused| matches!(paused.closing, Closing::Done))
    }

    /// Stores the next manager until no operation refers to the old one. Without a pause it is dropped.
    pub(crate) fn keep_replacement(&mut self, replacement: Box<Replacement>, now_ms: u64) {
        if let Some(paused) = &mut self.0 {
            paused.replacement = Some((replacement, now_ms));
        }
    }

    /// Returns `true` if the next manager waits for the old one.
    pub(crate) fn has_replacement(&self) -> bool {
        self.0.as_ref().is_some_and(|paused| paused.replacement.is_some())
    }

    /// Takes the next manager in order to exchange or drop it.
    pub(crate) fn take_replacement(&mut self) -> Option<Box<Replacement>> {
        let (replacement, _) = self.0.as_mut()?.replacement.take()?;
        Some(replacement)
    }

    /// Returns `true` if the next manager has waited too long for operations of the old one.
    pub(crate) fn is_replacement_late(&self, now_ms: u64) -> bool {
        let since_ms = self.0.as_ref().and_then(|paused| paused.replacement.as_ref()).map(|(_, ms)| *ms);
        since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > PAUSE_MAX_MS)
    }

    /// Ends the pause, and returns the requests held back, in order.
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
    fn a_cache_is_closed_in_a_pause_that_was_reached_and_only_once() {
        let closed = || Closed {
            is_whole: true,
            journal_next: JournalSeq(7),
            epochs: Vec::new(),
            owes_loss: Vec::new(),
        };
        let mut pause = Pause::default();
        assert!(pause.begin_closing(oneshot::channel().0).is_err(), "no pause");
        assert!(!pause.is_closed_by(closed), "the daemon stops");
        let (reply, mut looked) = oneshot::channel();
        pause.begin(reply, 0);
        assert!(pause.begin_closing(oneshot::channel().0).is_err(), "something is under way");
        let look =
            || Ok(OpenResources { cache: file(), journal: None, origin_stats: Vec::new(), lost: Vec::new() });
        assert!(!pause.is_reached(look) && looked.try_recv().unwrap().is_ok());
        let (reply, mut answer) = oneshot::channel();
        pause.begin_closing(reply).unwrap();
        assert!(!pause.has_closed());
        assert!(pause.is_closed_by(closed) && pause.has_closed());
        assert_eq!(answer.try_recv().unwrap().unwrap().journal_next, JournalSeq(7));
        let _held = pause.end();
        assert!(!pause.has_closed());
    }

    fn file() -> Arc<BlockFile> {
        let dir = tempfile::tempdir().unwrap();
        let options = zc_io::OpenOptions { direct: false, write: true, create_len: Some(4096) };
        Arc::new(BlockFile::open(&dir.path().join("cache"), options).unwrap())
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
