//! Model of deletes in a pool on objects: trash lists, holds of child pools, and readers with leases.
//!
//! Job: up to two holders of a parent pool, of which the first may be replaced and return, drop objects from the
//! checkpoint and delete them later. Child pools begin at the parent, or at each other, and a reader reads elsewhere.
//! Requests and answers wait for any time between two steps; the store's time advances by ticks.
//!
//! Invariants: nothing that the checkpoint, a child or a valid reader refers to is deleted. [`Rules`] has the
//! conditions; a disabled rule is a deliberate bug. `OBJECTS.md` names the properties and the bounds.
//!
//! It does not model the log: the module `fencing` does. An object is a log object, a page pack or a checkpoint part.

mod parties;

pub use parties::{Step, World};

use stateright::{Model, Property};

/// Holders of the parent.
pub(crate) const HOLDERS: usize = 2;
/// Child pools.
pub(crate) const CHILDREN: usize = 2;
/// Objects of the first checkpoint.
pub(crate) const OBJECTS: usize = 2;
/// Length of a lease in ticks, by the reader's monotonic clock.
pub(crate) const LEASE_TICKS: u8 = 1;
/// Ticks between a drop and its delete: the lease, and one for the drift of the reader's clock.
pub(crate) const DELAY_TICKS: u8 = LEASE_TICKS + 1;
/// Ticks by which the wall clock of the first holder is behind that of the store.
pub(crate) const SKEW_TICKS: u8 = 2;

/// Bounds of the exploration; the number of states grows with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The store's time at the end.
    pub ticks: u8,
    /// Objects of the first checkpoint, at most two.
    pub objects: u8,
    /// The first holder may be replaced.
    pub take_over: bool,
    /// Child pools, at most two.
    pub children: u8,
    /// The second child may begin at the first one.
    pub chains: bool,
    /// A reader without a hold, protected by its lease.
    pub reader: bool,
    /// Ticks for which a list may lack a new hold.
    pub list_lag: u8,
}

/// Rules of deletes. A disabled rule is a deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A dropped object is deleted later than the longest lease.
    pub delete_is_delayed: bool,
    /// Objects are deleted when the swap that dropped them is known to be applied.
    pub delete_follows_swap: bool,
    /// A successor reads the trash list of its predecessor.
    pub trash_is_inherited: bool,
    /// The delay begins with the answer of the swap that dropped the object, or with the claim of a successor.
    pub delay_counts_from_swap: bool,
    /// Times in trash lists are those of the store.
    pub times_are_the_stores: bool,
    /// Objects of holds are kept.
    pub holds_are_checked: bool,
    /// Holds are listed when the delay is over.
    pub holds_are_listed_when_due: bool,
    /// A child reads the parent's manifest again after its hold exists.
    pub child_confirms_hold: bool,
    /// A child of a child has holds in all pools that it refers to.
    pub chains_hold_every_pool: bool,
    /// A hold is removed later than its child's manifest, by the delay.
    pub hold_removal_is_delayed: bool,
    /// A lease counts from the sending of its renewal.
    pub lease_counts_from_sending: bool,
    /// A renewal reads the manifest, and the reader continues with the version read.
    pub renewal_reads_manifest: bool,
}

impl Rules {
    /// The rules that hold.
    pub const ALL: Self = Self {
        delete_is_delayed: true,
        delete_follows_swap: true,
        trash_is_inherited: true,
        delay_counts_from_swap: true,
        times_are_the_stores: true,
        holds_are_checked: true,
        holds_are_listed_when_due: true,
        child_confirms_hold: true,
        chains_hold_every_pool: true,
        hold_removal_is_delayed: true,
        lease_counts_from_sending: true,
        renewal_reads_manifest: true,
    };
}

/// The model: rules and bounds.
#[derive(Debug, Clone, Copy)]
pub struct Cleaning {
    /// Rules of deletes.
    pub rules: Rules,
    /// Bounds of the exploration.
    pub bounds: Bounds,
}

/// The newest checkpoint refers to no deleted object.
pub const LIVE: &str = "objects of the checkpoint exist";
/// A child refers to no deleted object.
pub const HELD: &str = "objects of children exist";
/// A reader whose lease is valid by its own clock refers to no deleted object.
pub const READABLE: &str = "objects of valid readers exist";
/// Progress: the current holder can delete objects that are neither referred to nor held.
pub const FREED: &str = "the present holder can delete garbage";

/// Properties that must be reachable; otherwise the check proves nothing.
pub const REACHED: [&str; 6] = [
    "a replaced holder deletes",
    "a child finds that its checkpoint was dropped",
    "a child lives while its object is in the trash",
    "a child of a child outlives its parent",
    "a renewal is answered when the lease has ended",
    "a successor deletes objects that its predecessor dropped",
];

impl Model for Cleaning {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.bounds)]
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
            Property::always(LIVE, |_, state: &World| state.checkpoint_exists()),
            Property::always(HELD, |_, state: &World| state.children_exist()),
            Property::always(READABLE, |_, state: &World| state.reader_exists()),
            Property::always(FREED, |_, state: &World| state.garbage_is_deletable()),
            Property::sometimes(REACHED[0], |_, state: &World| state.events.replaced_holder_deletes),
            Property::sometimes(REACHED[1], |_, state: &World| state.events.child_refused),
            Property::sometimes(REACHED[2], |_, state: &World| state.child_keeps_trash()),
            Property::sometimes(REACHED[3], |_, state: &World| state.grandchild_is_alone()),
            Property::sometimes(REACHED[4], |_, state: &World| state.events.renewed_too_late),
            Property::sometimes(REACHED[5], |_, state: &World| state.events.successor_deletes),
        ]
    }
}
