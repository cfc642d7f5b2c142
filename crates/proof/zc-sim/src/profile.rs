//! Profiles: what kind of machine a seed is.
//!
//! Job: most faults need several unlikely things together. Drawn one by one from wide ranges they hardly ever meet, so
//! each seed draws a profile first, which narrows some ranges to where one kind of fault lives (swarm testing). The
//! plain profile narrows nothing.

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use crate::zone::Zone;

/// Kinds of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Anything.
    Plain,
    /// Two to four volumes write back, share content, and flush often; crashes follow flushes; pieces and flushes of
    /// the device hang.
    Shared,
    /// Generations of one bit or two, and dirty data that stays: the few slots that are left are used again and again,
    /// and old index entries look like new ones.
    Tiny,
    /// Starts are cut off and followed by crashes, and clients write at once.
    Restarts,
    /// Dirty extents rot on a device that is honest but for that, and are written anew: what was written later has to
    /// reach the origin.
    Rotting,
    /// Little but the schedules of `aimed`, on a device that is honest.
    Aimed,
    /// The first of several volumes has an origin without space at times, until something is discarded there. There is
    /// little room for dirty data.
    Full,
}

/// What clients do, and when the machine is cut off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Habits {
    /// Of 100 requests, how many are flushes.
    pub(crate) flushes: u32,
    /// Of the writes, the share of those with contents of the pool.
    pub(crate) duplicates: f64,
    /// Of the writes, the share of those that are durable when they end.
    pub(crate) fua: f64,
    /// Of the flushes that end, the share of those that a crash follows within a few turns.
    pub(crate) crash_after_flush: f64,
    /// What hangs most often, and then for a short time; after it, at times, flushes of the cache device do.
    pub(crate) hangs: Option<Zone>,
    /// After so many numbers the pool of contents is another one; 0: never.
    pub(crate) pool_turns: u64,
    /// A volume serves mostly the first so many of its bytes.
    pub(crate) hot_bytes: Option<usize>,
    /// A start is followed by a crash this often.
    pub(crate) crash_after_start: f64,
    /// Of the sessions that would end by chance, the share of those that do.
    pub(crate) ends: f64,
    /// Of 1000 turns, how many are one of the schedules in [`crate::aimed`].
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

    /// What a seed draws: nearly half of the seeds are plain.
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
