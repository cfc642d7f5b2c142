//! A pool of buffer memory with a hard bound.
//!
//! Job: hand out [`AlignedBuf`]s without an allocation (and without clearing memory) each time. Memory is kept in size
//! classes, powers of two from one page, so that a freed buffer fits the next request.
//!
//! Invariants: memory in use plus idle memory never exceeds the initial bound; idle memory of other classes is
//! released before a request is refused. Memory requested for an [`Owner`] holds zeros or bytes of that owner: memory
//! of another owner is cleared first. Idle memory that no request needed between two calls of [`BufPool::give_back`]
//! returns to the allocator.
//!
//! It does not wait. A refusal is the caller's back-pressure signal.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zc_core::usize_from_u32;

use crate::buf::{AlignedBuf, PAGE_BYTES, Pages};
use crate::limits::BUF_BYTES_MAX;

/// Size classes: 4 KiB, 8 KiB, ..., 1 GiB.
const CLASSES: usize = usize_from_u32((BUF_BYTES_MAX / PAGE_BYTES).ilog2()) + 1;

/// Search bound for memory of the same owner, in buffers of a class, latest first.
const OWN_SEARCH_MAX: usize = 8;

/// Owner of the bytes that a buffer may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// Any owner: for memory whose initial contents no client sees.
    pub const ANY: Self = Self(0);

    /// Returns the owner with this number.
    ///
    /// # Panics
    /// When the number is 0, which is [`Self::ANY`].
    #[must_use]
    pub const fn numbered(number: u64) -> Self {
        assert!(number != 0, "number 0 is no owner");
        Self(number)
    }
}

/// A pool of buffers; clones share it.
#[derive(Clone)]
pub struct BufPool(Arc<PoolShared>);

/// Memory usage of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUse {
    /// Bytes of buffers in use, rounded up to their size classes.
    pub used_bytes: usize,
    /// Idle bytes kept for later requests.
    pub idle_bytes: usize,
    /// Requests refused so far because the bound was reached.
    pub refused: u64,
}

pub(crate) struct PoolShared {
    max_bytes: usize,
    state: Mutex<State>,
}

struct State {
    idle: [Vec<(Pages, Owner)>; CLASSES],
    /// Minimum of idle buffers since the last [`BufPool::give_back`].
    idle_least: [usize; CLASSES],
    usage: PoolUse,
}

impl State {
    /// Takes idle memory of a class, preferably of the owner; the latest is the warmest in the CPU caches.
    fn take_idle(&mut self, class: usize, owner: Owner) -> Option<(Pages, Owner)> {
        let idle = &mut self.idle[class];
        let last = idle.len().checked_sub(1)?;
        let searched = last.saturating_sub(OWN_SEARCH_MAX - 1)..=last;
        let own = searched.rev().find(|&at| idle[at].1 == owner);
        let taken = idle.swap_remove(own.unwrap_or(last));
        self.idle_least[class] = self.idle_least[class].min(idle.len());
        Some(taken)
    }
}

fn class_of(len_bytes: usize) -> usize {
    let pages = len_bytes.div_ceil(PAGE_BYTES).max(1).next_power_of_two();
    usize_from_u32(pages.ilog2())
}

const fn class_bytes(class: usize) -> usize {
    PAGE_BYTES << class
}

