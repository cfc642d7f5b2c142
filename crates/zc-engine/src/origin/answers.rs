//! Answers of origins that have a thread of their own: volumes of stores, and exports of servers.
//!
//! Job: bring the answers to the data plane, and wake it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zc_cache::origin_deadlines::Ticket;
use zc_core::{ErrorKind, Fingerprint, VolumeId};
use zc_io::Waker;
use zc_pool::PoolError;
use zc_remote::Failure;

#[derive(Debug)]
pub(crate) struct OriginAnswer {
    pub(crate) ticket: Ticket,
    pub(crate) volume: VolumeId,
    pub(crate) outcome: OriginOutcome,
}

#[derive(Debug)]
pub(crate) enum OriginOutcome {
    Done(Result<(), OriginFailure>),
    Recipe(Vec<Option<Fingerprint>>),
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OriginFailure {
    #[error(transparent)]
    Store(PoolError),
    /// The server failed it, or is out of reach.
    #[error(transparent)]
    Remote(Failure),
}

impl OriginFailure {
    /// The kind, for the client.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Remote(failure) => failure.kind,
        }
    }
}

/// Answers that wait for the data plane; clones are the same list.
#[derive(Debug, Clone)]
pub(crate) struct OriginAnswers {
    answers: Arc<Mutex<Vec<OriginAnswer>>>,
    waker: Waker,
}

impl OriginAnswers {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { answers: Arc::default(), waker }
    }

    pub(crate) fn take(&self) -> Vec<OriginAnswer> {
        std::mem::take(&mut self.lock())
    }

    fn put(&self, answer: OriginAnswer) {
        self.lock().push(answer);
        self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OriginAnswer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Owner of a request, and the place of its answer.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) ticket: Ticket,
    pub(crate) volume: VolumeId,
    pub(crate) answers: OriginAnswers,
}

impl Asker {
    pub(crate) fn answer(self, outcome: OriginOutcome) {
        let Self { ticket, volume, answers } = self;
        answers.put(OriginAnswer { ticket, volume, outcome });
    }

    pub(crate) fn done(self, result: Result<(), OriginFailure>) {
        self.answer(OriginOutcome::Done(result));
    }
}
