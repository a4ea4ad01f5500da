//! Free memory that the allocator keeps for later, given back to the host.
//!
//! Every thread frees into the heap that the block came from, and glibc gives the end of a heap back only: what one client's job
//! held stays with the process after its end, and the next client's comes on top of it, from another heap.

#[cfg(target_env = "gnu")]
const LARGE_BLOCK_BYTES: libc::c_int = 128 << 10;

/// Gives blocks of 128 KiB and more back as soon as they are free, from now on. Unless it is told, glibc keeps the larger ones for
/// later once it has seen a few; what a first listing takes would stay for as long as a source is followed.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and any thread may call it at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
    }
}

/// Gives all free pages back. Takes milliseconds, during which others wait for the allocator: for the end of something large.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
