//! A library together with the journal mode in which it is tested.

use crate::os;
use crate::paths;
use crate::sqlite::{Connection, Library, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long connections of the suites wait for a lock unless a test says otherwise.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// The journal mode a subject works in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// `journal_mode=wal`.
    Wal,
    /// `journal_mode=concurrent`.
    Concurrent,
}

impl Mode {
    /// Its name in the pragma.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Concurrent => "concurrent",
        }
    }
}

/// A way of beginning a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Begin {
    /// `BEGIN`.
    Deferred,
    /// `BEGIN IMMEDIATE`.
    Immediate,
    /// `BEGIN EXCLUSIVE`.
    Exclusive,
    /// `BEGIN CONCURRENT`.
    Concurrent,
    /// `BEGIN IMMEDIATE` and a value of the header: from there on it runs exclusively, on SQLite's own path.
    OnPages,
}

impl Begin {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Deferred, Self::Immediate, Self::Exclusive, Self::Concurrent, Self::OnPages];
}

/// `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Synchronous {
    /// 0.
    Off,
    /// 1.
    Normal,
    /// 2.
    Full,
}

impl Synchronous {
    /// Its number in the pragma.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Off => 0,
            Self::Normal => 1,
            Self::Full => 2,
        }
    }
}

/// A library by path and the mode in which it keeps its databases.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// The shared object.
    pub library: PathBuf,
    /// The mode.
    pub mode: Mode,
}

impl Subject {
    /// The library under test in concurrent mode (or its stand-in, see [`paths`]).
    ///
    /// # Panics
    /// If the library is not there; the message says what to do.
    #[must_use]
    pub fn plait() -> Self {
        let library = paths::plait_library().unwrap_or_else(|error| panic!("{error:#}"));
        Self { library, mode: if paths::stand_in() { Mode::Wal } else { Mode::Concurrent } }
    }

    /// The library under test with its crash points compiled in.
    ///
    /// # Panics
    /// If the library is not there; the message says what to do.
    #[must_use]
    pub fn plait_with_crash_points() -> Self {
        let library = paths::crash_library().unwrap_or_else(|error| panic!("{error:#}"));
        Self { library, ..Self::plait() }
    }

    /// The unspliced library in WAL mode.
    ///
    /// # Panics
    /// If the library is not there; the message says what to do.
    #[must_use]
    pub fn stock() -> Self {
        let library = paths::stock_library().unwrap_or_else(|error| panic!("{error:#}"));
        Self { library, mode: Mode::Wal }
    }

    /// The library under test in WAL mode: its stock path.
    #[must_use]
    pub fn plait_in_wal_mode() -> Self {
        Self { mode: Mode::Wal, ..Self::plait() }
    }

    /// The `plait` command that was built with the library; `None` says so.
    #[must_use]
    pub fn command(&self) -> Option<std::process::Command> {
        let program = self.library.ancestors().nth(2).map(|dist| dist.join("bin/plait"));
        let program = program.filter(|program| program.exists());
        if program.is_none() {
            eprintln!("skipped: bin/plait is not built beside the library");
        }
        program.map(std::process::Command::new)
    }

