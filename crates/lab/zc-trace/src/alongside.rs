//! Reading of a trace on a separate thread.
//!
//! Job: decompress and parse a trace on one processor while another replays it, and report the cost of reading.
//!
//! Invariants: requests arrive in the order of the trace, errors in their places. The queue is bounded. The thread
//! ends with the trace, or when the consumer stops.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustix::time::ClockId;

use crate::error::TraceError;
use crate::reader::Reader;
use crate::request::Request;

/// Requests that are handed over together.
const BATCH: usize = 4096;
/// Batches that may wait.
const WAITING_MAX: usize = 4;

/// Returns the processor time of the calling thread, exactly; `/proc` would have the time of the last tick.
#[must_use]
pub fn thread_time() -> Duration {
    // The kernel gives neither a negative time nor more nanoseconds than a second has.
    Duration::try_from(rustix::time::clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Gives the requests of a trace to `take` while a thread reads on; also the processor time of the reading.
///
/// # Panics
/// As `take` or the reader does.
pub fn alongside<T>(
    reader: &mut Reader,
    take: impl FnOnce(&mut dyn Iterator<Item = Result<Request, TraceError>>) -> T,
) -> (T, Duration) {
    let (batches, read) = sync_channel(WAITING_MAX);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            hand_over(reader, &batches);
            thread_time()
        });
        // The rest is dropped with the iterator, so that the thread does not wait for queue space.
        let taken = take(&mut read.into_iter().flatten());
        let time = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (taken, time)
    })
}

/// Reads until the end, or until nothing more is wanted.
fn hand_over(reader: &mut Reader, batches: &SyncSender<Vec<Result<Request, TraceError>>>) {
    loop {
        let batch: Vec<_> = reader.by_ref().take(BATCH).collect();
        if batch.is_empty() || batches.send(batch).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Options};

    fn reader(text: String, strict: bool) -> Reader {
        Reader::from_vec(text.into_bytes(), Options { format: Some(Format::Keys), strict, device: None })
            .unwrap()
    }

    fn keys(count: usize) -> String {
        (0..count).map(|key| format!("{key}\n")).collect()
    }

    #[test]
    fn requests_come_in_order_and_counts_are_there_after_the_end() {
        let count = BATCH * (WAITING_MAX + 3) + 7;
        let text = format!("{}x\n", keys(count));
        let expected: Vec<_> = reader(text.clone(), false).map(Result::unwrap).collect();
        let mut reader = reader(text, false);
        let (found, time) =
            alongside(&mut reader, |requests| requests.map(Result::unwrap).collect::<Vec<_>>());
        assert_eq!(found, expected);
        assert_eq!((found.len(), reader.bad_count()), (count, 1));
        assert!(time > Duration::ZERO);
    }

    #[test]
    fn an_error_comes_in_its_place_and_ends_the_trace() {
        let text = format!("{}x\n5\n", keys(BATCH + 10));
        let mut reader = reader(text, true);
        let (found, _) = alongside(&mut reader, |requests| requests.collect::<Vec<_>>());
        assert_eq!(found.len(), BATCH + 11);
        assert!(found[..BATCH + 10].iter().all(Result::is_ok) && found[BATCH + 10].is_err());
    }

    #[test]
    fn reading_ends_when_no_more_is_wanted() {
        let mut reader = reader(keys(BATCH * (WAITING_MAX + 20)), false);
        let (first, _) = alongside(&mut reader, |requests| requests.take(3).count());
        assert_eq!(first, 3);
        assert!(reader.lines() < zc_core::u64_from_usize(BATCH * (WAITING_MAX + 20)), "it stopped early");
    }
}
