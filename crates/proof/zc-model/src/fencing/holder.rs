//! State of the bucket and of the holders, the possible steps, and their effects.

use super::{EPOCHS, Fencing, NUMBERS, NUMBERS_OF_ROW, ROWS};

/// A set of commits, or of names: [`bit`].
pub(crate) type Set = u16;

/// The bit of a writer's commit, or of the name in a row.
pub(crate) fn bit(row: u8, number: u8) -> Set {
    1 << (usize::from(row) * NUMBERS + usize::from(number))
}

/// Object under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) enum Content {
    #[default]
    Missing,
    /// A log object; its bytes are determined by name and writer.
    Data {
        writer: u8,
    },
    Fence {
        by: u8,
    },
}

/// A name, with the writer of a log object that lay there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Slot {
    pub(crate) content: Content,
    pub(crate) past: Option<u8>,
}

impl Slot {
    /// Returns `true` if a create of this writer was ever applied: an answer may say so at any time.
    pub(crate) fn was_created_by(self, writer: u8) -> bool {
        self.content == Content::Data { writer } || self.past == Some(writer)
    }

    fn put(&mut self, content: Content) {
        if let Content::Data { writer } = self.content {
            self.past = Some(writer);
        }
        self.content = content;
    }
}

/// The mutable object. A swap succeeds if the swapping holder's claim was the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Manifest {
    /// Number of claims; the holder is the last one.
    pub(crate) claims: u8,
    /// First number of each open epoch.
    pub(crate) log: [Option<u8>; EPOCHS],
    /// Commits in the checkpoint.
    pub(crate) covered: Set,
}

/// Progress of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) enum Phase {
    #[default]
    Absent,
    /// Next name to be read.
    Opening {
        row: u8,
        number: u8,
    },
    /// A fence ends every open epoch.
    Fenced,
    Serving,
    /// A later holder was detected.
    Stopped,
}

/// A process that claimed the pool; its epoch is its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Holder {
    pub(crate) phase: Phase,
    /// Open epochs at the claim.
    log: [Option<u8>; EPOCHS],
    /// Commits that it found when it opened.
    pub(crate) recovered: Set,
    /// Names at which it sent the create of a fence.
    fences: Set,
    /// First number of its own log, and the next one that it will send.
    pub(crate) first: u8,
    pub(crate) next: u8,
    /// Numbers of which it received success.
    pub(crate) existing: u8,
    /// The last applied checkpoint known to the holder covers its own numbers below this one.
    checkpoint: Option<u8>,
    /// Late swaps of the present manifest: a bit for each first number that a checkpoint lacks.
    swaps: u8,
    /// The last swap that it sent, and an applied one whose response it has not received.
    pub(crate) attempt: Option<u8>,
    pub(crate) applied: Option<u8>,
}

impl Holder {
    /// Returns the oldest number of which success is unknown.
    pub(crate) fn unknown_from(&self) -> u8 {
        let above = |number: &u8| self.existing >> number & 1 == 0;
        (self.first..).find(above).unwrap_or(u8::MAX)
    }

    pub(crate) fn acknowledges(&self, model: &Fencing, number: u8) -> bool {
        let is_known = self.existing >> number & 1 == 1;
        is_known && (number < self.unknown_from() || !model.rules.ack_needs_all_below)
    }

    fn may_send(&self, model: &Fencing, epoch: u8) -> bool {
        let in_flight = (self.first..self.next).filter(|number| self.existing >> number & 1 == 0).count();
        let has_window = if model.rules.window_counts_numbers {
            self.next < self.unknown_from() + model.bounds.window
        } else {
            in_flight < usize::from(model.bounds.window)
        };
        let has_bounds = self.next - self.first < model.bounds.commits[usize::from(epoch)];
        self.phase == Phase::Serving && has_window && has_bounds && usize::from(self.next) < NUMBERS - 1
    }
}

/// A state of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct World {
    pub(crate) manifest: Manifest,
    pub(crate) slots: [[Slot; NUMBERS]; EPOCHS],
    pub(crate) holders: [Holder; EPOCHS],
    /// A log object was created under a name that once held another one.
    pub(crate) returned_changed: bool,
    /// A writer was acknowledged while a later holder served.
    pub(crate) late_acknowledgement: bool,
}

