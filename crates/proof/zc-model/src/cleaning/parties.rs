//! State of the parent pool, its holders, children and reader, the possible steps, and their effects.

use super::{Bounds, CHILDREN, Cleaning, DELAY_TICKS, HOLDERS, LEASE_TICKS, OBJECTS, SKEW_TICKS};

/// A set of objects.
type Set = u8;

fn bit(object: u8) -> Set {
    1 << object
}

/// A holder of the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Holder {
    /// Object that the checkpoint under construction drops, and the time at which its trash list was written.
    building: Option<(u8, u8)>,
    /// Earliest time of each delete, where the holder saw the drop applied.
    not_before: [Option<u8>; OBJECTS],
    /// Objects that no listed hold refers to.
    cleared: Set,
}

/// Progress of a child pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Phase {
    #[default]
    Absent,
    /// The manifest that it begins with was read.
    Read,
    /// Its hold exists, and is not confirmed.
    Held,
    Live,
    /// Its manifest was deleted at this time; the hold remains.
    Left(u8),
    Gone,
}

/// A child pool; its hold exists in `Held`, `Live` and `Left`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Child {
    phase: Phase,
    objects: Set,
    /// The first child is its parent.
    from_child: bool,
    /// Time at which its hold was created.
    held_at: Option<u8>,
}

/// A reader without a hold, protected by its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Reader {
    /// Time at which a renewal was sent, and the checkpoint that the store answered with.
    renewal: Option<(u8, Option<Set>)>,
    objects: Set,
    /// Time from which its lease counts.
    since: Option<u8>,
}

/// Events that a state does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Events {
    pub(crate) replaced_holder_deletes: bool,
    pub(crate) successor_deletes: bool,
    pub(crate) child_refused: bool,
    pub(crate) renewed_too_late: bool,
}

/// A state of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct World {
    /// The store's time.
    now: u8,
    /// Number of claims; the holder is the last one.
    claims: u8,
    /// Objects of the newest checkpoint.
    checkpoint: Set,
    /// Times in the trash list of the newest checkpoint, as its writer recorded them.
    trash: [Option<u8>; OBJECTS],
    deleted: Set,
    holders: [Holder; HOLDERS],
    children: [Child; CHILDREN],
    reader: Reader,
    pub(crate) events: Events,
}

/// Next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The store's time advances.
    Tick,
    /// A second holder claims the parent.
    Claim,
    /// A holder writes a checkpoint without an object, and its trash list.
    Build {
        /// Holder.
        holder: u8,
        /// Object.
        object: u8,
    },
    /// The manifest is swapped for that checkpoint.
    Swap {
        /// Holder.
        holder: u8,
    },
    /// A holder lists the holds, and finds none that refers to an object.
    Clear {
        /// Holder.
        holder: u8,
        /// Object.
        object: u8,
    },
    /// The delete of a cleared object is applied.
    Delete {
        /// Holder.
        holder: u8,
        /// Object.
        object: u8,
    },
    /// A child reads the manifest of the parent, or of the first child.
    Read {
        /// Child.
        child: u8,
        /// The manifest is that of the first child.
        from_child: bool,
    },
    /// A child creates its hold in the parent.
    Hold {
        /// Child.
        child: u8,
    },
    /// A child reads that manifest again, and confirms or abandons its hold.
    Confirm {
        /// Child.
        child: u8,
    },
    /// The manifest of a child is deleted.
    Leave {
        /// Child.
        child: u8,
    },
    /// The hold of a deleted child is removed.
    Release {
        /// Child.
        child: u8,
    },
    /// The reader sends the renewal of its lease.
    Renew,
    /// The store answers the renewal.
    Answer,
    /// The answer arrives.
    Renewed,
}

