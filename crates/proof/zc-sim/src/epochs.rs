//! Checks guarantee G6 on the origin alone: its contents if the power failed now and the cache were lost.
//!
//! Job: search the states that the origin's unflushed writes allow for one that holds a write of a later epoch and
//! lacks one of an earlier epoch. Epochs are delimited by the clients' flushes. A write submitted after a flush was
//! answered belongs to a later epoch than a write answered before that flush was submitted. Writes without such an
//! order may belong to either epoch.
//!
//! Method: the *evidence* of a state is the submission time of the latest flush that some write on the origin had to
//! follow. Every write answered before that time must be present, or a newer one in its place. Contents may be shared
//! between writes; then the write with the weakest evidence is assumed, so no state is rejected wrongly. The
//! guarantee holds in every mode: in write-through a flush is the origin's.
//!
//! It does not check reads of clients (`oracle` does).

/// Write of a sector that may still be on the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Write {
    value: u64,
    issued: u64,
    /// Time of the answer; `u64::MAX` while it is in flight.
    ended: u64,
    /// Answered with success, and not lost in a crash: its absence is a violation.
    required: bool,
    /// Durable when it was answered.
    durable: bool,
    /// Writes answered before this time belong to an earlier epoch.
    after: u64,
    /// The write is a client's discard.
    discards: bool,
}

/// Writes of a volume.
#[derive(Debug, Clone)]
pub(crate) struct OriginJudge {
    sectors: Vec<Vec<Write>>,
    /// Submission time of the latest answered flush.
    barrier: u64,
    /// The volume lacks this guarantee.
    excused: bool,
    /// The origin had no space at some time: discards may be executed before earlier writes, and writes that they
    /// cover may be omitted.
    discards_overtake: bool,
}

/// Evidence of a set of states: the sector with the latest evidence, and the latest of all other sectors.
#[derive(Debug, Clone, Copy, Default)]
struct Evidence {
    sector: usize,
    most: u64,
    elsewhere: u64,
}

impl OriginJudge {
    pub(crate) fn new(sectors: usize) -> Self {
        Self { sectors: vec![vec![known(0)]; sectors], barrier: 0, excused: false, discards_overtake: false }
    }

    /// Records that the origin has no space, so discards may overtake writes.
    pub(crate) fn discards_overtake(&mut self) {
        self.discards_overtake = true;
    }

    /// Stops checking the origin, because the volume destages past flushes or once did.
    pub(crate) fn excuse(&mut self) {
        self.excused = true;
    }

    /// Adds a sector with this content on the origin.
    pub(crate) fn grow(&mut self, value: u64) {
        self.sectors.push(vec![known(value)]);
    }

    /// Records a submitted write of `value`.
    pub(crate) fn issue(&mut self, sector: usize, value: u64, now: u64) {
        let after = self.barrier;
        self.sectors[sector].push(Write {
            value,
            issued: now,
            ended: u64::MAX,
            required: false,
            durable: false,
            after,
            discards: false,
        });
    }

    /// Records a submitted discard.
    pub(crate) fn discard(&mut self, sector: usize, now: u64) {
        self.issue(sector, 0, now);
        if let Some(write) = self.sectors[sector].last_mut() {
            write.discards = true;
        }
    }

    /// Records an answered write. It is `required` unless it failed or may be omitted.
    pub(crate) fn end(&mut self, sector: usize, issued: u64, now: u64, required: bool, durable: bool) {
        for write in &mut self.sectors[sector] {
            if write.issued == issued && write.ended == u64::MAX {
                *write = Write { ended: now, required, durable, ..*write };
            }
        }
    }

    /// Removes a refused write, which wrote nothing.
    pub(crate) fn withdraw(&mut self, sector: usize, issued: u64) {
        self.sectors[sector].retain(|write| write.issued != issued || write.ended != u64::MAX);
    }

    /// Records that the flush submitted at `issued` was answered.
    pub(crate) fn flushed(&mut self, issued: u64) {
        self.barrier = self.barrier.max(issued);
    }

    /// Reissues a write that was issued at `issued` and has not begun.
    pub(crate) fn issue_again(&mut self, sector: usize, issued: u64, now: u64) {
        let after = self.barrier;
        let held = self.sectors[sector].iter_mut().filter(|w| w.issued == issued && w.ended == u64::MAX);
        held.for_each(|write| (write.issued, write.after) = (now, after));
    }

    /// Records a crash: writes that are not durable may be lost, and those in flight end without being required.
    pub(crate) fn crashed(&mut self, now: u64) {
        self.lost();
        for write in self.sectors.iter_mut().flatten().filter(|write| write.ended == u64::MAX) {
            write.ended = now;
        }
    }

