//! Requests for the holes of an origin, off the data plane.
//!
//! Job: one thread per volume, started by the first request, walks `SEEK_DATA` and `SEEK_HOLE` (lseek(2)) over the
//! range of a request and wakes the data plane with the answer. A file system may take its time (FUSE, network): only
//! later requests for the same volume wait for it.
//!
//! Invariants: requests in the queue and runs of an answer are bounded. An answer begins at the start of its range and
//! has no gaps; it may end early. A range counts as data unless it is known to be a hole, which is always correct.
//!
//! Out of scope: the cache, block devices, which do not report holes, and stores and servers, which have threads of
//! their own.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, FileType, SeekFrom, fallocate, fstat, seek};
use rustix::io::Errno;
use zc_core::SECTOR_BYTES;
use zc_io::{SharedFd, Waker};

use crate::error::EngineError;
use crate::limits::{MAP_QUESTIONS_MAX, MAP_RUNS_MAX};

/// A piece of an origin, all in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OriginRun {
    pub(crate) len_bytes: u64,
    pub(crate) allocation: Allocation,
}

impl OriginRun {
    /// A piece that is a hole, or data.
    pub(crate) const fn of(len_bytes: u64, is_hole: bool) -> Self {
        Self { len_bytes, allocation: if is_hole { Allocation::Hole } else { Allocation::Data } }
    }
}

/// Allocation of a piece of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Data, or unknown.
    Data,
    /// Allocated, and reads as zeros.
    Zeros,
    /// Not allocated, and reads as zeros.
    Hole,
}

/// A piece of an origin that is a zcached's export, all cached there or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedRun {
    pub(crate) len_bytes: u64,
    pub(crate) is_cached: bool,
}

/// Answer to the request of a client.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) client: u64,
    pub(crate) runs: Vec<OriginRun>,
    /// Residency at the origin, which ends early if it is unknown.
    pub(crate) cached: Vec<CachedRun>,
}

impl Mapped {
    /// Reply that reports a range of `len_bytes` as unknown.
    pub(crate) fn unknown(client: u64, len_bytes: u64) -> Self {
        Self { client, runs: vec![OriginRun::of(len_bytes, false)], cached: Vec::new() }
    }
}

/// Client of a request for the states of an origin, and the receiver of its answer.
#[derive(Debug)]
pub(crate) struct MapAsker {
    pub(crate) client: u64,
    pub(crate) answers: Answers,
    pub(crate) waker: Waker,
}

impl MapAsker {
    /// Sends the reply to the data plane.
    pub(crate) fn answer(self, runs: Vec<OriginRun>, cached: Vec<CachedRun>) {
        self.answers.put(Mapped { client: self.client, runs, cached });
        self.waker.wake();
    }
}

#[derive(Debug)]
struct Question {
    client: u64,
    start: u64,
    end: u64,
}

/// Answers that wait for the data plane; clones are the same list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Arc<Mutex<Vec<Mapped>>>);

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Vec<Mapped>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a reply; the caller wakes the data plane.
    pub(crate) fn put(&self, mapped: Mapped) {
        self.lock().push(mapped);
    }

    pub(crate) fn take(&self) -> Vec<Mapped> {
        std::mem::take(&mut self.lock())
    }
}

/// Thread of a volume, which ends after its current request when this is dropped; no other thread waits for it.
#[derive(Debug)]
pub(crate) struct OriginMap(SyncSender<Question>);

impl OriginMap {
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(fd: SharedFd, answers: Answers, waker: Waker) -> Result<Self, EngineError> {
        let (sender, questions) = sync_channel(MAP_QUESTIONS_MAX);
        std::thread::Builder::new()
            .name("origin-map".to_owned())
            .spawn(move || answer_all(&fd, &questions, &answers, &waker))
            .map_err(|source| EngineError::thread("the origin's map", source))?;
        Ok(Self(sender))
    }

    /// Queues the request of a client. Returns `false` if too many wait already.
    pub(crate) fn ask(&self, client: u64, start: u64, end: u64) -> bool {
        self.0.try_send(Question { client, start, end }).is_ok()
    }
}

