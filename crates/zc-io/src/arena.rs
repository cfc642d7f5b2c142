//! A buffer whose disjoint parts are used concurrently by the kernel, workers and the data plane.
//!
//! Job: several device reads fill one reply buffer; a write unit is filled while finished parts of it are hashed.
//! [`Arena`] owns the memory and hands out leases of byte ranges: a [`Lease`] reads and writes its range exclusively,
//! a [`ReadLease`] shares it with other readers. A lease is the only access to the bytes, keeps the memory alive, and
//! can be given to the ring or to another thread.
//!
//! Invariants: no lease overlaps an exclusive one. A lease that would violate this is a bug of the caller and panics,
//! in release builds too, before any reference to the bytes exists.
#![expect(unsafe_code, reason = "hands out references to disjoint parts of one allocation")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buf::AlignedBuf;

/// A buffer that is accessed through leases; clones share it.
#[derive(Clone)]
pub struct Arena(Arc<Shared>);

struct Shared {
    buf: AlignedBuf,
    leases: Mutex<LeaseTable>,
}

/// Lease of a range; shared ones have a number.
#[derive(Debug)]
struct Leased {
    range: Range<usize>,
    number: Option<u64>,
}

impl Leased {
    const fn meets(&self, range: &Range<usize>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

/// Leased ranges. Empty ranges are never recorded.
#[derive(Debug, Default)]
struct LeaseTable {
    /// A lease outside of the maps. Most buffers have one at a time, so that their tables allocate nothing.
    single: Option<Leased>,
    /// Start to end; disjoint from everything else.
    exclusive: BTreeMap<usize, usize>,
    /// (start, number) to end; may overlap each other.
    shared: BTreeMap<(usize, u64), usize>,
    /// Longest lease in `shared` since it was last empty: the search bound for an overlapping lease that starts
    /// earlier.
    shared_bytes_max: usize,
    next_number: u64,
}

impl LeaseTable {
    fn meets_exclusive(&self, range: &Range<usize>) -> bool {
        let meets_single = self.single.as_ref().is_some_and(|one| one.number.is_none() && one.meets(range));
        meets_single
            || self.exclusive.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    fn meets_shared(&self, range: &Range<usize>) -> bool {
        if self.single.as_ref().is_some_and(|one| one.number.is_some() && one.meets(range)) {
            return true;
        }
        let first = range.start.saturating_sub(self.shared_bytes_max);
        self.shared.range((first, 0)..(range.end, 0)).any(|(_, &end)| end > range.start)
    }

    fn add_exclusive(&mut self, range: &Range<usize>) -> bool {
        if range.is_empty() {
            return true;
        }
        if self.meets_exclusive(range) || self.meets_shared(range) {
            return false;
        }
        if self.single.is_none() {
            self.single = Some(Leased { range: range.clone(), number: None });
        } else {
            self.exclusive.insert(range.start, range.end);
        }
        true
    }

    fn remove_single(&mut self, range: &Range<usize>, number: Option<u64>) -> bool {
        self.single.take_if(|one| one.number == number && one.range == *range).is_some()
    }

    fn remove_exclusive(&mut self, range: &Range<usize>) {
        if !range.is_empty() && !self.remove_single(range, None) {
            let end = self.exclusive.remove(&range.start);
            debug_assert_eq!(end, Some(range.end), "a lease is released as it was taken");
        }
    }

    /// Returns the number of the lease, or `None` if another lease writes the range.
    fn add_shared(&mut self, range: &Range<usize>) -> Option<u64> {
        if range.is_empty() {
            return Some(0);
        }
        if self.meets_exclusive(range) {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        if self.single.is_none() {
            self.single = Some(Leased { range: range.clone(), number: Some(number) });
        } else {
            self.shared.insert((range.start, number), range.end);
            self.shared_bytes_max = self.shared_bytes_max.max(range.len());
        }
        Some(number)
    }

    fn remove_shared(&mut self, range: &Range<usize>, number: u64) {
        if !range.is_empty() && !self.remove_single(range, Some(number)) {
            let end = self.shared.remove(&(range.start, number));
            debug_assert_eq!(end, Some(range.end), "a lease is released as it was taken");
            if self.shared.is_empty() {
                self.shared_bytes_max = 0;
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        // The table is consistent wherever a panic is possible.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of byte `start` of the buffer.
    fn at(&self, start: usize) -> NonNull<u8> {
        assert!(start <= self.buf.len_bytes(), "lease start out of range");
        // SAFETY: `start` is at most the length of the allocation, asserted above.
        unsafe { self.buf.base().add(start) }
    }

    fn assert_inside(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.buf.len_bytes(),
            "lease {range:?} of a buffer of {} bytes",
            self.buf.len_bytes()
        );
    }
}

impl Arena {
    /// Makes a buffer leasable.
    #[must_use]
    pub fn new(buf: AlignedBuf) -> Self {
        Self(Arc::new(Shared { buf, leases: Mutex::default() }))
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.buf.len_bytes()
    }

    /// Bytes of memory that the buffer holds, see [`AlignedBuf::held_bytes`].
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.buf.held_bytes()
    }

    /// Returns `true` if the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leases `range` for reading and writing.
    ///
    /// # Panics
    /// When the range is not inside the buffer or overlaps any lease.
    #[must_use]
    pub fn lease(&self, range: Range<usize>) -> Lease {
        let Some(lease) = self.try_lease(range.clone()) else {
            panic!("exclusive lease {range:?} overlaps another lease of the buffer");
        };
        lease
    }

    /// As [`Self::lease`], but `None` when the range overlaps another lease.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    #[must_use]
    pub fn try_lease(&self, range: Range<usize>) -> Option<Lease> {
        self.0.assert_inside(&range);
        self.0.lock().add_exclusive(&range).then(|| Lease { arena: Arc::clone(&self.0), range })
    }

    /// Leases `range` for reading.
    ///
    /// # Panics
    /// When the range is not inside the buffer or overlaps an exclusive lease.
    #[must_use]
    pub fn read_lease(&self, range: Range<usize>) -> ReadLease {
        let Some(lease) = self.try_read_lease(range.clone()) else {
            panic!("read lease {range:?} overlaps an exclusive lease of the buffer");
        };
        lease
    }

    /// As [`Self::read_lease`], but `None` when the range overlaps an exclusive lease.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    #[must_use]
    pub fn try_read_lease(&self, range: Range<usize>) -> Option<ReadLease> {
        self.0.assert_inside(&range);
        let number = self.0.lock().add_shared(&range)?;
        Some(ReadLease { arena: Arc::clone(&self.0), range, number })
    }

    /// Returns the buffer if there are no other handles and no leases.
    ///
    /// # Errors
    /// The arena itself, otherwise.
    pub fn try_into_buf(self) -> Result<AlignedBuf, Self> {
        Arc::try_unwrap(self.0).map(|shared| shared.buf).map_err(Self)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len", &self.len()).field("leases", &*self.0.lock()).finish()
    }
}

/// Exclusive lease of a range of an [`Arena`].
pub struct Lease {
    arena: Arc<Shared>,
    range: Range<usize>,
}

impl Lease {
    /// The range in the arena's buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.arena.at(self.range.start)
    }

    pub(crate) const fn len_bytes(&self) -> usize {
        self.range.end - self.range.start
    }

    /// Splits the lease into the first `mid_bytes` bytes and the rest.
    ///
    /// # Panics
    /// When `mid_bytes` is beyond the end of the lease.
    #[must_use]
    pub fn split_at(mut self, mid_bytes: usize) -> (Self, Self) {
        assert!(mid_bytes <= self.len_bytes(), "split of {:?} at {mid_bytes}", self.range);
        let mid = self.range.start + mid_bytes;
        let rest = mid..self.range.end;
        {
            let mut table = self.arena.lock();
            table.remove_exclusive(&self.range);
            self.range.end = mid;
            let free = table.add_exclusive(&self.range) && table.add_exclusive(&rest);
            assert!(free, "the parts of a lease were free");
        }
        let rest = Self { arena: Arc::clone(&self.arena), range: rest };
        (self, rest)
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies inside initialised memory that the arena keeps alive; the lease table lets no
        // other lease overlap it, and `&self` excludes `&mut` access through this one.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.len_bytes()) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.len_bytes()) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.arena.lock().remove_exclusive(&self.range);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?})", self.range)
    }
}

/// Shared lease of a range of an [`Arena`]; cloning leases it once more.
pub struct ReadLease {
    arena: Arc<Shared>,
    range: Range<usize>,
    number: u64,
}

impl ReadLease {
    /// The range in the arena's buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.arena.at(self.range.start)
    }

    pub(crate) const fn len_bytes(&self) -> usize {
        self.range.end - self.range.start
    }
}

impl Clone for ReadLease {
    fn clone(&self) -> Self {
        let Some(number) = self.arena.lock().add_shared(&self.range) else {
            unreachable!("a range that is being read is not exclusive");
        };
        Self { arena: Arc::clone(&self.arena), range: self.range.clone(), number }
    }
}

impl Deref for ReadLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies inside initialised memory that the arena keeps alive; the lease table lets no
        // exclusive lease overlap it while this one exists, so no lease writes.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.len_bytes()) }
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        self.arena.lock().remove_shared(&self.range, self.number);
    }
}

impl fmt::Debug for ReadLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadLease({:?})", self.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arena(len_bytes: usize) -> Arena {
        Arena::new(AlignedBuf::new(len_bytes))
    }

    #[test]
    fn disjoint_leases_are_written_from_two_threads_and_read_together() {
        let arena = arena(8192);
        let mut low = arena.lease(0..4096);
        let mut high = arena.lease(4096..8192);
        let thread = std::thread::spawn(move || high.fill(2));
        low.fill(1);
        thread.join().unwrap();
        drop(low);
        let all = arena.read_lease(0..8192);
        let again = all.clone();
        assert!(all[..4096].iter().all(|&byte| byte == 1) && again[4096..].iter().all(|&byte| byte == 2));
    }

    #[test]
    #[should_panic(expected = "overlaps another lease")]
    fn overlapping_exclusive_leases_panic() {
        let arena = arena(4096);
        let _low = arena.lease(0..100);
        let _overlap = arena.lease(99..200);
    }

    #[test]
    #[should_panic(expected = "overlaps another lease")]
    fn writing_what_is_read_panics() {
        let arena = arena(4096);
        let _long = arena.read_lease(0..4096);
        let _short = arena.read_lease(10..20);
        let _overlap = arena.lease(4000..4001);
    }

    #[test]
    #[should_panic(expected = "overlaps an exclusive lease")]
    fn reading_what_is_written_panics() {
        let arena = arena(4096);
        let _writer = arena.lease(10..20);
        let _reader = arena.read_lease(0..11);
    }

    #[test]
    #[should_panic(expected = "of a buffer of 4096 bytes")]
    fn a_lease_beyond_the_buffer_panics() {
        let _beyond = arena(4096).lease(4000..4097);
    }

    #[test]
    fn a_split_lease_is_two_leases() {
        let arena = arena(100);
        let (low, high) = arena.lease(10..50).split_at(15);
        assert_eq!((low.range(), high.range()), (10..25, 25..50));
        assert!(arena.try_lease(20..30).is_none());
        drop(low);
        assert!(arena.try_lease(10..25).is_some());
        assert!(arena.try_lease(24..26).is_none());
        assert!(arena.try_lease(49..50).is_none());
        drop(high);
        assert!(arena.try_lease(0..100).is_some());
    }

    #[test]
    fn the_buffer_comes_back_when_nothing_is_leased() {
        let arena = arena(100);
        let lease = arena.lease(0..1);
        let Err(arena) = arena.try_into_buf() else { panic!("leased") };
        drop(lease);
        assert_eq!(arena.try_into_buf().unwrap().len(), 100);
    }

    proptest! {
        /// The table agrees with a model that counts readers and writers per byte.
        #[test]
        fn leases_agree_with_a_byte_model(ops in prop::collection::vec((0usize..64, 0usize..65, 0u8..3), 1..80)) {
            let arena = arena(64);
            let mut writers: Vec<Lease> = Vec::new();
            let mut readers: Vec<ReadLease> = Vec::new();
            for (a, b, what) in ops {
                let range = a.min(b)..a.max(b);
                let written = writers.iter().any(|lease| range.clone().any(|at| lease.range().contains(&at)));
                let read = readers.iter().any(|lease| range.clone().any(|at| lease.range().contains(&at)));
                match what {
                    0 => {
                        let lease = arena.try_lease(range);
                        prop_assert_eq!(lease.is_some(), !written && !read);
                        writers.extend(lease);
                    }
                    1 => {
                        let lease = arena.try_read_lease(range);
                        prop_assert_eq!(lease.is_some(), !written);
                        readers.extend(lease);
                    }
                    _ => {
                        if !writers.is_empty() {
                            writers.swap_remove(a % writers.len());
                        }
                        if !readers.is_empty() {
                            readers.swap_remove(b % readers.len());
                        }
                    }
                }
            }
        }
    }
}
