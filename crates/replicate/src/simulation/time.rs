//! One clock for all, and who waits for it.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use crate::store::Later;
use crate::world::Clock;

/// 2026, in milliseconds.
const BEGIN_MS: u64 = 1_780_000_000_000;

/// The time of the simulated world.
#[derive(Debug, Default)]
pub struct Time {
    now: Cell<Duration>,
}

impl Time {
    /// The time.
    pub fn now(&self) -> Duration {
        self.now.get()
    }

    /// Lets time pass.
    pub fn advance_to(&self, now: Duration) {
        self.now.set(self.now.get().max(now));
    }

    /// The time as people count it, right everywhere but on machines with a skew.
    pub fn wall_ms(&self) -> u64 {
        BEGIN_MS + self.now().as_millis() as u64
    }
}

/// A task's clock.
#[derive(Clone)]
pub struct TaskClock {
    time: Rc<Time>,
    wake: Rc<Cell<Duration>>,
    skew_ms: Rc<Cell<i64>>,
}

impl TaskClock {
    /// A clock on a machine whose wall clock is off by so much.
    pub fn new(time: &Rc<Time>, skew_ms: &Rc<Cell<i64>>) -> TaskClock {
        let wake = Rc::new(Cell::new(time.now()));
        TaskClock { time: Rc::clone(time), wake, skew_ms: Rc::clone(skew_ms) }
    }

    /// Before this the task has nothing to do.
    pub fn wake(&self) -> Duration {
        self.wake.get()
    }

    /// Lets the task stand still.
    pub fn stall_until(&self, until: Duration) {
        self.wake.set(self.wake.get().max(until));
    }

    /// Waits: others go on in any case.
    pub async fn wait(&self, time: Duration) {
        let due = self.time.now() + time;
        self.wake.set(due);
        let mut is_first = true;
        poll_fn(|_| {
            if std::mem::take(&mut is_first) || self.time.now() < due {
                // Another call of the same task may have been due earlier.
                if self.wake.get() <= self.time.now() {
                    self.wake.set(due);
                }
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }
}

impl Clock for TaskClock {
    fn now(&self) -> Duration {
        self.time.now()
    }

    fn wall_ms(&self) -> u64 {
        self.time.wall_ms().saturating_add_signed(self.skew_ms.get())
    }

    fn sleep(&self, time: Duration) -> Later<'_, ()> {
        Box::pin(self.wait(time))
    }
}
