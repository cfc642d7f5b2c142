//! Seeds that found a fault once, by the name of what they found.
//!
//! A seed is a schedule: a change of the simulator or of what the manager does gives it another, and it becomes one
//! seed among many. Where a fault can be told in a few steps, a test of the manager holds it as well.

use zc_sim::{Options, Packer, Profile, Replacement, run_seed};

/// Requests of each run.
const OPS: u64 = 2_000;

fn is_clean(seeds: &[u64]) {
    for seed in seeds {
        let options = Options {
            ops: OPS,
            canary: None,
            replacement: Some(Replacement::Lru),
            packer: Some(Packer::Append),
            profile: Some(Profile::Plain),
            trace: None,
        };
        let report = run_seed(*seed, &options);
        assert!(
            report.is_ok(),
            "{report:?}; `zcsim fuzz --seed {seed} --ops {OPS} --policy lru --packer append --trace` tells more"
        );
    }
}

/// The origin was read where a lost journal left open what is dirty.
#[test]
fn reads_of_a_volume_whose_dirty_data_is_not_known() {
    is_clean(&[503_113]);
}

/// Dirty data came back over newer writes: the device had not been told that it was given up.
#[test]
fn dirty_data_that_was_given_up_stays_away() {
    is_clean(&[504_421]);
}

/// The device failed before it knew what the intent log knew, that an epoch was clean, and came back.
#[test]
fn what_is_clean_by_the_intent_log_alone_is_not_written_past() {
    is_clean(&[503_314]);
}

/// A commit was counted by a body of an earlier unit that had had the slot under the same generation.
#[test]
fn a_commit_counts_by_bodies_of_its_own_unit() {
    is_clean(&[512_023]);
}

/// A volume that is known to be clean was fenced because the device did not know it yet when it failed.
#[test]
fn what_is_known_to_be_clean_is_served_without_the_cache() {
    is_clean(&[604_672]);
}

/// The journal's last blocks were lost after a clean stop, and nothing else on the device mentioned them.
#[test]
fn the_end_of_the_journal_is_known() {
    is_clean(&[918_700]);
}

/// A start that was cut off had claimed journal blocks that it had read and that were not durable yet.
#[test]
fn a_start_claims_what_is_durable_only() {
    is_clean(&[950_639]);
}

/// A device that lost its newest checkpoint told of dirty data in a unit that had been replaced since.
#[test]
fn dirty_data_in_a_replaced_unit_is_not_another_unit_s() {
    is_clean(&[1_007_783]);
}

/// A checkpoint began with a journal block that did not arrive; a block of an older session was under its number.
#[test]
fn a_checkpoint_is_continued_by_its_own_session_or_a_later_one() {
    is_clean(&[1_208_744]);
}

/// The checkpoint that a session had begun from rotted, and the one before it lacked what that one alone knew.
#[test]
fn a_start_goes_on_from_the_checkpoint_that_the_session_began_from() {
    is_clean(&[1_306_226]);
}

/// A slot that could not be read at the start got a generation further on, whose few bits in the index were those of
/// mappings from before when it was used again.
#[test]
fn mappings_of_a_slot_that_could_not_be_read_are_not_another_unit_s() {
    is_clean(&[21_392]);
}

/// Faults of the simulator, not of the manager: it forgot what a state directory remembers (epochs given up, fences),
/// and took requests for write-through that were served after a change to write-back.
#[test]
fn what_the_state_directory_remembers() {
    is_clean(&[500_467, 500_585, 502_140, 506_385, 508_719]);
}
