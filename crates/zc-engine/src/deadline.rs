//! Calls that may never return, such as opening a file on a dead file server.
//!
//! Job: run a call on a thread of its own, and wait for its return in bounded time.
//!
//! Invariants: no caller waits beyond its bound. A thread with a hung call is abandoned; it does not prevent the
//! process from exiting, unless the kernel does.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

/// Reason for a missing result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoResult {
    /// The call has not returned in time.
    #[error("it does not answer")]
    Late,
    /// There is no thread for it.
    #[error("no thread can be started for it")]
    NoThread,
}

/// Runs a call, and blocks for at most `wait`.
///
/// # Errors
/// When the call has not returned in time, or cannot start.
pub fn within<T: Send + 'static>(
    wait: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoResult> {
    let (reply, result) = mpsc::sync_channel(1);
    let work = move || {
        let _caller_left = reply.send(call());
    };
    let thread = std::thread::Builder::new().name("deadline".to_owned()).spawn(work);
    let thread = thread.map_err(|_| NoResult::NoThread)?;
    let result = result.recv_timeout(wait).map_err(|_| NoResult::Late)?;
    // The caller may drop rights of its thread, and must have no other thread then.
    let _returned = thread.join();
    Ok(result)
}

/// As [`within`], for the control plane.
pub async fn await_within<T: Send + 'static>(
    wait: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoResult> {
    let (reply, result) = oneshot::channel();
    let work = move || {
        let _caller_left = reply.send(call());
    };
    std::thread::Builder::new().name("deadline".to_owned()).spawn(work).map_err(|_| NoResult::NoThread)?;
    match tokio::time::timeout(wait, result).await {
        Ok(Ok(result)) => Ok(result),
        _ => Err(NoResult::Late),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_hangs_is_left_behind() {
        let (let_go, hangs) = mpsc::channel::<()>();
        let call = move || hangs.recv().is_ok();
        assert_eq!(within(Duration::from_millis(1), call), Err(NoResult::Late));
        let_go.send(()).unwrap();
    }

    #[test]
    fn the_control_plane_gets_results_and_leaves_a_call_that_hangs() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let patience = Duration::from_secs(60);
        assert_eq!(runtime.block_on(await_within(patience, || 7)), Ok(7));
        let (_hold, hangs) = mpsc::channel::<()>();
        let hang = move || hangs.recv().is_ok();
        assert_eq!(runtime.block_on(await_within(Duration::from_millis(1), hang)), Err(NoResult::Late));
    }
}
