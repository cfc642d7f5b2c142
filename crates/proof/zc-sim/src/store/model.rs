//! Model: contents of volumes and snapshots after each change.

use std::collections::BTreeMap;

use zc_store::{CatalogChange, CatalogOp, RootId};

/// Volume or snapshot; addresses that hold nothing are absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) snapshot: bool,
    pub(crate) size: u64,
    pub(crate) chunks: BTreeMap<u64, u64>,
}

/// State of all volumes and snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    pub(crate) roots: BTreeMap<RootId, Held>,
}

/// Change in the model. Value 0 is zeros.
#[derive(Debug, Clone)]
pub(crate) enum ModelChange {
    Write(RootId, u64, Vec<u64>),
    Clear(RootId, u64, u64),
    Catalog(CatalogChange),
}

impl State {
    pub(crate) fn value(&self, root: RootId, address: u64) -> Option<u64> {
        self.roots.get(&root).map(|held| held.chunks.get(&address).copied().unwrap_or(0))
    }

    /// Returns the state after an acknowledged change.
    pub(crate) fn after(&self, change: &ModelChange) -> Self {
        let mut state = self.clone();
        match change {
            ModelChange::Write(root, first, values) => {
                let held = state.roots.get_mut(root).expect("the store wrote a volume that is there");
                for (address, value) in (*first..).zip(values) {
                    if *value == 0 {
                        held.chunks.remove(&address);
                    } else {
                        held.chunks.insert(address, *value);
                    }
                }
            }
            ModelChange::Clear(root, first, count) => {
                let held = state.roots.get_mut(root).expect("the store cleared a volume that is there");
                held.chunks.retain(|address, _| !(*first..*first + *count).contains(address));
            }
            ModelChange::Catalog(change) => state.change_catalog(change),
        }
        state
    }

    fn change_catalog(&mut self, change: &CatalogChange) {
        let source = self.roots.get(&change.source).cloned();
        match change.op {
            CatalogOp::Create => {
                let held = Held { snapshot: false, size: change.size_chunks, chunks: BTreeMap::new() };
                self.roots.insert(change.id, held);
            }
            CatalogOp::Snapshot | CatalogOp::Clone => {
                let mut held = source.expect("the store found the source");
                held.snapshot = change.op == CatalogOp::Snapshot;
                self.roots.insert(change.id, held);
            }
            CatalogOp::Rollback => {
                let mut held = source.expect("the store found the source");
                held.snapshot = false;
                self.roots.insert(change.id, held);
            }
            CatalogOp::Grow => {
                let held = self.roots.get_mut(&change.id).expect("the store found the volume");
                held.size = change.size_chunks;
            }
            CatalogOp::Delete => {
                self.roots.remove(&change.id);
            }
        }
    }
}

/// All states since the beginning, or since the last restart that could be checked.
#[derive(Debug, Clone)]
pub(crate) struct History {
    states: Vec<State>,
    /// First state that may return if the device does not lie.
    flushed: usize,
    /// First state that may return unless two faults of the device coincide.
    proven: usize,
}

impl History {
    pub(crate) fn new(state: State) -> Self {
        Self { states: vec![state], flushed: 0, proven: 0 }
    }

    pub(crate) fn now(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// Returns the number of the current state.
    pub(crate) fn index(&self) -> usize {
        self.states.len() - 1
    }

    pub(crate) fn push(&mut self, change: &ModelChange) {
        let next = self.now().after(change);
        self.states.push(next);
    }

    /// Records a completed flush that was issued in this state.
    pub(crate) fn flushed(&mut self, index: usize) {
        self.flushed = self.flushed.max(index);
    }

    /// Records that the device proves all flushed states.
    pub(crate) fn proven(&mut self) {
        self.proven = self.flushed;
    }

    /// Returns `true` if an address held this value in some state from `since` on.
    pub(crate) fn held_since(&self, since: usize, root: RootId, address: u64, value: u64) -> bool {
        self.states[since..].iter().any(|state| state.value(root, address) == Some(value))
    }

    /// Returns `true` if some state from `since` on satisfies `agrees`.
    pub(crate) fn any_since(&self, since: usize, agrees: impl Fn(&State) -> bool) -> bool {
        self.states[since..].iter().any(agrees)
    }

    /// Returns `true` if there was a state from `since` on without this root.
    pub(crate) fn lacked_since(&self, since: usize, root: RootId, end: u64) -> bool {
        self.states[since..].iter().any(|state| state.roots.get(&root).is_none_or(|held| held.size < end))
    }

    /// Selects the newest state that agrees after a crash, which becomes the current one. On a lying device any state
    /// counts; after a single damage, any since the last proven one.
    pub(crate) fn settle(&mut self, (lies, once): (bool, bool), agrees: impl Fn(&State) -> bool) -> bool {
        let first = match (lies, once) {
            (false, _) => self.flushed,
            (true, true) => self.proven,
            (true, false) => 0,
        };
        let Some(found) = (first..self.states.len()).rev().find(|index| agrees(&self.states[*index])) else {
            return false;
        };
        // A lying device may also bring back a later state; on an honest device that state is lost.
        if lies {
            let state = self.states[found].clone();
            self.states.push(state);
        } else {
            self.states.truncate(found + 1);
        }
        self.flushed = self.states.len() - 1;
        self.proven = self.flushed;
        true
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} states, {} flushed, now {:?}", self.states.len(), self.flushed, self.now())
    }
}
