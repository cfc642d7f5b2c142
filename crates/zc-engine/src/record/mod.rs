//! Recording of a volume's requests ([`zc_recording`]).
//!
//! Job: a [`Tap`] on the data plane notes the requests to the cache manager and its results, and passes them on in
//! batches; a thread ([`recorder`]) combines the two (`window`) and writes the file.
//!
//! Invariants: the data plane never waits for the recorder and never allocates for it: batches are allocated in
//! advance and recycled. If none is free, requests are not recorded but counted, and the file has the count at this
//! position. Memory and file are bounded (`limits`). The key of the fingerprints never leaves the thread.
//!
//! It does not read contents; their properties come from the manager.

pub mod recorder;
pub(crate) mod window;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use zc_cache::seam::{Digest, Request, RequestKind};
use zc_core::Codec;
use zc_recording::{Asked, Ended, Share};

/// Passed on to the recorder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TapEvent {
    /// A request, or the part of it that is in the sample.
    Request {
        time_ns: u64,
        asked: Asked,
        offset_bytes: u64,
        len_bytes: u64,
    },
    /// Content of an extent since the newest request that overlaps it.
    Learned {
        extent: u64,
        digest: Digest,
        stored: Option<(Codec, u32)>,
    },
    Lost {
        time_ns: u64,
        requests: u64,
    },
}

/// State of a recording for queries.
#[derive(Debug)]
pub struct Progress {
    /// The file.
    pub path: PathBuf,
    /// Sample of the extents.
    pub share: Share,
    pub(crate) max_bytes: u64,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) requests: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) known: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) elapsed_ns: AtomicU64,
    /// `true` if an operator requested the end; otherwise the daemon stops.
    pub asked: AtomicBool,
    /// Outcome after its end: the reason, or the error of the file.
    pub(crate) ended: Mutex<Option<Result<Ended, String>>>,
}

impl Progress {
    /// Returns the progress of a recording that begins.
    pub const fn new(path: PathBuf, share: Share, max_bytes: u64, duration_ms: Option<u64>) -> Self {
        Self {
            path,
            share,
            max_bytes,
            duration_ms,
            requests: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            known: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            elapsed_ns: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            ended: Mutex::new(None),
        }
    }

    /// Returns `true` if the file is complete, or has failed.
    pub fn has_ended(&self) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// For the control socket.
    pub fn to_json(&self, volume: &str) -> Value {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (ended, error) = match &*ended {
            None => (None, None),
            Some(Ok(why)) => (Some(why.name()), None),
            Some(Err(error)) => (Some("error"), Some(error.clone())),
        };
        json!({
            "volume": volume,
            "path": self.path,
            "share": self.share.to_string(),
            "max_bytes": self.max_bytes,
            "duration_ms": self.duration_ms,
            "elapsed_ms": number(&self.elapsed_ns) / 1_000_000,
            "requests": number(&self.requests),
            "lost": number(&self.lost),
            "known_extents": number(&self.known),
            "bytes": number(&self.bytes),
            "ended": ended,
            "error": error,
        })
    }
}

/// The data plane's end.
#[derive(Debug)]
pub struct Tap {
    pub(crate) share: Share,
    pub(crate) extent_bytes: u32,
    /// When the recording began, by the clock of the data plane; set when the tap is put in.
    pub(crate) began_ns: Option<u64>,
    batch: Vec<TapEvent>,
    full: SyncSender<Vec<TapEvent>>,
    free: Receiver<Vec<TapEvent>>,
    /// Requests that were not recorded for lack of space.
    lost: u64,
    /// The recorder does not listen any more.
    over: bool,
}

impl Tap {
    pub(crate) const fn new(
        share: Share,
        extent_bytes: u32,
        batch: Vec<TapEvent>,
        full: SyncSender<Vec<TapEvent>>,
        free: Receiver<Vec<TapEvent>>,
    ) -> Self {
        Self { share, extent_bytes, began_ns: None, batch, full, free, lost: 0, over: false }
    }