/// Next step. `holder` is the index of a claim, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A process swaps the manifest with its claim.
    Claim,
    /// An opener reads its next name, and sends a fence if it is missing.
    Probe {
        /// Claim.
        holder: u8,
    },
    /// A create of a fence is delivered, for the first time or again.
    FenceArrives {
        /// Claim.
        holder: u8,
        /// Row of names.
        row: u8,
        /// Number in the row.
        number: u8,
    },
    /// An opener reads the manifest again, and serves or stops.
    Serve {
        /// Claim.
        holder: u8,
    },
    /// A writer sends the create of its next log object.
    Send {
        /// Claim.
        holder: u8,
    },
    /// The create of a log object is delivered, for the first time or again.
    DataArrives {
        /// Claim.
        holder: u8,
        /// Number.
        number: u8,
    },
    /// A writer receives the success of a create, from its answer or from a read of the header.
    Success {
        /// Claim.
        holder: u8,
        /// Number.
        number: u8,
    },
    /// A holder swaps the manifest with a checkpoint that has its own numbers below `until`.
    Checkpoint {
        /// Claim.
        holder: u8,
        /// First number that the checkpoint lacks.
        until: u8,
    },
    /// A holder sends such a swap.
    SendSwap {
        /// Claim.
        holder: u8,
        /// First number that the checkpoint lacks.
        until: u8,
    },
    /// A swap is delivered, with no other one since the holder read the manifest.
    SwapArrives {
        /// Claim.
        holder: u8,
        /// First number that the checkpoint lacks.
        until: u8,
    },
    /// A holder whose swap got no response, or a conflict, reads the manifest and detects that its swap was applied.
    SwapSeen {
        /// Claim.
        holder: u8,
    },
    /// A holder deletes an object that its checkpoint replaced, or an orphan.
    Delete {
        /// Claim.
        holder: u8,
        /// Row of names.
        row: u8,
        /// Number in the row.
        number: u8,
    },
}

impl World {
    /// Row of names of a writer's log.
    pub(crate) fn row(model: &Fencing, writer: u8) -> u8 {
        if model.rules.epochs_in_names { writer } else { 0 }
    }

    pub(crate) fn slot(&self, row: u8, number: u8) -> Slot {
        self.slots[usize::from(row)][usize::from(number)]
    }

    fn slot_mut(&mut self, row: u8, number: u8) -> &mut Slot {
        &mut self.slots[usize::from(row)][usize::from(number)]
    }

    pub(crate) fn holder(&self, holder: u8) -> &Holder {
        &self.holders[usize::from(holder)]
    }

    fn holder_mut(&mut self, holder: u8) -> &mut Holder {
        &mut self.holders[usize::from(holder)]
    }

    /// Indices of the holders that have opened.
    pub(crate) fn serving(&self) -> impl Iterator<Item = u8> {
        (0..self.manifest.claims).filter(|holder| self.holder(*holder).phase == Phase::Serving)
    }

    /// Every step that is possible now.
    pub(crate) fn steps(&self, model: &Fencing, steps: &mut Vec<Step>) {
        if self.manifest.claims < model.bounds.claims {
            steps.push(Step::Claim);
        }
        for holder in 0..self.manifest.claims {
            self.opening_steps(model, holder, steps);
            self.writing_steps(model, holder, steps);
            if model.bounds.cleaning {
                self.cleaning_steps(model, holder, steps);
            }
        }
    }

    fn opening_steps(&self, model: &Fencing, holder: u8, steps: &mut Vec<Step>) {
        let it = self.holder(holder);
        match it.phase {
            Phase::Opening { .. } if self.probe_is_news(model, holder) => steps.push(Step::Probe { holder }),
            Phase::Opening { .. } => {}
            Phase::Fenced => steps.push(Step::Serve { holder }),
            Phase::Absent | Phase::Serving | Phase::Stopped => {}
        }
        for row in 0..holder {
            for number in NUMBERS_OF_ROW {
                let is_accepted = self.accepts(model, row, number, Content::Fence { by: holder });
                if it.fences & bit(row, number) != 0 && is_accepted {
                    steps.push(Step::FenceArrives { holder, row, number });
                }
            }
        }
    }

