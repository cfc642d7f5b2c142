//! Runs: extents that are placed side by side, because one request or stream brought them.
//!
//! Job: collect the jobs of a run until all of them are reduced and no more can come, and keep the runs that are ready,
//! in the order in which they became so.
//!
//! Invariants: a run becomes ready once, with its jobs in the order of their extents; one without jobs just ends. At most
//! one open run for each stream.
//!
//! What it does not do: know what becomes of a job, or place it.

use std::collections::VecDeque;

use zc_core::{ExtentKey, Map};

use crate::base::port::Port;
use crate::clean::streams::StreamId;
use crate::expect_held::ExpectHeld;

/// Bytes that a stream's run collects before it is placed.
const RUN_BYTES_MAX: u32 = 128 << 10;
/// A stream's run is placed after this long even if it is short.
const RUN_AGE_MS: u64 = 50;

/// Extents that are placed together.
#[derive(Debug, Default)]
struct Run {
    jobs: Vec<(ExtentKey, u64)>,
    unfinished: u32,
    closed: bool,
    stream: Option<StreamId>,
    bytes: u32,
    began_ms: u64,
}

/// All runs. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Map<u64, Run>,
    of_stream: Map<StreamId, u64>,
    ready: VecDeque<u64>,
}

impl Runs {
    /// The run that extents of a request go into. Ended with [`Runs::end_requests`].
    pub(crate) fn begin<K>(&mut self, stream: Option<StreamId>, now_ms: u64, port: &mut Port<K>) -> u64 {
        if let Some(run) = stream.and_then(|stream| self.of_stream.get(&stream)) {
            return *run;
        }
        let id = port.number();
        if let Some(stream) = stream {
            self.of_stream.insert(stream, id);
        }
        self.runs.insert(id, Run { stream, began_ms: now_ms, ..Run::default() });
        id
    }

    /// A job of so many bytes goes into a run.
    pub(crate) fn add(&mut self, id: u64, key: ExtentKey, job: u64, bytes: u32) {
        let run = self.runs.get_mut(&id).expect_held();
        run.jobs.push((key, job));
        run.unfinished += 1;
        run.bytes += bytes;
    }

    /// The request has put in what it had: its run closes, unless a stream may go on with it.
    pub(crate) fn end_requests(&mut self, id: u64) {
        let Some(run) = self.runs.get(&id) else { return };
        if run.stream.is_none() || run.bytes >= RUN_BYTES_MAX || run.jobs.is_empty() {
            self.close(id);
        }
    }

    /// A job of the run is reduced.
    pub(crate) fn job_reduced(&mut self, id: u64) {
        self.runs.get_mut(&id).expect_held().unfinished -= 1;
        self.queue_if_ready(id);
    }

    /// Closes runs of streams that have paused, or all.
    pub(crate) fn age(&mut self, now_ms: u64, all: bool) {
        let is_old = |id: &u64| {
            let run = self.runs.get(id);
            run.is_some_and(|run| all || now_ms.saturating_sub(run.began_ms) >= RUN_AGE_MS)
        };
        let mut old: Vec<u64> = self.of_stream.values().copied().filter(is_old).collect();
        old.sort_unstable();
        for run in old {
            self.close(run);
        }
    }

    /// Whether a run waits to be placed.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether there is no run at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes the jobs of the first run that is ready. It stays the first until [`Runs::first_placed`].
    pub(crate) fn take_first(&mut self) -> Option<Vec<(ExtentKey, u64)>> {
        let run = self.ready.front()?;
        Some(core::mem::take(&mut self.runs.get_mut(run).expect_held().jobs))
    }

    /// These jobs of the first run could not be placed yet.
    pub(crate) fn put_back(&mut self, jobs: Vec<(ExtentKey, u64)>) {
        let run = self.ready.front().expect_held();
        self.runs.get_mut(run).expect_held().jobs = jobs;
    }

    /// All jobs of the first run are placed.
    pub(crate) fn first_placed(&mut self) {
        let run = self.ready.pop_front().expect_held();
        self.runs.remove(&run);
    }

