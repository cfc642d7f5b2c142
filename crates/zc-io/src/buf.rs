//! Page-aligned buffers: exclusively owned ([`AlignedBuf`]) or frozen and shared ([`SharedBuf`]).
//!
//! Invariants: memory is always initialised; its address is stable while the buffer value moves, so that the ring can
//! hold buffers by value while the kernel uses them. Memory of a [`crate::BufPool`] returns there when the buffer is
//! dropped.
#![expect(unsafe_code, reason = "owns raw allocations with page alignment")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::limits::BUF_BYTES_MAX;
use crate::pool::{Owner, PoolShared};

/// Alignment of buffers and granularity of their memory: sufficient for O_DIRECT on every common device.
pub const PAGE_BYTES: usize = 4096;

/// An allocation: a positive multiple of [`PAGE_BYTES`], aligned to it, initialised.
pub(crate) struct Pages {
    start: NonNull<u8>,
    len_bytes: usize,
}

impl Pages {
    /// Allocates zeroed pages for at least `len_bytes` bytes.
    ///
    /// # Panics
    /// When `len_bytes` is above [`BUF_BYTES_MAX`].
    pub(crate) fn new(len_bytes: usize) -> Self {
        assert!(len_bytes <= BUF_BYTES_MAX, "a buffer of {len_bytes} bytes was asked for");
        let len_bytes = len_bytes.max(1).next_multiple_of(PAGE_BYTES);
        let layout = Self::layout(len_bytes);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, len_bytes }
    }

    fn layout(len_bytes: usize) -> Layout {
        let Ok(layout) = Layout::from_size_align(len_bytes, PAGE_BYTES) else {
            unreachable!("{len_bytes} is bounded by BUF_BYTES_MAX and the alignment is a power of two");
        };
        layout
    }

    pub(crate) const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Zeroes the allocation.
    pub(crate) fn clear(&mut self) {
        // SAFETY: the allocation has `len_bytes` bytes, and `&mut self` makes the access exclusive.
        unsafe { self.start.write_bytes(0, self.len_bytes) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with the same layout and is freed once, here.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len_bytes)) };
    }
}

// SAFETY: the pages are owned by this value alone and plain memory has no thread affinity.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives the address and the length only; access to the bytes goes through `AlignedBuf`
// (which hands out `&mut` only through `&mut self`) and `Arena` (which checks leases).
unsafe impl Sync for Pages {}

/// A page-aligned buffer with one owner.
pub struct AlignedBuf {
    /// `None` only inside `drop`.
    pages: Option<Pages>,
    len_bytes: usize,
    /// Pool to which the memory returns, and owner whose bytes it may hold.
    home: Option<(Arc<PoolShared>, Owner)>,
}

impl AlignedBuf {
    /// Creates a zeroed buffer of `len_bytes` outside of any pool.
    ///
    /// # Panics
    /// When `len_bytes` is above [`BUF_BYTES_MAX`].
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        Self { pages: Some(Pages::new(len_bytes)), len_bytes, home: None }
    }

    pub(crate) fn from_pages(pages: Pages, len_bytes: usize, home: (Arc<PoolShared>, Owner)) -> Self {
        assert!(len_bytes <= pages.len_bytes(), "pooled memory is too small");
        Self { pages: Some(pages), len_bytes, home: Some(home) }
    }

    /// Returns the address of the first byte. Creates no reference to the bytes, so it may be called while the kernel
    /// or lease holders use them.
    pub(crate) fn base(&self) -> NonNull<u8> {
        let Some(pages) = &self.pages else { unreachable!("pages leave only in drop") };
        pages.start
    }

    /// Returns the length in bytes; unlike `<[u8]>::len`, this creates no reference to the bytes.
    pub(crate) const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns the bytes of memory that the buffer occupies: whole pages, rounded up by its pool.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, Pages::len_bytes)
    }

    /// Freezes the buffer so that it can have several owners.
    #[must_use]
    pub fn into_shared(self) -> SharedBuf {
        SharedBuf(Arc::new(self))
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `base` points to at least `len_bytes` initialised bytes owned by this value; `&self` excludes
        // `&mut` access through it, and holders of raw access (the ring, `Arena`) keep the buffer where no other code can
        // call this.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.len_bytes) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.len_bytes) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let (Some(pages), Some((home, owner))) = (self.pages.take(), self.home.take()) {
            home.put_back(pages, owner);
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len_bytes)
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

/// A frozen buffer with any number of owners: for data that is written to several places, or written while it is
/// hashed.
#[derive(Clone, Debug)]
pub struct SharedBuf(Arc<AlignedBuf>);

impl SharedBuf {
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.0.len_bytes()
    }

    /// Returns the bytes of memory that the buffer occupies, see [`AlignedBuf::held_bytes`].
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_of_the_asked_length() {
        for len_bytes in [0, 1, 511, 4096, 4097, 1 << 20] {
            let mut buf = AlignedBuf::new(len_bytes);
            assert_eq!(buf.len(), len_bytes);
            assert_eq!(buf.base().as_ptr().addr() % PAGE_BYTES, 0);
            assert_eq!(buf.held_bytes(), len_bytes.max(1).next_multiple_of(PAGE_BYTES));
            assert!(buf.iter().all(|&byte| byte == 0));
            buf.fill(7);
            assert!(buf.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    #[should_panic(expected = "was asked for")]
    fn a_length_beyond_the_bound_is_refused() {
        drop(AlignedBuf::new(BUF_BYTES_MAX + 1));
    }
}
