//! Free memory of the allocator that goes back to the kernel.
//!
//! Job: one call. The C library keeps what was freed between pieces that are in use, and hands it out again; after a
//! flood of requests that is most of what the process holds.
//!
//! It does not know when that is worth the time. It visits every free page, with the allocator's lock held.
#![expect(unsafe_code, reason = "the C library's call has no safe wrapper")]

/// Gives whole free pages of the allocator back to the kernel.
pub fn give_heap_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer; it works on free memory alone, under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
    }
}