    /// Records that answered writes that are not durable may be lost.
    pub(crate) fn lost(&mut self) {
        let barrier = self.barrier;
        let answered = self.sectors.iter_mut().flatten().filter(|write| write.ended != u64::MAX);
        answered
            .filter(|write| !write.durable && write.ended >= barrier)
            .for_each(|write| write.required = false);
    }

    /// Sets the known content of the sector.
    pub(crate) fn set(&mut self, sector: usize, value: u64) {
        self.sectors[sector] = vec![known(value)];
    }

    /// Accepts any of these values, after dirty data was lost beyond the guarantee.
    pub(crate) fn forgive(&mut self, sector: usize, values: &[u64], now: u64) {
        let any = |value: &u64| Write { ended: now, required: false, ..known(*value) };
        // Writes in flight may still follow.
        let in_flight = self.sectors[sector].iter().filter(|write| write.ended == u64::MAX).copied();
        self.sectors[sector] = values.iter().map(any).chain(in_flight).collect();
    }

    /// Checks all states in which each sector holds one of its `possible` values.
    ///
    /// # Errors The write that one of the states lacks.
    pub(crate) fn judge(&mut self, possible: &[Vec<u64>]) -> Result<(), String> {
        if self.excused {
            return Ok(());
        }
        let evidence = self.evidence(possible)?;
        for (sector, values) in possible.iter().enumerate() {
            let bound = if sector == evidence.sector { evidence.elsewhere } else { evidence.most };
            for value in values {
                let writes = &self.sectors[sector];
                let is_legal = |write: &&Write| !self.is_overtaken(writes, write, bound);
                if !writes.iter().filter(|write| write.value == *value).any(|write| is_legal(&write)) {
                    return Err(self.accuse(sector, *value, evidence, bound));
                }
            }
        }
        // Every state has all writes answered before this time.
        let mut sectors = core::mem::take(&mut self.sectors);
        for writes in sectors.iter_mut().filter(|writes| writes.len() > 1) {
            let all = writes.clone();
            writes.retain(|write| !self.is_overtaken(&all, write, evidence.elsewhere));
        }
        self.sectors = sectors;
        Ok(())
    }

    /// Returns `true` if a later write was answered before `bound`, and no discard replaced that write.
    fn is_overtaken(&self, writes: &[Write], write: &Write, bound: u64) -> bool {
        let overtakes = |later: &&Write| later.required && later.ended < bound && later.issued > write.ended;
        let left_out = |later: &Write| {
            let gone = |newer: &Write| newer.discards && newer.issued > later.issued;
            self.discards_overtake && writes.iter().any(gone)
        };
        writes.iter().filter(overtakes).any(|later| !left_out(later))
    }

    fn evidence(&self, possible: &[Vec<u64>]) -> Result<Evidence, String> {
        let mut evidence = Evidence::default();
        for (sector, values) in possible.iter().enumerate() {
            let mut most = 0;
            for value in values {
                let writes = self.sectors[sector].iter().filter(|write| write.value == *value);
                let after =
                    |write: &Write| if self.discards_overtake && write.discards { 0 } else { write.after };
                let Some(least) = writes.map(after).min() else {
                    return Err(format!(
                        "sector {sector} of the origin alone holds {value}, legal: {:?} (G6)",
                        self.sectors[sector]
                    ));
                };
                most = most.max(least);
            }
            if most > evidence.most {
                evidence = Evidence { sector, most, elsewhere: evidence.most };
            } else {
                evidence.elsewhere = evidence.elsewhere.max(most);
            }
        }
        Ok(evidence)
    }

    fn accuse(&self, sector: usize, value: u64, evidence: Evidence, bound: u64) -> String {
        format!(
            "sector {sector} of the origin alone may hold {value} while a write of a later epoch is there (sector {}; \
             all answered before {bound} is required): {:?} (G6)",
            evidence.sector, self.sectors[sector]
        )
    }
}

