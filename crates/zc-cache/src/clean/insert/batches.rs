//! Batches: extents of one request or stream that are placed next to each other.
//!
//! Collects the jobs of a batch until all of them are reduced and no more can be added. Complete batches are queued in
//! the order of their completion.
//!
//! Invariants: a batch becomes ready once, with its jobs in the order of their extents; an empty one ends without
//! becoming ready. Each stream has at most one open batch.
//!
//! Out of scope: the result of a job, and its placement.

use std::collections::VecDeque;

use zc_core::{ExtentKey, Map};

use crate::base::port::Port;
use crate::clean::streams::StreamId;
use crate::expect_held::ExpectHeld;

/// Size at which a stream's batch is placed.
const BATCH_BYTES_MAX: u32 = 128 << 10;
/// Age at which a stream's batch is placed even if it is small.
const BATCH_AGE_MS: u64 = 50;

#[derive(Debug, Default)]
struct Batch {
    jobs: Vec<(ExtentKey, u64)>,
    unfinished: u32,
    closed: bool,
    stream: Option<StreamId>,
    bytes: u32,
    began_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Batches {
    batches: Map<u64, Batch>,
    of_stream: Map<StreamId, u64>,
    ready: VecDeque<u64>,
}

impl Batches {
    /// Begins the batch of a request's extents, which [`Batches::end_requests`] ends.
    pub(crate) fn begin<K>(&mut self, stream: Option<StreamId>, now_ms: u64, port: &mut Port<K>) -> u64 {
        if let Some(batch) = stream.and_then(|stream| self.of_stream.get(&stream)) {
            return *batch;
        }
        let id = port.number();
        if let Some(stream) = stream {
            self.of_stream.insert(stream, id);
        }
        self.batches.insert(id, Batch { stream, began_ms: now_ms, ..Batch::default() });
        id
    }

    pub(crate) fn add(&mut self, id: u64, key: ExtentKey, job: u64, bytes: u32) {
        let batch = self.batches.get_mut(&id).expect_held();
        batch.jobs.push((key, job));
        batch.unfinished += 1;
        batch.bytes += bytes;
    }

    /// Ends a request's insertions: its batch closes unless a stream may continue it.
    pub(crate) fn end_requests(&mut self, id: u64) {
        let Some(batch) = self.batches.get(&id) else { return };
        if batch.stream.is_none() || batch.bytes >= BATCH_BYTES_MAX || batch.jobs.is_empty() {
            self.close(id);
        }
    }

    pub(crate) fn job_reduced(&mut self, id: u64) {
        self.batches.get_mut(&id).expect_held().unfinished -= 1;
        self.queue_if_ready(id);
    }

    /// Closes batches of paused streams, or all.
    pub(crate) fn age(&mut self, now_ms: u64, all: bool) {
        let is_old = |id: &u64| {
            let batch = self.batches.get(id);
            batch.is_some_and(|batch| all || now_ms.saturating_sub(batch.began_ms) >= BATCH_AGE_MS)
        };
        let mut old: Vec<u64> = self.of_stream.values().copied().filter(is_old).collect();
        old.sort_unstable();
        for batch in old {
            self.close(batch);
        }
    }

    /// Returns `true` if a batch is ready for placement.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes the jobs of the first ready batch, which remains the first until [`Batches::first_placed`].
    pub(crate) fn take_first(&mut self) -> Option<Vec<(ExtentKey, u64)>> {
        let batch = self.ready.front()?;
        Some(core::mem::take(&mut self.batches.get_mut(batch).expect_held().jobs))
    }

    /// Returns jobs of the first batch that could not be placed yet.
    pub(crate) fn put_back(&mut self, jobs: Vec<(ExtentKey, u64)>) {
        let batch = self.ready.front().expect_held();
        self.batches.get_mut(batch).expect_held().jobs = jobs;
    }

    pub(crate) fn first_placed(&mut self) {
        let batch = self.ready.pop_front().expect_held();
        self.batches.remove(&batch);
    }

