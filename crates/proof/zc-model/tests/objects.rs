//! Every state of the two models of a pool on objects within some bounds; and each rule disabled, which must break a
//! property by a short counterexample.

use stateright::{Checker, Expectation, Model};
use std::collections::{BTreeMap, VecDeque};
use zc_model::cleaning::Cleaning;
use zc_model::fencing::Fencing;

/// Longest counterexample that a reader follows.
const STEPS_MAX: usize = 21;

/// Explores all states, whose count is in the document; `reached` are the properties that must be reachable.
fn holds<M>(model: M, states: usize, reached: &[&'static str])
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Send + Sync + PartialEq + std::fmt::Debug + std::hash::Hash,
    M::Action: Clone + Send + Sync + PartialEq + std::fmt::Debug,
{
    let properties = model.properties();
    let checker = model.checker().spawn_bfs().join();
    assert_eq!(checker.unique_state_count(), states, "OBJECTS.md has the counts");
    for property in properties.iter().filter(|property| property.expectation == Expectation::Always) {
        if let Some(path) = checker.discovery(property.name) {
            panic!("not so: {}: {:#?}", property.name, path.into_actions());
        }
    }
    for name in reached {
        assert!(checker.discovery(name).is_some(), "never reached: {name}");
    }
}

/// Returns a shortest run to a state that breaks a property. The checker returns any of the first runs that it finds.
fn breaks<M: Model>(model: &M, name: &str) -> Vec<M::Action>
where
    M::State: Ord + Clone,
    M::Action: Copy + std::fmt::Debug,
{
    let found = model.properties().into_iter().find(|property| property.name == name);
    let Some(property) = found else { panic!("no property: {name}") };
    let mut origins = BTreeMap::new();
    let mut queue = VecDeque::new();
    for state in model.init_states() {
        origins.insert(state.clone(), None);
        queue.push_back(state);
    }
    while let Some(state) = queue.pop_front() {
        if !(property.condition)(model, &state) {
            let mut steps = Vec::new();
            let mut at = state;
            while let Some(Some((before, step))) = origins.remove(&at) {
                steps.insert(0, step);
                at = before;
            }
            assert!(steps.len() <= STEPS_MAX, "{steps:?}");
            return steps;
        }
        let mut steps = Vec::new();
        model.actions(&state, &mut steps);
        for step in steps {
            let next = model.next_state(&state, step).filter(|next| !origins.contains_key(next));
            if let Some(next) = next {
                origins.insert(next.clone(), Some((state.clone(), step)));
                queue.push_back(next);
            }
        }
    }
    panic!("no state breaks: {name}");
}

mod fences {
    use super::*;
    use zc_model::fencing::{AGREED, Bounds, FENCED, FREE, KEPT, NEAR, ONCE, REACHED, Rules, SAME, Step};

    const TWO: Bounds =
        Bounds { claims: 2, commits: [2, 1, 0], window: 2, cleaning: false, late_swaps: false };
    const TWO_CLEAN: Bounds = Bounds { cleaning: true, ..TWO };
    const TWO_LATE: Bounds = Bounds { late_swaps: true, ..TWO_CLEAN };
    const THREE_CLEAN: Bounds = Bounds { claims: 3, ..TWO_CLEAN };

    fn without(rules: Rules, bounds: Bounds, property: &str) -> Vec<Step> {
        breaks(&Fencing { rules, bounds }, property)
    }

    #[test]
    fn three_holders_with_long_windows_keep_every_acknowledged_commit() {
        let bounds = Bounds { claims: 3, commits: [3, 2, 1], window: 3, ..TWO };
        let reached = [REACHED[0], REACHED[1], REACHED[3], REACHED[4]];
        holds(Fencing { rules: Rules::ALL, bounds }, 166_008, &reached);
    }

    #[test]
    fn holders_that_return_after_cleaning_break_nothing() {
        holds(Fencing { rules: Rules::ALL, bounds: THREE_CLEAN }, 139_683, &REACHED[..6]);
        let bounds = Bounds { commits: [4, 1, 0], ..TWO_CLEAN };
        let reached = [REACHED[0], REACHED[1], REACHED[2], REACHED[5]];
        holds(Fencing { rules: Rules::ALL, bounds }, 363_736, &reached);
    }

    #[test]
    fn swaps_that_are_late_or_without_an_answer_break_nothing() {
        let reached = [REACHED[1], REACHED[2], REACHED[5], REACHED[6]];
        holds(Fencing { rules: Rules::ALL, bounds: TWO_LATE }, 23_679, &reached);
    }

    #[test]
    fn a_swap_that_is_judged_by_the_holders_name_deletes_too_much() {
        let rules = Rules { swap_is_judged_by_content: false, ..Rules::ALL };
        let steps = without(rules, TWO_LATE, KEPT);
        let position = |step| steps.iter().position(|other| *other == step);
        let first = position(Step::SwapArrives { holder: 0, until: 0 });
        assert!(first < position(Step::SwapSeen { holder: 0 }), "{steps:?}");
        assert_eq!(steps.last(), Some(&Step::Delete { holder: 0, row: 0, number: 0 }), "{steps:?}");
    }

    #[test]
    fn without_a_fence_the_replaced_writer_acknowledges() {
        let rules = Rules { fences: false, ..Rules::ALL };
        let steps = without(rules, TWO, KEPT);
        let position = |step| steps.iter().position(|other| *other == step);
        let acknowledged = position(Step::Success { holder: 0, number: 0 });
        assert!(position(Step::Probe { holder: 1 }) < acknowledged, "{steps:?}");
        drop(without(rules, TWO, FENCED));
    }

    #[test]
    fn a_fence_above_a_missing_number_fences_nothing() {
        let rules = Rules { fence_at_first_missing: false, ..Rules::ALL };
        let steps = without(rules, TWO, KEPT);
        assert!(steps.contains(&Step::FenceArrives { holder: 1, row: 0, number: 2 }), "{steps:?}");
        drop(without(rules, TWO, AGREED));
    }

    #[test]
    fn a_deleted_fence_frees_the_name_for_a_stalled_writer() {
        let steps = without(Rules { fence_is_kept: false, ..Rules::ALL }, TWO_CLEAN, KEPT);
        let deletes = Step::Delete { holder: 1, row: 0, number: 0 };
        assert!(steps.contains(&deletes), "{steps:?}");
        assert_eq!(steps.last(), Some(&Step::Success { holder: 0, number: 0 }), "{steps:?}");
    }

    #[test]
    fn a_commit_above_a_missing_one_is_acknowledged_too_early() {
        let steps = without(Rules { ack_needs_all_below: false, ..Rules::ALL }, TWO, KEPT);
        assert_eq!(steps.last(), Some(&Step::Success { holder: 0, number: 1 }), "{steps:?}");
    }

    #[test]
    fn names_without_epochs_come_back_with_the_content_of_a_stalled_writer() {
        let rules = Rules { epochs_in_names: false, ..Rules::ALL };
        let steps = without(rules, TWO_CLEAN, SAME);
        assert!(steps.contains(&Step::Delete { holder: 1, row: 0, number: 1 }), "{steps:?}");
        assert_eq!(steps.last(), Some(&Step::DataArrives { holder: 0, number: 1 }), "{steps:?}");
        drop(without(rules, TWO, FREE));
    }

    #[test]
    fn a_store_that_ignores_conditions_lets_two_writers_acknowledge() {
        let rules = Rules { creates_are_exclusive: false, ..Rules::ALL };
        drop(without(rules, TWO, KEPT));
        let rules = Rules { fences: false, epochs_in_names: false, ..rules };
        drop(without(rules, TWO, ONCE));
    }

    #[test]
    fn a_window_of_requests_scatters_orphans() {
        let bounds = Bounds { commits: [3, 0, 0], ..TWO };
        let steps = without(Rules { window_counts_numbers: false, ..Rules::ALL }, bounds, NEAR);
        assert!(steps.contains(&Step::DataArrives { holder: 0, number: 2 }), "{steps:?}");
    }

    #[test]
    fn a_manifest_that_a_replaced_holder_overwrites_loses_commits() {
        let steps = without(Rules { manifest_is_swapped: false, ..Rules::ALL }, TWO_CLEAN, KEPT);
        assert!(steps.contains(&Step::Checkpoint { holder: 0, until: 0 }), "{steps:?}");
    }

    /// The design had no such check: an opener that stalls while its successor cleans the log takes a deleted name for
    /// the end of the log.
    #[test]
    fn an_opener_that_does_not_check_its_claim_serves_a_log_that_was_cleaned() {
        let steps = without(Rules { opener_checks_claim: false, ..Rules::ALL }, THREE_CLEAN, KEPT);
        assert_eq!(steps.last(), Some(&Step::Serve { holder: 1 }), "{steps:?}");
        assert!(steps.contains(&Step::Delete { holder: 2, row: 0, number: 0 }), "{steps:?}");
    }

    #[test]
    fn a_delete_before_the_swap_takes_what_the_manifest_needs() {
        let steps = without(Rules { delete_follows_swap: false, ..Rules::ALL }, TWO_CLEAN, KEPT);
        assert_eq!(steps.last(), Some(&Step::Delete { holder: 0, row: 0, number: 0 }), "{steps:?}");
    }
}

mod deletes {
    use super::*;
    use zc_model::cleaning::{Bounds, FREED, HELD, LIVE, REACHED, READABLE, Rules, Step};

    const READER: Bounds = Bounds {
        ticks: 4,
        objects: 1,
        take_over: true,
        children: 0,
        chains: false,
        reader: true,
        list_lag: 1,
    };
    const CHILD: Bounds = Bounds { children: 1, reader: false, ..READER };
    const CHAIN: Bounds = Bounds { children: 2, chains: true, ..CHILD };

    fn without(rules: Rules, bounds: Bounds, property: &str) -> Vec<Step> {
        breaks(&Cleaning { rules, bounds }, property)
    }

    #[test]
    fn readers_and_children_keep_their_objects() {
        let reached = [REACHED[0], REACHED[1], REACHED[2], REACHED[4], REACHED[5]];
        let bounds = Bounds { reader: true, ..CHILD };
        holds(Cleaning { rules: Rules::ALL, bounds }, 331_517, &reached);
        let bounds = Bounds { objects: 2, ..CHILD };
        let reached = [REACHED[0], REACHED[1], REACHED[2], REACHED[5]];
        holds(Cleaning { rules: Rules::ALL, bounds }, 222_009, &reached);
    }

    #[test]
    fn children_of_children_keep_their_objects() {
        for (list_lag, states) in [(0, 113_029), (2, 115_011)] {
            let bounds = Bounds { list_lag, ..CHAIN };
            let reached = [REACHED[1], REACHED[2], REACHED[3]];
            holds(Cleaning { rules: Rules::ALL, bounds }, states, &reached);
        }
    }

    #[test]
    fn a_delete_without_delay_leaves_a_reader_with_a_hole() {
        let steps = without(Rules { delete_is_delayed: false, ..Rules::ALL }, READER, READABLE);
        assert!(!steps.contains(&Step::Tick), "{steps:?}");
    }

    #[test]
    fn a_delay_from_the_writing_of_the_list_is_over_when_a_late_swap_is_applied() {
        let steps = without(Rules { delay_counts_from_swap: false, ..Rules::ALL }, READER, READABLE);
        let position = |step| steps.iter().position(|other| *other == step);
        let last_tick = steps.iter().rposition(|step| *step == Step::Tick);
        assert!(last_tick < position(Step::Swap { holder: 0 }), "{steps:?}");
    }

    #[test]
    fn a_wall_clock_that_is_behind_shortens_the_delay_of_the_successor() {
        let steps = without(Rules { times_are_the_stores: false, ..Rules::ALL }, READER, READABLE);
        assert!(steps.contains(&Step::Delete { holder: 1, object: 0 }), "{steps:?}");
    }

    #[test]
    fn a_delete_before_the_swap_leaves_a_checkpoint_with_a_hole() {
        let steps = without(Rules { delete_follows_swap: false, ..Rules::ALL }, READER, LIVE);
        assert!(!steps.contains(&Step::Swap { holder: 0 }), "{steps:?}");
    }

    #[test]
    fn a_trash_list_that_is_not_inherited_is_garbage_for_good() {
        drop(without(Rules { trash_is_inherited: false, ..Rules::ALL }, READER, FREED));
    }

    #[test]
    fn a_hold_that_is_not_checked_keeps_nothing() {
        let steps = without(Rules { holds_are_checked: false, ..Rules::ALL }, CHILD, HELD);
        assert!(steps.contains(&Step::Hold { child: 0 }), "{steps:?}");
    }

    #[test]
    fn a_list_from_before_the_delay_misses_a_new_hold() {
        let steps = without(Rules { holds_are_listed_when_due: false, ..Rules::ALL }, CHILD, HELD);
        let position = |step| steps.iter().position(|other| *other == step);
        assert!(position(Step::Clear { holder: 0, object: 0 }) < position(Step::Tick), "{steps:?}");
    }

    /// The design had no such check: a hold may be created when its objects are deleted already.
    #[test]
    fn a_hold_that_is_not_confirmed_may_be_late() {
        let steps = without(Rules { child_confirms_hold: false, ..Rules::ALL }, CHILD, HELD);
        let position = |step| steps.iter().position(|other| *other == step);
        let delete = position(Step::Delete { holder: 0, object: 0 });
        assert!(delete < position(Step::Confirm { child: 0 }), "{steps:?}");
    }

    #[test]
    fn a_child_of_a_child_that_relies_on_its_parents_hold_loses_it() {
        let steps = without(Rules { chains_hold_every_pool: false, ..Rules::ALL }, CHAIN, HELD);
        assert!(steps.contains(&Step::Release { child: 0 }), "{steps:?}");
    }

    #[test]
    fn a_list_may_show_the_removal_of_a_hold_and_not_yet_its_successor() {
        let rules = Rules { hold_removal_is_delayed: false, ..Rules::ALL };
        let steps = without(rules, CHAIN, HELD);
        assert!(steps.contains(&Step::Release { child: 0 }), "{steps:?}");
        holds(Cleaning { rules, bounds: Bounds { list_lag: 0, ..CHAIN } }, 114_538, &[]);
    }

    #[test]
    fn a_lease_that_counts_from_the_answer_outlives_the_delay() {
        let steps = without(Rules { lease_counts_from_sending: false, ..Rules::ALL }, READER, READABLE);
        assert_eq!(steps.last(), Some(&Step::Renewed), "{steps:?}");
    }

    #[test]
    fn a_renewal_that_reads_no_manifest_extends_a_checkpoint_that_was_dropped() {
        let steps = without(Rules { renewal_reads_manifest: false, ..Rules::ALL }, READER, READABLE);
        assert_eq!(steps.iter().filter(|step| **step == Step::Renewed).count(), 2, "{steps:?}");
    }
}