    fn close(&mut self, id: u64) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.closed = true;
        if let Some(stream) = run.stream
            && self.of_stream.get(&stream) == Some(&id)
        {
            self.of_stream.remove(&stream);
        }
        self.queue_if_ready(id);
    }

    fn queue_if_ready(&mut self, id: u64) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if !run.closed || run.unfinished > 0 {
            return;
        }
        if run.jobs.is_empty() {
            self.runs.remove(&id);
            return;
        }
        run.jobs.sort_by_key(|(key, _)| *key);
        self.ready.push_back(id);
    }
}

#[cfg(test)]
mod tests {
    use zc_core::{ExtentNo, VolumeId};

    use super::*;
    use crate::clean::streams::{StreamConfig, StreamTable};

    const EXTENT: u32 = 8192;

    fn key(extent: u64) -> ExtentKey {
        ExtentKey { volume: VolumeId(1), extent: ExtentNo(extent) }
    }

    /// A stream, as the table of streams names it.
    fn stream() -> StreamId {
        let config = StreamConfig { streams_max: 2, threshold_bytes: 0, prefetch_max_bytes: 0 };
        let mut table = StreamTable::new(config);
        table.on_write(VolumeId(1), 0, 512);
        table.on_write(VolumeId(1), 512, 512).unwrap()
    }

    /// Takes the first run that is ready: its jobs.
    fn next(runs: &mut Runs) -> Option<Vec<u64>> {
        let jobs = runs.take_first()?;
        runs.first_placed();
        Some(jobs.into_iter().map(|(_, job)| job).collect())
    }

    #[test]
    fn a_request_is_placed_as_a_whole_in_the_order_of_its_extents() {
        let (mut runs, mut port) = (Runs::default(), Port::<()>::default());
        let run = runs.begin(None, 0, &mut port);
        runs.add(run, key(2), 20, EXTENT);
        runs.add(run, key(1), 10, EXTENT);
        runs.job_reduced(run);
        runs.end_requests(run);
        assert!(!runs.has_ready(), "a job is not reduced yet");
        runs.job_reduced(run);
        assert_eq!(next(&mut runs), Some(vec![10, 20]));
        assert!(runs.is_empty());
    }

    #[test]
    fn runs_are_placed_in_the_order_in_which_they_were_ready_and_empty_ones_end() {
        let (mut runs, mut port) = (Runs::default(), Port::<()>::default());
        let first = runs.begin(None, 0, &mut port);
        let second = runs.begin(None, 0, &mut port);
        let empty = runs.begin(None, 0, &mut port);
        for (run, job) in [(first, 1), (second, 2)] {
            runs.add(run, key(job), job, EXTENT);
            runs.end_requests(run);
        }
        runs.end_requests(empty);
        runs.job_reduced(second);
        runs.job_reduced(first);
        let jobs = runs.take_first().unwrap();
        runs.put_back(jobs);
        assert_eq!(next(&mut runs), Some(vec![2]));
        assert_eq!(next(&mut runs), Some(vec![1]));
        assert!(runs.is_empty() && next(&mut runs).is_none());
    }

    #[test]
    fn a_stream_goes_on_with_its_run_until_that_is_long_or_old() {
        let (mut runs, mut port) = (Runs::default(), Port::<()>::default());
        let stream = stream();
        let run = runs.begin(Some(stream), 100, &mut port);
        runs.add(run, key(1), 1, EXTENT);
        runs.job_reduced(run);
        runs.end_requests(run);
        assert_eq!(runs.begin(Some(stream), 120, &mut port), run);
        runs.age(100 + RUN_AGE_MS - 1, false);
        assert!(!runs.has_ready());
        runs.age(100 + RUN_AGE_MS, false);
        assert_eq!(next(&mut runs), Some(vec![1]));
        let long = runs.begin(Some(stream), 200, &mut port);
        assert_ne!(long, run);
        runs.add(long, key(2), 2, RUN_BYTES_MAX);
        runs.job_reduced(long);
        runs.end_requests(long);
        assert_eq!(next(&mut runs), Some(vec![2]));
        let stopping = runs.begin(Some(stream), 300, &mut port);
        runs.add(stopping, key(3), 3, EXTENT);
        runs.job_reduced(stopping);
        runs.age(300, true);
        assert_eq!(next(&mut runs), Some(vec![3]));
    }
}
