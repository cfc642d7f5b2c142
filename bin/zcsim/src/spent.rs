//! Processor time of reading a trace and of replaying it.

use std::time::Duration;

use serde_json::{Value, json};
use zc_replay::{Ratios, ReplayError, Trace};
use zc_trace::{Reader, thread_time};

/// Processor time of the parts of a run that were measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    /// Decompressing and parsing, on a thread of its own.
    pub(crate) reading: Option<Duration>,
    /// Building the trace in memory.
    pub(crate) loading: Option<Duration>,
    pub(crate) replaying: Option<Duration>,
}

/// Measures the CPU time of this thread for `work`.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_time();
    let done = work();
    (done, thread_time().saturating_sub(before))
}

/// Loads a trace into memory while a thread reads it.
///
/// # Errors
/// As [`Trace::load`].
pub(crate) fn load(reader: &mut Reader, ratios: Ratios) -> Result<(Trace, Spent), ReplayError> {
    let ((loaded, reading), loading) =
        timed(|| zc_trace::alongside(reader, |requests| Trace::load(requests, ratios)));
    Ok((loaded?, Spent { reading: Some(reading), loading: Some(loading), replaying: None }))
}

impl Spent {
    fn parts(&self) -> [(&'static str, Option<Duration>); 3] {
        [("reading", self.reading), ("loading", self.loading), ("replaying", self.replaying)]
    }

    /// A line for each part: its processor time, and how many requests it does in a second of that.
    pub(crate) fn lines(&self, requests: u64) -> Vec<(&'static str, String)> {
        let line = |(name, time): (&'static str, Option<Duration>)| {
            let seconds = time?.as_secs_f64();
            Some((name, format!("{seconds:.2} CPU seconds, {:.0} requests each", rate(requests, seconds))))
        };
        self.parts().into_iter().filter_map(line).collect()
    }

    /// Parts as JSON, with the same numbers.
    pub(crate) fn to_json(self, requests: u64) -> Value {
        let part = |time: Option<Duration>| {
            let seconds = time.map(|time| time.as_secs_f64());
            json!({ "cpu_seconds": seconds, "requests_per_cpu_second": seconds.map(|s| rate(requests, s)) })
        };
        self.parts().into_iter().map(|(name, time)| (name.to_owned(), part(time))).collect()
    }
}

fn rate(requests: u64, seconds: f64) -> f64 {
    requests as f64 / seconds.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_were_measured_are_told() {
        let replaying = Some(Duration::from_millis(500));
        let spent = Spent { replaying, ..Spent::default() };
        let expected = ("replaying", "0.50 CPU seconds, 2000 requests each".to_owned());
        assert_eq!(spent.lines(1000), [expected]);
        let json = spent.to_json(1000);
        assert_eq!(json["replaying"]["requests_per_cpu_second"], 2000.0);
        assert_eq!(json["reading"]["cpu_seconds"], Value::Null);
    }
}
