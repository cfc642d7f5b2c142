//! Model disk: the legal values of every sector, now and after a power cut.

/// One version of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    value: u64,
    issued: u64,
    /// Issue time, unchanged by a crash.
    written: u64,
    /// Time of the answer; `u64::MAX` while the write is in flight.
    ended: u64,
    durable: bool,
    /// Answered when it may have been in the daemon's memory only.
    in_memory: bool,
    /// The client got an error, so the daemon need not keep it.
    uncertain: bool,
}

impl Version {
    /// Returns `true` if the version survives the process.
    fn outlives(&self) -> bool {
        self.ended != u64::MAX && (self.durable || !self.in_memory)
    }
}

/// Model of a volume.
#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    sectors: Vec<Vec<Version>>,
    pinned: Vec<Option<(u64, u64)>>,
    /// All values that each sector ever had, without adjacent repeats.
    ever: Vec<Vec<u64>>,
    /// Issue time of the oldest read in flight: versions that it may see are kept.
    pub(crate) oldest_read: u64,
}

impl Oracle {
    pub(crate) fn new(sectors: usize) -> Self {
        Self {
            sectors: vec![vec![known(0, 0)]; sectors],
            pinned: vec![None; sectors],
            ever: vec![vec![0]; sectors],
            oldest_read: u64::MAX,
        }
    }

    /// Adds a sector that holds this value from before any request.
    pub(crate) fn grow(&mut self, value: u64) {
        self.sectors.push(vec![known(value, 0)]);
        self.pinned.push(None);
        self.ever.push(vec![value]);
    }

    pub(crate) fn sectors(&self) -> usize {
        self.sectors.len()
    }

    /// Records the start of a write of `value`.
    pub(crate) fn issue(&mut self, sector: usize, value: u64, now: u64) {
        let version = Version {
            value,
            issued: now,
            written: now,
            ended: u64::MAX,
            durable: false,
            in_memory: false,
            uncertain: false,
        };
        self.sectors[sector].push(version);
        self.pinned[sector] = None;
        if self.ever[sector].last() != Some(&value) {
            self.ever[sector].push(value);
        }
    }

    /// Records success of the write issued at `issued`.
    pub(crate) fn end(&mut self, sector: usize, issued: u64, now: u64, durable: bool, in_memory: bool) {
        for version in self.sectors[sector].iter_mut().filter(|v| v.issued == issued && v.ended == u64::MAX) {
            *version = Version { ended: now, durable, in_memory, ..*version };
        }
        self.prune(sector);
    }

    /// Records a write that ended with an unknown effect: the values legal before it stay legal.
    pub(crate) fn end_uncertain(&mut self, sector: usize, issued: u64, now: u64, in_memory: bool) {
        let all = self.sectors[sector].clone();
        let legal = |v: &Version| !all.iter().any(|f| f.ended != u64::MAX && f.issued > v.ended);
        for version in self.sectors[sector].iter_mut() {
            if version.ended == u64::MAX {
                if version.issued == issued {
                    *version = Version { ended: now, in_memory, uncertain: true, ..*version };
                }
            } else if legal(version) {
                version.ended = now;
            }
        }
    }

    /// Removes a refused write, which wrote nothing.
    pub(crate) fn withdraw(&mut self, sector: usize, issued: u64) {
        self.sectors[sector].retain(|v| v.issued != issued || v.ended != u64::MAX);
    }

    /// Removes versions overtaken by a later durable one.
    fn prune(&mut self, sector: usize) {
        let versions = self.sectors[sector].clone();
        let oldest = self.oldest_read;
        let gone = |v: &Version| versions.iter().any(|f| f.durable && f.issued > v.ended && f.ended < oldest);
        self.sectors[sector].retain(|v| !gone(v));
    }

    /// Records success of the flush issued at `issued`.
    pub(crate) fn flushed(&mut self, issued: u64) {
        for sector in 0..self.sectors.len() {
            let mut any = false;
            for version in &mut self.sectors[sector] {
                any |= !version.durable && version.ended < issued;
                version.durable |= version.ended < issued;
            }
            if any {
                self.prune(sector);
            }
        }
    }

    /// Returns `true` if no write of the sector is in flight.
    pub(crate) fn is_quiet(&self, sector: usize) -> bool {
        self.sectors[sector].iter().all(|version| version.ended != u64::MAX)
    }

