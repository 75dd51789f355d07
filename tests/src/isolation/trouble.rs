//! What goes on beside the workers of a round: whatever else people do to a database in use.
//!
//! Some of it reads: a backup, a copy by VACUUM INTO and a reader that stands still become transactions of the history, which have
//! to fit into it as any other does. All of it may be told that the database is busy, and nothing else, unless the disk is full.

use crate::differential::dice::Dice;
use crate::jobs::looks::Look;
use crate::sqlite::{Connection, SqlError};
use crate::subject::{Fixture, Subject};
use anyhow::{Context as _, ensure};
use std::fs::File;
use std::time::Duration;

/// One of these things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Another table is made, changed and dropped.
    Tables,
    /// The workers' table gets an index, or loses it.
    Index,
    /// VACUUM.
    Vacuum,
    /// ANALYZE.
    Analyze,
    /// A backup, whole or in steps.
    Backup,
    /// VACUUM INTO.
    Copy,
    /// A checkpoint of each kind.
    Checkpoint,
    /// The mode is left and entered again, if that is granted.
    Mode,
    /// A reader that stands still between two looks at the same.
    Reader,
    /// A big transaction on another table.
    Bulk,
    /// This connection is closed and opened again.
    Opening,
    /// A worker's process is stopped for a while.
    Stop,
    /// A worker's process is killed, and another one takes its place.
    Kill,
    /// A worker's process may open or write no more files for a while.
    Limit,
    /// The disk is full for a while, and another trouble comes meanwhile.
    FullDisk,
}

impl Trouble {
    const ANYWHERE: [Self; 11] = [
        Self::Tables,
        Self::Index,
        Self::Vacuum,
        Self::Analyze,
        Self::Backup,
        Self::Copy,
        Self::Checkpoint,
        Self::Mode,
        Self::Reader,
        Self::Bulk,
        Self::Opening,
    ];

    /// The next one; what is done to processes, or to a small disk, only where there are some.
    pub fn any(dice: &mut Dice, has_processes: bool, has_disk: bool) -> Self {
        if has_disk && dice.one_in(4) {
            return Self::FullDisk;
        }
        let all = Self::ANYWHERE.len() + if has_processes { 6 } else { 0 };
        match dice.roll(all) {
            n if n < Self::ANYWHERE.len() => Self::ANYWHERE[n],
            n if n % 3 == 0 => Self::Stop,
            n if n % 3 == 1 => Self::Kill,
            _ => Self::Limit,
        }
    }
}

/// Who makes trouble.
pub struct Troublemaker<'a> {
    fixture: &'a Fixture,
    connection: Option<Connection>,
    keys: i64,
    file: File,
    /// How often it was granted what it asked for, and how often it was told to wait.
    pub tally: (u64, u64),
    made: u32,
    /// The disk may be full.
    pub may_want_room: bool,
}

impl<'a> Troublemaker<'a> {
    /// Writes down what it reads.
    pub fn new(fixture: &'a Fixture, keys: i64, file: File) -> Self {
        let may_want_room = false;
        Self { fixture, connection: None, keys, file, tally: (0, 0), made: 0, may_want_room }
    }

    /// Makes some.
    pub fn make(&mut self, trouble: Trouble, dice: &mut Dice) -> anyhow::Result<()> {
        self.made += 1;
        let outcome = self.attempt(trouble, dice);
        let Err(error) = outcome else {
            self.tally.0 += 1;
            return Ok(());
        };
        let is_expected = error
            .downcast_ref::<SqlError>()
            .is_some_and(|error| error.is_busy() || self.may_want_room && error.is_want_of_room());
        ensure!(is_expected, "{trouble:?}: {error:#}");
        self.tally.1 += 1;
        // In the middle of what it was doing.
        self.connection = None;
        Ok(())
    }

    fn connection(&mut self) -> Result<Connection, SqlError> {
        if self.connection.is_none() {
            self.connection = Some(self.fixture.subject.open(&self.fixture.database())?);
        }
        Ok(self.connection.clone().expect("it is open"))
    }

