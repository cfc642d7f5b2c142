//! The dirty list against a model that keeps, per sector, every epoch's last write.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use zc_core::{BufId, Generation, WeuSlot};

use super::*;

const SECTORS: u32 = 16;
const RUN_MAX: usize = 3;

/// A body that identifies write `id`.
fn stored(id: u16) -> Body {
    let place = Place { slot: WeuSlot(u32::from(id)), generation: Generation(1), offset_units: id, pages: 1 };
    Body::Stored { place, own: true }
}

fn id_of(body: &Body) -> u16 {
    match body {
        Body::Stored { place, .. } => place.offset_units,
        other => panic!("{other:?}"),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write { extent: u64, span: Range<u32> },
    Close(Ended),
    Flush,
    Clean,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u64..3, 0..SECTORS, 1..=SECTORS).prop_map(|(extent, first, len)| Step::Write {
            extent,
            span: first..(first + len).min(SECTORS),
        }),
        2 => prop_oneof![Just(Ended::ByFlush), Just(Ended::ByItself)].prop_map(Step::Close),
        1 => Just(Step::Flush),
        1 => Just(Step::Clean),
    ]
}

proptest! {
    #[test]
    fn readers_epochs_and_pins_are_as_a_model_has_them(steps in vec(step(), 1..60)) {
        let mut data = DirtyVolume::new(0);
        // Per extent and sector: epoch -> last write.
        let mut model: BTreeMap<(u64, u32), BTreeMap<u64, u16>> = BTreeMap::new();
        let (mut taken, mut returned) = (Vec::new(), Vec::new());
        let mut flushes = BTreeSet::new();
        for (id, step) in (1_u16..).zip(steps) {
            match step {
                Step::Write { extent, span } => {
                    let epoch = data.open().number;
                    taken.push(id);
                    let gone = data.write(ExtentNo(extent), span.clone(), stored(id), 0);
                    returned.extend(gone.iter().map(id_of));
                    for sector in span {
                        model.entry((extent, sector)).or_default().insert(epoch, id);
                    }
                }
                Step::Close(ended) => {
                    let number = data.close(ended);
                    data.epoch_mut(number).unwrap().state = EpochState::Committed;
                    if ended == Ended::ByFlush {
                        flushes.insert(number);
                    }
                }
                Step::Flush => {
                    data.flushed();
                    flushes.insert(data.open().number - 1);
                }
                Step::Clean => {
                    if let Some(run) = data.oldest_run(bounds(RUN_MAX, u64::MAX)) {
                        let number = *run.end();
                        returned.extend(data.forget_until(number).iter().map(id_of));
                        model.values_mut().for_each(|epochs| epochs.retain(|epoch, _| *epoch > number));
                        model.retain(|_, epochs| !epochs.is_empty());
                    }
                }
            }
            for extent in 0..3 {
                let mut seen = BTreeMap::new();
                for run in data.visible(ExtentNo(extent), &(0..SECTORS)) {
                    prop_assert!(run.stored_first <= run.first);
                    prop_assert!(run.first + run.count <= run.stored_first + run.stored_count);
                    for sector in run.first..run.first + run.count {
                        prop_assert!(seen.insert(sector, id_of(&run.body)).is_none());
                    }
                }
                let newest = model.iter().filter(|((e, _), _)| *e == extent);
                let newest = newest.map(|((_, s), epochs)| (*s, *epochs.values().last().unwrap()));
                prop_assert_eq!(seen, newest.collect::<BTreeMap<_, _>>());
                let run = data.oldest_run(bounds(RUN_MAX, u64::MAX));
                for epochs in data.epochs.iter().map(|epoch| epoch.number..=epoch.number).chain(run) {
                    let owed = model.iter().filter(|((e, _), _)| *e == extent);
                    let owed = owed.filter_map(|((_, s), of)| Some((*s, *of.range(epochs.clone()).last()?.1)));
                    let versions = data.of_epochs(ExtentNo(extent), &epochs);
                    let listed = versions.iter().flat_map(|v| v.span.clone().map(|s| (s, id_of(&v.body))));
                    prop_assert_eq!(
                        listed.collect::<BTreeMap<_, _>>(),
                        owed.collect::<BTreeMap<_, _>>()
                    );
                }
            }
            if let Some(run) = data.oldest_run(bounds(RUN_MAX, u64::MAX)) {
                let (first, last) = (*run.start(), *run.end());
                prop_assert!(last - first < RUN_MAX as u64);
                prop_assert_eq!(first, data.epochs.front().unwrap().number);
                prop_assert!((first..last).all(|number| !flushes.contains(&number)), "a flush lies in {run:?}");
                let ends = flushes.contains(&last) || last - first + 1 == RUN_MAX as u64;
                prop_assert!(ends || last + 1 == data.open().number, "{run:?} could be longer");
                let next = model.keys().find(|key| model[key].range(run.clone()).next().is_some());
                prop_assert_eq!(data.next_extent(&run, ExtentNo(0)), next.map(|(extent, _)| ExtentNo(*extent)));
            }
            let sectors: usize = model.values().map(BTreeMap::len).sum();
            prop_assert_eq!(data.bytes(), u64::from(SECTOR_BYTES) * sectors as u64);
            prop_assert_eq!(data.is_empty(), model.is_empty());
        }
        returned.extend(data.forget_all().iter().map(id_of));
        returned.sort_unstable();
        prop_assert_eq!(returned, taken, "every body comes back exactly once");
        prop_assert_eq!((data.bytes(), data.record_count()), (0, 1), "the open epoch is left");
    }
}

