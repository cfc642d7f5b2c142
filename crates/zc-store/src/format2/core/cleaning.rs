//! Cleaning rounds: a mark, a sweep, and the checkpoint after which slots are free.
//!
//! Invariants: a segment is dropped when nothing leads to it, and its slot is free when both superblocks name a state
//! without it and no read has it. A round begins when it is requested, or when a change finds no space and others were
//! made since the last round.

use std::collections::BTreeSet;

use super::Open;
use crate::format2::cleaning::{Cleaning, Step};
use crate::format2::index::Blocked;

impl Open {
    /// Begins a round, if none is in progress.
    pub(super) fn begin_cleaning(&mut self) {
        if self.cleaning.is_none() && self.failed.is_none() && self.is_opened {
            self.cleaned_changes = self.applied_changes;
            self.begin_mark();
        }
    }

    fn begin_mark(&mut self) {
        self.close_batch();
        let before = self.log.place().segment.min(self.superblock.log.segment);
        let roots: Vec<u32> = self.index.roots().map(|(id, _)| id).collect();
        let changed = self.index.changed_segments();
        self.cleaning = Some(Cleaning::new(before, roots.into_iter(), changed));
    }

    /// The roots changed: a mark in progress begins again.
    pub(super) fn restart_mark(&mut self) {
        if self.cleaning.is_some() {
            self.begin_mark();
        }
    }

    /// Begins a round for a change that found no space. Returns `false` if no round can give any.
    pub(super) fn clean_for_space(&mut self) -> bool {
        if self.cleaning.is_none() && self.dropped.is_empty() && self.cleaned_changes == self.applied_changes
        {
            return false;
        }
        self.begin_cleaning();
        true
    }

    /// Continues a round as far as nodes are in memory.
    pub(super) fn pump_cleaning(&mut self) {
        self.pump_releases();
        while let Some(mut cleaning) = self.cleaning.take() {
            let step = self.cleaning_step(&mut cleaning);
            match step {
                Ok(true) => self.cleaning = Some(cleaning),
                Ok(false) => return,
                Err(blocked) => {
                    self.cleaning = Some(cleaning);
                    return self.blocked_cleaning(blocked);
                }
            }
            if self.checkpoint.is_some() {
                return;
            }
        }
    }

    /// A node that cannot be read ends the round: what it leads to is not known, so nothing is freed.
    fn blocked_cleaning(&mut self, blocked: Blocked) {
        match blocked {
            Blocked::Missing(spots) => self.load(&spots),
            Blocked::Damaged(_) => self.cleaning = None,
        }
    }

    /// Does one step. Returns `false` at the end of the round.
    fn cleaning_step(&mut self, cleaning: &mut Cleaning) -> Result<bool, Blocked> {
        match cleaning.step() {
            Step::List(root) => cleaning.listed(self.index.leaves_of(root)?),
            Step::Visit(root, leaf) => {
                cleaning.mark(self.index.segments_of(root, leaf)?);
                cleaning.visited();
            }
            // The state of a checkpoint in progress may lead to a victim.
            Step::Sweep if self.checkpoint.is_some() => {}
            Step::Sweep => {
                let open = self.log.open_segments();
                cleaning.mark(open);
                let nodes = self.index.sweep()?;
                let victims = cleaning.victims(self.slots.segments(), &nodes);
                self.dropped.extend(victims.iter().filter_map(|segment| {
                    let slot = self.slots.remove(*segment)?;
                    Some((*segment, slot))
                }));
                if !victims.is_empty() {
                    self.begin_checkpoint();
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A checkpoint is durable: segments that were dropped before it are in no state that recovery may find.
    pub(super) fn dropped_durable(&mut self) {
        self.releasable.append(&mut self.dropped);
    }

    /// Frees the slots that no read has.
    fn pump_releases(&mut self) {
        let held: BTreeSet<u64> = self.reads.segments();
        let slots = &mut self.slots;
        self.releasable.retain(|(segment, slot)| {
            let is_held = held.contains(segment);
            if !is_held {
                slots.free_again(*slot);
            }
            is_held
        });
    }
}