    fn attempt(&mut self, trouble: Trouble, dice: &mut Dice) -> anyhow::Result<()> {
        let connection = self.connection()?;
        let n = self.made;
        match trouble {
            Trouble::Tables => connection.execute(&format!(
                "CREATE TABLE other{n}(a INTEGER PRIMARY KEY, b);
                 INSERT INTO other{n}(b) VALUES('one'),('two');
                 ALTER TABLE other{n} ADD COLUMN c DEFAULT 5; CREATE INDEX other{n}_b ON other{n}(b, c);
                 DROP TABLE other{n}"
            ))?,
            Trouble::Index => connection.execute(dice.pick::<&str>(&[
                "CREATE INDEX IF NOT EXISTS kv_more ON kv(prev, grp)",
                "DROP INDEX IF EXISTS kv_more",
                "REINDEX kv",
            ]))?,
            Trouble::Vacuum => connection.execute("VACUUM")?,
            Trouble::Analyze => connection.execute("ANALYZE")?,
            Trouble::Backup => self.back_up(&connection, dice.one_in(2))?,
            Trouble::Copy => self.copy(&connection)?,
            Trouble::Checkpoint => {
                let kind = dice.pick(&["PASSIVE", "FULL", "RESTART", "TRUNCATE"]);
                connection.execute(&format!("PRAGMA wal_checkpoint({kind})"))?;
            }
            Trouble::Mode => self.leave_and_enter(&connection)?,
            Trouble::Reader => self.stand_still(&connection, dice)?,
            Trouble::Bulk => connection.execute(
                "CREATE TABLE IF NOT EXISTS bulk(a INTEGER PRIMARY KEY, b);
                 BEGIN IMMEDIATE;
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<3000)
                 INSERT INTO bulk(b) SELECT randomblob(200) FROM n;
                 DELETE FROM bulk WHERE a%3=0; COMMIT; DELETE FROM bulk",
            )?,
            Trouble::Opening => {
                drop(connection);
                self.connection.take().map_or(Ok(()), Connection::close)?;
            }
            Trouble::Stop | Trouble::Kill | Trouble::Limit | Trouble::FullDisk => {}
        }
        Ok(())
    }

    /// The copy is a moment of the history.
    fn back_up(&mut self, connection: &Connection, whole: bool) -> anyhow::Result<()> {
        let path = self.fixture.path("backup.db");
        let look = Look::begin("backup", self.made);
        {
            let to = self.fixture.subject.library().open(&path)?;
            let mut backup = crate::sqlite::Backup::start(connection, &to)?;
            let pages = if whole { -1 } else { 3 };
            while backup.step(pages)? == crate::sqlite::BackupProgress::More {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.look_into(look, &path)
    }

    fn copy(&mut self, connection: &Connection) -> anyhow::Result<()> {
        let path = self.fixture.path("copy.db");
        let look = Look::begin("VACUUM INTO", self.made);
        connection.execute(&format!("VACUUM INTO '{}'", path.display()))?;
        self.look_into(look, &path)
    }

    fn look_into(&mut self, look: Look, path: &std::path::Path) -> anyhow::Result<()> {
        // In a mode in which nothing but the file itself counts.
        let copy = Subject::stock().open(path).context("stock opens a copy")?;
        let sound = copy.text("PRAGMA integrity_check").context("it is a database")?;
        ensure!(sound == "ok", "a copy says {sound}");
        look.end(&copy, self.keys, &mut self.file).context("a copy can be read")?;
        copy.close()?;
        for suffix in ["", "-wal", "-shm", "-journal", "-plait", "-plait-shm"] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            let _ = std::fs::remove_file(name);
        }
        Ok(())
    }

    fn leave_and_enter(&self, connection: &Connection) -> anyhow::Result<()> {
        for mode in ["delete", "wal"] {
            connection.text(&format!("PRAGMA journal_mode={mode}"))?;
        }
        let entered = connection.text("PRAGMA journal_mode=concurrent")?;
        ensure!(entered == "concurrent", "the mode is {entered}");
        Ok(())
    }

    fn stand_still(&mut self, connection: &Connection, dice: &mut Dice) -> anyhow::Result<()> {
        const ALL: &str = "SELECT * FROM kv ORDER BY id";
        let look = Look::begin("BEGIN", self.made);
        connection.execute("BEGIN")?;
        let before = connection.query(ALL)?;
        std::thread::sleep(Duration::from_millis(dice.roll(300) as u64));
        let after = connection.query(ALL)?;
        ensure!(before == after, "a snapshot moved from {before:?} to {after:?}");
        look.end(connection, self.keys, &mut self.file)?;
        connection.execute("COMMIT")?;
        Ok(())
    }
}
