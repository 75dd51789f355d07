//! [`Durable`]: a ticket as a future, for any executor.
//!
//! One thread for each database, which the first future starts, has a connection of its own and sleeps on two descriptors: that of
//! `plait_notify_fd`, which says that the disk has come further, and one by which futures call it. It wakes those whose tickets have been
//! passed. Futures make no system call but the one that calls it, and none while a call is outstanding.
//!
//! States of a future: not polled; *new*, its ticket has not been looked at; *waiting*, the ticket was given by this file; *done*, its result lies
//! ready.
//!
//! Invariants
//! - FUTURE-1 A future that is new or waiting has its waker in `waiting`, and is in `new` too as long as it is new; one that is done has its result in `done`.
//! - FUTURE-2 The thread asks for `durable` after it has emptied the descriptor. So what moves later makes it readable again, and no waker is
//!   left behind.
//! - FUTURE-3 A ticket that the file has not given, in this session, is an error and not a wait without end: `plait_wait` is asked about new ones. Two that
//!   it knows vouch for all between them.
//! - FUTURE-4 When the thread ends, by itself, it has given its error to all that wait, and `ended` refuses those that come later; the next future starts another thread.
//! - FUTURE-5 Wakers are called with no lock held. They are the program's: they may drop futures, or panic, which ends neither the thread nor another's wait.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};

use crate::database::{Shared, lock};
use crate::error::{Error, Result};
use crate::ffi;
use crate::session::Session;
use crate::ticket::Ticket;

/// A future that is ready when a commit is on disk; what [`Database::durable_future`](crate::Database::durable_future) answers.
///
/// It needs no particular runtime. While a database has had one of these, its commits under NORMAL are synced as they come, by a thread of the library.
///
/// ```
/// # fn main() -> plait::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("app.db");
/// use plait::{MapDefinition, Options, Synchronous};
/// const QUEUE: MapDefinition<i64, &str> = MapDefinition::new("queue");
///
/// let database = Options::new().synchronous(Synchronous::Normal).open(path)?;
/// let mut connection = database.connect()?;
/// connection.write(|tx| tx.map(QUEUE)?.put(1, "a job"))?;      // does not wait for the disk
/// let durable = database.durable_future(connection.ticket()?);
/// pollster::block_on(durable)?;                                // or .await
/// # Ok(()) }
/// ```
///
/// It fails if the file has never given the ticket in this session, if it is not in concurrent mode (any more), or if a write or sync of the log has
/// failed: then it is not known whether the commit is on disk.
#[must_use = "futures do nothing unless polled"]
pub struct Durable {
    shared: Arc<Shared>,
    ticket: Ticket,
    /// Once it has been polled: the thread, and its number there.
    begun: Option<(Watch, u64)>,
}

/// The thread. Clones are handles on the same one.
#[derive(Clone)]
pub(crate) struct Watch {
    inner: Arc<Inner>,
}

struct Inner {
    /// An eventfd: futures call the thread.
    call: OwnedFd,
    state: Mutex<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    new: Vec<(Ticket, u64)>,
    waiting: BTreeMap<(Ticket, u64), Waker>,
    done: HashMap<u64, Result<()>>,
    /// The smallest ticket that the file is known to have given, and the largest that is on disk.
    passed: Option<(Ticket, Ticket)>,
    is_called: bool,
    should_stop: bool,
    ended: Option<Error>,
}

impl Durable {
    pub(crate) fn new(shared: Arc<Shared>, ticket: Ticket) -> Durable {
        Durable { shared, ticket, begun: None }
    }

    /// The ticket that it waits for.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Future for Durable {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some((watch, id)) = &self.begun {
            return watch.look(self.ticket, *id, context.waker());
        }
        let watch = match self.shared.watch() {
            Ok(watch) => watch,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match watch.begin(self.ticket, context.waker()) {
            Begun::Ready(result) => Poll::Ready(result),
            Begun::Waiting(id) => {
                self.begun = Some((watch, id));
                Poll::Pending
            }
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if let Some((watch, id)) = self.begun.take() {
            let mut state = lock(&watch.inner.state);
            let waker = state.waiting.remove(&(self.ticket, id));
            state.new.retain(|(_, new)| *new != id);
            state.done.remove(&id);
            drop(state);
            // The program's code, with no lock held.
            drop(waker);
        }
    }
}

enum Begun {
    Ready(Result<()>),
    Waiting(u64),
}