    /// Returns `true` if a probe of the next name changes the opener's state.
    fn probe_is_news(&self, model: &Fencing, holder: u8) -> bool {
        let mut next = *self;
        next.probe(model, holder);
        next != *self
    }

    /// Returns `true` if a create of this object changes the bucket.
    fn accepts(&self, model: &Fencing, row: u8, number: u8, content: Content) -> bool {
        let present = self.slot(row, number).content;
        present == Content::Missing || present != content && !model.rules.creates_are_exclusive
    }

    fn writing_steps(&self, model: &Fencing, holder: u8, steps: &mut Vec<Step>) {
        let it = self.holder(holder);
        if it.may_send(model, holder) {
            steps.push(Step::Send { holder });
        }
        for number in it.first..it.next {
            let slot = self.slot(Self::row(model, holder), number);
            if self.accepts(model, Self::row(model, holder), number, Content::Data { writer: holder }) {
                steps.push(Step::DataArrives { holder, number });
            }
            if slot.was_created_by(holder) && it.existing >> number & 1 == 0 {
                steps.push(Step::Success { holder, number });
            }
        }
    }

    fn cleaning_steps(&self, model: &Fencing, holder: u8, steps: &mut Vec<Step>) {
        let it = self.holder(holder);
        let may_swap = self.manifest.claims == holder + 1 || !model.rules.manifest_is_swapped;
        if it.phase == Phase::Serving && may_swap {
            let from = it.checkpoint.map_or(it.first, |until| until + 1);
            let untils = from..=it.unknown_from();
            if model.bounds.late_swaps {
                let others = untils.filter(|until| it.attempt != Some(*until));
                steps.extend(others.map(|until| Step::SendSwap { holder, until }));
            } else {
                steps.extend(untils.map(|until| Step::Checkpoint { holder, until }));
            }
        }
        let late = NUMBERS_OF_ROW.filter(|until| it.swaps >> until & 1 == 1);
        steps.extend(late.map(|until| Step::SwapArrives { holder, until }));
        if it.applied.is_some() {
            steps.push(Step::SwapSeen { holder });
        }
        for row in 0..=holder {
            for number in NUMBERS_OF_ROW {
                if self.may_delete(model, holder, row, number) {
                    steps.push(Step::Delete { holder, row, number });
                }
            }
        }
    }

    /// Returns `true` if the holder's last checkpoint replaced the object, or it follows the fence of an epoch.
    fn may_delete(&self, model: &Fencing, holder: u8, row: u8, number: u8) -> bool {
        let it = self.holder(holder);
        let until = match it.checkpoint {
            _ if !model.rules.delete_follows_swap && it.phase == Phase::Serving => it.unknown_from(),
            Some(until) => until,
            None => return false,
        };
        let is_replaced = row < Self::row(model, holder) || number < until;
        let is_deletable = match self.slot(row, number).content {
            Content::Missing => false,
            Content::Data { .. } => true,
            Content::Fence { .. } => !model.rules.fence_is_kept,
        };
        is_replaced && is_deletable
    }

    /// Executes a step.
    pub(crate) fn take(&mut self, model: &Fencing, step: Step) {
        match step {
            Step::Claim => self.claim(model),
            Step::Probe { holder } => self.probe(model, holder),
            Step::FenceArrives { holder, row, number } => {
                self.slot_mut(row, number).put(Content::Fence { by: holder });
            }
            Step::Serve { holder } => self.serve(model, holder),
            Step::Send { holder } => self.holder_mut(holder).next += 1,
            Step::DataArrives { holder, number } => {
                let slot = self.slot_mut(Self::row(model, holder), number);
                let is_other = slot.past.is_some_and(|past| past != holder);
                slot.put(Content::Data { writer: holder });
                self.returned_changed |= is_other;
            }
            Step::Success { holder, number } => {
                let acknowledged = self.holder(holder).unknown_from();
                self.holder_mut(holder).existing |= 1 << number;
                let advanced = self.holder(holder).unknown_from() > acknowledged;
                self.late_acknowledgement |= advanced && self.serving().any(|later| later > holder);
            }
            Step::Checkpoint { holder, until } => {
                self.swap(model, holder, until);
                self.holder_mut(holder).checkpoint = Some(until);
            }
            Step::SendSwap { holder, until } => {
                let it = self.holder_mut(holder);
                it.attempt = Some(until);
                // A swap based on an older manifest has no effect, whenever it arrives.
                it.swaps |= u8::from(it.applied.is_none()) << until;
            }
            Step::SwapArrives { holder, until } => {
                self.swap(model, holder, until);
                let it = self.holder_mut(holder);
                (it.swaps, it.applied) = (0, Some(until));
            }
            Step::SwapSeen { holder } => {
                let it = self.holder_mut(holder);
                it.checkpoint = if model.rules.swap_is_judged_by_content { it.applied } else { it.attempt };
                (it.attempt, it.applied) = (None, None);
            }
            Step::Delete { row, number, .. } => {
                self.slot_mut(row, number).put(Content::Missing);
            }
        }
    }