/// Returns the write of a value present from the beginning.
fn known(value: u64) -> Write {
    Write { value, issued: 0, ended: 0, required: true, durable: true, after: 0, discards: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds three sectors: sector 0 is written and flushed, then sector 1, then sector 2 without a flush.
    fn three_epochs() -> OriginJudge {
        let mut judge = OriginJudge::new(3);
        for sector in 0..3 {
            let at = 10 * (sector as u64 + 1);
            judge.issue(sector, 100 + sector as u64, at);
            judge.end(sector, at, at + 1, true, false);
            judge.flushed(at + 2);
        }
        judge
    }

    fn judged(judge: &OriginJudge, possible: [&[u64]; 3]) -> bool {
        judge.clone().judge(&possible.map(<[u64]>::to_vec)).is_ok()
    }

    #[test]
    fn whole_epochs_and_a_subset_of_one_are_legal_and_nothing_else() {
        let judge = three_epochs();
        for (mask, legal) in [(0b000, true), (0b001, true), (0b011, true), (0b111, true)]
            .into_iter()
            .chain([0b010, 0b100, 0b101, 0b110].map(|mask| (mask, false)))
        {
            let held = |sector: usize| if mask >> sector & 1 == 1 { 100 + sector as u64 } else { 0 };
            assert_eq!(judged(&judge, [&[held(0)], &[held(1)], &[held(2)]]), legal, "{mask:03b}");
        }
    }

    #[test]
    fn what_is_not_flushed_on_the_origin_is_judged_both_ways() {
        let judge = three_epochs();
        assert!(judged(&judge, [&[100], &[0, 101], &[0]]));
        assert!(!judged(&judge, [&[0, 100], &[0, 101], &[0]]), "the second without the first");
        assert!(!judged(&judge, [&[100], &[0, 101], &[0, 102]]));
    }

    #[test]
    fn a_newer_write_in_the_place_of_an_owed_one_is_enough_and_one_sector_does_not_accuse_itself() {
        let mut judge = three_epochs();
        judge.issue(0, 200, 40);
        assert!(judged(&judge, [&[200], &[101], &[102]]));
        assert!(!judged(&judge, [&[200], &[0], &[0]]), "it came after three flushes");
        let mut alone = OriginJudge::new(1);
        alone.issue(0, 1, 10);
        alone.end(0, 10, 11, true, false);
        alone.flushed(12);
        alone.issue(0, 2, 20);
        alone.judge(&[vec![0, 1, 2]]).unwrap();
        alone.judge(&[vec![3]]).unwrap_err();
    }

    #[test]
    fn writes_that_no_flush_divides_may_come_in_any_order() {
        let mut judge = OriginJudge::new(3);
        judge.issue(0, 100, 10);
        // The flush is submitted while the first write is in flight.
        judge.end(0, 10, 21, true, false);
        judge.flushed(20);
        judge.issue(1, 101, 30);
        judge.end(1, 30, 31, true, false);
        assert!(judged(&judge, [&[0, 100], &[0, 101], &[0]]));
        judge.flushed(25);
        judge.issue(2, 102, 40);
        assert!(judged(&judge, [&[100], &[0, 101], &[0, 102]]));
        assert!(!judged(&judge, [&[0], &[101], &[102]]));
    }

    #[test]
    fn what_a_crash_may_have_taken_is_not_missed_and_what_was_flushed_is() {
        let mut judge = OriginJudge::new(3);
        for sector in 0..2 {
            let at = 10 * (sector as u64 + 1);
            judge.issue(sector, 100 + sector as u64, at);
            judge.end(sector, at, at + 1, true, false);
            if sector == 0 {
                judge.flushed(at + 2);
            }
        }
        judge.crashed(30);
        judge.flushed(35);
        judge.issue(2, 102, 40);
        judge.end(2, 40, 41, true, false);
        assert!(judged(&judge, [&[100], &[0, 101], &[102]]));
        assert!(!judged(&judge, [&[0, 100], &[101], &[102]]));
    }

    #[test]
    fn what_is_in_flight_when_a_sector_is_forgiven_may_come_after_later_writes() {
        let mut judge = OriginJudge::new(1);
        judge.issue(0, 7, 10);
        judge.forgive(0, &[0], 20);
        judge.issue(0, 8, 30);
        judge.end(0, 30, 31, true, false);
        judge.end(0, 10, 40, false, false);
        judge.flushed(50);
        judge.judge(&[vec![7, 8]]).unwrap();
    }

    #[test]
    fn discards_overtake_where_an_origin_had_no_space_and_nothing_else_does() {
        let mut judge = three_epochs();
        judge.discard(0, 50);
        judge.flushed(60);
        judge.issue(1, 201, 70);
        assert!(!judged(&judge, [&[0], &[0], &[102]]), "the third epoch without the others");
        judge.discards_overtake();
        assert!(judged(&judge, [&[0], &[0], &[0]]), "discards alone");
        assert!(judged(&judge, [&[0], &[101], &[0]]), "the second epoch: the first was discarded since");
        assert!(!judged(&judge, [&[100], &[0], &[102]]), "the third epoch without the second");
    }

    #[test]
    fn what_failed_or_was_trimmed_is_not_owed_but_may_be_there() {
        let mut judge = OriginJudge::new(3);
        judge.issue(0, 100, 10);
        judge.end(0, 10, 11, false, false);
        judge.flushed(12);
        judge.issue(1, 101, 20);
        assert!(judged(&judge, [&[0, 100], &[101], &[0]]));
    }
}
