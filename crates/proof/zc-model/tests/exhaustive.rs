//! Every state of the model within some bounds; and each rule taken away, which must show a crash that loses data.

use stateright::{Checker, HasDiscoveries, Model};
use zc_model::{Bounds, Loss, REACHED, Rules, SURVIVES, Step, WriteBack};

/// Two volumes, one of which shares content with a clean unit.
const SHARING: Bounds = Bounds { writes: [2, 2], sharing: true, ..NOTHING };
/// Two volumes as in `SHARING`, one of them with a long chain of summaries.
const CHAIN: Bounds = Bounds { writes: [4, 1], sharing: true, ..NOTHING };
/// Two volumes, destaging and a checkpoint.
const DESTAGING: Bounds = Bounds { writes: [2, 1], destaging: true, checkpoints: 1, ..NOTHING };
/// One volume whose epochs end by age, too.
const AGEING: Bounds = Bounds { writes: [3, 0], ageing: true, ..DESTAGING };
/// Crashes after a crash.
const CRASHING: Bounds = Bounds { writes: [2, 0], crashes: 1, ..AGEING };
/// Two volumes with shared content, and crashes after a crash.
const CRASHING_SHARED: Bounds =
    Bounds { writes: [1, 1], sharing: true, checkpoints: 0, crashes: 1, ..AGEING };
const NOTHING: Bounds =
    Bounds { writes: [0, 0], ageing: false, sharing: false, destaging: false, checkpoints: 0, crashes: 0 };

/// Explores all states; `reached` are the numbers of properties that must be reachable.
fn holds(bounds: Bounds, reached: &[usize]) {
    let checker = WriteBack { rules: Rules::ALL, bounds }.checker().spawn_bfs().join();
    if let Some(path) = checker.discovery(SURVIVES) {
        let losses: Vec<_> = path.last_state().losses().collect();
        panic!("{bounds:?}: {:#?} ends with {losses:?}", path.into_actions());
    }
    for number in reached {
        drop(checker.assert_any_discovery(REACHED[*number]));
    }
}

/// Returns the fewest steps to a crash that loses data without one of the rules, and the loss.
fn fails(bounds: Bounds, rules: Rules) -> (Vec<Step>, Loss) {
    let checker = WriteBack { rules, bounds }.checker().finish_when(HasDiscoveries::AnyFailures);
    let path = checker.spawn_bfs().join().assert_any_discovery(SURVIVES);
    let Some((_, loss)) = path.last_state().losses().next() else { panic!("the last step loses nothing") };
    (path.into_actions(), loss)
}

#[test]
fn commits_of_volumes_that_share_survive_every_crash() {
    holds(SHARING, &[0, 1, 2]);
    holds(CHAIN, &[0, 1, 2]);
}

#[test]
fn checkpoints_and_destaging_survive_every_crash() {
    holds(DESTAGING, &[0, 1, 3, 4]);
    holds(AGEING, &[0, 1, 3, 4]);
}

#[test]
fn what_a_crash_left_survives_the_next() {
    holds(CRASHING, &[1, 3, 4, 5]);
    holds(CRASHING_SHARED, &[1, 2, 4, 5]);
}

/// A summary once carried the records of a commit that waited for a flush, and was not the chain's last.
#[test]
fn a_summary_that_carries_another_commit_vouches_for_what_is_not_durable() {
    let (steps, loss) = fails(SHARING, Rules { summary_is_alone: false, ..Rules::ALL });
    assert_eq!(loss, Loss::Unreadable { volume: 1, version: 2 }, "{steps:?}");
    assert_eq!(steps.last(), Some(&Step::SummaryEnds), "{steps:?}");
}

#[test]
fn a_summary_before_older_pieces_are_durable_loses_a_flush() {
    let (steps, loss) = fails(SHARING, Rules { summary_needs_durable_pieces: false, ..Rules::ALL });
    assert!(matches!(loss, Loss::Flushed { .. }), "{loss:?} {steps:?}");
}

#[test]
fn content_elsewhere_needs_a_flush_that_covers_it() {
    for rules in [
        Rules { shared_content_needs_a_flush: false, ..Rules::ALL },
        Rules { shared_content_is_written: false, ..Rules::ALL },
    ] {
        let (steps, loss) = fails(SHARING, rules);
        assert_eq!(loss, Loss::Flushed { volume: 1, version: 1, found: 0 }, "{steps:?}");
    }
}

#[test]
fn a_flush_covers_only_what_had_ended_when_it_was_issued() {
    let (steps, loss) = fails(SHARING, Rules { flush_covers_what_had_ended: false, ..Rules::ALL });
    assert!(matches!(loss, Loss::Flushed { .. }), "{loss:?} {steps:?}");
    assert_eq!(steps.last(), Some(&Step::FlushEnds), "{steps:?}");
}

#[test]
fn a_block_proves_only_commits_that_have_ended() {
    for bounds in [SHARING, DESTAGING] {
        let (steps, loss) = fails(bounds, Rules { proof_waits_for_commits: false, ..Rules::ALL });
        assert!(matches!(loss, Loss::Unreadable { .. }), "{loss:?} {steps:?}");
    }
}

#[test]
fn a_checkpoint_lets_go_of_no_commit_that_has_not_ended_and_of_no_chain() {
    for rules in [
        Rules { checkpoint_keeps_commits: false, ..Rules::ALL },
        Rules { checkpoint_ends_chain: false, ..Rules::ALL },
        Rules { checkpoint_waits_for_summary: false, ..Rules::ALL },
    ] {
        let (steps, loss) = fails(DESTAGING, rules);
        assert!(matches!(loss, Loss::Flushed { .. }), "{rules:?}: {loss:?} {steps:?}");
        assert!(steps.contains(&Step::CheckpointBegins), "{rules:?}: {steps:?}");
    }
}

#[test]
fn an_epoch_is_clean_only_when_the_origin_has_flushed_it() {
    let (steps, loss) = fails(DESTAGING, Rules { clean_needs_a_flush: false, ..Rules::ALL });
    assert!(matches!(loss, Loss::Flushed { .. }), "{loss:?} {steps:?}");
}

#[test]
fn a_body_is_kept_until_its_epoch_is_durably_clean() {
    let (steps, loss) = fails(DESTAGING, Rules { body_is_kept: false, ..Rules::ALL });
    assert!(matches!(loss, Loss::Unreadable { .. }), "{loss:?} {steps:?}");
}