    fn since(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns.unwrap_or(now_ns))
    }

    /// Records it if there is space.
    fn take(&mut self, seen: TapEvent) -> bool {
        if self.batch.len() == self.batch.capacity() {
            self.hand_over();
        }
        let room = self.batch.len() < self.batch.capacity();
        if room {
            self.batch.push(seen);
        }
        room
    }

    pub(crate) fn asked(&mut self, request: &Request, now_ns: u64) {
        let asked = match request.kind {
            RequestKind::Read { .. } => Asked::Read,
            RequestKind::Write { .. } => Asked::Write,
            RequestKind::Flush => Asked::Flush,
            RequestKind::Trim { .. } => Asked::Discard,
            RequestKind::WriteZeroes { .. } => Asked::Zeroes,
            RequestKind::Prefetch | RequestKind::Warm => return,
        };
        let time_ns = self.since(now_ns);
        if self.lost > 0 && self.take(TapEvent::Lost { time_ns, requests: self.lost }) {
            self.lost = 0;
        }
        if asked == Asked::Flush {
            self.note(TapEvent::Request { time_ns, asked, offset_bytes: 0, len_bytes: 0 });
            return;
        }
        for (offset_bytes, len_bytes) in self.share.parts(request.offset_bytes, request.len_bytes) {
            self.note(TapEvent::Request { time_ns, asked, offset_bytes, len_bytes });
        }
    }

    /// Lost requests must be noted before later ones.
    fn note(&mut self, request: TapEvent) {
        if self.lost > 0 || !self.take(request) {
            self.lost += 1;
        }
    }

    /// Records the content of an extent. Without space it stays unknown.
    pub(crate) fn learned(&mut self, extent: u64, digest: Digest, stored: Option<(Codec, u32)>) {
        if self.share.has(extent.saturating_mul(u64::from(self.extent_bytes))) {
            self.take(TapEvent::Learned { extent, digest, stored });
        }
    }

    /// Passes the current batch on, if another is free.
    pub(crate) fn hand_over(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        match self.free.try_recv() {
            Ok(next) => {
                let full = std::mem::replace(&mut self.batch, next);
                self.send(full);
            }
            Err(TryRecvError::Disconnected) => self.over = true,
            Err(TryRecvError::Empty) => {}
        }
    }

    fn send(&mut self, batch: Vec<TapEvent>) {
        // The channel has space for all batches.
        if let Err(TrySendError::Disconnected(mut batch)) = self.full.try_send(batch) {
            self.over = true;
            batch.clear();
            self.batch = batch;
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let last = std::mem::take(&mut self.batch);
        if !last.is_empty() {
            self.send(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use zc_core::{ReqId, VolumeId};

    fn tap(batches: usize, len: usize) -> (Tap, Receiver<Vec<TapEvent>>, SyncSender<Vec<TapEvent>>) {
        let (full, seen) = sync_channel(batches);
        let (give_back, free) = sync_channel(batches);
        for _ in 1..batches {
            give_back.try_send(Vec::with_capacity(len)).unwrap();
        }
        (Tap::new(Share::WHOLE, 4096, Vec::with_capacity(len), full, free), seen, give_back)
    }

    fn flush(req: u64) -> Request {
        Request {
            req: ReqId(req),
            volume: VolumeId(0),
            offset_bytes: 0,
            len_bytes: 0,
            kind: RequestKind::Flush,
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_in_its_place() {
        let (mut tap, seen, give_back) = tap(2, 2);
        (0..7).for_each(|number| tap.asked(&flush(number), 10 + number));
        // Two batches of two are full; three requests found no space.
        let mut first = seen.try_recv().unwrap();
        assert_eq!((first.len(), tap.batch.len(), tap.lost), (2, 2, 3));
        first.clear();
        give_back.try_send(first).unwrap();
        tap.asked(&flush(8), 20);
        drop(tap);
        let rest: Vec<TapEvent> = seen.iter().flatten().collect();
        assert!(
            matches!(
                rest[..],
                [
                    TapEvent::Request { .. },
                    TapEvent::Request { .. },
                    TapEvent::Lost { requests: 3, .. },
                    TapEvent::Request { .. }
                ]
            ),
            "{rest:?}"
        );
    }

    #[test]
    fn a_tap_without_a_listener_ends() {
        let (mut tap, seen, _give_back) = tap(2, 4);
        tap.asked(&flush(1), 1);
        drop(seen);
        tap.hand_over();
        assert!(tap.is_over());
        tap.asked(&flush(2), 2);
    }

    #[test]
    fn only_the_sample_is_passed_on() {
        let (mut tap, seen, _give_back) = tap(2, 64);
        tap.share = "25%".parse().unwrap();
        let whole = Request { len_bytes: 4 << 20, kind: RequestKind::Trim { fua: false }, ..flush(1) };
        tap.asked(&whole, 0);
        (0..1024).for_each(|extent| tap.learned(extent, Digest::Zero, None));
        drop(tap);
        let mut bytes = 0;
        let mut extents = 0;
        for seen in seen.iter().flatten() {
            match seen {
                TapEvent::Request { len_bytes, .. } => bytes += len_bytes,
                TapEvent::Learned { .. } => extents += 1,
                TapEvent::Lost { .. } => panic!("there is room"),
            }
        }
        assert!((1 << 19..2 << 20).contains(&bytes), "{bytes}");
        assert!(extents > 0 && extents <= bytes / 4096);
    }
}