impl BufPool {
    /// Creates a pool bounded by `max_bytes`.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        let state = State {
            idle: [const { Vec::new() }; CLASSES],
            idle_least: [0; CLASSES],
            usage: PoolUse::default(),
        };
        Self(Arc::new(PoolShared { max_bytes, state: Mutex::new(state) }))
    }

    /// Returns the memory of a buffer of `len_bytes` of a pool, see [`AlignedBuf::held_bytes`].
    #[must_use]
    pub fn held_bytes(len_bytes: usize) -> usize {
        class_bytes(class_of(len_bytes))
    }

    /// Returns a buffer of `len_bytes` with arbitrary (initialised) contents, or `None` at the bound.
    #[must_use]
    pub fn get(&self, len_bytes: usize) -> Option<AlignedBuf> {
        self.get_for(len_bytes, Owner::ANY)
    }

    /// As [`Self::get`], but with zeros or earlier bytes of `owner`.
    #[must_use]
    pub fn get_for(&self, len_bytes: usize, owner: Owner) -> Option<AlignedBuf> {
        if len_bytes > BUF_BYTES_MAX {
            self.0.lock().usage.refused += 1;
            return None;
        }
        let class = class_of(len_bytes);
        let (mut pages, before) =
            self.0.take(class, owner)?.unwrap_or_else(|| (Pages::new(class_bytes(class)), owner));
        if owner != before && owner != Owner::ANY {
            pages.clear();
        }
        Some(AlignedBuf::from_pages(pages, len_bytes, (Arc::clone(&self.0), owner)))
    }

    /// Releases memory that no request needed since the last call; returns its bytes.
    pub fn give_back(&self) -> usize {
        let mut released = Vec::new();
        let mut bytes = 0;
        let mut state = self.0.lock();
        let State { idle, idle_least, usage } = &mut *state;
        for (pages, least) in idle.iter_mut().zip(idle_least) {
            // The longest idle buffers are first.
            released.extend(pages.drain(..*least));
            *least = pages.len();
        }
        for (pages, _) in &released {
            bytes += pages.len_bytes();
        }
        usage.idle_bytes -= bytes;
        drop(state);
        // The allocator is called without the lock.
        drop(released);
        bytes
    }

    /// Returns the memory in use and idle.
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
        // Every critical section leaves the state consistent, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accounts for one buffer of `class`: `Some(Some)` with idle memory, `Some(None)` to allocate.
    fn take(&self, class: usize, owner: Owner) -> Option<Option<(Pages, Owner)>> {
        let bytes = class_bytes(class);
        let mut released = Vec::new();
        let mut state = self.lock();
        if let Some(taken) = state.take_idle(class, owner) {
            state.usage.idle_bytes -= bytes;
            state.usage.used_bytes += bytes;
            return Some(Some(taken));
        }
        let State { idle, idle_least, usage } = &mut *state;
        if bytes > self.max_bytes.saturating_sub(usage.used_bytes) {
            usage.refused += 1;
            return None;
        }
        while usage.used_bytes + usage.idle_bytes + bytes > self.max_bytes {
            let mut classes = idle.iter_mut().zip(&mut *idle_least).rev();
            let popped = classes.find_map(|(pages, least)| {
                let popped = pages.pop()?;
                *least = (*least).min(pages.len());
                Some(popped)
            });
            let Some((pages, _)) = popped else {
                unreachable!("{usage:?}: idle bytes are counted but no memory is idle");
            };
            usage.idle_bytes -= pages.len_bytes();
            released.push(pages);
        }
        usage.used_bytes += bytes;
        drop(state);
        // The allocator is called without the lock.
        drop(released);
        Some(None)
    }

    pub(crate) fn put_back(&self, pages: Pages, owner: Owner) {
        let bytes = pages.len_bytes();
        let class = class_of(bytes);
        assert_eq!(bytes, class_bytes(class), "memory came from another pool");
        let mut state = self.lock();
        state.usage.used_bytes -= bytes;
        state.usage.idle_bytes += bytes;
        state.idle[class].push((pages, owner));
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
    fn memory_of_another_owner_is_cleared_and_ones_own_comes_first() {
        let pool = BufPool::new(1 << 20);
        let (one, two) = (Owner::numbered(1), Owner::numbered(2));
        let used = |owner, byte| {
            let mut buf = pool.get_for(8192, owner).unwrap();
            buf.fill(byte);
            buf
        };
        drop((used(one, 1), used(two, 2), used(Owner::ANY, 3)));
        let of = |owner| pool.get_for(5000, owner).unwrap();
        let own = [of(one), of(two), of(Owner::ANY)];
        assert_eq!(own.each_ref().map(|buf| buf[4999]), [1, 2, 3], "each its own");
        drop(own);
        let (second, mut third, fourth) = (of(two), of(two), of(two));
        assert_eq!((second[0], third[0], fourth[0]), (2, 0, 0));
        assert_eq!(pool.usage().used_bytes, 3 * 8192, "the same memory");
        // Including bytes that a shorter buffer did not expose.
        third.fill(4);
        drop((second, third, fourth));
        let whole: Vec<AlignedBuf> = (0..3).map(|_| pool.get_for(8192, one).unwrap()).collect();
        assert!(whole.iter().all(|buf| buf.iter().all(|&byte| byte == 0)));
    }

    #[test]
    fn memory_that_no_request_needs_goes_back() {
        let pool = BufPool::new(1 << 20);
        let all: Vec<AlignedBuf> = (0..10).map(|_| pool.get(4096).unwrap()).collect();
        drop(all);
        assert_eq!((pool.give_back(), pool.usage().idle_bytes), (0, 10 * 4096), "it was in use before");
        let three: Vec<AlignedBuf> = (0..3).map(|_| pool.get(4096).unwrap()).collect();
        drop(three);
        assert_eq!((pool.give_back(), pool.usage().idle_bytes), (7 * 4096, 3 * 4096));
        assert_eq!((pool.give_back(), pool.usage().idle_bytes), (3 * 4096, 0));
        assert_eq!(pool.give_back(), 0);
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
        fn the_sum_never_exceeds_the_bound(sizes in prop::collection::vec((0usize..40_000, any::<bool>(), 0u8..9), 1..60)) {
            let pool = BufPool::new(128 << 10);
            let mut held = Vec::new();
            for (len_bytes, release, give_back) in sizes {
                if give_back == 0 {
                    pool.give_back();
                }
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