    fn close(&mut self, id: u64) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        batch.closed = true;
        if let Some(stream) = batch.stream
            && self.of_stream.get(&stream) == Some(&id)
        {
            self.of_stream.remove(&stream);
        }
        self.queue_if_ready(id);
    }

    fn queue_if_ready(&mut self, id: u64) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        if !batch.closed || batch.unfinished > 0 {
            return;
        }
        if batch.jobs.is_empty() {
            self.batches.remove(&id);
            return;
        }
        batch.jobs.sort_by_key(|(key, _)| *key);
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

    fn stream() -> StreamId {
        let config = StreamConfig { streams_max: 2, threshold_bytes: 0, prefetch_max_bytes: 0 };
        let mut table = StreamTable::new(config);
        table.on_write(VolumeId(1), 0, 512);
        table.on_write(VolumeId(1), 512, 512).unwrap().id
    }

    fn next(batches: &mut Batches) -> Option<Vec<u64>> {
        let jobs = batches.take_first()?;
        batches.first_placed();
        Some(jobs.into_iter().map(|(_, job)| job).collect())
    }

    #[test]
    fn a_request_is_placed_as_a_whole_in_the_order_of_its_extents() {
        let (mut batches, mut port) = (Batches::default(), Port::<()>::default());
        let batch = batches.begin(None, 0, &mut port);
        batches.add(batch, key(2), 20, EXTENT);
        batches.add(batch, key(1), 10, EXTENT);
        batches.job_reduced(batch);
        batches.end_requests(batch);
        assert!(!batches.has_ready(), "a job is not reduced yet");
        batches.job_reduced(batch);
        assert_eq!(next(&mut batches), Some(vec![10, 20]));
        assert!(batches.is_empty());
    }

    #[test]
    fn batches_are_placed_in_the_order_in_which_they_were_ready_and_empty_ones_end() {
        let (mut batches, mut port) = (Batches::default(), Port::<()>::default());
        let first = batches.begin(None, 0, &mut port);
        let second = batches.begin(None, 0, &mut port);
        let empty = batches.begin(None, 0, &mut port);
        for (batch, job) in [(first, 1), (second, 2)] {
            batches.add(batch, key(job), job, EXTENT);
            batches.end_requests(batch);
        }
        batches.end_requests(empty);
        batches.job_reduced(second);
        batches.job_reduced(first);
        let jobs = batches.take_first().unwrap();
        batches.put_back(jobs);
        assert_eq!(next(&mut batches), Some(vec![2]));
        assert_eq!(next(&mut batches), Some(vec![1]));
        assert!(batches.is_empty() && next(&mut batches).is_none());
    }

    #[test]
    fn a_stream_goes_on_with_its_run_until_that_is_long_or_old() {
        let (mut batches, mut port) = (Batches::default(), Port::<()>::default());
        let stream = stream();
        let batch = batches.begin(Some(stream), 100, &mut port);
        batches.add(batch, key(1), 1, EXTENT);
        batches.job_reduced(batch);
        batches.end_requests(batch);
        assert_eq!(batches.begin(Some(stream), 120, &mut port), batch);
        batches.age(100 + BATCH_AGE_MS - 1, false);
        assert!(!batches.has_ready());
        batches.age(100 + BATCH_AGE_MS, false);
        assert_eq!(next(&mut batches), Some(vec![1]));
        let long = batches.begin(Some(stream), 200, &mut port);
        assert_ne!(long, batch);
        batches.add(long, key(2), 2, BATCH_BYTES_MAX);
        batches.job_reduced(long);
        batches.end_requests(long);
        assert_eq!(next(&mut batches), Some(vec![2]));
        let stopping = batches.begin(Some(stream), 300, &mut port);
        batches.add(stopping, key(3), 3, EXTENT);
        batches.job_reduced(stopping);
        batches.age(300, true);
        assert_eq!(next(&mut batches), Some(vec![3]));
    }
}
