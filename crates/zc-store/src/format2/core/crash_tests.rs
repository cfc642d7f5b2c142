//! Stores of format 2 against a plain model: random requests, power cuts that tear what no flush covered, and restarts.
//!
//! After each restart the store is a state that the model had, not older than the last flush, and not newer than the
//! last request.

use std::collections::BTreeMap;

use super::test_driver::{Draw, Driver};
use crate::format2::catalog::{CatalogOp, OrderMark};
use crate::format2::seam::{RequestKind, StoreError};
use proptest::prelude::*;

const BLOCKS: u64 = 1400;

/// Contents of each root; blocks that are absent hold nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Model {
    roots: BTreeMap<u32, BTreeMap<u64, u64>>,
    snapshots: Vec<u32>,
    marks: BTreeMap<u32, u64>,
}

/// A driver with the states that it may have after a power cut.
struct Twin {
    driver: Driver,
    states: Vec<Model>,
    next_root: u32,
    next_value: u64,
    draw: Draw,
}

impl Twin {
    fn new(seed: u64) -> Self {
        let draw = Draw(seed);
        let driver = Driver::on(Driver::format(100), Driver::config(), seed);
        Self { driver, states: vec![Model::default()], next_root: 1, next_value: 1, draw }
    }

    fn now(&self) -> &Model {
        self.states.last().unwrap()
    }

    /// Notes what a change makes of the model, if the store accepted it.
    fn note(&mut self, result: Result<(), StoreError>, change: impl FnOnce(&mut Model)) {
        assert_eq!(result, Ok(()));
        let mut next = self.now().clone();
        change(&mut next);
        self.states.push(next);
    }

    fn volume(&mut self) -> Option<u32> {
        let now = self.now();
        let volumes: Vec<u32> =
            now.roots.keys().filter(|root| !now.snapshots.contains(root)).copied().collect();
        let count = u64::try_from(volumes.len()).unwrap();
        (count > 0).then(|| volumes[usize::try_from(self.draw.below(count)).unwrap()])
    }

    fn step(&mut self) {
        let Some(root) = self.volume() else { return self.create() };
        let first = self.draw.below(BLOCKS - 40);
        match self.draw.below(24) {
            0 => self.create(),
            1 | 2 => {
                let count = 1 + self.draw.below(BLOCKS - first);
                let result = self.driver.request(RequestKind::Clear { root, first, count });
                self.note(result, |model| {
                    let blocks = model.roots.get_mut(&root).unwrap();
                    blocks.retain(|block, _| *block < first || *block >= first + count);
                });
            }
            3 | 4 => {
                assert_eq!(self.driver.request(RequestKind::Flush), Ok(()));
                self.states.drain(..self.states.len() - 1);
            }
            5 => self.copy(root),
            6 if self.now().roots.len() > 3 => {
                let result = self.driver.change(CatalogOp::Delete, root, 0);
                self.note(result, |model| {
                    model.roots.remove(&root);
                    model.marks.remove(&root);
                });
            }
            7 => {
                let run = self.next_value;
                let mark = OrderMark { cache: [3; 16], run };
                let result = self.driver.request(RequestKind::Mark { root, mark });
                self.note(result, |model| model.marks.extend([(root, run)]));
            }
            8 => self.compare(),
            9 => self.driver.clean(),
            10 => self.driver.begin_clean(),
            _ => self.write(root, first),
        }
    }

    fn create(&mut self) {
        let id = self.next_root;
        self.next_root += 1;
        let mut change = Driver::catalog(CatalogOp::Create, id, 0);
        change.size_blocks = BLOCKS;
        let result = self.driver.request(RequestKind::Catalog(change));
        self.note(result, |model| drop(model.roots.insert(id, BTreeMap::new())));
    }

    fn copy(&mut self, root: u32) {
        let id = self.next_root;
        self.next_root += 1;
        let is_snapshot = self.draw.below(2) == 0;
        let op = if is_snapshot { CatalogOp::Snapshot } else { CatalogOp::Clone };
        let result = self.driver.change(op, id, root);
        self.note(result, |model| {
            let contents = model.roots[&root].clone();
            model.roots.insert(id, contents);
            if is_snapshot {
                model.snapshots.push(id);
            }
        });
    }

    fn write(&mut self, root: u32, first: u64) {
        let count = 1 + self.draw.below(40);
        let contents: Vec<u64> = (0..count)
            .map(|_| match self.draw.below(6) {
                0 => 0,
                // Contents that other blocks have, too.
                1 => 1 + self.draw.below(20),
                _ => {
                    self.next_value += 1;
                    1000 + self.next_value
                }
            })
            .collect();
        let result = self.driver.write_blocks(root, first, &contents);
        self.note(result, |model| {
            let blocks = model.roots.get_mut(&root).unwrap();
            for (block, value) in (first..).zip(contents) {
                blocks.remove(&block);
                blocks.extend((value != 0).then_some((block, value)));
            }
        });
    }

    fn contents(&mut self) -> BTreeMap<u32, BTreeMap<u64, u64>> {
        let roots: Vec<u32> = self.driver.store.roots().map(|(id, _)| id).collect();
        let mut found = BTreeMap::new();
        for root in roots {
            let blocks: &mut BTreeMap<u64, u64> = found.entry(root).or_default();
            for first in (0..BLOCKS).step_by(200) {
                let read = self.driver.read(root, first, 200).unwrap();
                blocks.extend((first..).zip(read).filter(|(_, value)| *value != 0));
            }
        }
        found
    }

    fn compare(&mut self) {
        let found = self.contents();
        assert_eq!(found, self.now().roots);
    }

    /// Crashes, opens the store again, and finds the state that it has.
    fn restart(&mut self, is_orderly: bool) {
        let driver = core::mem::replace(&mut self.driver, Driver::new(8));
        let device = if is_orderly { driver.close() } else { driver.crash(&mut self.draw) };
        if is_orderly {
            self.states.drain(..self.states.len() - 1);
        }
        let seed = self.draw.below(1 << 30);
        self.driver = Driver::on(device, Driver::config(), seed);
        let marks = self.driver.opened.clone().unwrap().unwrap();
        let marks: BTreeMap<u32, u64> = marks.into_iter().map(|(root, mark)| (root, mark.run)).collect();
        let roots = self.contents();
        let position = self.states.iter().rposition(|state| state.roots == roots && state.marks == marks);
        let Some(position) = position else {
            panic!("the store has none of {} states since the last flush", self.states.len());
        };
        let state = self.states[position].clone();
        self.states = vec![state];
        // Numbers of roots that are gone with the end of the log may be given again.
        if self.driver.store.dropped_commits() > 0 {
            assert_eq!(self.driver.request(RequestKind::Flush), Err(StoreError::Dropped));
        }
    }
}

fn run(seed: u64) {
    let mut twin = Twin::new(seed);
    for _ in 0..6 {
        for _ in 0..twin.draw.below(40) {
            twin.step();
        }
        let is_orderly = twin.draw.below(5) == 0;
        twin.restart(is_orderly);
    }
    twin.compare();
}

/// A write shares a block of a segment that the cleaner drops before the write is applied.
#[test]
fn a_block_whose_segment_is_gone_is_stored_again() {
    run(9_522_145_680_830_113_850);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn after_a_power_cut_the_store_is_a_prefix_with_all_that_was_flushed(seed: u64) {
        run(seed);
    }
}
