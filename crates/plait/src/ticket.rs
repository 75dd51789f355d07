//! Tickets: which commits are on disk, without waiting for the disk in each.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use crate::error::Result;
use crate::ffi;
use crate::session::Session;

/// The place of a commit: commits reach the disk in the order of their tickets.
///
/// Tickets are compared with each other and with [`Session::durable`], in all threads and processes that have the file open, and mean nothing once it was closed
/// by all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(i64);

impl Ticket {
    /// As a number, for other processes.
    pub fn as_i64(self) -> i64 {
        self.0
    }

    /// A number that was a ticket.
    pub fn from_i64(ticket: i64) -> Ticket {
        Ticket(ticket)
    }
}

/// Tickets exist in concurrent mode only; elsewhere these calls fail. They are about the file that was opened, not those that are attached.
impl Session {
    /// The ticket of this connection's last commit.
    pub fn ticket(&self) -> Result<Ticket> {
        let mut ticket = 0;
        // SAFETY: the connection is open, and `ticket` takes the answer.
        let code = unsafe { ffi::plait_ticket(self.raw(), MAIN, &raw mut ticket) };
        self.check(code, || "asking for a ticket".into())?;
        Ok(Ticket(ticket))
    }

    /// All commits up to this ticket are on disk, whosever they are.
    pub fn durable(&self) -> Result<Ticket> {
        let mut ticket = 0;
        // SAFETY: the connection is open, and `ticket` takes the answer.
        let code = unsafe { ffi::plait_durable(self.raw(), MAIN, &raw mut ticket) };
        self.check(code, || "asking what is on disk".into())?;
        Ok(Ticket(ticket))
    }

    /// Waits until a commit is on disk, and sees to it if nobody does. Answers whether it is; without a timeout it waits as long as it takes.
    pub fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<bool> {
        // Rounded up: a wait of less than a millisecond is one.
        let ms = |timeout: Duration| timeout.as_nanos().div_ceil(1_000_000);
        let ms = timeout.map_or(-1, |timeout| i32::try_from(ms(timeout)).unwrap_or(i32::MAX));
        let mut durable = 0;
        // SAFETY: the connection is open, and `durable` takes the answer.
        let code = unsafe { ffi::plait_wait(self.raw(), MAIN, ticket.0, ms, &raw mut durable) };
        self.check(code, || format!("waiting for ticket {}", ticket.0))?;
        Ok(durable != 0)
    }

    /// A descriptor that becomes readable when [`Session::durable`] has moved, for event loops; see `plait_notify_fd` in `plait.h`. Its
    /// eight bytes are read first, then `durable` is asked.
    ///
    /// From the first call on a thread of the library syncs what is committed, as long as this connection is open.
    pub fn notify_fd(&self) -> Result<OwnedFd> {
        let mut fd = -1;
        // SAFETY: the connection is open, and `fd` takes the answer.
        let code = unsafe { ffi::plait_notify_fd(self.raw(), MAIN, &raw mut fd) };
        self.check(code, || "asking for a descriptor".into())?;
        // SAFETY: a new descriptor, which is the caller's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

const MAIN: *const std::ffi::c_char = c"main".as_ptr();