impl Watch {
    /// Starts the thread; it opens its connection itself.
    pub(crate) fn start(open: impl FnOnce() -> Result<Session> + Send + 'static) -> Result<Watch> {
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| failure("making a descriptor", errno))?;
        let inner =
            Arc::new(Inner { call, state: Mutex::new(State::default()), thread: Mutex::new(None) });
        let watch = Watch { inner };
        let seen = watch.clone();
        let thread = thread::Builder::new()
            .name("plait-durable".into())
            .spawn(move || {
                let ended = open().and_then(|session| seen.run(&session));
                seen.end(ended.err());
            })
            .map_err(|error| {
                Error::Refused(format!("the thread of futures does not start: {error}"))
            })?;
        *lock(&watch.inner.thread) = Some(thread);
        Ok(watch)
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.inner.state).ended.is_some()
    }

    /// Ends the thread and waits for it. When this is the thread, in a waker that has dropped the last of the database, it ends by itself.
    pub(crate) fn stop(&self) {
        lock(&self.inner.state).should_stop = true;
        self.call();
        let thread = lock(&self.inner.thread).take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            // It catches the panics of wakers; another one has ended it, which is what is wanted here.
            let _ = thread.join();
        }
    }

    fn call(&self) {
        // It fails only if the counter is full, and then the descriptor is readable.
        let _ = write(&self.inner.call, &1_u64.to_ne_bytes());
    }

    fn begin(&self, ticket: Ticket, waker: &Waker) -> Begun {
        let mut state = lock(&self.inner.state);
        if let Some(error) = &state.ended {
            return Begun::Ready(Err(error.clone()));
        }
        if state.passed.is_some_and(|(from, through)| from <= ticket && ticket <= through) {
            return Begun::Ready(Ok(()));
        }
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.insert((ticket, id), waker.clone());
        state.new.push((ticket, id));
        let is_called = std::mem::replace(&mut state.is_called, true);
        drop(state);
        if !is_called {
            self.call();
        }
        Begun::Waiting(id)
    }

    fn look(&self, ticket: Ticket, id: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut state = lock(&self.inner.state);
        if let Some(result) = state.done.remove(&id) {
            return Poll::Ready(result);
        }
        let old = state.waiting.insert((ticket, id), waker.clone());
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// The thread's work, until it is stopped or something fails.
    fn run(&self, session: &Session) -> Result<()> {
        let moved = session.notify_fd()?;
        loop {
            self.sleep(&moved)?;
            let new = {
                let mut state = lock(&self.inner.state);
                if state.should_stop {
                    return Ok(());
                }
                state.is_called = false;
                std::mem::take(&mut state.new)
            };
            let refused = self.look_at_tickets(session, &new)?;
            let durable = session.durable()?;
            self.settle(&new, refused, durable);
        }
    }

    /// Until one of the descriptors is readable; empties both.
    fn sleep(&self, moved: &OwnedFd) -> Result<()> {
        let mut fds = [moved, &self.inner.call].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failure("waiting for descriptors", errno)),
        }
        for fd in [moved.as_fd(), self.inner.call.as_fd()] {
            match read(fd, &mut [0_u8; 8]) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(failure("reading a descriptor", errno)),
            }
        }
        Ok(())
    }

    /// Which of the new tickets the file has not given (FUTURE-3). An error if the log has failed.
    fn look_at_tickets(
        &self,
        session: &Session,
        new: &[(Ticket, u64)],
    ) -> Result<Vec<(u64, Error)>> {
        let known = |ticket: Ticket| match session.wait(ticket, Some(Duration::ZERO)) {
            Ok(_) => Ok(None),
            Err(error) if error.code() == ffi::MISUSE => Ok(Some(error)),
            Err(error) => Err(error),
        };
        let tickets = || new.iter().map(|(ticket, _)| *ticket);
        let Some((least, greatest)) = tickets().min().zip(tickets().max()) else {
            // The log may have failed: whoever has waited longest is told so.
            let oldest = lock(&self.inner.state).waiting.keys().next().map(|(ticket, _)| *ticket);
            oldest.map_or(Ok(None), known)?;
            return Ok(Vec::new());
        };
        if known(least)?.is_none() && known(greatest)?.is_none() {
            return Ok(Vec::new());
        }
        let mut refused = Vec::new();
        for (ticket, id) in new {
            if let Some(error) = known(*ticket)? {
                refused.push((*id, error));
            }
        }
        Ok(refused)
    }

    /// Gives results to those whose tickets have been passed, or are none, and wakes them.
    fn settle(&self, new: &[(Ticket, u64)], refused: Vec<(u64, Error)>, durable: Ticket) {
        let mut state = lock(&self.inner.state);
        let mut wakers = Vec::new();
        let is_refused = |id: u64| refused.iter().any(|(other, _)| *other == id);
        let given = new.iter().filter(|(_, id)| !is_refused(*id)).map(|(ticket, _)| *ticket).min();
        let from = state.passed.map(|(from, _)| from).into_iter().chain(given).min();
        state.passed = from.map(|from| (from, durable));
        for (id, error) in refused {
            let ticket = new.iter().find(|(_, other)| *other == id).map(|(ticket, _)| *ticket);
            let waker = ticket.and_then(|ticket| state.waiting.remove(&(ticket, id)));
            // Without a waker its future is gone.
            if let Some(waker) = waker {
                state.done.insert(id, Err(error));
                wakers.push(waker);
            }
        }
        while let Some(entry) = state.waiting.first_entry() {
            let (ticket, id) = *entry.key();
            // Those that have come meanwhile and are below all that is known are looked at in the next round, with all after them.
            if ticket > durable || from.is_none_or(|from| ticket < from) {
                break;
            }
            wakers.push(entry.remove());
            state.new.retain(|(_, other)| *other != id);
            state.done.insert(id, Ok(()));
        }
        drop(state);
        wake(wakers);
    }

    /// The thread ends: gives its error to all that wait (FUTURE-4).
    fn end(&self, error: Option<Error>) {
        let mut state = lock(&self.inner.state);
        let stopped = || Error::Refused("the database has been closed".into());
        let error = error.unwrap_or_else(stopped);
        let mut wakers = Vec::new();
        for ((_, id), waker) in std::mem::take(&mut state.waiting) {
            state.done.insert(id, Err(error.clone()));
            wakers.push(waker);
        }
        state.new.clear();
        state.ended = Some(error);
        drop(state);
        wake(wakers);
    }
}

/// FUTURE-5.
fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        // The panic hook has reported it to the program, whose waker it is.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

fn failure(doing: &str, errno: Errno) -> Error {
    Error::Refused(format!("{doing} for futures: {errno}"))
}
