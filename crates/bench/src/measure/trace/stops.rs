//! Stops of traced threads: waiting for one, looking at it, going on.
//!
//! The calls of nix do for all but two things: its `waitpid` fails on the stop of a real-time signal, and it has no
//! `PTRACE_LISTEN`.

#![allow(unsafe_code)]

use std::io;
use std::ptr;

use libc::{c_int, c_uint, pid_t};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// Why a traced thread does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It ended, with a status as of wait(2).
    Ended(c_int),
    /// It makes a system call or returns from one.
    SystemCall,
    /// It is to be sent a signal.
    Signal(c_int),
    /// It was stopped by a signal, as a whole process is.
    Group,
    /// It began, started another or became another program.
    Event,
}

/// At a system call.
#[derive(Clone, Copy, Debug)]
pub enum Edge {
    /// Before it, with its number and arguments.
    Entry(u64, [u64; 6]),
    /// After it, and whether it succeeded.
    Exit(bool),
    /// Something that is neither.
    Other,
}

/// Waits for the next stop of any traced thread; none when all have ended.
pub fn wait() -> io::Result<Option<(pid_t, Stop)>> {
    let mut status = 0;
    loop {
        // SAFETY: a place for the status.
        let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if thread > 0 {
            return Ok(Some((thread, decode(status))));
        }
        match Errno::last() {
            Errno::EINTR => {}
            Errno::ECHILD => return Ok(None),
            error => return Err(error.into()),
        }
    }
}

/// See ptrace(2): a stop at a system call is SIGTRAP with bit 7 (`PTRACE_O_TRACESYSGOOD`), events stand above the signal.
fn decode(status: c_int) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(status);
    }
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    match event {
        0 if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => Stop::Group,
        _ => Stop::Event,
    }
}

/// Lets a thread run to its next system call, with a signal or none (0).
pub fn resume(thread: pid_t, signal: c_int) {
    request(libc::PTRACE_SYSCALL, thread, signal);
}

/// Leaves a thread stopped as its signal wants it, until another one wakes it.
pub fn leave_stopped(thread: pid_t) {
    request(libc::PTRACE_LISTEN, thread, 0);
}

fn request(request: c_uint, thread: pid_t, signal: c_int) {
    // A thread that was killed in the meantime answers ESRCH, and the next wait tells that it has ended.
    // SAFETY: neither request reads or writes memory of this process.
    unsafe {
        libc::ptrace(
            request,
            thread,
            ptr::null_mut::<libc::c_void>(),
            ptr::without_provenance_mut::<libc::c_void>(usize::try_from(signal).unwrap_or(0)),
        )
    };
}

/// What a thread that stands at a system call does there.
pub fn edge(thread: pid_t) -> nix::Result<Edge> {
    let info = ptrace::syscall_info(Pid::from_raw(thread))?;
    Ok(match info.op {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says which member the kernel wrote.
            let entry = unsafe { info.u.entry };
            Edge::Entry(entry.nr, entry.args)
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: as above.
            let exit = unsafe { info.u.exit };
            Edge::Exit(exit.is_error == 0)
        }
        _ => Edge::Other,
    })
}
