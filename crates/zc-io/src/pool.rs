//! A pool of buffer memory with a hard bound.
//!
//! Job: hand out [`AlignedBuf`]s without going to the allocator (and without clearing memory) each time.
//! Memory is kept in size classes, powers of two from one page on, so that a freed buffer fits the next request.
//!
//! Invariants: memory in use plus memory kept idle never exceeds the bound given at the start; idle memory of
//! other classes is released before a request is refused.
//!
//! What it does not do: wait. A refused request is the caller's signal for back-pressure.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zc_core::usize_from_u32;

use crate::buf::{AlignedBuf, PAGE_BYTES, Pages};
use crate::limits::BUF_BYTES_MAX;

/// Size classes: 4 KiB, 8 KiB, ..., 1 GiB.
const CLASSES: usize = usize_from_u32((BUF_BYTES_MAX / PAGE_BYTES).ilog2()) + 1;

/// A pool of buffers; clones share it.
#[derive(Clone)]
pub struct BufPool(Arc<PoolShared>);

/// How much memory a pool holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUse {
    /// Bytes in buffers that are handed out, rounded up to their size classes.
    pub used_bytes: usize,
    /// Bytes kept for the next requests.
    pub idle_bytes: usize,
    /// Requests refused so far because the bound was reached.
    pub refused: u64,
}

pub(crate) struct PoolShared {
    max_bytes: usize,
    state: Mutex<State>,
}

struct State {
    idle: [Vec<Pages>; CLASSES],
    usage: PoolUse,
}

fn class_of(len_bytes: usize) -> usize {
    let pages = len_bytes.div_ceil(PAGE_BYTES).max(1).next_power_of_two();
    usize_from_u32(pages.ilog2())
}

const fn class_bytes(class: usize) -> usize {
    PAGE_BYTES << class
}

impl BufPool {
    /// A pool that never holds more than `max_bytes`.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        let state = State { idle: [const { Vec::new() }; CLASSES], usage: PoolUse::default() };
        Self(Arc::new(PoolShared { max_bytes, state: Mutex::new(state) }))
    }

    /// A buffer of `len_bytes` with arbitrary (initialised) contents, or `None` at the bound.
    #[must_use]
    pub fn get(&self, len_bytes: usize) -> Option<AlignedBuf> {
        if len_bytes > BUF_BYTES_MAX {
            self.0.lock().usage.refused += 1;
            return None;
        }
        let class = class_of(len_bytes);
        let pages = self.0.take(class)?.unwrap_or_else(|| Pages::new(class_bytes(class)));
        Some(AlignedBuf::from_pages(pages, len_bytes, Arc::clone(&self.0)))
    }

    /// How much memory is in use and idle.
    #[must_use]
    pub fn usage(&self) -> PoolUse {
        self.0.lock().usage
    }

    /// The bound.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.0.max_bytes
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every section below leaves the state consistent, so a panic elsewhere while it is held changes nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accounts for one buffer of `class`: `Some(Some)` with idle memory, `Some(None)` if it is to be allocated.
    fn take(&self, class: usize) -> Option<Option<Pages>> {
        let bytes = class_bytes(class);
        let mut released = Vec::new();
        let mut state = self.lock();
        let State { idle, usage } = &mut *state;
        if let Some(pages) = idle[class].pop() {
            usage.idle_bytes -= bytes;
            usage.used_bytes += bytes;
            return Some(Some(pages));
        }
        if bytes > self.max_bytes.saturating_sub(usage.used_bytes) {
            usage.refused += 1;
            return None;
        }
        while usage.used_bytes + usage.idle_bytes + bytes > self.max_bytes {
            let Some(pages) = idle.iter_mut().rev().find_map(Vec::pop) else {
                unreachable!("{usage:?}: idle bytes are counted but no memory is idle");
            };
            usage.idle_bytes -= pages.len_bytes();
            released.push(pages);
        }
        usage.used_bytes += bytes;
        drop(state);
        // The allocator is entered without the lock.
        drop(released);
        Some(None)
    }

    pub(crate) fn put_back(&self, pages: Pages) {
        let bytes = pages.len_bytes();
        let class = class_of(bytes);
        assert_eq!(bytes, class_bytes(class), "memory came from another pool");
        let mut state = self.lock();
        state.usage.used_bytes -= bytes;
        state.usage.idle_bytes += bytes;
        state.idle[class].push(pages);
        debug_assert!(state.usage.used_bytes + state.usage.idle_bytes <= self.max_bytes, "pool bound broken");
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufPool").field("max_bytes", &self.0.max_bytes).field("usage", &self.usage()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_comes_back_and_is_used_again() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.get(5000).unwrap();
        buf.fill(9);
        assert_eq!((buf.held_bytes(), pool.usage().used_bytes), (8192, 8192));
        let address = buf.base();
        drop(buf);
        assert_eq!(pool.usage(), PoolUse { used_bytes: 0, idle_bytes: 8192, refused: 0 });
        assert_eq!(pool.get(8192).unwrap().base(), address);
    }

    #[test]
    fn the_bound_counts_and_idle_memory_of_other_classes_yields() {
        let pool = BufPool::new(16 << 10);
        let small: Vec<_> = (0..4).map(|_| pool.get(4096).unwrap()).collect();
        assert!(pool.get(1).is_none());
        drop(small);
        assert_eq!(pool.usage().idle_bytes, 16 << 10);
        let large = pool.get(12 << 10).unwrap();
        assert_eq!(pool.usage(), PoolUse { used_bytes: 16 << 10, idle_bytes: 0, refused: 1 });
        drop(large);
        assert!(pool.get(BUF_BYTES_MAX + 1).is_none());
    }

    #[test]
    fn a_buffer_outlives_the_pool_and_dies_on_another_thread() {
        let pool = BufPool::new(1 << 20);
        let buf = pool.get(100).unwrap();
        drop(pool);
        std::thread::spawn(move || drop(buf)).join().unwrap();
    }

    proptest! {
        #[test]
        fn the_sum_never_exceeds_the_bound(sizes in prop::collection::vec((0usize..40_000, any::<bool>()), 1..60)) {
            let pool = BufPool::new(128 << 10);
            let mut held = Vec::new();
            for (len_bytes, release) in sizes {
                if release && !held.is_empty() {
                    held.remove(len_bytes % held.len());
                }
                held.extend(pool.get(len_bytes));
                let usage = pool.usage();
                let used: usize = held.iter().map(|buf: &AlignedBuf| class_bytes(class_of(buf.len()))).sum();
                prop_assert_eq!(usage.used_bytes, used);
                prop_assert!(usage.used_bytes + usage.idle_bytes <= pool.max_bytes());
            }
        }
    }
}