    fn claim(&mut self, model: &Fencing) {
        let holder = self.manifest.claims;
        let manifest = self.manifest;
        *self.holder_mut(holder) =
            Holder { log: manifest.log, recovered: manifest.covered, ..Holder::default() };
        self.manifest.claims += 1;
        self.holders.iter_mut().for_each(|earlier| earlier.swaps = 0);
        let row = Self::row(model, holder);
        self.manifest.log[usize::from(row)].get_or_insert(0);
        self.open_row(holder, 0);
    }

    /// Continues with the next open epoch.
    fn open_row(&mut self, holder: u8, from: u8) {
        let it = self.holder_mut(holder);
        let open = (from..ROWS).find_map(|row| it.log[usize::from(row)].map(|first| (row, first)));
        it.phase = open.map_or(Phase::Fenced, |(row, number)| Phase::Opening { row, number });
    }

    fn probe(&mut self, model: &Fencing, holder: u8) {
        let Phase::Opening { row, number } = self.holder(holder).phase else { return };
        let next = Phase::Opening { row, number: number + 1 };
        match self.slot(row, number).content {
            Content::Data { writer } => {
                let it = self.holder_mut(holder);
                it.recovered |= bit(writer, number);
                it.phase = next;
            }
            Content::Fence { by } if by > holder => self.holder_mut(holder).phase = Phase::Stopped,
            Content::Fence { by } if by < holder && !model.rules.epochs_in_names => {
                self.holder_mut(holder).phase = next;
            }
            Content::Fence { .. } => self.end_row(model, holder, row, number),
            Content::Missing if !model.rules.fences => self.end_row(model, holder, row, number),
            Content::Missing => self.send_fence(model, holder, row, number),
        }
    }

    fn send_fence(&mut self, model: &Fencing, holder: u8, row: u8, number: u8) {
        let is_data = |number: &u8| {
            matches!(self.slots[usize::from(row)][usize::from(*number)].content, Content::Data { .. })
        };
        let last =
            (number..NUMBERS_OF_ROW.end).rev().find(is_data).filter(|_| !model.rules.fence_at_first_missing);
        let place = last.map_or(number, |last| last + 1);
        match self.slot(row, place).content {
            Content::Fence { .. } => self.end_row(model, holder, row, number),
            Content::Missing | Content::Data { .. } => self.holder_mut(holder).fences |= bit(row, place),
        }
    }

    fn end_row(&mut self, model: &Fencing, holder: u8, row: u8, number: u8) {
        if !model.rules.epochs_in_names {
            let it = self.holder_mut(holder);
            it.first = number + u8::from(model.rules.fences);
            it.next = it.first;
        }
        self.open_row(holder, row + 1);
    }

    fn serve(&mut self, model: &Fencing, holder: u8) {
        let is_holder = self.manifest.claims == holder + 1 || !model.rules.opener_checks_claim;
        self.holder_mut(holder).phase = if is_holder { Phase::Serving } else { Phase::Stopped };
    }

    fn swap(&mut self, model: &Fencing, holder: u8, until: u8) {
        let it = self.holder(holder);
        let own = (it.first..until).fold(0, |set, number| set | bit(holder, number));
        self.manifest.covered = it.recovered | own;
        self.manifest.claims = self.manifest.claims.max(holder + 1);
        self.manifest.log = [None; EPOCHS];
        self.manifest.log[usize::from(Self::row(model, holder))] = Some(until);
    }
}
