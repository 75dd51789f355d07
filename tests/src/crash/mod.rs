//! Killing processes, at named steps and at random, and auditing what is left.
//!
//! [`points`] names the steps, [`scene`] says what goes on around each, [`case`] kills one process at one of them,
//! [`storm`] kills at random, [`audit`] holds the survivors' database against the record that was kept outside,
//! [`image`] copies a dead database's files so that they can be damaged, [`disk`] is a disk that can be filled.

pub mod audit;
pub mod case;
pub mod disk;
pub mod image;
pub mod points;
pub mod scene;
pub mod storm;
pub mod torture;

use crate::job::{Job, Running, Work};
use crate::jobs::ledger::{Crew, Ledger};
use crate::place::Place;
use crate::subject::{Fixture, Subject};
use anyhow::{Context as _, ensure};
use audit::{Acknowledged, Contents, Demand, audit};
use std::path::PathBuf;

fn job(subject: Subject, database: PathBuf, ledger: Ledger) -> Job {
    Job { subject, database, work: Work::Ledger(ledger) }
}

/// Starts a bookkeeper in a process of its own.
#[must_use]
pub fn start(fixture: &Fixture, ledger: Ledger) -> Running {
    job(fixture.subject.clone(), fixture.database(), ledger).start(Place::Processes)
}

/// Starts several bookkeepers in threads of one process.
#[must_use]
pub fn start_crew(fixture: &Fixture, crew: Crew) -> Running {
    let (subject, database) = (fixture.subject.clone(), fixture.database());
    Job { subject, database, work: Work::Crew(crew) }.start(Place::Processes)
}

/// Checks a database that everybody has closed: it is plain, and both libraries read the same sound book.
pub fn at_rest(
    fixture: &Fixture,
    acknowledged: &Acknowledged,
    demand: Demand,
) -> anyhow::Result<Contents> {
    plain(fixture).context("after the survivors closed")?;
    let connection = fixture.subject.open(&fixture.database())?;
    let ours =
        audit(&connection, acknowledged, demand).context("read by the library under test")?;
    connection.close()?;
    plain(fixture).context("after a look at it")?;
    let stock = Subject::stock().open(&fixture.database())?;
    let stocks = audit(&stock, acknowledged, demand).context("read by stock SQLite")?;
    stock.close()?;
    ensure!(ours == stocks, "stock SQLite reads something else");
    Ok(ours)
}

/// Fails unless the database is a plain file with nothing of ours beside it.
fn plain(fixture: &Fixture) -> anyhow::Result<()> {
    let header = std::fs::read(fixture.database())?;
    ensure!(header[18] <= 2 && header[19] <= 2, "the file is still fenced");
    for suffix in ["-plait", "-plait-shm"] {
        ensure!(!fixture.side_file(suffix).exists(), "{suffix} is still there");
    }
    Ok(())
}
