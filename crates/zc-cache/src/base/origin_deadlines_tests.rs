//! Time limits of origin operations, with a driver that executes nothing by itself.

use zc_core::{BufId, BufSlice};

use super::*;

const V: VolumeId = VolumeId(1);
const W: VolumeId = VolumeId(2);
const PATIENCE: Patience = Patience { late_ms: Some(1_000), fail_ms: Some(2_000) };

/// The layer, with a driver that executes nothing by itself.
struct Driver {
    layer: OriginDeadlines,
    now_ms: u64,
    /// Begun operations: the manager's number and the ticket.
    begun: BTreeMap<u64, Ticket>,
    expired: Vec<(u64, ErrorKind, bool)>,
    news: Vec<(VolumeId, bool)>,
}

impl Driver {
    fn new(patience: Patience) -> Self {
        let mut layer = OriginDeadlines::default();
        layer.set(V, patience);
        layer.tick(0);
        Self { layer, now_ms: 0, begun: BTreeMap::new(), expired: Vec::new(), news: Vec::new() }
    }

    fn take(&mut self) {
        while let Some(step) = self.layer.next_step() {
            match step {
                DeadlineStep::Begin(ticket, action) => {
                    let (op, ..) = Access::of(&action).unwrap();
                    self.begun.insert(op.0, ticket);
                }
                DeadlineStep::Expire { op, error, has_begun, .. } => {
                    self.expired.push((op.0, error, has_begun));
                }
                DeadlineStep::Late(volume, is_late) => self.news.push((volume, is_late)),
            }
        }
    }

    /// Returns `true` if the action began.
    fn submit(&mut self, action: Action) -> bool {
        let (op, ..) = Access::of(&action).unwrap();
        self.layer.submit(action);
        self.take();
        self.begun.contains_key(&op.0)
    }

    fn wait(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now_ms += 10;
            self.layer.tick(self.now_ms);
        }
        self.take();
    }

    fn end(&mut self, op: u64, result: Result<(), ErrorKind>) -> Option<OpId> {
        let ticket = self.begun.remove(&op).unwrap();
        let reported = self.layer.ended(ticket, result);
        self.take();
        reported
    }
}

fn slice(len_bytes: u32) -> BufSlice {
    BufSlice { buf: BufId(0), start_bytes: 0, len_bytes }
}

fn read(op: u64, offset_bytes: u64) -> Action {
    Action::OriginRead { op: OpId(op), volume: V, offset_bytes, dest: slice(4096) }
}

fn write(op: u64, offset_bytes: u64) -> Action {
    Action::OriginWrite { op: OpId(op), volume: V, offset_bytes, src: slice(4096), fua: false }
}

fn flush(op: u64) -> Action {
    Action::OriginFlush { op: OpId(op), volume: V }
}

#[test]
fn an_operation_is_reported_late_and_abandoned_at_its_limits_and_no_sooner() {
    let mut driver = Driver::new(PATIENCE);
    assert!(driver.submit(read(1, 0)));
    driver.wait(900);
    assert_eq!((driver.news.len(), driver.layer.state(V)), (0, OriginWait::default()));
    driver.wait(200);
    assert_eq!(driver.news, [(V, true)]);
    let state = driver.layer.state(V);
    assert_eq!((state.late, state.expired, state.outage_ms), (1, 0, Some(1_100)));
    driver.wait(1_000);
    assert_eq!(driver.expired, [(1, ErrorKind::TimedOut, true)]);
    assert_eq!(driver.layer.state(V).outage_ms, Some(2_100), "the origin still has it");
    assert!(driver.layer.is_idle() && driver.layer.has_abandoned());
    assert_eq!(driver.end(1, Ok(())), None, "the manager has its answer");
    assert_eq!(driver.news, [(V, true), (V, false)]);
    let state = driver.layer.state(V);
    assert_eq!((state.outage_ms, state.expired, state.late_total), (None, 1, 1));
}

#[test]
fn an_operation_of_a_patient_volume_waits_and_is_reported_when_it_ends() {
    let mut driver = Driver::new(Patience { fail_ms: None, ..PATIENCE });
    driver.submit(write(1, 0));
    driver.wait(60_000);
    assert!(driver.expired.is_empty() && driver.layer.state(V).outage_ms > Some(59_000));
    assert_eq!(driver.end(1, Ok(())), Some(OpId(1)));
    assert_eq!(driver.news, [(V, true), (V, false)]);
}

