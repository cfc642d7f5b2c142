//! A thread for changes of the state directory requested by the data plane.
//!
//! Job: execute them one after the other, and report each result in bounded time: a hung file system must block
//! neither the data plane nor its workers.
//!
//! Invariants: a change completes once for its caller. One that takes longer than [`STATE_CHANGE_MS`] has failed; if
//! it succeeds later, the state directory has more than was requested, which is safe for every kind of change. The end
//! of the daemon waits for no change.
//!
//! It does not order them relative to changes by the control thread (`state_dir` does).

use std::sync::mpsc::{self, Receiver, SyncSender};

use zc_core::{ErrorKind, OpId, VolumeId};
use zc_io::Waker;

use crate::error::EngineError;
use crate::limits::{STATE_CHANGE_MS, STATE_CHANGES_MAX};

type Work = Box<dyn FnOnce() -> Result<(), ErrorKind> + Send>;
type Ended = (Requester, Result<(), ErrorKind>);

/// The asker of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requester {
    Op(OpId),
    /// The data plane, for a volume that needs nothing of a failed cache (`settled`).
    Settled(VolumeId),
}

/// The thread, with its pending requests.
#[derive(Debug)]
pub(crate) struct StateThread {
    jobs: SyncSender<(Requester, Work)>,
    ended: Receiver<Ended>,
    under_way: Vec<(Requester, u64)>,
    /// Such as found no place.
    refused: Vec<Requester>,
}

impl StateThread {
    /// Starts the thread. It ends with the last job after this is dropped.
    pub(crate) fn start(waker: Waker) -> Result<Self, EngineError> {
        let (jobs, todo) = mpsc::sync_channel::<(Requester, Work)>(STATE_CHANGES_MAX);
        let (tell, ended) = mpsc::channel();
        let work = move || {
            for (requester, work) in todo {
                if tell.send((requester, work())).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        std::thread::Builder::new()
            .name("state".to_owned())
            .spawn(work)
            .map_err(|source| EngineError::thread("changes of the state directory", source))?;
        Ok(Self { jobs, ended, under_way: Vec::new(), refused: Vec::new() })
    }

    pub(crate) fn ask(&mut self, requester: Requester, work: Work, now_ms: u64) {
        match self.jobs.try_send((requester, work)) {
            Ok(()) => self.under_way.push((requester, now_ms)),
            Err(_) => self.refused.push(requester),
        }
    }

    /// Changes that have ended, or that are not waited for any longer.
    pub(crate) fn take_ended(&mut self, now_ms: u64) -> Vec<Ended> {
        let mut ended: Vec<Ended> =
            self.refused.drain(..).map(|requester| (requester, Err(ErrorKind::TimedOut))).collect();
        while let Ok((requester, result)) = self.ended.try_recv() {
            let before = self.under_way.len();
            self.under_way.retain(|(asked, _)| *asked != requester);
            if self.under_way.len() < before {
                ended.push((requester, result));
            }
        }
        let is_late = |since_ms: u64| now_ms.saturating_sub(since_ms) >= STATE_CHANGE_MS;
        let late = self.under_way.extract_if(.., |(_, since_ms)| is_late(*since_ms));
        for (requester, _) in late {
            tracing::error!("the state directory does not answer; its updates are retried");
            ended.push((requester, Err(ErrorKind::TimedOut)));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_io::EventFd;

    const fn op(number: u64) -> Requester {
        Requester::Op(OpId(number))
    }

    #[test]
    fn a_change_that_hangs_fails_in_time_and_ends_once() {
        let event = EventFd::new().unwrap();
        let mut thread = StateThread::start(event.waker()).unwrap();
        let (let_go, hangs) = mpsc::channel::<()>();
        let (tell, has_begun) = mpsc::channel::<()>();
        let hang = move || {
            drop(tell);
            hangs.recv().map_err(|_| ErrorKind::Io)
        };
        thread.ask(op(1), Box::new(hang), 0);
        has_begun.recv().unwrap_err();
        thread.ask(op(2), Box::new(|| Ok(())), 1000);
        assert_eq!(thread.take_ended(STATE_CHANGE_MS - 1), []);
        assert_eq!(thread.take_ended(STATE_CHANGE_MS), [(op(1), Err(ErrorKind::TimedOut))]);
        for number in 3..100 {
            thread.ask(op(number), Box::new(|| Ok(())), STATE_CHANGE_MS);
        }
        let refused = thread.take_ended(STATE_CHANGE_MS);
        assert_eq!(refused.len(), 97 - (STATE_CHANGES_MAX - 1), "they do not pile up");
        let_go.send(()).unwrap();
        let mut ended = Vec::new();
        while ended.len() < STATE_CHANGES_MAX {
            ended.extend(thread.take_ended(STATE_CHANGE_MS));
            std::thread::yield_now();
        }
        assert!(
            ended.iter().all(|(requester, result)| *requester != op(1) && *result == Ok(())),
            "{ended:?}"
        );
    }
}
