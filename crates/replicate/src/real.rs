//! This world: its clocks, its chance, and a runtime of one thread.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::{Either, select};
use plait_replicate::error::Result;
use plait_replicate::store::Later;
use plait_replicate::store::objects::Objects;
use plait_replicate::world::{Clock, Patience, Random, World};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Longest sleep of what is told to end.
const LAST_SLEEP: Duration = Duration::from_millis(100);

/// A look at a place that takes longer is told of.
const LONG: Duration = Duration::from_secs(5);

/// Tells a sidecar to end: what sleeps wakes, and sleeps for moments alone from then on.
#[derive(Default)]
pub struct Stop {
    is_stopped: Cell<bool>,
    woken: tokio::sync::Notify,
}

impl Stop {
    /// Tells it.
    pub fn stop(&self) {
        self.is_stopped.set(true);
        self.woken.notify_waiters();
    }

    /// True if it was told.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    async fn sleep(&self, time: Duration) {
        if !self.is_stopped() {
            let woken = Box::pin(self.woken.notified());
            select(Box::pin(tokio::time::sleep(time)), woken).await;
        }
        if self.is_stopped() {
            tokio::time::sleep(time.min(LAST_SLEEP)).await;
        }
    }
}

/// What tells a process to end: SIGTERM and SIGINT.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on they are heard, and kill nobody.
    ///
    /// # Errors
    /// In words.
    pub fn heard(runtime: &Runtime) -> std::result::Result<Signals, String> {
        let _inside = runtime.enter();
        let heard = |kind| signal(kind).map_err(|e| format!("cannot wait for signals: {e}"));
        Ok(Signals {
            terminate: heard(SignalKind::terminate())?,
            interrupt: heard(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of them.
    pub async fn told_to_end(&mut self) {
        select(Box::pin(self.terminate.recv()), Box::pin(self.interrupt.recv())).await;
    }
}

/// The machine's clocks.
pub struct Clocks {
    begun: Instant,
    stop: Rc<Stop>,
}

impl Clock for Clocks {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
    }

    fn sleep(&self, time: Duration) -> Later<'_, ()> {
        Box::pin(self.stop.sleep(time))
    }
}

/// The kernel's random numbers.
pub struct Chance;

impl Random for Chance {
    fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        assert_eq!(got, Ok(bytes.len()), "the kernel gives random numbers");
        u64::from_le_bytes(bytes)
    }
}

/// Puts this world together.
pub fn world(store: Objects, patience: Patience) -> World {
    made(Rc::new(store), &Rc::default(), patience)
}

/// The same, without an end of patience, for a sidecar that can be told to end.
pub fn stoppable_world(store: Rc<Objects>, stop: &Rc<Stop>) -> World {
    made(store, stop, Patience::Endless)
}

fn made(store: Rc<Objects>, stop: &Rc<Stop>, patience: Patience) -> World {
    let clocks = Clocks { begun: Instant::now(), stop: Rc::clone(stop) };
    World::new(store, Rc::new(clocks), Rc::new(Chance), patience)
}

/// Runs a task to its end, and the runtime with it. A call of a folder that does not answer goes on in a thread, for
/// which a runtime that is dropped would wait without end; this one leaves it to the end of the process.
pub fn run_on<T>(runtime: Runtime, task: impl Future<Output = T>) -> T {
    let done = runtime.block_on(task);
    runtime.shutdown_background();
    done
}

/// Does what may not answer, as the first look at a place over a network, in a thread, until it is done or this is told to
/// end: `None` then, and the thread is left to the end of the process. `waits` is called when it has taken long.
pub fn unless_told_to_end<T: Send + 'static>(
    runtime: &Runtime,
    signals: &mut Signals,
    waits: impl FnOnce(),
    does: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    runtime.block_on(async {
        let mut does = tokio::task::spawn_blocking(does);
        let done = Box::pin(async {
            let done = match tokio::time::timeout(LONG, &mut does).await {
                Ok(done) => done,
                Err(_) => {
                    waits();
                    does.await
                }
            };
            done.expect("it does not panic")
        });
        match select(done, Box::pin(signals.told_to_end())).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    })
}

/// Runs a task to its end on a runtime of its own, which ends with it as in [`run_on`].
pub fn block_on<T>(task: impl Future<Output = Result<T>>) -> std::result::Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("cannot start a runtime: {e}"))?;
    run_on(runtime, task).map_err(|error| error.to_string())
}
