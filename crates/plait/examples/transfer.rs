//! Threads that move money between accounts: transactions run beside each other, and again when they meet.
//!
//! `cargo run --example transfer -- bank.db`

use std::thread;

use plait::{Database, Error, MapDefinition, Options, Synchronous};

const MONEY: MapDefinition<i64, i64> = MapDefinition::new("money");
const ACCOUNTS: i64 = 8;

/// Why a transfer is not made.
#[derive(Debug)]
pub enum Refused {
    /// There is not enough money.
    TooPoor,
    /// The database has failed.
    Database(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Database(error)
    }
}

fn transfer(database: &Database, from: i64, to: i64, amount: i64) -> Result<(), Refused> {
    database.try_write(|tx| {
        let mut money = tx.map(MONEY)?;
        if money.get(from)?.unwrap_or(0) < amount {
            return Err(Refused::TooPoor); // rolls back, and is not run again
        }
        money.add(from, -amount)?;
        money.add(to, amount)?;
        Ok(())
    })
}

/// Does all of it in the file at `path`.
pub fn run(path: &std::path::Path) -> plait::Result<()> {
    let database = Options::new().synchronous(Synchronous::Normal).open(path)?;
    database.write(|tx| tx.map(MONEY)?.load((0..ACCOUNTS).map(|account| (account, 100))))?;
    let refused: usize = thread::scope(|scope| {
        let work = |thread: i64| {
            let of = |n: i64| (n * 5 + thread) % ACCOUNTS;
            let is_refused = |n: i64| match transfer(&database, of(n), of(n + thread + 1), 30) {
                Ok(()) => false,
                Err(Refused::TooPoor) => true,
                Err(Refused::Database(error)) => panic!("{error}"),
            };
            (0..50).filter(|n| is_refused(*n)).count()
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    });
    println!("{refused} of 200 transfers were refused");
    let sum = database.read(|snapshot| {
        snapshot
            .map(MONEY)?
            .iter()?
            .map(|row| row.map(|(_, money)| money))
            .sum::<plait::Result<i64>>()
    })?;
    assert_eq!(sum, ACCOUNTS * 100);
    Ok(())
}

#[allow(dead_code, reason = "the tests call run()")]
fn main() -> plait::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "bank.db".into());
    run(path.as_ref())
}
