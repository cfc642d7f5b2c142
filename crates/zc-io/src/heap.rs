//! Return of free heap memory to the kernel.
//!
//! Job: one call. The C library retains freed memory between allocations in use; after a burst of requests that is
//! most of the process's memory.
//!
//! It does not decide when to run. It visits every free page, with the allocator's lock held.
#![expect(unsafe_code, reason = "the C library's call has no safe wrapper")]

/// Returns whole free pages of the allocator to the kernel.
pub fn give_heap_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer; it works on free memory alone, under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
    }
}
