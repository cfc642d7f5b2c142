//! Seeds that found a fault once, named after their finding.
//!
//! A seed is a schedule. A change of the simulator or of the manager's behaviour gives it another, and it becomes one
//! seed among many. A fault that takes only a few steps has a test of the manager as well.

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

/// The origin was read although a lost journal left open which data was dirty.
#[test]
fn reads_of_a_volume_whose_dirty_data_is_not_known() {
    is_clean(&[503_113]);
}

/// Dirty data replaced newer writes: the device had not recorded that it was given up.
#[test]
fn dirty_data_that_was_given_up_stays_away() {
    is_clean(&[504_421]);
}

/// The device failed before it recorded, as the intent log did, that an epoch was clean, and came back.
#[test]
fn what_is_clean_by_the_intent_log_alone_is_not_written_past() {
    is_clean(&[503_314]);
}

/// A commit was counted by a body of an earlier unit that had had the slot under the same generation.
#[test]
fn a_commit_counts_by_bodies_of_its_own_unit() {
    is_clean(&[512_023]);
}

/// A volume recorded as clean was fenced because the device had not recorded that when it failed.
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

/// A device that lost its newest checkpoint reported dirty data in a unit that had been replaced since.
#[test]
fn dirty_data_in_a_replaced_unit_is_not_another_unit_s() {
    is_clean(&[1_007_783]);
}

/// A checkpoint began with a journal block that was lost; a block of an older session had its number.
#[test]
fn a_checkpoint_is_continued_by_its_own_session_or_a_later_one() {
    is_clean(&[1_208_744]);
}

/// The checkpoint at a session's begin became corrupt, and the previous one lacked data that only it had.
#[test]
fn a_start_goes_on_from_the_checkpoint_that_the_session_began_from() {
    is_clean(&[1_306_226]);
}

/// A slot that was unreadable at the start advanced to a generation whose few index bits matched those of older
/// mappings when it was reused.
#[test]
fn mappings_of_a_slot_that_could_not_be_read_are_not_another_unit_s() {
    is_clean(&[21_392]);
}

/// Faults of the simulator, not of the manager. It forgot state kept by a state directory (epochs given up, fences),
/// and took requests served after a change to write-back for write-through.
#[test]
fn what_the_state_directory_remembers() {
    is_clean(&[500_467, 500_585, 502_140, 506_385, 508_719]);
}
