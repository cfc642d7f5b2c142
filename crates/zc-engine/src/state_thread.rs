//! A thread for changes of the state directory that the data plane asks for.
//!
//! Job: carry them out one after the other, and report each end in bounded time: a file system that hangs must hold up
//! neither the data plane nor its workers.
//!
//! Invariants: a change ends once for who asked. One that takes longer than [`STATE_CHANGE_MS`] has failed; should it end
//! well later, the state directory says more than was asked for, which is always safe. The end of the daemon waits for no
//! change.
//!
//! What it does not do: order them against changes by the control thread (`state_dir` does).

use std::sync::mpsc::{self, Receiver, SyncSender};

use zc_core::{ErrorKind, OpId};
use zc_io::Waker;

use crate::error::EngineError;
use crate::limits::{STATE_CHANGE_MS, STATE_CHANGES_MAX};

type Work = Box<dyn FnOnce() -> Result<(), ErrorKind> + Send>;
type Ended = (OpId, Result<(), ErrorKind>);

/// The thread, and what was asked of it.
#[derive(Debug)]
pub(crate) struct StateThread {
    jobs: SyncSender<(OpId, Work)>,
    ended: Receiver<Ended>,
    /// Since when.
    under_way: Vec<(OpId, u64)>,
    /// Such as found no place.
    refused: Vec<OpId>,
}

impl StateThread {
    /// Starts the thread. It ends with the last job after this is dropped.
    pub(crate) fn start(waker: Waker) -> Result<Self, EngineError> {
        let (jobs, todo) = mpsc::sync_channel::<(OpId, Work)>(STATE_CHANGES_MAX);
        let (tell, ended) = mpsc::channel();
        let work = move || {
            for (op, work) in todo {
                if tell.send((op, work())).is_err() {
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

    /// Asks for a change.
    pub(crate) fn ask(&mut self, op: OpId, work: Work, now_ms: u64) {
        match self.jobs.try_send((op, work)) {
            Ok(()) => self.under_way.push((op, now_ms)),
            Err(_) => self.refused.push(op),
        }
    }

    /// Changes that have ended, or that are not waited for any longer.
    pub(crate) fn take_ended(&mut self, now_ms: u64) -> Vec<Ended> {
        let mut ended: Vec<Ended> = self.refused.drain(..).map(|op| (op, Err(ErrorKind::TimedOut))).collect();
        while let Ok((op, result)) = self.ended.try_recv() {
            let before = self.under_way.len();
            self.under_way.retain(|(asked, _)| *asked != op);
            if self.under_way.len() < before {
                ended.push((op, result));
            }
        }
        let is_late = |since_ms: u64| now_ms.saturating_sub(since_ms) >= STATE_CHANGE_MS;
        let late = self.under_way.extract_if(.., |(_, since_ms)| is_late(*since_ms));
        for (op, _) in late {
            tracing::error!(
                "the state directory does not answer; what is to be recorded there is tried again"
            );
            ended.push((op, Err(ErrorKind::TimedOut)));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_io::EventFd;

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
        thread.ask(OpId(1), Box::new(hang), 0);
        has_begun.recv().unwrap_err();
        thread.ask(OpId(2), Box::new(|| Ok(())), 1000);
        assert_eq!(thread.take_ended(STATE_CHANGE_MS - 1), []);
        assert_eq!(thread.take_ended(STATE_CHANGE_MS), [(OpId(1), Err(ErrorKind::TimedOut))]);
        for op in 3..100 {
            thread.ask(OpId(op), Box::new(|| Ok(())), STATE_CHANGE_MS);
        }
        let refused = thread.take_ended(STATE_CHANGE_MS);
        assert_eq!(refused.len(), 97 - (STATE_CHANGES_MAX - 1), "they do not pile up");
        let_go.send(()).unwrap();
        let mut ended = Vec::new();
        while ended.len() < STATE_CHANGES_MAX {
            ended.extend(thread.take_ended(STATE_CHANGE_MS));
            std::thread::yield_now();
        }
        assert!(ended.iter().all(|(op, result)| *op != OpId(1) && *result == Ok(())), "{ended:?}");
    }
}
