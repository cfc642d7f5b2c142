//! Trims and zeroings in write-back that are much longer than what is dirty.

use zc_cache::config::VolumeConfig;
use zc_cache::seam::RequestKind;

use crate::world::{Shape, V, half};
use crate::write_back::{E, Twin, extents, write_back};

const BYTES: u64 = 48 << 20;
const PLACES: [u64; 4] = [3 * E, 9 << 20, (20 << 20) + E, BYTES - E];

fn kinds() -> [RequestKind; 2] {
    [RequestKind::Trim { fua: false }, RequestKind::WriteZeroes { no_hole: false, fua: true }]
}

/// A volume of 6,144 extents in write-back, four of them dirty.
fn dirty() -> Twin {
    let shape =
        Shape { volume_bytes: BYTES, range_extents_min: 4, drain_extents_min: 64, ..Shape::default() };
    let mut t = Twin::new(shape);
    let cfg = VolumeConfig { size_bytes: BYTES, ..write_back() };
    t.world.configure(cfg);
    t.world.origins.get_mut(&V).unwrap().fill(7);
    t.twin.fill(7);
    for (id, at) in (1..).zip(PLACES) {
        t.write(at, &extents(id, 1));
    }
    t
}

fn answered(t: &mut Twin, request: u64) -> bool {
    t.world.replies.remove(&request).is_some_and(|reply| reply.0.is_ok())
}

#[test]
fn a_clearing_of_a_long_range_takes_work_for_what_is_dirty_alone() {
    for kind in kinds() {
        let mut t = dirty();
        let (written, destaged) = (t.world.stat("dirty_written_bytes"), t.world.stat("destaged_bytes"));
        assert_eq!((written, destaged), (4 * E, 0));
        let clear = t.world.submit(V, 512, BYTES - 1024, kind);
        (0..20).for_each(|_| t.world.tick(10));
        assert!(answered(&mut t, clear));
        t.twin[512..usize::try_from(BYTES).unwrap() - 512].fill(0);
        assert_eq!(t.world.stat("dirty_written_bytes"), written, "it is no dirty data");
        assert_eq!((t.world.stat("dirty_clears"), t.world.stat("destaged_bytes")), (1, 4 * E));
        assert!(t.world.origins[&V] == t.twin, "the origin is cleared");
        t.check(0, BYTES);
        t.world.stop();
    }
}

#[test]
fn writes_behind_a_clearing_that_waits_count_after_it() {
    let mut t = dirty();
    let kind = RequestKind::Trim { fua: false };
    let clear = t.world.submit(V, 0, BYTES, kind);
    let data = half(50, 8192);
    let write = t.world.submit_write(V, 9 << 20, &data);
    let again = t.world.submit(V, 30 << 20, 8 << 20, kind);
    let last = t.world.submit_write(V, 31 << 20, &data);
    (0..40).for_each(|_| t.world.tick(10));
    assert!([clear, write, again, last].into_iter().all(|request| answered(&mut t, request)));
    t.twin.fill(0);
    for at in [9 << 20, 31 << 20] {
        t.twin[at..at + data.len()].copy_from_slice(&data);
    }
    t.check(0, BYTES);
    t.flush();
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
    t.world.stop();
}

#[test]
fn a_short_clearing_is_dirty_data() {
    let mut t = dirty();
    let written = t.world.stat("dirty_written_bytes");
    // Fewer than the 64 extents for which a clearing waits.
    let clear = t.world.submit(V, 0, 63 * E, RequestKind::Trim { fua: false });
    assert!(answered(&mut t, clear));
    assert_eq!(t.world.stat("dirty_written_bytes"), written + 63 * E);
    assert_eq!(t.world.stat("dirty_clears"), 0);
    t.twin[..usize::try_from(63 * E).unwrap()].fill(0);
    t.check(0, BYTES);
    t.world.stop();
}

#[test]
fn a_clearing_does_not_reach_an_origin_before_what_is_older() {
    let mut t = dirty();
    t.world.origin_writes_hang = true;
    let clear = t.world.submit(V, 0, BYTES, RequestKind::Trim { fua: false });
    (0..20).for_each(|_| t.world.tick(100));
    assert!(!t.world.replies.contains_key(&clear), "it waits");
    let is_cleared = |at: u64| t.world.origins[&V][usize::try_from(at).unwrap()] != 7;
    assert!(![0, 8 << 20, BYTES - 2 * E].into_iter().any(is_cleared), "nothing later is on the origin");
}

#[test]
fn a_clearing_waits_for_a_slow_or_failing_origin_with_a_bound() {
    for fails in [false, true] {
        let mut t = dirty();
        t.world.origin_writes_hang = !fails;
        t.world.origin_flushes_fail = fails;
        let clear = t.world.submit(V, 0, 64 * E, RequestKind::Trim { fua: false });
        (0..80).for_each(|_| t.world.tick(100));
        assert!(answered(&mut t, clear), "it is dirty data after five seconds; fails: {fails}");
        assert_eq!(t.world.stat("dirty_clears"), 1);
        t.twin[..usize::try_from(64 * E).unwrap()].fill(0);
        t.world.origin_flushes_fail = false;
        t.world.end_origin_writes();
        t.check(0, BYTES);
        t.clean();
        assert!(t.world.origins[&V] == t.twin);
        t.world.stop();
    }
}
