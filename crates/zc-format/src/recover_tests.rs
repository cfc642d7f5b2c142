//! Selection of copies and replay of the journal.

use super::*;
use crate::samples_tests as samples;

fn block(sequence: u64, session: u64, map: u64) -> Vec<u8> {
    JournalBlock { session, region_map_sequence: map, ..samples::journal_block(sequence) }
        .encode(samples::salt())
}

fn replay(ring: &[Vec<u8>], start: u64, first_session: u64) -> (JournalReplay, Vec<u64>) {
    let mut replay = JournalReplay::new(
        JournalSeq(start),
        zc_core::u64_from_usize(ring.len()),
        first_session,
        samples::salt(),
    );
    let mut seen = Vec::new();
    while let Some(wanted) = replay.wanted() {
        let place = zc_core::usize_from_u64(wanted.0) % ring.len();
        if let Some(block) = replay.feed(&ring[place]) {
            assert_eq!(block.sequence, wanted);
            seen.push(wanted.0);
        }
    }
    (replay, seen)
}

#[test]
fn the_newest_valid_copy_counts_and_faults_are_reported() {
    let at = |sequence, copy| Superblock { sequence, ..samples::superblock() }.encode(copy);
    let mut blocks = [at(5, 0), at(7, 1), at(9, 2), at(7, 3)];
    let choose = |blocks: &[Vec<u8>; 4]| {
        let candidates = blocks.iter().enumerate().map(|(copy, bytes)| (copy, bytes.as_slice()));
        newest_superblock(candidates, Access::Write)
    };
    let choice = choose(&blocks);
    assert_eq!(choice.newest.map(|(superblock, copy)| (superblock.sequence, copy)), Some((9, 2)));
    assert_eq!(choice.faults, []);
    blocks[2][100] ^= 1;
    blocks[0].fill(0);
    let choice = choose(&blocks);
    assert_eq!(choice.newest.map(|(superblock, copy)| (superblock.sequence, copy)), Some((7, 1)));
    assert_eq!(choice.faults, [(0, FormatError::Magic), (2, FormatError::Checksum)]);
}

#[test]
fn a_replay_stops_at_the_first_gap() {
    let mut ring: Vec<_> = (16..24).map(|sequence| block(sequence, 2, sequence)).collect();
    let (all, seen) = replay(&ring, 16, 1);
    assert_eq!(seen, (16..24).collect::<Vec<_>>());
    assert_eq!(
        (all.end(), all.last(), all.region_map_sequence()),
        (Some(ReplayEnd::Full), Some(JournalSeq(23)), 23)
    );
    ring[5][70] ^= 4;
    let (cut, seen) = replay(&ring, 18, 1);
    assert_eq!(seen, [18, 19, 20]);
    assert_eq!(cut.end(), Some(ReplayEnd::Invalid(FormatError::Checksum)));
    assert_eq!(
        (cut.next(), cut.last(), cut.region_map_sequence()),
        (JournalSeq(21), Some(JournalSeq(20)), 20)
    );
}

#[test]
fn a_replay_wraps_and_stops_at_the_old_round() {
    // The ring holds 24, 25 and, from the previous cycle, 18 to 23.
    let ring: Vec<_> = [24, 25, 18, 19, 20, 21, 22, 23].map(|sequence| block(sequence, 2, 0)).to_vec();
    let (end, seen) = replay(&ring, 22, 1);
    assert_eq!(seen, [22, 23, 24, 25]);
    assert_eq!(end.end(), Some(ReplayEnd::Invalid(FormatError::Field("journal sequence"))));
}

#[test]
fn a_newer_block_in_the_place_shows_that_the_journal_ran_past_the_checkpoint() {
    let mut ring: Vec<_> = (24..32).map(|sequence| block(sequence, 2, 0)).collect();
    assert_eq!(replay(&ring, 16, 1).0.end(), Some(ReplayEnd::Overrun));
    assert_eq!(replay(&ring, 16, 1).0.last(), None);
    // Not if the newer block is corrupt, or of another cache that was there before.
    ring[0][90] ^= 1;
    assert_eq!(
        replay(&ring, 16, 1).0.end(),
        Some(ReplayEnd::Invalid(FormatError::Field("journal sequence")))
    );
    assert_eq!(
        replay(&ring, 17, 3).0.end(),
        Some(ReplayEnd::Invalid(FormatError::Field("journal sequence")))
    );
}

#[test]
fn blocks_of_a_session_that_was_cut_off_do_not_continue_a_later_one() {
    // Session 2 wrote 16 to 19, of which 17 was lost; session 3 continued with 17.
    let ring = [block(16, 2, 5), block(17, 3, 6), block(18, 2, 5), block(19, 2, 5)];
    let (end, seen) = replay(&ring, 16, 1);
    assert_eq!(seen, [16, 17]);
    assert_eq!(end.end(), Some(ReplayEnd::OlderSession));
    assert_eq!(replay(&ring, 16, 4).1, [0_u64; 0]);
}

#[test]
fn an_ended_replay_takes_nothing() {
    let mut replay = JournalReplay::new(JournalSeq(16), 0, 1, samples::salt());
    assert_eq!(replay.wanted(), None);
    assert_eq!(replay.feed(&block(16, 2, 0)), None);
}
