//! The thread that writes a recording.
//!
//! Invariants: it ends with its tap, when its duration is over, or when the file reaches its size or fails; the file
//! then has an end record with the reason (unless it failed). It never holds more than its batches and one window.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use zc_cache::seam::Digest;
use zc_core::u64_from_usize;
use zc_recording::{End, Ended, Header, KNOWN_MAX, Known, Record, Writer};

use super::window::Window;
use super::{Progress, Tap, TapEvent};
use crate::clock::Clock;
use crate::error::EngineError;
use crate::limits::{RECORD_BATCH, RECORD_BATCHES, RECORD_LOOK};

/// A running recorder.
#[derive(Debug)]
pub struct Recorder {
    /// State for queries.
    pub progress: Arc<Progress>,
    /// Thread that writes the file, until it is joined.
    pub thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Waits until the file is complete. The tap must have been dropped, or this may take as long as the recording.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a recorder had panicked");
        }
    }
}

/// Makes the file: a new one that only its owner can read. Whoever may use the control socket chooses where.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

/// Starts the thread; the tap is for the data plane.
pub fn start(
    file: File,
    header: &Header,
    progress: Progress,
    clock: Clock,
) -> Result<(Box<Tap>, Recorder), EngineError> {
    let what = || format!("cannot write the recording {}", progress.path.display());
    let key = random_key().map_err(|source| EngineError::io("cannot read /dev/urandom", source))?;
    let writer = Writer::new(file, header).map_err(|source| EngineError::io(what(), source))?;
    let (full, seen) = sync_channel(RECORD_BATCHES);
    let (give_back, free) = sync_channel(RECORD_BATCHES);
    for _ in 1..RECORD_BATCHES {
        // The channel has this capacity.
        let _fits = give_back.try_send(Vec::with_capacity(RECORD_BATCH));
    }
    let tap = Tap::new(header.share, header.extent_bytes, Vec::with_capacity(RECORD_BATCH), full, free);
    let progress = Arc::new(progress);
    let work = Work {
        writer,
        window: Window::new(header.extent_bytes),
        key,
        progress: Arc::clone(&progress),
        began_ns: clock.now_ns(),
        clock,
        known: 0,
    };
    let thread = std::thread::Builder::new()
        .name("record".to_owned())
        .spawn(move || work.run(&seen, &give_back))
        .map_err(|source| EngineError::thread("a recorder", source))?;
    Ok((Box::new(tap), Recorder { progress, thread: Some(thread) }))
}

struct Work {
    writer: Writer<File>,
    window: Window,
    key: [u8; 32],
    progress: Arc<Progress>,
    clock: Clock,
    began_ns: u64,
    known: u64,
}

/// Maximum bytes of a record.
fn bytes_of(record: &Record) -> u64 {
    64 + 16 * u64_from_usize(record.known.len().min(KNOWN_MAX))
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Work {
    fn run(mut self, seen: &Receiver<Vec<TapEvent>>, give_back: &SyncSender<Vec<TapEvent>>) {
        let progress = Arc::clone(&self.progress);
        let result = self.record(seen, give_back).and_then(|why| self.finish(why));
        match &result {
            Ok(why) => tracing::info!("the recording {} ended: {}", progress.path.display(), why.name()),
            Err(error) => {
                tracing::error!("the recording {} ended with an error: {error}", progress.path.display());
            }
        }
        let ended = result.map_err(|error| error.to_string());
        *progress.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }

    /// Records until there is a reason to end.
    fn record(
        &mut self,
        seen: &Receiver<Vec<TapEvent>>,
        give_back: &SyncSender<Vec<TapEvent>>,
    ) -> io::Result<Ended> {
        loop {
            let elapsed_ns = self.elapsed_ns();
            if self.progress.duration_ms.is_some_and(|most_ms| elapsed_ns / 1_000_000 >= most_ms) {
                return Ok(Ended::Time);
            }
            match seen.recv_timeout(RECORD_LOOK) {
                Ok(mut batch) => {
                    for seen in batch.drain(..) {
                        self.seen(&seen)?;
                    }
                    // The owner may have been dropped.
                    let _taken = give_back.try_send(batch);
                    if !self.write(false)? {
                        return Ok(Ended::Size);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.window.pass(elapsed_ns);
                    let room = self.write(false)?;
                    self.writer.flush()?;
                    if !room {
                        return Ok(Ended::Size);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let asked = self.progress.asked.load(Ordering::Relaxed);
                    return Ok(if asked { Ended::Asked } else { Ended::Stopped });
                }
            }
        }
    }

    fn elapsed_ns(&self) -> u64 {
        let elapsed_ns = self.clock.now_ns().saturating_sub(self.began_ns);
        self.progress.elapsed_ns.store(elapsed_ns, Ordering::Relaxed);
        elapsed_ns
    }

    fn seen(&mut self, seen: &TapEvent) -> io::Result<()> {
        match *seen {
            TapEvent::Request { time_ns, asked, offset_bytes, len_bytes } => {
                self.window.add(Record { time_ns, asked, offset_bytes, len_bytes, known: Vec::new() });
            }
            TapEvent::Learned { extent, digest, stored } => {
                let known = match digest {
                    Digest::Zero => Known::Zero,
                    Digest::Print(print) => {
                        let print = Some(zc_reduce::blinded(&self.key, &print));
                        Known::Named { print, stored }
                    }
                };
                self.window.learned(extent, known);
            }
            TapEvent::Lost { time_ns, requests } => {
                // Held requests came before it; no more information arrives for them in time.
                self.write(true)?;
                self.writer.lost(time_ns, requests)?;
                add(&self.progress.lost, requests);
            }
        }
        Ok(())
    }

    /// Writes the requests that need not wait, or all. Returns `false` if the file is full.
    fn write(&mut self, all: bool) -> io::Result<bool> {
        while let Some(record) = self.window.next(all) {
            if self.writer.bytes() + bytes_of(&record) > self.progress.max_bytes {
                return Ok(false);
            }
            self.writer.add(&record)?;
            let known = record.known.iter().filter(|known| **known != Known::Unknown).count();
            self.known += u64_from_usize(known);
            add(&self.progress.requests, 1);
        }
        self.progress.known.store(self.known, Ordering::Relaxed);
        self.progress.bytes.store(self.writer.bytes(), Ordering::Relaxed);
        Ok(true)
    }

    fn finish(mut self, why: Ended) -> io::Result<Ended> {
        let why = if why == Ended::Size || self.write(true)? { why } else { Ended::Size };
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let end = End {
            why,
            requests: number(&self.progress.requests),
            lost: number(&self.progress.lost),
            known: self.known,
            duration_ns: self.elapsed_ns(),
        };
        self.progress.bytes.store(self.writer.bytes(), Ordering::Relaxed);
        let file = self.writer.finish(&end)?;
        file.sync_all()?;
        self.progress.bytes.store(file.metadata()?.len(), Ordering::Relaxed);
        Ok(why)
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
