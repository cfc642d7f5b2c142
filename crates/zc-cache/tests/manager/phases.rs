//! Every phase of a volume's dirty data, met by every event, and by every way in which a process ends.
//!
//! What must hold: each request is answered; reads give what was written, or an error where a loss is known; what was
//! flushed is there after a restart, unless an operator gave it up or its loss is known.

use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{ErrorKind, Mode};

use crate::world::{Shape, V, half};
use crate::write_back::{E, Twin, extents, write_back};

/// Extents that each case looks at: the first two were flushed before, the third may be written by the event.
const EXTENTS: u64 = 3;
/// Small writes, apart from each other, so that much is left when a volume begins to leave write-back.
const SMALL_WRITES: u64 = 300;
/// Where they begin, behind what a case looks at.
const SMALL_FROM: u64 = 16 * E;

/// Where a volume's dirty data is headed, or what stands in its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    Leaving,
    /// New writes wait until it has left.
    Holding,
    /// A clearing waits until nothing is dirty.
    Clearing,
    Fenced,
    /// Waits for a write that is in flight.
    Dropping,
    /// Dropped, and the journal does not say so yet.
    Unsettled,
}

const PHASES: [Phase; 8] = [
    Phase::Serving,
    Phase::Draining,
    Phase::Leaving,
    Phase::Holding,
    Phase::Clearing,
    Phase::Fenced,
    Phase::Dropping,
    Phase::Unsettled,
];

/// What happens in that phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    Nothing,
    WriteNew,
    WriteOver,
    Read,
    Flush,
    Destage,
    Leave,
    Stay,
    Drop { remembered: bool },
    AcceptLoss,
    OriginFails,
    DeviceLost,
    Stop,
}

const EVENTS: [Happens; 14] = [
    Happens::Nothing,
    Happens::WriteNew,
    Happens::WriteOver,
    Happens::Read,
    Happens::Flush,
    Happens::Destage,
    Happens::Leave,
    Happens::Stay,
    Happens::Drop { remembered: false },
    Happens::Drop { remembered: true },
    Happens::AcceptLoss,
    Happens::OriginFails,
    Happens::DeviceLost,
    Happens::Stop,
];

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The process goes on: what hung ends, and time passes.
    Not,
    Killed,
    PowerCut,
}

fn leaves() -> VolumeConfig {
    VolumeConfig { mode: Mode::WriteThrough, ..write_back() }
}

/// A volume in this phase. Its first two extents were written and flushed.
fn in_phase(phase: Phase) -> Twin {
    let mut t = Twin::new(Shape { drain_extents_min: 8, ..Shape::default() });
    t.write(0, &extents(1, 2));
    t.flush();
    match phase {
        Phase::Serving => {}
        Phase::Draining => {
            t.world.origin_writes_hang = true;
            t.world.event(Event::Destage { volume: V });
        }
        Phase::Leaving | Phase::Holding => {
            t.world.origin_writes_hang = true;
            let count = if phase == Phase::Leaving { SMALL_WRITES } else { 0 };
            (0..count).for_each(|at| t.write(SMALL_FROM + at * 1024, &half(100 + at, 512)));
            t.world.configure(leaves());
            t.world.tick(10);
        }
        Phase::Clearing => {
            t.world.origin_writes_hang = true;
            let clear = t.world.submit(V, SMALL_FROM, 64 * E, RequestKind::Trim { fua: false });
            assert!(!t.world.replies.contains_key(&clear), "it waits");
        }
        Phase::Fenced => {
            let lost = t.world.journal_end();
            t.world.tick(100);
            t.write(0, &extents(1, 1));
            t.flush();
            t.world.tick(100);
            t.write(E, &extents(1, 2)[usize::try_from(E).unwrap()..]);
            t.flush();
            t.world.tick(100);
            t.world.damage_journal_block(lost);
            t.world = t.world.restart(false);
            assert!(t.world.manager.dirty(V).unwrap().fenced);
        }
        Phase::Dropping => {
            t.world.origin_writes_hang = true;
            t.world.event(Event::Destage { volume: V });
            t.world.event(Event::DropDirty { volume: V, remembered: false });
            assert!(t.world.manager.is_dropping(V));
        }
        Phase::Unsettled => {
            t.world.journal_hangs = true;
            t.world.event(Event::DropDirty { volume: V, remembered: false });
            assert!(t.world.manager.is_dropping(V));
        }
    }
    t
}

