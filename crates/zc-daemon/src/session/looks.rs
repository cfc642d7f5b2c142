//! Checks of origins that may not respond.
//!
//! Job: open an origin on a separate thread and report the result within a deadline: the kernel may block the opener
//! of a file on a dead file server indefinitely.
//!
//! Invariants: a waiter continues at the deadline. A file that such a thread opens late is closed again.
//!
//! It does not keep the open file. After a successful check, an open will most likely not hang now.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use zc_config::VolumeConfig;

use crate::limits::ORIGIN_LOOK_MS;
use crate::session::origins;
use zc_engine::clock::Clock;
use zc_engine::error::EngineError;
use zc_engine::origin::Origin;
use zc_engine::origin::stores::Stores;

/// A check in progress.
#[derive(Debug)]
pub(crate) struct OriginCheck {
    place: String,
    outcome: Receiver<Result<OriginPath, EngineError>>,
}

/// State of an origin's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginPath {
    Origin,
    /// Absent, and the configuration allows its creation.
    Nothing,
}

impl OriginCheck {
    /// Starts a check that the origin of a volume can be opened, or created, and is not empty.
    pub(crate) fn begin(volume: &VolumeConfig, stores: &Arc<Stores>) -> Result<Self, EngineError> {
        let (tell, outcome) = mpsc::sync_channel(1);
        let (wanted, stores) = (volume.clone(), Arc::clone(stores));
        let look = move || {
            let opened = Origin::open_existing(&wanted, &stores);
            let found = opened.and_then(|origin| {
                origins::size(&wanted, origin.as_ref())?;
                Ok(if origin.is_some() { OriginPath::Origin } else { OriginPath::Nothing })
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
    pub(crate) fn wait(&self, wait: Duration) -> Result<OriginPath, EngineError> {
        match self.outcome.recv_timeout(wait) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(EngineError::NoAnswer { place: self.place.clone() })
            }
        }
    }

    /// Returns `true` if it is still running. This consumes its result.
    pub(crate) fn hangs(&self) -> bool {
        matches!(self.outcome.try_recv(), Err(TryRecvError::Empty))
    }
}

/// Checks the origins of these volumes concurrently; returns their states, or why they cannot be opened, in order.
/// Blocks, in total for at most one check's time-out.
pub(crate) fn at_all<'a>(
    volumes: impl Iterator<Item = &'a VolumeConfig>,
    stores: &Arc<Stores>,
) -> Vec<Result<OriginPath, EngineError>> {
    let clock = Clock::new();
    let looks: Vec<_> = volumes.map(|volume| OriginCheck::begin(volume, stores)).collect();
    let left = || Duration::from_millis(ORIGIN_LOOK_MS.saturating_sub(clock.now_ms()));
    looks.into_iter().map(|look| look?.wait(left())).collect()
}