fn answer_all(fd: &SharedFd, questions: &Receiver<Question>, answers: &Answers, waker: &Waker) {
    while let Ok(Question { client, start, end }) = questions.recv() {
        let runs = map(fd, start, end);
        MapAsker { client, answers: answers.clone(), waker: waker.clone() }.answer(runs, Vec::new());
    }
}

/// Returns the runs of `start..end`, cut at sector boundaries. Only this thread uses the descriptor's file position.
fn map(fd: &impl AsFd, start: u64, end: u64) -> Vec<OriginRun> {
    let sector = u64::from(SECTOR_BYTES);
    let mut runs = Vec::new();
    let mut at = start;
    while at < end && runs.len() < MAP_RUNS_MAX {
        let (next, is_hole) = match seek(fd, SeekFrom::Data(at)) {
            // A sector with a byte of data is data.
            Ok(data) if data / sector * sector > at => (data / sector * sector, true),
            Ok(_) => {
                let hole =
                    seek(fd, SeekFrom::Hole(at)).ok().and_then(|hole| hole.checked_next_multiple_of(sector));
                (hole.filter(|hole| *hole > at).unwrap_or(end), false)
            }
            // No data follows this position.
            Err(Errno::NXIO) => (end, true),
            Err(_) => (end, false),
        };
        let next = next.min(end);
        runs.push(OriginRun::of(next - at, is_hole));
        at = next;
    }
    runs
}

/// Returns `true` if the origin is a file, which may have holes.
pub(crate) fn has_holes(fd: &impl AsFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Returns `true` if holes can be punched into the file. Tries it behind the end of the file, where no data is. A file
/// system that supports it does so without writing zeros.
pub(crate) fn punches_holes(fd: &impl AsFd, writable: bool) -> bool {
    if !writable || !has_holes(fd) {
        return false;
    }
    let Ok(stat) = fstat(fd) else { return false };
    let Ok(end) = u64::try_from(stat.st_size) else { return false };
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(fd, flags, end, u64::from(SECTOR_BYTES)).is_ok()
}

/// A descriptor of the same file with a position of its own: `lseek` moves it.
///
/// # Errors
/// When the file cannot be opened again.
pub(crate) fn reopen(fd: &impl std::os::fd::AsRawFd) -> io::Result<SharedFd> {
    let file = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(SharedFd::of_file(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_told_where_they_are() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 64 << 10).unwrap();
        file.write_all_at(&[1; 8192], 512 << 10).unwrap();
        let hole = |len_bytes| OriginRun::of(len_bytes, true);
        let data = |len_bytes| OriginRun::of(len_bytes, false);
        let all = map(&file, 0, 1 << 20);
        let expected =
            [hole(64 << 10), data(4096), hole((448 << 10) - 4096), data(8192), hole((512 << 10) - 8192)];
        assert_eq!(all, expected);
        assert_eq!(map(&file, 66 << 10, 67 << 10), [data(1024)], "within a piece");
        assert_eq!(map(&file, 600 << 10, 601 << 10), [hole(1024)]);
        assert!(has_holes(&file) && punches_holes(&file, true) && !punches_holes(&file, false));
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn what_does_not_tell_is_data() {
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(map(&one, 512, 1024), [OriginRun::of(512, false)]);
        assert!(!has_holes(&one));
    }

    #[test]
    fn answers_come_with_a_wake_up() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let answers = Answers::default();
        let event = zc_io::EventFd::new().unwrap();
        let map = OriginMap::start(reopen(&file).unwrap(), answers.clone(), event.waker()).unwrap();
        assert!(map.ask(7, 0, 4096));
        let mut ring = zc_io::Ring::new(zc_io::RingOptions::default()).unwrap();
        ring.submit(zc_io::Operation::Wait { event }, 1).unwrap();
        let mut completions = Vec::new();
        ring.submit_and_wait(1, None, &mut completions).unwrap();
        let got = answers.take();
        assert_eq!((got[0].client, got[0].runs.len()), (7, 1));
    }
}
