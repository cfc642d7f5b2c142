//! TLS handshakes, off the data plane.
//!
//! Threads that process the bytes of handshakes, whose signatures take milliseconds, round-robin by source.
//!
//! Invariants: a connection has at most one job, so that jobs are bounded by connections. Sources take turns: a flood
//! of handshakes from one source delays another source by at most one job per source. There are half as many threads
//! as processors, so that the data plane keeps its own.
//!
//! It is independent of sessions and sockets, and does not encrypt later data, which the data plane does.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use zc_io::{AlignedBuf, Waker};

use crate::error::EngineError;
use crate::front::peer::Source;
use crate::front::tls::{Received, TlsLayer};
use crate::limits::TLS_THREADS_MAX;

/// Received bytes of a handshake, and all that goes with them.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) layer: TlsLayer,
    /// Received bytes, at the start of the buffer.
    pub(crate) cipher: AlignedBuf,
    pub(crate) received_bytes: usize,
    /// Destination of the plain text.
    pub(crate) plain: AlignedBuf,
}

/// Bytes of a handshake that a thread has taken in, and all that goes with them.
#[derive(Debug)]
pub(crate) struct HandedBack {
    pub(crate) conn: u64,
    pub(crate) layer: TlsLayer,
    pub(crate) cipher: AlignedBuf,
    pub(crate) plain: AlignedBuf,
    pub(crate) received: io::Result<Received>,
}

#[derive(Debug, Default)]
struct Queue {
    by_source: BTreeMap<Source, VecDeque<(u64, Handover)>>,
    last: Option<Source>,
    closed: bool,
}

impl Queue {
    /// Takes the next job, round-robin by source.
    fn take(&mut self) -> Option<(u64, Handover)> {
        let behind = self.last.and_then(|last| {
            let range = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.by_source.range(range).next().map(|(source, _)| *source)
        });
        let source = behind.or_else(|| self.by_source.keys().next().copied())?;
        self.last = Some(source);
        let jobs = self.by_source.get_mut(&source)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.by_source.remove(&source);
        }
        job
    }
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<Vec<HandedBack>>,
    waker: Waker,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> MutexGuard<'_, Vec<HandedBack>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue();
            let (conn, mut job) = loop {
                if queue.closed {
                    return;
                }
                match queue.take() {
                    Some(job) => break job,
                    None => queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            let received = job.layer.receive(&job.cipher[..job.received_bytes], &mut job.plain);
            let Handover { layer, cipher, plain, .. } = job;
            self.done().push(HandedBack { conn, layer, cipher, plain, received });
            self.waker.wake();
        }
    }
}

/// The threads; the first handshake starts them. Dropping it waits for the jobs that they are at.
#[derive(Debug)]
pub(crate) struct TlsPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl TlsPool {
    pub(crate) fn new(waker: Waker) -> Self {
        let shared = Shared { queue: Mutex::default(), work: Condvar::new(), done: Mutex::default(), waker };
        Self { shared: Arc::new(shared), threads: Vec::new() }
    }

    fn start(&mut self) -> Result<(), EngineError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 0..(cpus / 2).clamp(1, TLS_THREADS_MAX) {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name(format!("tls-{number}"))
                .spawn(move || shared.work())
                .map_err(|source| EngineError::thread("a TLS handshake", source))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Hands received bytes over. False: there can be no thread, and the connection has no layer any more.
    pub(crate) fn hand_over(&mut self, conn: u64, source: Source, job: Handover) -> bool {
        if self.threads.is_empty()
            && let Err(error) = self.start()
            && self.threads.is_empty()
        {
            tracing::warn!("{error}");
            return false;
        }
        self.shared.queue().by_source.entry(source).or_default().push_back((conn, job));
        self.shared.work.notify_one();
        true
    }

    /// Returns completed jobs.
    pub(crate) fn take_done(&self) -> Vec<HandedBack> {
        std::mem::take(&mut self.shared.done())
    }
}

impl Drop for TlsPool {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread for TLS handshakes had panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::peer::Peer;
    use crate::front::tls::tests_support::layer;

    #[test]
    fn sources_take_turns() {
        let source = |number| Source::of(Peer::User(number), 64);
        let mut queue = Queue::default();
        let add = |queue: &mut Queue, number, conn| {
            let job = Handover {
                layer: layer(),
                cipher: AlignedBuf::new(512),
                received_bytes: 0,
                plain: AlignedBuf::new(512),
            };
            queue.by_source.entry(source(number)).or_default().push_back((conn, job));
        };
        for conn in 0..200 {
            add(&mut queue, 1, conn);
        }
        let first = queue.take().unwrap().0;
        add(&mut queue, 2, 1000);
        add(&mut queue, 3, 1001);
        let order: Vec<u64> = (0..5).filter_map(|_| queue.take().map(|(conn, _)| conn)).collect();
        assert_eq!((first, order), (0, vec![1000, 1001, 1, 2, 3]));
    }
}
