//! A small model of how dirty data becomes durable, checked in every reachable state.
//!
//! Job: two volumes of one sector each write back through one unit and one journal. The steps are those of
//! `zc-cache/CONSISTENCY.md`, section G5: pieces, commits, summaries, journal blocks, device flushes, checkpoints,
//! destaging. Stateright explores all orders of these steps, and in each state every crash: any subset of non-durable
//! writes may be lost. The state that a restart recovers is checked.
//!
//! - *G5, G2*: a volume holds the data of its last flush, or a later write. A later crash does not undo it.
//! - Each valid commit can be read, and no start finds a gap in the journal.
//!
//! Invariants: a step of the model is one event of the cache manager. [`Rules`] has the conditions of CONSISTENCY; all
//! of them hold in the cache manager. The tests disable one at a time, and the check finds a crash that shows why it
//! is needed.
//!
//! It does not run the cache manager's code, which zc-sim does. It does not model failing devices, bit rot, devices
//! that lie about flushes, the clean layer and its regions, eviction, or interrupted starts: a start is one step here.
//!
//! The modules [`fencing`] and [`cleaning`] are models of their own, of a pool in an object store (`OBJECTS.md`).
#![forbid(unsafe_code)]

pub mod cleaning;
mod device;
pub mod fencing;
mod loss;
mod manager;
mod restart;

pub use device::Crash;
pub use loss::Loss;
pub use manager::{State, Step};

use device::Record;
use stateright::{Model, Property};

/// Volumes of the model.
pub const VOLUMES: usize = 2;

/// The volume whose content may be stored in a clean unit.
pub(crate) const SHARER: u8 = 1;

/// Bounds of the exploration; the number of states grows with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Writes of each volume, at most four.
    pub writes: [u8; VOLUMES],
    /// Epochs also end by age.
    pub ageing: bool,
    /// Content may be shared with a clean unit.
    pub sharing: bool,
    /// Epochs are destaged to the origins.
    pub destaging: bool,
    /// Checkpoints in each session.
    pub checkpoints: u8,
    /// Crashes after which the volumes continue.
    pub crashes: u8,
}

/// Rules of the cache manager. A disabled rule is a deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// No summary while records of another commit that has not ended are in line.
    pub summary_is_alone: bool,
    /// No summary while a piece is not durable.
    pub summary_needs_durable_pieces: bool,
    /// A commit whose content is in another unit needs a flush.
    pub shared_content_needs_a_flush: bool,
    /// Content of a unit that is being written is not shared.
    pub shared_content_is_written: bool,
    /// A flush completes only commits that were ready when it was issued.
    pub flush_covers_what_had_ended: bool,
    /// A block proves earlier commits complete only if they have completed.
    pub proof_waits_for_commits: bool,
    /// A checkpoint has the journal kept from the first commit that has not ended.
    pub checkpoint_keeps_commits: bool,
    /// A checkpoint ends the chain of summaries.
    pub checkpoint_ends_chain: bool,
    /// A checkpoint does not begin while a summary is in flight.
    pub checkpoint_waits_for_summary: bool,
    /// An epoch is clean when the origin has flushed it.
    pub clean_needs_a_flush: bool,
    /// The unit of a dirty body is kept until `Clean` is durable.
    pub body_is_kept: bool,
}

impl Rules {
    /// The rules of the cache manager.
    pub const ALL: Self = Self {
        summary_is_alone: true,
        summary_needs_durable_pieces: true,
        shared_content_needs_a_flush: true,
        shared_content_is_written: true,
        flush_covers_what_had_ended: true,
        proof_waits_for_commits: true,
        checkpoint_keeps_commits: true,
        checkpoint_ends_chain: true,
        checkpoint_waits_for_summary: true,
        clean_needs_a_flush: true,
        body_is_kept: true,
    };
}

/// The model: rules and bounds.
#[derive(Debug, Clone, Copy)]
pub struct WriteBack {
    /// Rules of the manager.
    pub rules: Rules,
    /// Bounds of the exploration.
    pub bounds: Bounds,
}

/// Name of the property that every crash is judged by.
pub const SURVIVES: &str = "a crash loses nothing that was flushed";

/// Properties that must be reachable; otherwise the check proves nothing.
pub const REACHED: [&str; 6] = [
    "two summaries follow a block",
    "a flush covers a commit",
    "a commit shares content that is not durable",
    "a checkpoint is written while a commit waits",
    "only a summary knows that an epoch is clean",
    "a volume goes on after a crash",
];

impl Model for WriteBack {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.bounds)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.steps(self, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        next.take(self, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SURVIVES, |_, state: &State| state.losses().next().is_none()),
            Property::sometimes(REACHED[0], |_, state: &State| {
                state.device.summaries.len() == 2 && state.summary.is_none()
            }),
            Property::sometimes(REACHED[1], |_, state: &State| state.flush.is_some()),
            Property::sometimes(REACHED[2], |_, state: &State| state.shares_what_is_not_durable()),
            Property::sometimes(REACHED[3], |_, state: &State| {
                state.device.checkpoint_in_flight.is_some()
                    && state.volumes.iter().any(|volume| volume.commit.is_some())
            }),
            Property::sometimes(REACHED[4], |_, state: &State| {
                let written = state.line.iter().take(usize::from(state.in_summary));
                written.clone().any(|record| matches!(record, Record::Clean { .. }))
            }),
            Property::sometimes(REACHED[5], |model, state: &State| {
                state.crashes < model.bounds.crashes
                    && state.volumes.iter().any(|volume| volume.commit.is_some())
            }),
        ]
    }
}
