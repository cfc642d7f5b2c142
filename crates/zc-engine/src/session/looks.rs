//! Looks at origins that may not answer.
//!
//! Job: open an origin on a thread of its own and say whether that works, within a deadline: the kernel may keep who
//! opens a file of a dead file server for as long as it likes.
//!
//! Invariants: whoever waits goes on at the deadline. What such a thread opens late it closes again.
//!
//! It does not keep what it opens. A look that ended well says that an open will most likely not hang now.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use zc_config::VolumeConfig;

use crate::clock::Clock;
use crate::error::EngineError;
use crate::limits::ORIGIN_LOOK_MS;
use crate::origin::Origin;
use crate::origin::stores::Stores;
use crate::session::origins;

/// A look that has begun.
#[derive(Debug)]
pub(crate) struct Look {
    place: String,
    outcome: Receiver<Result<Found, EngineError>>,
}

/// What is in the place of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The origin.
    Origin,
    /// Nothing, and the configuration says how to make it.
    Nothing,
}

impl Look {
    /// Begins to look whether the origin of a volume can be opened, or made, and is not empty.
    pub(crate) fn begin(volume: &VolumeConfig, stores: &Arc<Stores>) -> Result<Self, EngineError> {
        let (tell, outcome) = mpsc::sync_channel(1);
        let (wanted, stores) = (volume.clone(), Arc::clone(stores));
        let look = move || {
            let opened = Origin::open_existing(&wanted, &stores);
            let found = opened.and_then(|origin| {
                origins::size(&wanted, origin.as_ref())?;
                Ok(if origin.is_some() { Found::Origin } else { Found::Nothing })
            });
            let _too_late = tell.send(found);
        };
        std::thread::Builder::new()
            .name("origin-look".to_owned())
            .spawn(look)
            .map_err(|source| EngineError::thread("looking at origins", source))?;
        Ok(Self { place: volume.origin.display().to_string(), outcome })
    }

    /// Waits for its end, but not for longer than this.
    pub(crate) fn wait(&self, wait: Duration) -> Result<Found, EngineError> {
        match self.outcome.recv_timeout(wait) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(EngineError::NoAnswer { place: self.place.clone() })
            }
        }
    }

    /// Returns `true` if it has not ended yet. What it found is lost by the question.
    pub(crate) fn hangs(&self) -> bool {
        matches!(self.outcome.try_recv(), Err(TryRecvError::Empty))
    }
}

/// Looks at the origins of these volumes, all at once; what is there, or why it cannot be opened, in their order. Blocks,
/// in all no longer than one look may take.
pub(crate) fn at_all<'a>(
    volumes: impl Iterator<Item = &'a VolumeConfig>,
    stores: &Arc<Stores>,
) -> Vec<Result<Found, EngineError>> {
    let clock = Clock::new();
    let looks: Vec<_> = volumes.map(|volume| Look::begin(volume, stores)).collect();
    let left = || Duration::from_millis(ORIGIN_LOOK_MS.saturating_sub(clock.now_ms()));
    looks.into_iter().map(|look| look?.wait(left())).collect()
}
