//! Summaries: validity, ends of chains, and detection of lost links.

use zc_core::{Generation, JournalSeq, WeuSlot};

use crate::samples_tests::{summary, summary_page, summary_place};
use crate::{
    BLOCK, FormatError, GrowingUnit, RECORDS_PER_BLOCK, Record, Summary, SummaryChain, SummaryPlace,
};

#[test]
fn a_summary_counts_in_its_page_of_its_unit_of_its_cache_behind_its_block_alone() {
    let (place, summary) = (summary_place(), summary());
    let page = summary_page(&summary, &place);
    assert_eq!(Summary::decode(&page, &place, summary.next), Ok(summary.clone()));
    let others = [
        SummaryPlace { uuid: [7; 16], ..place },
        SummaryPlace { slot: WeuSlot(place.slot.0 + 1), ..place },
        SummaryPlace { generation: Generation(place.generation.0 + 1), ..place },
        SummaryPlace { page: place.page + 1, ..place },
    ];
    for other in others {
        assert_eq!(Summary::decode(&page, &other, summary.next), Err(FormatError::Checksum), "{other:?}");
    }
    let later = Summary::decode(&page, &place, JournalSeq(summary.next.0 + 1));
    assert_eq!(later, Err(FormatError::Field("journal sequence")));
}

#[test]
fn a_summary_leaves_what_is_before_it_in_the_page_and_may_take_all_of_it() {
    let full = Summary { records: vec![summary().records[0]; RECORDS_PER_BLOCK], ..summary() };
    for summary in [summary(), full, Summary { records: Vec::<Record>::new(), ..summary() }] {
        let mut page = vec![0x5a; BLOCK];
        summary.encode_into(&summary_place(), &mut page);
        let free = BLOCK - Summary::encoded_bytes(summary.records.len());
        assert!(page[..free].iter().all(|byte| *byte == 0x5a));
        assert_eq!(Summary::decode(&page, &summary_place(), summary.next), Ok(summary));
    }
}

#[test]
fn every_bit_of_a_summary_counts() {
    let (place, summary) = (summary_place(), summary());
    let page = summary_page(&summary, &place);
    let start = BLOCK - Summary::encoded_bytes(summary.records.len());
    for at in start..BLOCK {
        let mut damaged = page.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(Summary::decode(&damaged, &place, summary.next).is_err(), "byte {at}");
    }
}

const PAGE: u32 = 3;

fn unit() -> GrowingUnit {
    let SummaryPlace { slot, generation, .. } = summary_place();
    GrowingUnit { slot, generation, page: PAGE }
}

/// Pieces of one page, two pages and one page, then free space; as the slot from [`PAGE`] on.
fn tail() -> Vec<u8> {
    let mut pages = vec![vec![0x5a; BLOCK]; 8];
    for (ordinal, first_page, page) in [(0, PAGE, PAGE), (1, PAGE + 1, PAGE + 2), (2, PAGE + 3, PAGE + 3)] {
        let summary = Summary { ordinal, first_page, ..summary() };
        let index = usize::try_from(page - PAGE).unwrap();
        pages[index] = summary_page(&summary, &SummaryPlace { page, ..summary_place() });
    }
    pages.concat()
}

fn follow(tail: &[u8]) -> (Vec<u32>, bool) {
    let (next, session) = (summary().next, summary().session);
    let chain = SummaryChain::follow(summary_place().uuid, &unit(), next, session, tail);
    (chain.summaries.iter().map(|summary| summary.ordinal).collect(), chain.broken)
}

#[test]
fn a_chain_ends_where_nothing_continues_it_and_a_lost_link_is_distinguished_from_its_end() {
    let whole = tail();
    assert_eq!(follow(&whole), (vec![0, 1, 2], false));
    let without = |pages: &[usize]| {
        let mut tail = tail();
        pages.iter().for_each(|page| tail[page * BLOCK..][..BLOCK].fill(0));
        follow(&tail)
    };
    assert_eq!(without(&[3]), (vec![0, 1], false), "the last one is gone: as if it was never written");
    assert_eq!(without(&[2]), (vec![0], true));
    assert_eq!(without(&[0]), (vec![], true));
    assert_eq!(without(&[0, 2, 3]), (vec![], false));
    assert_eq!(follow(&whole[..BLOCK]), (vec![0], false));
}

#[test]
fn summaries_of_another_session_or_behind_another_block_continue_nothing() {
    let follow = |next: u64, session: u64| {
        let chain = SummaryChain::follow(summary_place().uuid, &unit(), JournalSeq(next), session, &tail());
        (chain.summaries.len(), chain.broken)
    };
    let (next, session) = (summary().next.0, summary().session);
    assert_eq!(follow(next, session), (3, false));
    assert_eq!(follow(next + 1, session), (0, false));
    assert_eq!(follow(next, session + 1), (0, false));
}
