//! How the C library keeps memory.

/// Allocations of so many bytes are mappings of their own.
#[cfg(target_env = "gnu")]
const MAPPED_FROM_BYTES: libc::c_int = 1 << 20;

/// Threads share two heaps: each heap of one's own takes 64 MiB of addresses and more, which a limit of those (`ulimit -v`) counts.
/// To be called before other threads start.
#[allow(unsafe_code, reason = "a call of the C library")]
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointer goes in or out.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Returns what records and parts took to the system as soon as it is free.
///
/// The C library of GNU takes each freed mapping for a sign that allocations as long should come from its heap, up to 32
/// MiB, and keeps what they leave behind: a sidecar that ships records of 8 MiB came to 55 and 117 MB, and to 30 and 41
/// so, without and with an interruption (`man mallopt`). To be called before other threads start.
#[allow(unsafe_code, reason = "a call of the C library")]
pub fn give_back_at_once() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointer goes in or out.
    unsafe {
        // It returns 0 if it does not know the option: then everything is as ever.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
    }
}
