//! What becomes of a parent whose child ends a transaction, or closes a connection, that it has inherited by `fork()`.

use crate::job::Job;
use crate::os;
use crate::sqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::time::Duration;

/// What the parent is in when it forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// A transaction that has read.
    Reads,
    /// BEGIN CONCURRENT, and has written.
    WritesBeside,
    /// BEGIN IMMEDIATE, and has written.
    Writes,
    /// The same, and so much that pages are in the WAL already.
    Spills,
    /// The same, but what the child meddles with is another connection, which nothing was done with yet.
    WritesElsewhere,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Reads, Self::WritesBeside, Self::Writes, Self::Spills, Self::WritesElsewhere];

    fn begin(self) -> &'static str {
        match self {
            Self::Reads => "BEGIN; SELECT count(*) FROM forked",
            Self::WritesBeside => "BEGIN CONCURRENT; SAVEPOINT s; INSERT INTO forked VALUES('of the parent')",
            Self::Writes | Self::WritesElsewhere => {
                "BEGIN IMMEDIATE; SAVEPOINT s; INSERT INTO forked VALUES('of the parent')"
            }
            Self::Spills => {
                "PRAGMA cache_size=10; BEGIN IMMEDIATE; CREATE TABLE more(a); SAVEPOINT s; INSERT INTO forked VALUES('of the parent');
                 WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<3000)
                 INSERT INTO more SELECT randomblob(3000) FROM n"
            }
        }
    }

    /// Whether nobody else may write.
    #[must_use]
    pub fn keeps_others_out(self) -> bool {
        matches!(self, Self::Writes | Self::Spills | Self::WritesElsewhere)
    }

    fn writes(self) -> bool {
        self != Self::Reads
    }
}

/// What the child does with what it has inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// Closes it.
    Close,
    /// Rolls back.
    Rollback,
    /// Rolls back to a savepoint.
    RollbackTo,
    /// Commits.
    Commit,
    /// Reads, which begins a transaction if none is open.
    Read,
}

impl Deed {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Close, Self::Rollback, Self::RollbackTo, Self::Commit, Self::Read];
}

/// Opens the database, forks in a state, lets the child meddle, and goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inherited {
    /// What the parent is in.
    pub state: State,
    /// What the child does.
    pub deed: Deed,
    /// Nobody else is there, and the parent in no session.
    pub alone: bool,
    /// The child has the id that its parent has, which is the first of a pid namespace.
    pub same_id: bool,
}

/// How the child ends if all is as it should be.
const WELL: i32 = 0;
/// It could write though its parent was writing.
const WROTE: i32 = 1;
/// It could not write, or not read, though nobody kept it from that.
const KEPT_OUT: i32 = 2;
/// What it had inherited did what was asked.
const NOT_REFUSED: i32 = 3;
/// What it closed or ended took the locks of a connection of its own.
const LOST_ITS_LOCKS: i32 = 4;
/// `SQLITE_MISUSE`.
const MISUSE: i32 = 21;
const CLOSE_BY: Duration = Duration::from_millis(200);
const AWAY: &str = "INSERT INTO forked VALUES('of a child')";

impl Inherited {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        if self.alone {
            os::allow_alone();
        }
        let first = job.subject.open(&job.database)?;
        first
            .execute("CREATE TABLE IF NOT EXISTS forked(a); INSERT INTO forked VALUES('first')")?;
        let other = if self.alone { None } else { Some(job.subject.open(&job.database)?) };
        if let Some(other) = &other {
            other.execute("INSERT INTO forked VALUES('second')")?;
            first.execute("INSERT INTO forked VALUES('third')")?;
        }
        let unused = job.subject.library().open(&job.database)?;
        let before = first.integer("SELECT count(*) FROM forked")?;
        first.execute(self.state.begin())?;

