//! Guarantee G6, judged on the origin alone: what it would hold if the power went now and the cache were lost.
//!
//! Job: of all the worlds that the origin's unflushed writes allow, is there one that holds a write of a later epoch
//! and lacks one of an earlier epoch? Epochs are those of the clients, delimited by their flushes: a write that was
//! submitted after a flush was answered is of a later epoch than a write that was answered before that flush was
//! submitted. Writes that are not so divided may be of either.
//!
//! How: a world's *evidence* is the submission of the latest flush that some write on the origin had to follow. All
//! that was answered before that moment must be there, or something newer in its place. Contents may be shared between
//! writes; then the write that says least is taken, so that no world is accused wrongly. The guarantee holds in every
//! mode: in write-through a flush is the origin's.
//!
//! What it does not do: judge what clients read (that is `oracle`).

/// A write of a sector, as far as it may still be on the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Write {
    value: u64,
    issued: u64,
    /// When it was answered; `u64::MAX` while it is in flight.
    ended: u64,
    /// Answered with success, and not lost in a crash: it can be missed.
    required: bool,
    /// Durable when it was answered.
    durable: bool,
    /// What was answered before this moment is of an earlier epoch.
    after: u64,
    /// A client discarded the sector.
    discards: bool,
}

/// The writes of a volume.
#[derive(Debug, Clone)]
pub(crate) struct OriginJudge {
    sectors: Vec<Vec<Write>>,
    /// The submission of the latest flush that was answered.
    barrier: u64,
    /// The volume was not promised any of this.
    excused: bool,
    /// The origin had no space at some time: discards may be there before what came before them, and what they cover may
    /// be left out.
    discards_overtake: bool,
}

/// The evidence of a set of worlds: the sector that has it, and the best of all other sectors.
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

    /// The origin has no space.
    pub(crate) fn discards_overtake(&mut self) {
        self.discards_overtake = true;
    }

    /// The volume destages past flushes, now or once: nothing is asked of its origin any more.
    pub(crate) fn excuse(&mut self) {
        self.excused = true;
    }

    /// The volume becomes a sector longer, in which the origin has this.
    pub(crate) fn grow(&mut self, value: u64) {
        self.sectors.push(vec![known(value)]);
    }

    /// A write of `value` is submitted.
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

    /// A discard is submitted.
    pub(crate) fn discard(&mut self, sector: usize, now: u64) {
        self.issue(sector, 0, now);
        if let Some(write) = self.sectors[sector].last_mut() {
            write.discards = true;
        }
    }

    /// A write was answered. The write is `required` unless it failed or need not happen at all.
    pub(crate) fn end(&mut self, sector: usize, issued: u64, now: u64, required: bool, durable: bool) {
        for write in &mut self.sectors[sector] {
            if write.issued == issued && write.ended == u64::MAX {
                *write = Write { ended: now, required, durable, ..*write };
            }
        }
    }

    /// A write was refused: nothing was written.
    pub(crate) fn withdraw(&mut self, sector: usize, issued: u64) {
        self.sectors[sector].retain(|write| write.issued != issued || write.ended != u64::MAX);
    }

    /// A flush that was submitted at `issued` was answered.
    pub(crate) fn flushed(&mut self, issued: u64) {
        self.barrier = self.barrier.max(issued);
    }

    /// A write that was issued at `issued` and has not begun is issued again.
    pub(crate) fn issue_again(&mut self, sector: usize, issued: u64, now: u64) {
        let after = self.barrier;
        let held = self.sectors[sector].iter_mut().filter(|w| w.issued == issued && w.ended == u64::MAX);
        held.for_each(|write| (write.issued, write.after) = (now, after));
    }

    /// What was not durable may be lost, and what was in flight has ended: no client can miss it.
    pub(crate) fn crashed(&mut self, now: u64) {
        self.lost();
        for write in self.sectors.iter_mut().flatten().filter(|write| write.ended == u64::MAX) {
            write.ended = now;
        }
    }

    /// What was answered and is not durable may be lost.
    pub(crate) fn lost(&mut self) {
        let barrier = self.barrier;
        let answered = self.sectors.iter_mut().flatten().filter(|write| write.ended != u64::MAX);
        answered
            .filter(|write| !write.durable && write.ended >= barrier)
            .for_each(|write| write.required = false);
    }

    /// The sector is known to hold this.
    pub(crate) fn set(&mut self, sector: usize, value: u64) {
        self.sectors[sector] = vec![known(value)];
    }

    /// Dirty data is lost beyond what the guarantee can tell: any of these may be there.
    pub(crate) fn forgive(&mut self, sector: usize, values: &[u64], now: u64) {
        let any = |value: &u64| Write { ended: now, required: false, ..known(*value) };
        // What is in flight may still come after it.
        let in_flight = self.sectors[sector].iter().filter(|write| write.ended == u64::MAX).copied();
        self.sectors[sector] = values.iter().map(any).chain(in_flight).collect();
    }

    /// Judges all worlds in which each sector holds one of its `possible` values.
    ///
    /// # Errors
    /// What one of them lacks.
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
        // Every world has all that was answered before this moment.
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

/// A value that has been there from the beginning.
fn known(value: u64) -> Write {
    Write { value, issued: 0, ended: 0, required: true, durable: true, after: 0, discards: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three sectors. Sector 0 is written, flushed; then sector 1, flushed; then sector 2.
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
