//! Processor time, input and output of this process and of those that belong to it.
//!
//! A server that a trial has started lives on while the trial is measured, and `getrusage` counts children only when they
//! have ended, so living ones are looked up in `/proc`. The processor time there is in ticks of 10 ms.

#![allow(unsafe_code)]

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use procfs::process::Process;

use super::phase::Usage;

/// The usage of this process, of its descendants, and of its children that have ended, since they began.
#[must_use]
pub fn so_far() -> Usage {
    of_others(&[])
}

/// As [`so_far`], without some children that measure themselves.
#[must_use]
pub fn of_others(except: &[u32]) -> Usage {
    let me = Process::myself().ok();
    let mut sum = me.as_ref().map(io_of).unwrap_or_default();
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let Ok(usage) = getrusage(who) else { continue };
        sum.user_cpu_s += usage.user_time().num_microseconds() as f64 / 1e6;
        sum.system_cpu_s += usage.system_time().num_microseconds() as f64 / 1e6;
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        sum.context_switches += u64::try_from(switches).unwrap_or(0);
    }
    if let Some(me) = me.filter(|_| has_children()) {
        let all = descendants(&me);
        for process in all.iter().filter(|process| !except.contains(&process.pid().cast_unsigned()))
        {
            sum = plus(sum, of_living(process));
        }
    }
    sum
}

/// Written bytes and calls, as the kernel counts them; 0 where it does not tell.
fn io_of(process: &Process) -> Usage {
    process.io().map_or_else(
        |_| Usage::default(),
        |io| Usage { written_bytes: io.wchar, write_calls: io.syscw, ..Usage::default() },
    )
}

/// Whether there is any child, living or not waited for: most trials have none and need not look further.
fn has_children() -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::All, flags), Err(nix::errno::Errno::ECHILD))
}

/// Children and theirs.
fn descendants(process: &Process) -> Vec<Process> {
    let tasks = process.tasks().into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| task.children().unwrap_or_default());
    let living = children.filter_map(|child| Process::new(child.cast_signed()).ok());
    living.flat_map(|child| [descendants(&child), vec![child]].into_iter().flatten()).collect()
}

/// A process that may end at any time: what can no longer be read counts nothing.
fn of_living(process: &Process) -> Usage {
    let mut usage = io_of(process);
    if let Ok(stat) = process.stat() {
        let seconds = |own: u64, children: i64| {
            (own as f64 + children as f64) / procfs::ticks_per_second() as f64
        };
        usage.user_cpu_s = seconds(stat.utime, stat.cutime);
        usage.system_cpu_s = seconds(stat.stime, stat.cstime);
    }
    if let Ok(status) = process.status() {
        usage.context_switches = status.voluntary_ctxt_switches.unwrap_or(0)
            + status.nonvoluntary_ctxt_switches.unwrap_or(0);
    }
    usage
}

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
        let me = Process::myself().unwrap();
        let living = Process::new(child.id().cast_signed()).unwrap();
        while of_living(&living).user_cpu_s < 0.05 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the child does not work");
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_there = || descendants(&me).iter().any(|of| of.pid() == living.pid());
        assert!(has_children() && is_there());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_there());
    }
}