/// Makes it happen. Requests that it sent, and the bytes of the one that writes.
fn happen(t: &mut Twin, event: Happens) -> (Vec<u64>, Option<(u64, Vec<u8>)>) {
    let mut requests = Vec::new();
    let mut written = None;
    match event {
        Happens::Nothing => {}
        Happens::WriteNew | Happens::WriteOver => {
            let at = if event == Happens::WriteNew { 2 * E } else { E };
            let data = extents(9, 1);
            requests.push(t.world.submit_write(V, at, &data));
            written = Some((at, data));
        }
        Happens::Read => requests.push(t.world.submit_read(V, 0, E)),
        Happens::Flush => requests.push(t.world.submit(V, 0, 0, RequestKind::Flush)),
        Happens::Destage => t.world.event(Event::Destage { volume: V }),
        Happens::Leave => t.world.configure(leaves()),
        Happens::Stay => t.world.configure(write_back()),
        Happens::Drop { remembered } => t.world.event(Event::DropDirty { volume: V, remembered }),
        Happens::AcceptLoss => t.world.event(Event::AcceptLoss { volume: V }),
        Happens::OriginFails => t.world.origin_flushes_fail = true,
        Happens::DeviceLost => t.world.event(Event::DeviceLost),
        Happens::Stop => t.world.event(Event::Stop),
    }
    (requests, written)
}

/// What hung ends, and time passes.
fn go_on(t: &mut Twin) {
    t.world.end_journal_writes(Ok(()));
    t.world.end_origin_writes();
    (0..40).for_each(|_| t.world.tick(100));
    t.world.origin_flushes_fail = false;
    (0..20).for_each(|_| t.world.tick(100));
}

/// Whether data may be gone: an operator gave it up, or its loss is known.
fn may_be_lost(phase: Phase, event: Happens) -> bool {
    let by_phase = matches!(phase, Phase::Fenced | Phase::Dropping | Phase::Unsettled);
    by_phase || matches!(event, Happens::Drop { .. } | Happens::DeviceLost)
}

/// Reads each extent: it holds what was flushed, or what the event wrote; zeroes or an error where data may be gone.
fn check(t: &mut Twin, case: &str, written: Option<&(u64, Vec<u8>)>, must_be_new: bool, lost: bool) {
    for extent in 0..EXTENTS {
        let at = extent * E;
        let from = usize::try_from(at).unwrap();
        let old = t.twin[from..from + usize::try_from(E).unwrap()].to_vec();
        let new = written.filter(|(start, _)| *start == at).map(|(_, data)| data);
        let bytes = match t.world.try_read(V, at, E) {
            Ok(bytes) => bytes,
            Err(error) => {
                assert!(lost && error == ErrorKind::Io, "{case}: extent {extent} is not read: {error:?}");
                continue;
            }
        };
        let is_new = new.is_some_and(|new| bytes == *new);
        let is_old = bytes == old && !(must_be_new && new.is_some());
        let is_gone = lost && bytes.iter().all(|byte| *byte == 0);
        assert!(is_new || is_old || is_gone, "{case}: extent {extent} holds other bytes");
    }
}

fn run(phase: Phase, event: Happens, ends: Ends) {
    let case = format!("{phase:?}, {event:?}, {ends:?}");
    let mut t = in_phase(phase);
    let (requests, written) = happen(&mut t, event);
    let lost = may_be_lost(phase, event);
    match ends {
        Ends::Not => {
            go_on(&mut t);
            let mut is_written = false;
            for request in requests {
                let answer = t.world.replies.remove(&request);
                let answer = answer.unwrap_or_else(|| panic!("{case}: a request is not answered")).0;
                assert!(answer.is_ok() || lost, "{case}: a request fails: {answer:?}");
                is_written = answer.is_ok();
            }
            if event != Happens::Stop {
                check(&mut t, &case, written.as_ref(), is_written, lost);
                t.world.event(Event::Stop);
            }
            (0..100).for_each(|_| t.world.tick(100));
            assert!(t.world.stopped.is_some(), "{case}: the manager does not stop");
        }
        Ends::Killed | Ends::PowerCut => {
            let world = if ends == Ends::Killed { t.world.restart_killed() } else { t.world.restart(false) };
            let mut t = Twin { world, twin: t.twin };
            go_on(&mut t);
            check(&mut t, &case, written.as_ref(), false, lost);
            t.world.event(Event::Stop);
            (0..100).for_each(|_| t.world.tick(100));
            assert!(t.world.stopped.is_some(), "{case}: the manager does not stop after a restart");
        }
    }
}

#[test]
fn each_phase_meets_each_event_and_each_end() {
    for phase in PHASES {
        for event in EVENTS {
            for ends in [Ends::Not, Ends::Killed, Ends::PowerCut] {
                run(phase, event, ends);
            }
        }
    }
}

#[test]
fn the_phases_are_what_they_say() {
    let is_draining = |t: &Twin| t.world.manager.dirty(V).unwrap();
    assert!(is_draining(&in_phase(Phase::Serving)).extents == 2);
    for (phase, waits) in [(Phase::Leaving, false), (Phase::Holding, true), (Phase::Clearing, true)] {
        let mut t = in_phase(phase);
        let write = t.world.submit_write(V, 2 * E, &extents(9, 1));
        assert_eq!(!t.world.replies.contains_key(&write), waits, "{phase:?}");
    }
    let mut t = in_phase(Phase::Draining);
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 2, "the writes hang");
    t.world.end_origin_writes();
    (0..20).for_each(|_| t.world.tick(10));
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 0);
}