    /// Whether it is in concurrent mode.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        self.mode == Mode::Concurrent
    }

    /// The loaded library.
    ///
    /// # Panics
    /// If it cannot be loaded.
    #[must_use]
    pub fn library(&self) -> Library {
        os::join_unless_said();
        Library::load(&self.library).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Creates or converts a database: opens it, sets the mode and checks that it took.
    pub fn create(&self, database: &Path) -> Result<Connection> {
        let connection = self.open(database)?;
        self.convert(&connection)?;
        Ok(connection)
    }

    /// Sets the mode on an open connection and checks that it took.
    ///
    /// # Panics
    /// If the pragma succeeds but answers with another mode.
    pub fn convert(&self, connection: &Connection) -> Result<()> {
        let mode = connection.text(&format!("PRAGMA journal_mode={}", self.mode.name()))?;
        assert_eq!(mode, self.mode.name(), "the journal mode was not taken");
        Ok(())
    }

    /// Opens a database with the suites' busy timeout.
    pub fn open(&self, database: &Path) -> Result<Connection> {
        let connection = self.library().open(database)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    /// The statements for a way of beginning. Stock SQLite has no BEGIN CONCURRENT and gets the nearest: IMMEDIATE.
    #[must_use]
    pub fn begin(&self, begin: Begin) -> &'static str {
        match begin {
            Begin::Deferred => "BEGIN",
            Begin::Immediate => "BEGIN IMMEDIATE",
            Begin::Exclusive => "BEGIN EXCLUSIVE",
            Begin::Concurrent if self.is_concurrent() => "BEGIN CONCURRENT",
            Begin::Concurrent => "BEGIN IMMEDIATE",
            Begin::OnPages => "BEGIN IMMEDIATE; PRAGMA application_id=7",
        }
    }
}

/// The real library under test, or `None` after printing why the calling test is skipped.
#[must_use]
pub fn real_plait(test: &str) -> Option<Subject> {
    if paths::stand_in() {
        eprintln!("skipped: {test}: stock SQLite stands in and does not do this");
        return None;
    }
    Some(Subject::plait())
}

/// A fresh directory with a database of the given subject in it.
pub struct Fixture {
    directory: tempfile::TempDir,
    /// Another place of the database than in it.
    elsewhere: Option<PathBuf>,
    /// The subject.
    pub subject: Subject,
}

impl Fixture {
    /// An empty directory; no database yet.
    ///
    /// # Panics
    /// If no temporary directory can be made.
    #[must_use]
    pub fn empty(subject: Subject) -> Self {
        let directory = tempfile::Builder::new().prefix("plait-test-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        Self { directory, elsewhere: None, subject }
    }

    /// A database with the given schema and rows.
    ///
    /// # Panics
    /// If the SQL fails.
    #[must_use]
    pub fn new(subject: Subject, sql: &str) -> Self {
        Self::new_at(subject, sql, None)
    }

    /// The same with the database in this place, if one is given, and all that a test notes in the directory.
    ///
    /// # Panics
    /// If the SQL fails.
    #[must_use]
    pub fn new_at(subject: Subject, sql: &str, elsewhere: Option<PathBuf>) -> Self {
        let fixture = Self { elsewhere, ..Self::empty(subject) };
        let connection =
            fixture.subject.create(&fixture.database()).expect("the database can be made");
        connection.execute(sql).expect("the schema can be made");
        fixture
    }

    /// The database's path.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.elsewhere.clone().unwrap_or_else(|| self.path("app.db"))
    }

    /// A path in the same directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A new connection to the database.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[must_use]
    pub fn open(&self) -> Connection {
        self.subject.open(&self.database()).expect("the database can be opened")
    }

    /// The path of a side file: `-wal`, `-shm`, `-plait`, `-plait-shm`.
    #[must_use]
    pub fn side_file(&self, suffix: &str) -> PathBuf {
        let mut name = self.database().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// Keeps the directory after the test and returns it, for a look at what went wrong.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }
}

/// A database of the real library under test with this schema, and a connection to it; `None` as of [`real_plait`].
///
/// # Panics
/// If the SQL fails.
#[must_use]
pub fn opened(test: &str, sql: &str) -> Option<(Fixture, Connection)> {
    let fixture = Fixture::new(real_plait(test)?, sql);
    let connection = fixture.open();
    Some((fixture, connection))
}

/// The outcome has to be an error with this code, and a text with these words.
///
/// # Panics
/// If it is not.
#[track_caller]
pub fn refused<T>(outcome: Result<T>, code: i32, words: &str) {
    let Err(error) = outcome else { panic!("it must be refused with {code}: {words}") };
    assert_eq!(error.code, code, "{error}");
    assert!(error.message.contains(words), "{error}");
}
