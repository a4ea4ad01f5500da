//! Free memory that the allocator keeps for later, given back to the host.
//!
//! Every thread frees into the heap that the block came from, and glibc gives the end of a heap back only: what one client's job
//! held stays with the process after its end, and the next client's comes on top of it, from another heap.

/// Gives all free pages back. Takes milliseconds, during which others wait for the allocator: for the end of something large.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
