//! Processor time, input and output of this process and of those it has waited for.

#![allow(unsafe_code)]

use std::time::Duration;

use super::phase::Usage;

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

fn of(who: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is a struct of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a place of the right type.
    unsafe { libc::getrusage(who, &raw mut usage) };
    usage
}

/// The number after a name in `/proc/self/io`; 0 where the kernel does not tell.
fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
        .unwrap_or(0)
}

/// The usage of this process and of its children that have ended, since they began.
#[must_use]
pub fn so_far() -> Usage {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let mut sum = Usage {
        written_bytes: field(&io, "wchar"),
        write_calls: field(&io, "syscw"),
        ..Usage::default()
    };
    for usage in [of(libc::RUSAGE_SELF), of(libc::RUSAGE_CHILDREN)] {
        sum.user_cpu_s += seconds(usage.ru_utime);
        sum.system_cpu_s += seconds(usage.ru_stime);
        sum.context_switches += u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap_or(0);
    }
    sum
}

/// The usage between two readings.
#[must_use]
pub fn between(before: Usage, after: Usage) -> Usage {
    Usage {
        user_cpu_s: after.user_cpu_s - before.user_cpu_s,
        system_cpu_s: after.system_cpu_s - before.system_cpu_s,
        written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
        write_calls: after.write_calls.saturating_sub(before.write_calls),
        context_switches: after.context_switches.saturating_sub(before.context_switches),
    }
}

/// Processor time of the calling thread.
#[must_use]
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}
