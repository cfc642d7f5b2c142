//! Replacement policies at the granularity of one extent, for comparison with the cache's at that of a unit.
//!
//! Job: decide for every access whether it is a hit, under LRU, FIFO, CLOCK, 2Q, ARC, LIRS, S3-FIFO, SIEVE, W-TinyLFU
//! and Belady's MIN, each as its authors describe it. Entries have one size and no contents.
//!
//! Invariants: never more resident keys than the capacity; every accessed key is resident afterwards; memory is
//! bounded by the capacity (ghost entries by a small multiple of it), except for Belady's, which holds four bytes per
//! future access. Equal accesses have equal results.
//!
//! It does not read traces, or distinguish reads from writes. Only [`Lru`] drops a key on request.
#![forbid(unsafe_code)]

mod arc;
mod arena;
mod belady;
mod kind;
mod lirs;
mod lru;
mod queues;
mod s3_fifo;
mod sieve;
mod sketch;
mod tiny_lfu;
mod two_q;

pub use belady::Belady;
pub use kind::{Kind, NoSuchPolicy};
pub use lru::Lru;

/// Largest capacity in extents: with ghosts, nodes stay well within 32 bits.
pub const CAPACITY_MAX: usize = 1 << 29;

/// A cache of keys.
pub trait Policy: std::fmt::Debug + Send {
    /// Accesses a key; returns `true` if it was resident. It is resident afterwards.
    fn access(&mut self, key: u64) -> bool;

    /// Keys that are there.
    fn len(&self) -> usize;

    /// Returns `true` if none is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the RAM in bytes, without the allocator's overhead.
    fn ram_bytes(&self) -> u64;
}

/// Map of keys with its memory use.
#[derive(Debug)]
pub(crate) struct Keys<V>(zc_core::Map<u64, V>);

impl<V: Copy> Keys<V> {
    pub(crate) fn new() -> Self {
        Self(zc_core::Map::default())
    }

    pub(crate) fn get(&self, key: u64) -> Option<V> {
        self.0.get(&key).copied()
    }

    pub(crate) fn set(&mut self, key: u64, value: V) {
        self.0.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: u64) {
        self.0.remove(&key);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        // One byte of control each, at a load of at most seven eighths.
        zc_core::u64_from_usize(self.0.capacity() / 7 * 8 * (size_of::<(u64, V)>() + 1))
    }
}

#[cfg(test)]
mod properties_tests;