impl World {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self { claims: 1, checkpoint: bit(bounds.objects) - 1, ..Self::default() }
    }

    fn holder(&self, holder: u8) -> &Holder {
        &self.holders[usize::from(holder)]
    }

    fn holder_mut(&mut self, holder: u8) -> &mut Holder {
        &mut self.holders[usize::from(holder)]
    }

    fn child(&self, child: u8) -> &Child {
        &self.children[usize::from(child)]
    }

    fn child_mut(&mut self, child: u8) -> &mut Child {
        &mut self.children[usize::from(child)]
    }

    /// Every step that is possible now.
    pub(crate) fn steps(&self, model: &Cleaning, steps: &mut Vec<Step>) {
        if self.now < model.bounds.ticks {
            steps.push(Step::Tick);
        }
        if model.bounds.take_over && self.claims == 1 {
            steps.push(Step::Claim);
        }
        for holder in 0..self.claims {
            self.holder_steps(model, holder, steps);
        }
        for child in 0..model.bounds.children {
            self.child_steps(model, child, steps);
        }
        if model.bounds.reader {
            steps.push(match self.reader.renewal {
                None => Step::Renew,
                Some((_, None)) => Step::Answer,
                Some((_, Some(_))) => Step::Renewed,
            });
        }
    }

    fn holder_steps(&self, model: &Cleaning, holder: u8, steps: &mut Vec<Step>) {
        let it = self.holder(holder);
        let is_present = self.claims == holder + 1;
        if it.building.is_some() && is_present {
            steps.push(Step::Swap { holder });
        }
        for object in 0..model.bounds.objects {
            if it.building.is_none() && is_present && self.checkpoint & bit(object) != 0 {
                steps.push(Step::Build { holder, object });
            }
            let is_due = self.is_due(model, holder, object);
            let is_known = it.building.is_some_and(|(building, _)| building == object)
                || it.not_before[usize::from(object)].is_some();
            let may_list = is_due || is_known && !model.rules.holds_are_listed_when_due;
            let is_cleared = it.cleared & bit(object) != 0;
            if may_list && !is_cleared && !self.is_listed(model, object) {
                steps.push(Step::Clear { holder, object });
            }
            if is_due && is_cleared && self.deleted & bit(object) == 0 {
                steps.push(Step::Delete { holder, object });
            }
        }
    }

    /// Returns `true` if the holder saw the object's drop applied, and the delay is over.
    fn is_due(&self, model: &Cleaning, holder: u8, object: u8) -> bool {
        let it = self.holder(holder);
        let building = it.building.filter(|(building, _)| *building == object);
        let early =
            building.filter(|_| !model.rules.delete_follows_swap).map(|(_, built)| built + delay(model));
        let time = it.not_before[usize::from(object)].or(early);
        time.is_some_and(|time| time <= self.now)
    }

    /// Returns `true` if a list of the holds has one that refers to the object, however old the list may be.
    fn is_listed(&self, model: &Cleaning, object: u8) -> bool {
        let refers = |child: &Child| child.objects & bit(object) != 0;
        let is_old = |child: &Child| child.held_at.is_some_and(|at| at + model.bounds.list_lag <= self.now);
        model.rules.holds_are_checked && self.children.iter().any(|child| refers(child) && is_old(child))
    }

    fn child_steps(&self, model: &Cleaning, child: u8, steps: &mut Vec<Step>) {
        let it = self.child(child);
        match it.phase {
            Phase::Absent => {
                if self.checkpoint != 0 {
                    steps.push(Step::Read { child, from_child: false });
                }
                if model.bounds.chains && child == 1 && self.child(0).phase == Phase::Live {
                    steps.push(Step::Read { child, from_child: true });
                }
            }
            Phase::Read => steps.push(Step::Hold { child }),
            Phase::Held => steps.push(Step::Confirm { child }),
            Phase::Live => steps.push(Step::Leave { child }),
            Phase::Left(at) if self.now >= at + DELAY_TICKS || !model.rules.hold_removal_is_delayed => {
                steps.push(Step::Release { child });
            }
            Phase::Left(_) | Phase::Gone => {}
        }
    }

    /// Executes a step.
    pub(crate) fn take(&mut self, model: &Cleaning, step: Step) {
        let now = self.now;
        match step {
            Step::Tick => self.now += 1,
            Step::Claim => self.claim(model),
            Step::Build { holder, object } => self.holder_mut(holder).building = Some((object, now)),
            Step::Swap { holder } => self.swap(model, holder),
            Step::Clear { holder, object } => self.holder_mut(holder).cleared |= bit(object),
            Step::Delete { holder, object } => {
                self.deleted |= bit(object);
                self.events.replaced_holder_deletes |= self.claims > holder + 1;
                let dropped_by_first = self.holder(0).not_before[usize::from(object)].is_some();
                self.events.successor_deletes |= holder == 1 && dropped_by_first;
            }
            Step::Read { child, from_child } => {
                let objects = if from_child { self.child(0).objects } else { self.checkpoint };
                *self.child_mut(child) = Child { phase: Phase::Read, objects, from_child, held_at: None };
            }
            Step::Hold { child } => {
                let it = self.child_mut(child);
                it.phase = Phase::Held;
                it.held_at = Some(now).filter(|_| !it.from_child || model.rules.chains_hold_every_pool);
            }
            Step::Confirm { child } => self.confirm(model, child),
            Step::Leave { child } => self.child_mut(child).phase = Phase::Left(now),
            Step::Release { child } => {
                *self.child_mut(child) = Child { phase: Phase::Gone, ..Child::default() };
            }
            Step::Renew => self.reader.renewal = Some((now, None)),
            Step::Answer => {
                self.reader.renewal = self.reader.renewal.map(|(at, _)| (at, Some(self.checkpoint)));
            }
            Step::Renewed => self.renewed(model),
        }
    }

    fn claim(&mut self, model: &Cleaning) {
        let counts_from_claim = model.rules.delay_counts_from_swap && model.rules.times_are_the_stores;
        let trash = if model.rules.trash_is_inherited { self.trash } else { [None; OBJECTS] };
        for (object, recorded) in trash.into_iter().enumerate() {
            let from = recorded.map(|recorded| if counts_from_claim { self.now } else { recorded });
            self.holders[1].not_before[object] = from.map(|from| from + delay(model));
        }
        self.claims = 2;
    }

    fn swap(&mut self, model: &Cleaning, holder: u8) {
        let Some((object, built)) = self.holder_mut(holder).building.take() else { return };
        let index = usize::from(object);
        let from = if model.rules.delay_counts_from_swap { self.now } else { built };
        self.holder_mut(holder).not_before[index] = Some(from + delay(model));
        let recorded = if model.rules.times_are_the_stores { from } else { from.saturating_sub(SKEW_TICKS) };
        self.trash[index] = Some(recorded);
        self.checkpoint &= !bit(object);
    }

    fn confirm(&mut self, model: &Cleaning, child: u8) {
        let it = *self.child(child);
        let is_there = if it.from_child {
            self.child(0).phase == Phase::Live
        } else {
            it.objects & !self.checkpoint == 0
        };
        if is_there || !model.rules.child_confirms_hold {
            self.child_mut(child).phase = Phase::Live;
        } else {
            *self.child_mut(child) = Child { phase: Phase::Gone, ..Child::default() };
            self.events.child_refused = true;
        }
    }

    fn renewed(&mut self, model: &Cleaning) {
        let Some((sent, Some(answer))) = self.reader.renewal.take() else { return };
        let since = if model.rules.lease_counts_from_sending { sent } else { self.now };
        self.events.renewed_too_late |= self.now > since + LEASE_TICKS;
        if model.rules.renewal_reads_manifest || !self.reader_is_valid() {
            self.reader.objects = answer;
        }
        self.reader.since = Some(since);
    }

    /// Returns `true` if the reader may still read; its clock may be slower than the store's by less than a tick.
    fn reader_is_valid(&self) -> bool {
        self.reader.since.is_some_and(|since| self.now <= since + LEASE_TICKS)
    }

    pub(crate) fn checkpoint_exists(&self) -> bool {
        self.checkpoint & self.deleted == 0
    }

    pub(crate) fn children_exist(&self) -> bool {
        self.children.iter().all(|child| child.phase != Phase::Live || child.objects & self.deleted == 0)
    }

    pub(crate) fn reader_exists(&self) -> bool {
        !self.reader_is_valid() || self.reader.objects & self.deleted == 0
    }

    /// Judges the holder of the last claim at a time when every delay is over.
    pub(crate) fn garbage_is_deletable(&self) -> bool {
        let holder = self.holder(self.claims - 1);
        (0..OBJECTS).all(|object| self.trash[object].is_none() || holder.not_before[object].is_some())
    }

    pub(crate) fn child_keeps_trash(&self) -> bool {
        let is_due = |time: Option<u8>| time.is_some_and(|time| time <= self.now);
        self.children.iter().any(|child| {
            let objects = (0..OBJECTS).filter(|object| child.objects >> object & 1 == 1);
            child.phase == Phase::Live && objects.map(|object| self.holders[0].not_before[object]).any(is_due)
        })
    }

    pub(crate) fn grandchild_is_alone(&self) -> bool {
        let [first, second] = &self.children;
        second.phase == Phase::Live && second.from_child && first.phase == Phase::Gone
    }
}

fn delay(model: &Cleaning) -> u8 {
    if model.rules.delete_is_delayed { DELAY_TICKS } else { 0 }
}