#[test]
fn a_job_that_ends_gives_its_place_to_both_halves_of_what_was_cut() {
    let mut data = DirtyVolume::new(4);
    let src = BufSlice { buf: BufId(1), start_bytes: 0, len_bytes: 8192 };
    data.write(ExtentNo(1), 0..16, Body::Memory { src, job: 7 }, 0);
    data.write(ExtentNo(1), 4..8, Body::Zero { no_hole: false }, 0);
    assert_eq!(data.epochs.back().unwrap().unplaced, 1);
    assert!(data.awaits(ExtentNo(1), 7));
    data.placed(ExtentNo(1), 7, stored(3));
    assert_eq!(data.epochs.back().unwrap().unplaced, 0);
    let spans: Vec<_> = data.of_epochs(ExtentNo(1), &(5..=5)).into_iter().map(|v| (v.span, v.body)).collect();
    assert_eq!(spans, vec![(0..4, stored(3)), (4..8, Body::Zero { no_hole: false }), (8..16, stored(3))]);
    data.write(ExtentNo(1), 0..4, Body::Zero { no_hole: false }, 0);
    let gone = data.write(ExtentNo(1), 8..16, Body::Memory { src, job: 8 }, 0);
    assert_eq!(gone.as_slice(), [stored(3)], "with its last half");
    let gone = data.write(ExtentNo(1), 0..16, Body::Zero { no_hole: false }, 0);
    assert!(gone.contains(&Body::Memory { src, job: 8 }));
    assert_eq!(data.epochs.back().unwrap().unplaced, 0, "no commit waits for a job that was written over");
    assert!(!data.awaits(ExtentNo(1), 8));
}

fn bounds(epochs: usize, bytes: u64) -> RunBounds {
    RunBounds { epochs, bytes, past_flushes: false, last: u64::MAX }
}

#[test]
fn a_run_that_goes_on_behind_flushes_has_each_extent_once() {
    let mut data = DirtyVolume::new(0);
    for number in 0..40 {
        data.write(ExtentNo(number % 8 * 10), 0..16, stored(u16::try_from(number).unwrap()), 0);
        let closed = data.close(Ended::ByFlush);
        data.epoch_mut(closed).unwrap().state = EpochState::Committed;
    }
    assert_eq!(data.oldest_run(bounds(64, u64::MAX)), Some(1..=1));
    let run = data.oldest_run(RunBounds { past_flushes: true, ..bounds(64, u64::MAX) }).unwrap();
    assert_eq!(run, 1..=40);
    let mut found = Vec::new();
    let mut next = data.next_extent(&run, ExtentNo(0));
    while let Some(extent) = next {
        found.push((extent.0, data.of_epochs(extent, &run).iter().map(|v| v.epoch).collect::<Vec<_>>()));
        next = data.next_extent(&run, ExtentNo(extent.0 + 1));
    }
    assert_eq!(found, (0..8).map(|n| (n * 10, vec![33 + n])).collect::<Vec<_>>());
    assert_eq!(data.next_extent(&(1..=32), ExtentNo(71)), None);
}

#[test]
fn a_run_ends_where_it_would_be_too_large_but_has_one_epoch() {
    let mut data = DirtyVolume::new(0);
    for number in 1..=3 {
        data.write(ExtentNo(number), 0..16, stored(u16::try_from(number).unwrap()), 0);
        let closed = data.close(Ended::ByItself);
        data.epoch_mut(closed).unwrap().state = EpochState::Committed;
    }
    assert_eq!(data.oldest_run(bounds(8, 3 * 8192)), Some(1..=3));
    assert_eq!(data.oldest_run(bounds(8, 3 * 8192 - 1)), Some(1..=2));
    assert_eq!(data.oldest_run(bounds(8, 100)), Some(1..=1));
}
