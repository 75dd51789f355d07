//! This world: its clocks, its chance, and a runtime of one thread.

use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plait_replicate::error::Result;
use plait_replicate::store::Later;
use plait_replicate::store::objects::Objects;
use plait_replicate::world::{Clock, Patience, Random, World};

/// The machine's clocks.
pub struct Clocks {
    begun: Instant,
}

impl Clock for Clocks {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
    }

    fn sleep(&self, time: Duration) -> Later<'_, ()> {
        Box::pin(tokio::time::sleep(time))
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
    let clocks = Clocks { begun: Instant::now() };
    World::new(Rc::new(store), Rc::new(clocks), Rc::new(Chance), patience)
}

/// Runs a task to its end, and the runtime with it.
pub fn block_on<T>(task: impl Future<Output = Result<T>>) -> std::result::Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("cannot start a runtime: {e}"))?;
    runtime.block_on(task).map_err(|error| error.to_string())
}
