//! Model of the log of a pool on objects: claims, fences, pipelined creates, checkpoints and deletes of replaced logs.
//!
//! Job: up to three holders claim one pool, one after the other or at the same time. Each may stall at any step and
//! return later; a crash is a stall that does not end. Creates are delivered late, out of order and more than once, and
//! their answers may be lost. Each reachable state is checked, and in each a fresh holder opens the pool alone.
//!
//! Invariants: a step is one atomic operation of the object store, or one decision of a holder. [`Rules`] has the
//! conditions of the design; a disabled rule is a deliberate bug. `OBJECTS.md` names the properties and the bounds.
//!
//! It does not model contents, references or time: the module `cleaning` does.

mod holder;
mod properties;

pub use holder::{Step, World};

use stateright::{Model, Property};

/// Holders of a run, and so epochs.
pub const EPOCHS: usize = 3;
/// Rows of object names: one per epoch.
pub(crate) const ROWS: u8 = 3;

/// Object names of a row, including the fence.
pub(crate) const NUMBERS: usize = 5;
pub(crate) const NUMBERS_OF_ROW: std::ops::Range<u8> = 0..5;

/// Bounds of the exploration; the number of states grows with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Claims, at most [`EPOCHS`].
    pub claims: u8,
    /// Commits of each holder, at most four.
    pub commits: [u8; EPOCHS],
    /// Numbers in flight of a holder.
    pub window: u8,
    /// Holders checkpoint, and delete the objects that the checkpoint replaced.
    pub cleaning: bool,
    /// Swaps of checkpoints may be late or without an answer, and another one is sent then.
    pub late_swaps: bool,
}

/// Rules of the design. A disabled rule is a deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// An opener fences each open epoch.
    pub fences: bool,
    /// The fence is created at the first missing number.
    pub fence_at_first_missing: bool,
    /// No cleaner deletes a fence.
    pub fence_is_kept: bool,
    /// A commit is acknowledged when its object and all objects below it exist.
    pub ack_needs_all_below: bool,
    /// Names contain the epoch.
    pub epochs_in_names: bool,
    /// The window limits numbers above the oldest unknown one, not requests in flight.
    pub window_counts_numbers: bool,
    /// A create fails if the name is in use.
    pub creates_are_exclusive: bool,
    /// The manifest is replaced by compare-and-swap.
    pub manifest_is_swapped: bool,
    /// A holder judges the outcome of a swap by the manifest's content, and not by the holder that it names.
    pub swap_is_judged_by_content: bool,
    /// An opener reads the manifest again after its last fence, and serves if it is still the holder.
    pub opener_checks_claim: bool,
    /// Objects are deleted when the swap that dropped them is known to be applied.
    pub delete_follows_swap: bool,
}

impl Rules {
    /// The rules of the design.
    pub const ALL: Self = Self {
        fences: true,
        fence_at_first_missing: true,
        fence_is_kept: true,
        ack_needs_all_below: true,
        epochs_in_names: true,
        window_counts_numbers: true,
        creates_are_exclusive: true,
        manifest_is_swapped: true,
        swap_is_judged_by_content: true,
        opener_checks_claim: true,
        delete_follows_swap: true,
    };
}

/// The model: rules and bounds.
#[derive(Debug, Clone, Copy)]
pub struct Fencing {
    /// Rules of the design.
    pub rules: Rules,
    /// Bounds of the exploration.
    pub bounds: Bounds,
}

/// S4: every acknowledged commit is in what each later holder reads.
pub const KEPT: &str = "later holders read every acknowledged commit";
/// Two holders never disagree on the commits of those before both.
pub const AGREED: &str = "holders agree on earlier commits";
/// A writer that was replaced finds a fence at its next number.
pub const FENCED: &str = "a replaced writer finds a fence";
/// Progress: the present holder's next number is free, or its own.
pub const FREE: &str = "the present holder can commit";
/// A name that was deleted is created again with the same bytes or not at all.
pub const SAME: &str = "no deleted name returns with other content";
/// One writer acknowledges a number.
pub const ONCE: &str = "no two writers acknowledge one number";
/// Orphans can be found without listing objects.
pub const NEAR: &str = "orphans lie within the window behind a fence";

/// Properties that must be reachable; otherwise the check proves nothing.
pub const REACHED: [&str; 7] = [
    "a number exists above a missing one",
    "a writer is acknowledged after it was replaced",
    "a deleted object is created again",
    "an opener finds that it was replaced",
    "three holders have opened",
    "a late fence lands on a deleted name",
    "an earlier swap is applied after a later one was sent",
];

impl Model for Fencing {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, state: &World, steps: &mut Vec<Step>) {
        state.steps(self, steps);
    }

    fn next_state(&self, state: &World, step: Step) -> Option<World> {
        let mut next = *state;
        next.take(self, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |model: &Self, state: &World| state.keeps_acknowledged(model)),
            Property::always(AGREED, |model: &Self, state: &World| state.holders_agree(model)),
            Property::always(FENCED, |model: &Self, state: &World| state.replaced_are_fenced(model)),
            Property::always(FREE, |model: &Self, state: &World| state.holder_is_free(model)),
            Property::always(SAME, |_, state: &World| !state.returned_changed),
            Property::always(ONCE, |model: &Self, state: &World| state.acknowledges_once(model)),
            Property::always(NEAR, |model: &Self, state: &World| state.orphans_are_near(model)),
            Property::sometimes(REACHED[0], |_, state: &World| state.has_hole()),
            Property::sometimes(REACHED[1], |_, state: &World| state.late_acknowledgement),
            Property::sometimes(REACHED[2], |_, state: &World| state.has_returned()),
            Property::sometimes(REACHED[3], |_, state: &World| state.has_stopped()),
            Property::sometimes(REACHED[4], |_, state: &World| state.serving().count() == EPOCHS),
            Property::sometimes(REACHED[5], |_, state: &World| state.has_late_fence()),
            Property::sometimes(REACHED[6], |_, state: &World| state.has_other_swap()),
        ]
    }
}
