//! Result of a replay in time: rates and response times.

use zc_core::u64_from_usize;
use zc_trace::Op;

/// Response times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latencies {
    /// Number of requests.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half are not above (nearest rank, as the next).
    pub p50_us: f64,
    /// Nine of ten are not above.
    pub p90_us: f64,
    /// 99 of 100 are not above.
    pub p99_us: f64,
    /// 999 of 1000 are not above.
    pub p999_us: f64,
}

/// Result of a replay in time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimeReport {
    /// Requests answered.
    pub requests: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Utilisation of the disks; above 1 with background work left at the end.
    pub disk_busy: f64,
    /// Utilisation of the SSD's dies.
    pub ssd_busy: f64,
    /// Utilisation of the cores.
    pub cpu_busy: f64,
}

impl TimeReport {
    /// Requests a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }
}

/// Gathers response times.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    reads: Vec<u64>,
    writes: Vec<u64>,
    requests: u64,
    end: u64,
}

fn latencies(mut all: Vec<u64>) -> Latencies {
    all.sort_unstable();
    if all.is_empty() {
        return Latencies::default();
    }
    // Nearest rank: the smallest time with that share of all at or below it.
    let at = |thousandths: usize| all[(all.len() * thousandths).div_ceil(1000) - 1] as f64 / 1000.0;
    Latencies {
        count: u64_from_usize(all.len()),
        mean_us: all.iter().map(|ns| *ns as f64).sum::<f64>() / all.len() as f64 / 1000.0,
        p50_us: at(500),
        p90_us: at(900),
        p99_us: at(990),
        p999_us: at(999),
    }
}

impl Recorder {
    pub(super) fn add(&mut self, kind: Op, began: u64, now: u64) {
        self.requests += 1;
        self.end = self.end.max(now);
        match kind {
            Op::Read | Op::Access => self.reads.push(now - began),
            Op::Write => self.writes.push(now - began),
            Op::Flush | Op::Discard => {}
        }
    }

    /// Times at work, and how many worked, of disks, dies and cores.
    pub(super) fn finish(self, disks: (u64, u64), dies: (u64, u64), cores: (u64, u64)) -> TimeReport {
        let share = |(busy, count): (u64, u64)| busy as f64 / (self.end.max(1) * count.max(1)) as f64;
        TimeReport {
            requests: self.requests,
            seconds: self.end as f64 / 1e9,
            disk_busy: share(disks),
            ssd_busy: share(dies),
            cpu_busy: share(cores),
            reads: latencies(self.reads),
            writes: latencies(self.writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_so_many_are_not_above() {
        let report = |count: u64| latencies((1..=count).rev().map(|us| us * 1000).collect());
        let hundred = report(100);
        assert_eq!(
            (hundred.p50_us, hundred.p90_us, hundred.p99_us, hundred.p999_us),
            (50.0, 90.0, 99.0, 100.0)
        );
        let three = report(3);
        assert_eq!((three.p50_us, three.p90_us, three.mean_us), (2.0, 3.0, 2.0));
        assert_eq!(report(0), Latencies::default());
    }
}