        // The child takes them out of its own copy.
        let (first, unused) = (RefCell::new(Some(first)), RefCell::new(Some(unused)));
        let meddled = if self.state == State::WritesElsewhere { &unused } else { &first };
        if self.same_id {
            anyhow::ensure!(std::process::id() == 1, "the parent is not the first");
            os::next_child_is_the_first()?;
        }
        let child = os::in_forked_child(|| {
            os::end_in(Duration::from_secs(20));
            self.in_child(job, meddled).unwrap_or(KEPT_OUT) as u8
        })?;

        let first = first.take().expect("the child has taken its own");
        let within = first.integer("SELECT count(*) FROM forked")?;
        let committed = match self.state.writes() {
            true => first.execute("INSERT INTO forked VALUES('after'); COMMIT").err(),
            false => first.execute("COMMIT").err(),
        };
        if committed.is_some() {
            first.execute("ROLLBACK")?;
        }
        let rows = first.integer("SELECT count(*) FROM forked")?;
        let check = first.text("PRAGMA integrity_check")?;
        drop(unused);
        first.close()?;
        Ok(
            json!({ "child": child, "before": before, "within": within, "rows": rows, "check": check,
            "committed": committed.map(|error| error.said()) }),
        )
    }

    /// What the child finds, as its exit code.
    fn in_child(&self, job: &Job, inherited: &RefCell<Option<Connection>>) -> anyhow::Result<i32> {
        anyhow::ensure!(!self.same_id || std::process::id() == 1, "the child is not the first");
        let refused = self.meddle(inherited);
        let done = if refused { WELL } else { NOT_REFUSED };
        if self.same_id {
            // Its own would be taken for another copy of the library in its parent: claims are named after ids.
            return Ok(done);
        }
        let own = job.subject.library().open(&job.database)?;
        own.busy_timeout(CLOSE_BY)?;
        let wrote = own.execute(AWAY);
        if self.state.keeps_others_out() {
            match wrote {
                Err(error) if error.is_busy() => {}
                Err(_) => return Ok(KEPT_OUT),
                Ok(()) => return Ok(WROTE),
            }
        } else {
            wrote?;
            // What the parent reads must not be taken for read.
            own.execute("PRAGMA wal_checkpoint(TRUNCATE)")?;
            own.execute("BEGIN IMMEDIATE")?;
            own.execute(AWAY)?;
            drop(inherited.take());
            let grandchild = os::in_forked_child(|| {
                os::end_in(Duration::from_secs(20));
                u8::from(another_writes(job).unwrap_or(true))
            })?;
            own.execute("COMMIT")?;
            if grandchild != 0 {
                return Ok(LOST_ITS_LOCKS);
            }
        }
        Ok(done)
    }

    /// Whether it was refused, or nothing is to be said of it.
    fn meddle(&self, inherited: &RefCell<Option<Connection>>) -> bool {
        let slot = inherited.borrow();
        let connection = slot.as_ref().expect("it is inherited");
        match self.deed {
            Deed::Rollback | Deed::RollbackTo => {
                let to = if self.deed == Deed::Rollback { "" } else { " TO s" };
                let _ = connection.execute(&format!("ROLLBACK{to}"));
                true
            }
            Deed::Commit if self.state.writes() && self.state != State::WritesElsewhere => {
                connection.execute("COMMIT").is_err_and(|error| error.code == MISUSE)
            }
            Deed::Commit => true,
            Deed::Read => connection
                .integer("SELECT count(*) FROM forked")
                .is_err_and(|error| error.code == MISUSE),
            Deed::Close => {
                drop(slot);
                drop(inherited.take());
                true
            }
        }
    }
}

/// Whether somebody who comes now can write.
fn another_writes(job: &Job) -> anyhow::Result<bool> {
    let connection = job.subject.library().open(&job.database)?;
    connection.busy_timeout(CLOSE_BY)?;
    match connection.execute(AWAY) {
        Err(error) if error.is_busy() => Ok(false),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(true),
    }
}
