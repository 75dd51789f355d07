//! Processor time, input and output of this process and of those that belong to it.
//!
//! A server that a trial has started lives on while the trial is measured, and `getrusage` counts children only when they
//! have ended, so living ones are looked up in `/proc`. The processor time there is in ticks of 10 ms.

#![allow(unsafe_code)]

use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, waitid};

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

/// The usage of this process, of its descendants, and of its children that have ended, since they began.
#[must_use]
pub fn so_far() -> Usage {
    of_others(&[])
}

/// As [`so_far`], without some children that measure themselves.
#[must_use]
pub fn of_others(except: &[u32]) -> Usage {
    let mut sum = io_of("self");
    for usage in [of(libc::RUSAGE_SELF), of(libc::RUSAGE_CHILDREN)] {
        sum.user_cpu_s += seconds(usage.ru_utime);
        sum.system_cpu_s += seconds(usage.ru_stime);
        sum.context_switches += u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap_or(0);
    }
    if has_children() {
        let mut all = descendants("self");
        all.retain(|id| !except.contains(id));
        for id in all {
            sum = plus(sum, of_living(id));
        }
    }
    sum
}

/// Written bytes and calls, as the kernel counts them; 0 where it does not tell.
fn io_of(process: &str) -> Usage {
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    Usage {
        written_bytes: field(&io, "wchar"),
        write_calls: field(&io, "syscw"),
        ..Usage::default()
    }
}

/// Whether there is any child, living or not waited for: most trials have none and need not look further.
fn has_children() -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::All, flags), Err(nix::errno::Errno::ECHILD))
}

/// Children and theirs.
fn descendants(process: &str) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut all: Vec<u32> = Vec::new();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|id| id.parse().ok()) {
            all.push(child);
            all.extend(descendants(&child.to_string()));
        }
    }
    all
}

/// A process that may end at any time: what can no longer be read counts nothing.
fn of_living(id: u32) -> Usage {
    let read = |file| std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // The name stands in parentheses and may hold anything; proc(5) counts the fields behind it from 3.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let ticks = |field: usize| -> f64 {
        fields.get(field - 3).and_then(|text| text.parse().ok()).unwrap_or(0.0)
    };
    let status = read("status");
    Usage {
        user_cpu_s: (ticks(14) + ticks(16)) / TICKS_PER_SECOND,
        system_cpu_s: (ticks(15) + ticks(17)) / TICKS_PER_SECOND,
        context_switches: field(&status, "voluntary_ctxt_switches")
            + field(&status, "nonvoluntary_ctxt_switches"),
        ..io_of(&id.to_string())
    }
}

/// `USER_HZ`, which is 100 on every architecture that Linux runs on but Alpha and IA-64.
const TICKS_PER_SECOND: f64 = 100.0;

/// Two usages together.
#[must_use]
pub fn plus(a: Usage, b: Usage) -> Usage {
    Usage {
        user_cpu_s: a.user_cpu_s + b.user_cpu_s,
        system_cpu_s: a.system_cpu_s + b.system_cpu_s,
        written_bytes: a.written_bytes + b.written_bytes,
        write_calls: a.write_calls + b.write_calls,
        context_switches: a.context_switches + b.context_switches,
    }
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

/// Gives the calling thread the lowest priority: it runs when nothing else does. On Linux the call is about one thread.
pub fn yield_to_others() {
    // SAFETY: a call that touches no memory; if it is refused, the thread keeps its priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_counted_while_it_lives() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 60"])
            .spawn()
            .unwrap();
        let begun = std::time::Instant::now();
        while of_living(child.id()).user_cpu_s < 0.05 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the child does not work");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(has_children() && descendants("self").contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants("self").contains(&child.id()));
    }
}
