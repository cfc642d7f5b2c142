//! The writer of a file that outlives the process: the data plane itself or, if that may hang, a thread.
//!
//! Job: execute changes of its value, one after the other, and return each result in bounded time.
//!
//! Invariants: one thread alone changes the value. A change that times out is the last one: its result is unknown, and
//! no further one is started. No part waits for the thread's end.
//!
//! It does not decide on the consequence of a time-out (`intent`, `risk`).

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use crate::error::EngineError;

type Change<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A change that has not ended in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoAnswer;

#[derive(Debug)]
pub(crate) struct Keeper<T>(Writer<T>);

#[derive(Debug)]
enum Writer<T> {
    /// The caller changes the value.
    Own(T),
    Thread {
        changes: Sender<Change<T>>,
        patience: Duration,
    },
    /// A change was not answered.
    Lost,
}

impl<T: Send + 'static> Keeper<T> {
    /// Changes run on the caller's thread: none can hang.
    pub(crate) const fn own(kept: T) -> Self {
        Self(Writer::Own(kept))
    }

    /// Changes run on a thread, with this time-out in milliseconds.
    pub(crate) fn on_thread(mut kept: T, patience_ms: u64) -> Result<Self, EngineError> {
        let (changes, asked) = mpsc::channel::<Change<T>>();
        let work = move || asked.into_iter().for_each(|change| change(&mut kept));
        std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(work)
            .map_err(|source| EngineError::thread("files that outlive the process", source))?;
        Ok(Self(Writer::Thread { changes, patience: Duration::from_millis(patience_ms) }))
    }

    /// Executes a change, and waits for its result.
    pub(crate) fn change<R: Send + 'static>(
        &mut self,
        change: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, NoAnswer> {
        let (changes, patience) = match &mut self.0 {
            Writer::Own(kept) => return Ok(change(kept)),
            Writer::Thread { changes, patience } => (changes, *patience),
            Writer::Lost => return Err(NoAnswer),
        };
        let (tell, ended) = mpsc::sync_channel(1);
        let change = move |kept: &mut T| {
            let _asker_left = tell.send(change(kept));
        };
        if changes.send(Box::new(change)).is_ok()
            && let Ok(end) = ended.recv_timeout(patience)
        {
            return Ok(end);
        }
        self.0 = Writer::Lost;
        Err(NoAnswer)
    }
}

/// Result of changing a file that a start must trust only if it is complete.
#[derive(Debug)]
pub(crate) enum Written {
    Whole,
    /// The write failed, and no start will trust the file.
    Withdrawn(std::io::Error),
    /// The write failed, and a start would trust the file.
    Stuck(std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_carried_out_in_order_here_or_there() {
        for mut keeper in [Keeper::own(vec![1]), Keeper::on_thread(vec![1], 60_000).unwrap()] {
            keeper.change(|kept| kept.push(2)).unwrap();
            assert_eq!(keeper.change(|kept| kept.clone()), Ok(vec![1, 2]));
        }
    }

    #[test]
    fn a_change_that_hangs_is_the_last() {
        let mut keeper = Keeper::on_thread(0, 1).unwrap();
        let (let_go, hangs) = mpsc::channel::<()>();
        let (tell, is_over) = mpsc::channel();
        let hang = move |kept: &mut i32| {
            let _let_go = hangs.recv();
            *kept += 1;
            tell.send(*kept).unwrap();
        };
        assert_eq!(keeper.change(hang), Err(NoAnswer));
        let_go.send(()).unwrap();
        assert_eq!(is_over.recv(), Ok(1), "it is carried out all the same");
        assert_eq!(keeper.change(|kept| *kept), Err(NoAnswer), "and nothing after it");
    }
}