    /// Records a failed flush: any answered version that is not durable may be left.
    pub(crate) fn lost(&mut self, now: u64) {
        for (versions, pinned) in self.sectors.iter_mut().zip(&mut self.pinned) {
            let all = versions.clone();
            if all.iter().any(|v| !v.durable && v.ended != u64::MAX) {
                let is_left = |v: &Version| !all.iter().any(|f| f.durable && f.issued > v.ended);
                let answered = versions.iter_mut().filter(|v| v.ended != u64::MAX && is_left(v));
                answered.for_each(|version| version.ended = now);
                *pinned = None;
            }
        }
    }

    /// Returns `true` if a read between `start` and now may return this value.
    pub(crate) fn may_see(&self, sector: usize, start: u64, value: u64) -> bool {
        if let Some((pinned, since)) = self.pinned[sector]
            && start > since
        {
            return pinned == value;
        }
        let versions = &self.sectors[sector];
        versions
            .iter()
            .filter(|v| v.value == value)
            .any(|v| !versions.iter().any(|f| f.ended < start && f.issued > v.ended))
    }

    /// Records the value that a read returned; it is fixed if no write was in flight.
    pub(crate) fn saw(&mut self, sector: usize, start: u64, value: u64, now: u64) {
        let quiet = self.sectors[sector].iter().all(|v| v.ended < start);
        if !quiet {
            return;
        }
        self.pinned[sector] = Some((value, now));
        let oldest = self.oldest_read;
        if self.sectors[sector].iter().all(|v| v.durable && v.ended < oldest) {
            self.sectors[sector].retain(|v| v.value == value);
        }
    }

    /// Records a power cut: any of the unflushed versions may be left.
    pub(crate) fn power_cut(&mut self, now: u64) {
        for (versions, pinned) in self.sectors.iter_mut().zip(&mut self.pinned) {
            let all = versions.clone();
            versions.retain(|v| !all.iter().any(|f| f.durable && f.issued > v.ended));
            for version in versions.iter_mut() {
                *version = Version { issued: now, ended: now, durable: true, ..*version };
            }
            *pinned = (versions.len() == 1).then(|| (versions[0].value, now));
        }
    }

    /// Records a kill: answered versions stay unless they were in memory only, and writes in flight may have
    /// happened.
    pub(crate) fn killed(&mut self, now: u64) {
        for (versions, pinned) in self.sectors.iter_mut().zip(&mut self.pinned) {
            if versions.iter().all(Version::outlives) {
                continue;
            }
            let all = versions.clone();
            let legal = |v: &Version| !all.iter().any(|f| f.outlives() && f.issued > v.ended);
            for version in versions.iter_mut().filter(|v| legal(v)) {
                *version = Version { ended: now, in_memory: false, ..*version };
            }
            *pinned = None;
        }
    }

    /// Records that the manager left while writes in flight are held back from it: these have not begun. The rest is
    /// as after a kill.
    pub(crate) fn exchanged(&mut self, now: u64) {
        let held: Vec<Vec<Version>> = self.sectors.iter().map(|versions| in_flight(versions)).collect();
        for versions in &mut self.sectors {
            versions.retain(|version| version.ended != u64::MAX);
        }
        self.killed(now);
        for ((versions, held), pinned) in self.sectors.iter_mut().zip(held).zip(&mut self.pinned) {
            if !held.is_empty() {
                *pinned = None;
                versions.extend(held);
            }
        }
    }

    /// Reissues a write that was issued at `issued` and has not begun.
    pub(crate) fn issue_again(&mut self, sector: usize, issued: u64, now: u64) {
        let held = self.sectors[sector].iter_mut().filter(|v| v.issued == issued && v.ended == u64::MAX);
        held.for_each(|version| version.issued = now);
    }

    /// Records that a dying process had reported all acknowledged data as stored elsewhere. Refused writes may be in
    /// its memory.
    pub(crate) fn acknowledged_is_safe(&mut self) {
        for versions in self.sectors.iter_mut().filter(|versions| !versions.iter().any(|v| v.uncertain)) {
            versions.iter_mut().for_each(|version| version.in_memory = false);
        }
    }

    /// Records that the process ended in order.
    pub(crate) fn nothing_in_memory(&mut self) {
        self.sectors.iter_mut().flatten().for_each(|version| version.in_memory = false);
    }

    /// Forgives a loss beyond the guarantees: the sector may hold any former value now, and keeps the one that is
    /// read.
    pub(crate) fn forgive(&mut self, sector: usize, now: u64) -> &[u64] {
        let values = &mut self.ever[sector];
        values.sort_unstable();
        values.dedup();
        let any = |value: &u64| Version { durable: false, written: 0, ..known(*value, now) };
        // A write in flight may still follow.
        let in_flight = in_flight(&self.sectors[sector]);
        self.sectors[sector] = values.iter().map(any).chain(in_flight).collect();
        self.pinned[sector] = None;
        values
    }

