//! Wake-ups from other threads.
//!
//! A worker queues its result and calls [`Waker::wake`]; the data plane keeps one [`crate::Operation::Wait`] in the
//! ring, and on completion drains the queue and submits it again.
//!
//! Invariants: several wakes before the completion is reaped cost one system call. None is lost: the ring clears the
//! flag when it reaps the completion, before the data plane checks the queue.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::buf::AlignedBuf;
use crate::error::IoError;

/// Bytes of an eventfd's counter.
pub(crate) const COUNTER_BYTES: usize = 8;

/// Receiving side, on which the ring waits.
#[derive(Debug, Clone)]
pub struct EventFd(Arc<Shared>);

/// Sending side; clones wake the same ring.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    /// `true` from a wake until its completion is reaped.
    pending: AtomicBool,
    /// Destination of the counter; never read.
    sink: AlignedBuf,
}

impl EventFd {
    /// Creates an event.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| IoError::from_io("create", "a wake-up event", errno.into()))?;
        let sink = AlignedBuf::new(COUNTER_BYTES);
        Ok(Self(Arc::new(Shared { fd, pending: AtomicBool::new(false), sink })))
    }

    /// Returns a handle that wakes the waiter of this event.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.0))
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }

    pub(crate) fn sink(&self) -> NonNull<u8> {
        self.0.sink.base()
    }

    pub(crate) fn clear(&self) {
        self.0.pending.store(false, Ordering::SeqCst);
    }
}

impl Waker {
    /// Completes the pending [`crate::Operation::Wait`] or the next one. Callable from any thread.
    pub fn wake(&self) {
        if self.0.pending.swap(true, Ordering::SeqCst) {
            return;
        }
        #[expect(clippy::host_endian_bytes, reason = "the kernel takes a native integer")]
        let one = 1_u64.to_ne_bytes();
        let written = rustix::io::retry_on_intr(|| rustix::io::write(self.0.fd.as_fd(), &one));
        assert!(written.is_ok(), "an eventfd takes a wake-up: {written:?}");
    }
}
