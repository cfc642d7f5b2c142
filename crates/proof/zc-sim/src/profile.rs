//! Profiles: the kind of machine that a seed simulates.
//!
//! Job: most faults need several unlikely events together. Drawn independently from wide ranges these hardly ever
//! coincide, so each seed first draws a profile, which narrows some ranges to those of one kind of fault (swarm
//! testing). The plain profile narrows nothing.

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::zone::Zone;

/// Kinds of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Unrestricted ranges.
    Plain,
    /// Two to four volumes write back, share content, and flush often; crashes follow flushes; pieces and flushes of
    /// the device hang.
    Shared,
    /// Generations of one or two bits, and lasting dirty data. The few remaining slots are reused again and again,
    /// and old index entries look like new ones.
    Tiny,
    /// Starts are cut off and followed by crashes, and clients write at once.
    Restarts,
    /// Dirty extents become corrupt on an otherwise honest device and are rewritten; later writes have to reach the
    /// origin.
    Rotting,
    /// Mostly the schedules of `aimed`, on an honest device.
    Aimed,
    /// The first of several volumes has an origin without space at times, until a discard. Capacity for dirty data is
    /// small.
    Full,
}

/// Habits of clients, and chances of crashes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Habits {
    /// Number of flushes in 100 requests.
    pub(crate) flushes: u32,
    /// Share of writes that use pool contents.
    pub(crate) duplicates: f64,
    /// Share of writes that are durable when they complete.
    pub(crate) fua: f64,
    /// Share of completed flushes that a crash follows within a few turns.
    pub(crate) crash_after_flush: f64,
    /// Zone that hangs most often, for short times; at times flushes of the cache device hang after it.
    pub(crate) hangs: Option<Zone>,
    /// Request numbers after which the pool of contents changes; 0: never.
    pub(crate) pool_turns: u64,
    /// Leading bytes of a volume that receive most requests.
    pub(crate) hot_bytes: Option<usize>,
    /// Chance that a crash follows a start.
    pub(crate) crash_after_start: f64,
    /// Share of random session ends that are carried out.
    pub(crate) ends: f64,
    /// Number in 1000 turns that are schedules of `aimed`.
    pub(crate) aimed: u32,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            flushes: 5,
            duplicates: 0.4,
            fua: 0.05,
            crash_after_flush: 0.0,
            hangs: None,
            pool_turns: 0,
            hot_bytes: None,
            crash_after_start: 0.25,
            ends: 1.0,
            aimed: 0,
        }
    }
}

impl Profile {
    /// All profiles, with their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("plain", Self::Plain),
        ("shared", Self::Shared),
        ("tiny", Self::Tiny),
        ("restarts", Self::Restarts),
        ("rotting", Self::Rotting),
        ("aimed", Self::Aimed),
        ("full", Self::Full),
    ];

    /// Draws the profile of a seed; nearly half of the seeds are plain.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        match Pcg64Mcg::seed_from_u64(seed ^ 0x5057).random_range(0..16) {
            0..6 => Self::Plain,
            6 => Self::Full,
            7 => Self::Rotting,
            8..11 => Self::Shared,
            11 => Self::Aimed,
            12..14 => Self::Tiny,
            _ => Self::Restarts,
        }
    }

    pub(crate) fn note(self) -> &'static str {
        match self {
            Self::Plain => "profile plain",
            Self::Shared => "profile shared",
            Self::Tiny => "profile tiny",
            Self::Restarts => "profile restarts",
            Self::Rotting => "profile rotting",
            Self::Aimed => "profile aimed",
            Self::Full => "profile full",
        }
    }
}
