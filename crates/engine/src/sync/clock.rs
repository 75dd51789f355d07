//! A clock that all processes of a boot share.

#![allow(unsafe_code)]

/// Returns the monotonic clock in nanoseconds, without a system call where the kernel maps the
/// clock.
pub fn monotonic_ns() -> u64 {
    let now = now_of(libc::CLOCK_MONOTONIC);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Returns milliseconds since the Unix epoch.
pub fn exact_unix_ms() -> u64 {
    ms_of(now_of(libc::CLOCK_REALTIME))
}

/// Returns milliseconds since the Unix epoch, as of the system's last tick: at most ten before now,
/// and at a fraction of the cost. Never decreases, in whatever process, unless the clock is set.
pub fn unix_ms() -> u64 {
    ms_of(now_of(libc::CLOCK_REALTIME_COARSE))
}

/// As [`unix_ms`], of the clock that is never set, in 32 bits that wrap.
pub fn tick_ms() -> u32 {
    let now = now_of(libc::CLOCK_MONOTONIC_COARSE);
    (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000)
}

fn ms_of(time: libc::timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1000).wrapping_add(time.tv_nsec as u64 / 1_000_000)
}

fn now_of(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live timespec, which the call fills in; Linux has these clocks.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut now) };
    debug_assert_eq!(rc, 0, "clock_gettime");
    now
}
