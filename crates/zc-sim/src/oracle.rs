//! The model disk: for every sector the values that are legal to see, now and after a power cut.

/// One version of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    value: u64,
    issued: u64,
    /// When the write was answered; `u64::MAX` while it is in flight.
    ended: u64,
    durable: bool,
}

/// A volume's model.
#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    sectors: Vec<Vec<Version>>,
    pinned: Vec<Option<(u64, u64)>>,
    /// Start of the oldest read in flight: what it may see is kept.
    pub(crate) oldest_read: u64,
}

impl Oracle {
    pub(crate) fn new(sectors: usize) -> Self {
        let first = Version { value: 0, issued: 0, ended: 0, durable: true };
        Self { sectors: vec![vec![first]; sectors], pinned: vec![None; sectors], oldest_read: u64::MAX }
    }

    /// A write of `value` starts.
    pub(crate) fn issue(&mut self, sector: usize, value: u64, now: u64) {
        self.sectors[sector].push(Version { value, issued: now, ended: u64::MAX, durable: false });
        self.pinned[sector] = None;
    }

    /// The write that was issued at `issued` ended well.
    pub(crate) fn end(&mut self, sector: usize, issued: u64, now: u64, durable: bool) {
        for version in self.sectors[sector].iter_mut().filter(|v| v.issued == issued && v.ended == u64::MAX) {
            version.ended = now;
            version.durable = durable;
        }
        self.prune(sector);
    }

    /// It ended, but may have written or not: what was legal before it stays so beside it.
    pub(crate) fn end_uncertain(&mut self, sector: usize, issued: u64, now: u64) {
        let all = self.sectors[sector].clone();
        let legal = |v: &Version| !all.iter().any(|f| f.ended != u64::MAX && f.issued > v.ended);
        for version in self.sectors[sector].iter_mut() {
            if version.ended == u64::MAX {
                if version.issued == issued {
                    version.ended = now;
                }
            } else if legal(version) {
                version.ended = now;
            }
        }
    }

    /// It was refused: nothing was written.
    pub(crate) fn withdraw(&mut self, sector: usize, issued: u64) {
        self.sectors[sector].retain(|v| v.issued != issued || v.ended != u64::MAX);
    }

    /// Versions overtaken by a later durable one are gone for good.
    fn prune(&mut self, sector: usize) {
        let versions = self.sectors[sector].clone();
        let oldest = self.oldest_read;
        let gone = |v: &Version| versions.iter().any(|f| f.durable && f.issued > v.ended && f.ended < oldest);
        self.sectors[sector].retain(|v| !gone(v));
    }

    /// A flush that was issued at `issued` ended well.
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

    /// Values that a read between `start` and now may see.
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

    /// A read saw a value; if nothing was in flight it stays that.
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

    /// The power went: of what was not flushed anything may be left.
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

    /// The process died: what was answered stays, what was in flight may have happened.
    pub(crate) fn killed(&mut self, now: u64) {
        for sector in 0..self.sectors.len() {
            let open: Vec<_> =
                self.sectors[sector].iter().filter(|v| v.ended == u64::MAX).map(|v| v.issued).collect();
            for issued in open {
                self.end_uncertain(sector, issued, now);
            }
        }
    }

    pub(crate) fn describe(&self, sector: usize) -> String {
        format!("{:?} pinned {:?}", self.sectors[sector], self.pinned[sector])
    }
}
