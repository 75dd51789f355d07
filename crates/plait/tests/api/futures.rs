//! Tickets, and tickets as futures, with an executor written here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use plait::{Connection, Durable, MapDefinition, Result, Ticket};

use crate::Place;

const QUEUE: MapDefinition<i64, &str> = MapDefinition::new("queue");
/// Far longer than a sync takes.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// Wakes a thread, and counts.
struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Polls all of them until each is ready.
fn all(mut futures: Vec<Durable>) -> Vec<Result<()>> {
    let unpark = Arc::new(Unpark(thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&unpark));
    let mut results: Vec<Option<Result<()>>> = futures.iter().map(|_| None).collect();
    loop {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = Pin::new(future).poll(&mut Context::from_waker(&waker))
            {
                *result = Some(ready);
            }
        }
        if results.iter().all(Option::is_some) {
            return results.into_iter().flatten().collect();
        }
        thread::park_timeout(PATIENCE.unwrap_or_default());
    }
}

fn put(connection: &Connection, key: i64) -> Ticket {
    connection.map(QUEUE).expect("it opens").put(key, "job").expect("it is written");
    connection.ticket().expect("it is in the mode")
}

// holds FUTURE-1, FUTURE-2
#[test]
fn one_thread_has_a_thousand_commits_in_flight() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.ticket()?;
    let mut queue = connection.map(QUEUE)?;
    let mut futures = Vec::new();
    let mut last = connection.ticket()?;
    for key in 0..1000 {
        queue.put(key, "job")?;
        let ticket = connection.ticket()?;
        assert!(ticket > last);
        last = ticket;
        futures.push(place.database.durable_future(ticket));
    }
    assert!(all(futures).iter().all(Result::is_ok));
    assert!(connection.durable()? >= last);
    assert_eq!(all(vec![place.database.durable_future(last)]), [Ok(())], "again, at once");
    Ok(())
}

#[test]
fn threads_wait_for_futures_of_one_database() -> Result<()> {
    let place = Place::new();
    place.connect().map(QUEUE)?;
    thread::scope(|scope| {
        for thread in 0..4 {
            let database = place.database.clone();
            scope.spawn(move || {
                let connection = database.connect().expect("it opens");
                connection.ticket().expect("it joins");
                for key in 0..25 {
                    let ticket = put(&connection, thread * 100 + key);
                    let done = pollster::block_on(database.durable_future(ticket));
                    assert_eq!(done, Ok(()));
                    assert!(connection.durable().expect("it is known") >= ticket);
                }
            });
        }
    });
    assert_eq!(place.connect().map(QUEUE)?.count(..)?, 100);
    Ok(())
}

#[test]
fn a_wait_leads_and_is_bounded() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.ticket()?;
    let ticket = put(&connection, 1);
    assert!(connection.wait(ticket, PATIENCE)?);
    assert!(connection.durable()? >= ticket);
    assert!(connection.wait(ticket, Some(Duration::ZERO))?);
    assert!(connection.wait(ticket, None)?);
    assert_eq!(Ticket::from_i64(ticket.as_i64()), ticket);
    Ok(())
}

// holds FUTURE-3
#[test]
fn a_ticket_that_nobody_gave_is_an_error_and_hinders_no_other() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.ticket()?;
    let ticket = put(&connection, 1);
    let wrong = Ticket::from_i64(ticket.as_i64() + 1_000_000);
    let futures = [ticket, wrong, ticket].map(|ticket| place.database.durable_future(ticket));
    let results = all(futures.into());
    assert_eq!((&results[0], &results[2]), (&Ok(()), &Ok(())));
    assert_eq!(results[1].as_ref().map_err(plait::Error::code), Err(21));
    assert_eq!(all(vec![place.database.durable_future(put(&connection, 2))]), [Ok(())]);
    Ok(())
}

#[test]
fn a_future_that_is_dropped_or_moved_to_another_task_hinders_nobody() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.ticket()?;
    let unpark = || Arc::new(Unpark(thread::current(), AtomicUsize::new(0)));
    let (first, second) = (unpark(), unpark());
    for key in 0..20 {
        let ticket = put(&connection, key);
        let mut dropped = place.database.durable_future(ticket);
        let waker = Waker::from(Arc::clone(&first));
        let _ = Pin::new(&mut dropped).poll(&mut Context::from_waker(&waker));
        let mut moved = place.database.durable_future(ticket);
        let _ = Pin::new(&mut moved).poll(&mut Context::from_waker(&waker));
        drop(dropped);
        let waker = Waker::from(Arc::clone(&second));
        let mut moved = pin!(moved);
        while moved.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park_timeout(PATIENCE.unwrap_or_default());
        }
    }
    Ok(())
}

// holds FUTURE-5
#[test]
fn a_waker_that_panics_hinders_nobody() -> Result<()> {
    struct Panics(AtomicUsize);
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("a waker of the program's that panics");
        }
    }
    let place = Place::new();
    let connection = place.connect();
    connection.ticket()?;
    let panics = Arc::new(Panics(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&panics));
    let mut future = place.database.durable_future(put(&connection, 1));
    let first = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
    assert_eq!(all(vec![place.database.durable_future(put(&connection, 2))]), [Ok(())]);
    if first.is_pending() {
        assert_eq!(all(vec![future]), [Ok(())]);
    }
    Ok(())
}

#[test]
fn a_future_keeps_its_database_open_and_then_it_is_closed() -> Result<()> {
    let Place { database, folder } = Place::new();
    let connection = database.connect()?;
    connection.ticket()?;
    let future = database.durable_future(put(&connection, 1));
    drop((connection, database));
    assert_eq!(future.ticket(), future.ticket());
    assert_eq!(all(vec![future]), [Ok(())]);
    let beside = folder.path().join("app.db-plait");
    assert!(!beside.exists(), "the last close has merged, and removed the log");
    Ok(())
}

#[test]
fn outside_of_concurrent_mode_there_are_no_tickets() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let database = plait::Options::new().keep_journal_mode().open(folder.path().join("app.db"))?;
    let connection = database.connect()?;
    let error = connection.ticket().expect_err("no mode, no ticket");
    assert!(error.to_string().contains("journal_mode=concurrent"), "{error}");
    let results = all(vec![database.durable_future(Ticket::from_i64(1))]);
    let error = results.into_iter().next().and_then(Result::err).expect("no mode, no future");
    assert!(error.to_string().contains("journal_mode=concurrent"), "{error}");
    connection.execute_batch("PRAGMA journal_mode=concurrent")?;
    connection.ticket()?;
    let ticket = put(&connection, 1);
    assert_eq!(all(vec![database.durable_future(ticket)]), [Ok(())], "another thread is started");
    Ok(())
}

#[test]
fn the_descriptor_becomes_readable_when_the_disk_has_come_further() -> Result<()> {
    let place = Place::new();
    let connection = place.connect();
    connection.ticket()?;
    let fd = connection.notify_fd()?;
    let ticket = put(&connection, 1);
    while connection.durable()? < ticket {
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).expect("it waits");
        rustix::io::read(&fd, &mut [0_u8; 8]).expect("it is readable");
    }
    Ok(())
}
