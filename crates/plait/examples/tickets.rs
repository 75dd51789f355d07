//! One thread with many commits in flight: each is answered when it is on disk, and none is waited for alone.
//!
//! `cargo run --example tickets -- queue.db`

use plait::{MapDefinition, Options, Synchronous};

const QUEUE: MapDefinition<i64, &str> = MapDefinition::new("queue");

/// Does all of it in the file at `path`.
pub fn run(path: &std::path::Path) -> plait::Result<()> {
    let database = Options::new().synchronous(Synchronous::Normal).open(path)?;
    let connection = database.connect()?;
    let mut queue = connection.map(QUEUE)?;
    let mut requests = Vec::new();
    for number in 0..100 {
        queue.put(number, "a job")?;
        requests.push((number, database.durable_future(connection.ticket()?)));
    }
    // With an executor each of these would be a task; here any that blocks on a future will do.
    pollster::block_on(async {
        for (number, durable) in requests {
            durable.await?;
            println!("job {number} is on disk");
        }
        Ok(())
    })
}

#[allow(dead_code, reason = "the tests call run()")]
fn main() -> plait::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "queue.db".into());
    run(path.as_ref())
}