    /// Returns `true` if a version that may be present was written by then.
    pub(crate) fn written_by(&self, sector: usize, then: u64) -> bool {
        self.sectors.get(sector).is_none_or(|versions| versions.iter().any(|version| version.written <= then))
    }

    /// Returns all values that the sector ever had.
    pub(crate) fn ever(&self, sector: usize) -> &[u64] {
        &self.ever[sector]
    }

    /// Returns `true` if a power cut may leave this value.
    pub(crate) fn may_be_left(&self, sector: usize, value: u64) -> bool {
        let versions = &self.sectors[sector];
        let overtaken = |v: &Version| versions.iter().any(|f| f.durable && f.issued > v.ended);
        versions.iter().any(|v| v.value == value && !overtaken(v))
    }

    pub(crate) fn describe(&self, sector: usize) -> String {
        format!("{:?} pinned {:?}", self.sectors[sector], self.pinned[sector])
    }
}

fn in_flight(versions: &[Version]) -> Vec<Version> {
    versions.iter().filter(|version| version.ended == u64::MAX).copied().collect()
}

/// Returns a present, durable version.
fn known(value: u64, now: u64) -> Version {
    Version {
        value,
        issued: now,
        written: now,
        ended: now,
        durable: true,
        in_memory: false,
        uncertain: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(oracle: &Oracle, now: u64) -> Vec<u64> {
        (0..10).filter(|value| oracle.may_see(0, now, *value)).collect()
    }

    fn write(oracle: &mut Oracle, value: u64, at: u64, in_memory: bool) {
        oracle.issue(0, value, at);
        oracle.end(0, at, at + 1, false, in_memory);
    }

    #[test]
    fn a_killed_daemon_loses_what_was_in_memory_and_not_flushed() {
        let mut oracle = Oracle::new(1);
        write(&mut oracle, 1, 10, true);
        oracle.flushed(12);
        write(&mut oracle, 2, 20, true);
        write(&mut oracle, 3, 30, true);
        assert_eq!(sees(&oracle, 40), [3]);
        oracle.killed(50);
        assert_eq!(sees(&oracle, 60), [1, 2, 3]);
        oracle.saw(0, 60, 2, 61);
        assert_eq!(sees(&oracle, 70), [2], "once read it stays");
    }

    #[test]
    fn a_killed_daemon_keeps_what_the_origin_had_and_a_power_cut_may_still_take_it() {
        let mut oracle = Oracle::new(1);
        write(&mut oracle, 1, 10, false);
        write(&mut oracle, 2, 20, true);
        oracle.killed(30);
        assert_eq!(sees(&oracle, 40), [1, 2]);
        oracle.power_cut(50);
        assert_eq!(sees(&oracle, 60), [0, 1, 2]);
    }

    #[test]
    fn a_write_that_is_held_over_an_exchange_overtakes_all_that_was_left() {
        let mut oracle = Oracle::new(1);
        write(&mut oracle, 1, 10, true);
        oracle.issue(0, 2, 20);
        oracle.exchanged(30);
        assert_eq!(sees(&oracle, 35), [0, 1, 2], "1 was in memory alone");
        oracle.issue_again(0, 20, 40);
        oracle.end(0, 40, 41, false, false);
        assert_eq!(sees(&oracle, 50), [2]);
    }

    #[test]
    fn a_write_in_flight_is_expected_after_a_sector_was_forgiven() {
        let mut oracle = Oracle::new(1);
        write(&mut oracle, 1, 10, false);
        oracle.issue(0, 2, 20);
        oracle.forgive(0, 30);
        oracle.saw(0, 40, 1, 41);
        assert_eq!(sees(&oracle, 50), [0, 1, 2], "nothing is settled while it is in flight");
        oracle.issue_again(0, 20, 60);
        oracle.end(0, 60, 61, false, false);
        assert_eq!(sees(&oracle, 70), [2]);
    }

    #[test]
    fn an_orderly_end_keeps_everything() {
        let mut oracle = Oracle::new(1);
        write(&mut oracle, 1, 10, true);
        oracle.nothing_in_memory();
        oracle.killed(30);
        assert_eq!(sees(&oracle, 40), [1]);
        assert!(oracle.may_be_left(0, 0) && oracle.may_be_left(0, 1));
        oracle.flushed(35);
        assert!(!oracle.may_be_left(0, 0), "the origin alone must have it now");
    }
}