#[test]
fn accesses_of_an_abandoned_write_wait_for_its_end_and_others_do_not() {
    let mut driver = Driver::new(PATIENCE);
    driver.submit(write(1, 8192));
    driver.wait(2_100);
    assert!(driver.submit(read(2, 0)) && driver.submit(write(3, 12_288)), "other sectors");
    assert!(!driver.submit(read(4, 4096 + 512)) && !driver.submit(write(5, 8192 + 512)), "its sectors");
    assert!(!driver.submit(flush(6)), "it would not cover the write");
    let other = Action::OriginFlush { op: OpId(7), volume: W };
    assert!(driver.submit(other), "another origin");
    assert_eq!(driver.end(1, Err(ErrorKind::Io)), None);
    assert!([4, 5, 6].iter().all(|op| driver.begun.contains_key(op)), "{:?}", driver.begun);
    assert!(driver.end(6, Ok(())).is_some(), "an error of a plain write is no loss of others");
}

#[test]
fn what_waits_fails_at_its_own_limit_without_reaching_the_origin() {
    let mut driver = Driver::new(PATIENCE);
    driver.submit(write(1, 0));
    driver.wait(2_100);
    driver.submit(write(2, 0));
    driver.submit(flush(3));
    driver.wait(2_100);
    let timed_out = ErrorKind::TimedOut;
    assert_eq!(driver.expired, [(1, timed_out, true), (2, timed_out, false), (3, timed_out, false)]);
    assert_eq!(driver.end(1, Ok(())), None);
    assert!(driver.begun.is_empty(), "they are forgotten");
    assert!(driver.submit(flush(4)));
}

#[test]
fn a_loss_that_an_abandoned_flush_reports_fails_the_next_flush_once() {
    for is_waiting in [true, false] {
        let mut driver = Driver::new(PATIENCE);
        driver.submit(flush(1));
        driver.wait(2_100);
        assert!(driver.submit(write(2, 0)), "writes continue");
        if is_waiting {
            assert!(!driver.submit(flush(3)), "the origin reports a loss to one flush");
        }
        driver.end(1, Err(ErrorKind::Io));
        if !is_waiting {
            assert!(!driver.submit(flush(3)));
        }
        assert_eq!(driver.expired.last(), Some(&(3, ErrorKind::Io, false)));
        assert!(driver.submit(flush(4)) && driver.end(4, Ok(())).is_some());
    }
}

#[test]
fn an_abandoned_durable_write_reports_a_loss_too() {
    let mut driver = Driver::new(PATIENCE);
    driver.submit(Action::OriginWrite {
        op: OpId(1),
        volume: V,
        offset_bytes: 0,
        src: slice(512),
        fua: true,
    });
    driver.wait(2_100);
    driver.end(1, Err(ErrorKind::Io));
    driver.submit(flush(2));
    assert_eq!(driver.expired.last(), Some(&(2, ErrorKind::Io, false)));
}

#[test]
fn what_was_withdrawn_holds_nothing_up() {
    let mut driver = Driver::new(PATIENCE);
    driver.submit(write(1, 0));
    driver.wait(2_100);
    driver.submit(write(2, 0));
    driver.layer.withdrawn(driver.begun[&1]);
    driver.take();
    assert!(driver.begun.contains_key(&2) && !driver.layer.has_abandoned());
    assert_eq!(driver.layer.state(V).outage_ms, None);
}

#[test]
fn an_origin_that_keeps_many_gets_no_more() {
    let mut driver = Driver::new(PATIENCE);
    for op in 0..16 {
        driver.submit(read(op, op * 4096));
    }
    driver.wait(2_100);
    assert!(!driver.submit(read(20, 1 << 20)), "its memory is bounded");
    driver.end(7, Ok(()));
    assert!(driver.begun.contains_key(&20));
}

#[test]
fn a_stop_bounds_every_origin_and_asks_a_dead_one_nothing_more() {
    let mut driver = Driver::new(Patience::default());
    driver.submit(write(1, 0));
    driver.wait(60_000);
    assert!(driver.expired.is_empty());
    driver.layer.begin_stop(20_000);
    driver.wait(100);
    assert_eq!(driver.expired, [(1, ErrorKind::TimedOut, true)]);
    assert!(!driver.submit(flush(2)));
    assert_eq!(driver.expired.last(), Some(&(2, ErrorKind::TimedOut, false)));
    assert!(driver.submit(Action::OriginFlush { op: OpId(3), volume: W }), "another origin");
}

#[test]
fn a_stopped_process_abandons_nothing() {
    let mut driver = Driver::new(PATIENCE);
    driver.submit(read(1, 0));
    driver.now_ms += 3_600_000;
    driver.wait(10);
    assert!(driver.expired.is_empty() && driver.news.is_empty());
}

#[test]
fn a_removed_volume_leaves_nothing_to_its_number() {
    let mut driver = Driver::new(PATIENCE);
    driver.submit(read(1, 0));
    driver.wait(2_100);
    driver.layer.forget(V);
    driver.layer.set(V, PATIENCE);
    assert_eq!(driver.layer.state(V), OriginWait::default());
    assert_eq!(driver.end(1, Ok(())), None);
    assert!(driver.submit(write(2, 0)) && driver.end(2, Ok(())).is_some());
}
