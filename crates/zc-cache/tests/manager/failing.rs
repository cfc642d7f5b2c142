//! A cache device that fails while the distrust of what it holds cannot be recorded; marks of volumes not served.

use zc_cache::seam::{Event, Request, RequestKind};
use zc_core::{ErrorKind, ReqId, usize_from_u64};
use zc_format::Record;

use crate::world::{Shape, V, World, noise};

const REGION: u64 = 64 << 10;

/// A world with one extent stored in each of two regions, of which the first alone is marked; its device has failed.
fn failing() -> World {
    let mut world = World::new(Shape::default());
    world.write(V, 2 * REGION, &noise(1, 8192));
    world.tick(60_000);
    world.tick(60_000);
    assert_eq!(world.manager.active_regions().0, 0, "its mark is gone");
    world.write(V, 0, &noise(2, 8192));
    world.tick(1);
    world.distrust_ends = Err(ErrorKind::NoSpace);
    world.event(Event::DeviceLost);
    world
}

#[test]
fn without_the_record_writes_go_to_marked_regions_only_and_the_record_is_tried_again() {
    let mut world = failing();
    let before = world.origins[&V].clone();
    world.intents.clear();
    world.write(V, 0, &noise(3, 8192));
    assert!(
        world
            .intents
            .iter()
            .any(|record| matches!(record, Record::BaseInvalid { .. } | Record::Unmap { .. })),
        "a restart after a kill believes the intent log: {:?}",
        world.intents
    );
    let waits = world.submit_write(V, 2 * REGION, &noise(4, 8192));
    let over_both = world.submit_write(V, 0, &noise(5, usize_from_u64(3 * REGION)));
    for _ in 0..500 {
        world.tick(10);
    }
    assert!((4..=7).contains(&world.distrusts), "{} attempts in 5 s", world.distrusts);
    assert!(world.manager.is_distrust_pending());
    assert!(!world.replies.contains_key(&waits) && !world.replies.contains_key(&over_both));
    let at = usize_from_u64(2 * REGION);
    assert_eq!(world.origins[&V][at..at + 8192], before[at..at + 8192], "written though no mark says so");
    let bytes = world.read(V, 2 * REGION, 8192);
    assert_eq!(bytes, noise(1, 8192), "reads go on");

    world.distrust_ends = Ok(());
    world.tick(2000);
    assert!(!world.manager.is_distrust_pending());
    assert_eq!((world.replies[&waits].0, world.replies[&over_both].0), (Ok(()), Ok(())));
    let attempts = world.distrusts;
    world.tick(60_000);
    assert_eq!(world.distrusts, attempts, "once is enough");
}

#[test]
fn writes_that_the_record_keeps_waiting_for_too_long_fail_and_those_to_marked_regions_do_not() {
    let mut world = failing();
    let waits = world.submit_write(V, 2 * REGION, &noise(4, 8192));
    world.tick(29_000);
    assert!(!world.replies.contains_key(&waits));
    world.tick(1000);
    assert_eq!(world.replies[&waits].0, Err(ErrorKind::Io));
    let late = world.submit_write(V, 2 * REGION, &noise(5, 8192));
    assert_eq!(world.replies[&late].0, Err(ErrorKind::Io));
    world.write(V, 0, &noise(6, 8192));
    world.distrust_ends = Ok(());
    world.tick(2000);
    world.write(V, 2 * REGION, &noise(7, 8192));
}

#[test]
fn a_stop_does_not_wait_for_a_record_that_cannot_be_made() {
    let mut world = failing();
    let waits = world.submit_write(V, 2 * REGION, &noise(4, 8192));
    world.event(Event::Stop);
    assert_eq!(world.replies[&waits].0, Err(ErrorKind::Io));
    assert_eq!(world.stopped, Some(false), "the next start must not take it for a clean stop");
}

#[test]
fn a_stop_tries_the_record_once_more() {
    let mut world = failing();
    let attempts = world.distrusts;
    world.distrust_ends = Ok(());
    world.event(Event::Stop);
    assert_eq!((world.distrusts, world.stopped), (attempts + 1, Some(false)));
    assert!(!world.manager.is_distrust_pending() && world.unrecorded.is_empty());
}

/// Neither the record nor the intent log is there for the next start, as after a power cut: the marks are.
#[test]
fn what_a_stop_could_not_record_is_told_and_the_next_start_does_not_believe_the_mappings() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &noise(2, 8192));
    world.tick(1500);
    assert_eq!(world.manager.active_regions().0, 1, "stored on the device, and marked");
    world.distrust_ends = Err(ErrorKind::NoSpace);
    world.event(Event::DeviceLost);
    world.write(V, 0, &noise(3, 8192));
    let attempts = world.distrusts;
    world.event(Event::Stop);
    assert_eq!((world.distrusts, world.stopped), (attempts + 1, Some(false)), "one more, and no other");
    assert_eq!(world.unrecorded, [None]);
    let mut world = world.restart(false);
    assert!(world.read(V, 0, 8192) == noise(3, 8192), "what went past the cache");
    assert!(world.stat("load_distrusted") > 0);
}

#[test]
fn a_flush_of_a_volume_in_pass_through_reaches_the_origin_meanwhile() {
    let mut world = failing();
    let request =
        Request { req: ReqId(1 << 40), volume: V, offset_bytes: 0, len_bytes: 0, kind: RequestKind::Flush };
    world.event(Event::Submit(request));
    assert_eq!(world.replies[&(1 << 40)].0, Ok(()));
}

#[test]
fn marks_of_a_volume_that_is_not_served_stay_until_its_origin_has_flushed() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &noise(1, 8192));
    world.tick(1);
    assert_eq!(world.manager.active_regions().0, 1);
    let mut world = world.without(V).restart_killed();
    for _ in 0..4 {
        world.tick(60_000);
    }
    assert_eq!(world.manager.active_regions().0, 1, "what was written may not be durable on its origin");
}

#[test]
fn a_flush_that_failed_before_the_stop_leaves_no_mark_and_one_of_the_stop_does() {
    for refuses_stop in [false, true] {
        let mut world = World::new(Shape::default());
        world.write(V, 0, &noise(1, 8192));
        (world.origin_flushes_fail, world.origin_flushes_hang) = (true, true);
        world.tick(60_000);
        world.event(Event::Stop);
        assert_eq!((world.stopped, world.manager.active_regions().0), (None, 1), "a flush is under way");
        world.origin_flushes_fail = refuses_stop;
        world.end_origin_flushes();
        for _ in 0..4 {
            world.tick(1);
        }
        assert_eq!(world.stopped, Some(!refuses_stop));
    }
}
