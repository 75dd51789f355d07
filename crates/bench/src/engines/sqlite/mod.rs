//! Any library with SQLite's C interface, loaded by path.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `file` | `disk` | `disk`, `memory` (`:memory:`) or `temporary` (an unnamed temporary file) |
//! | `busy_timeout` | 60000 | milliseconds until a wait ends in BUSY |
//! | `busy` | `handler`; `timeout` with journal_mode=concurrent | who waits: `handler`, ours with SQLite's delays, which counts; `timeout`, SQLite's own. Plait waits in the kernel in order of arrival, and calls no handler while it does: one of ours would change how it waits |
//! | `mutex` | `none` | `application`: writers of this process take turns behind one mutex of the program, see [`mutex`] |
//! | `db_config` | none | lines of Berkeley DB's `DB_CONFIG`, separated by `;`, see [`berkeley`] |
//! | `wal_autocheckpoint`, `journal_mode`, `synchronous`, `page_size`, `cache_size`, `locking_mode`, `mmap_size`, `plait_begin` … | the library's | pragmas, set on every connection |
//!
//! Pragmas are read back on the first connection and reported by [`Store::settings`], whatever was asked.
//! `:memory:` and temporary files belong to one connection, which all threads then share behind a mutex: the way a
//! program would have to.
//!
//! What an unknown pragma does is nothing: `multiversion` and `snapshot_isolation` are Berkeley DB's, `plait_begin` is
//! Plait's.
//!
//! The process that makes a database keeps one connection open until the store is closed, as a program with a pool of
//! connections does. Otherwise WAL and Plait would bring the database to rest and wake it up again between the parts
//! of a trial, and the first commit of the measured part would pay for it. Not where that connection would keep all
//! others out.
//!
//! [`SqliteEngine::by_keys`] is the same with key-value work done through `plait.h`, see [`maps`]; it has databases in files alone.
//!
//! The C interface is called in the crate `plait-client`.

mod berkeley;
mod connection;
mod maps;
mod mutex;
mod shared;

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use connection::SqliteConnection;
use maps::MapConnection;
use mutex::InTurn;
use plait_client::{Library, OpenFlags};
use shared::{Shared, SharedConnection};

use super::key_value_sql::{self, KeyValueSql};
use super::{Engine, Failure, KeyValue, Outcome, Settings, Sql, Store, Table};

/// Pragmas that may be set, in the order in which they are: a page size takes only before a journal mode does.
const PRAGMAS: &[&str] = &[
    "page_size",
    "multiversion",
    "auto_vacuum",
    "locking_mode",
    "journal_mode",
    "synchronous",
    "cache_size",
    "mmap_size",
    "wal_autocheckpoint",
    "temp_store",
    "snapshot_isolation",
    "plait_begin",
    "plait_memory",
];

/// Pragmas that are read back.
const TOLD: &[&str] = &[
    "journal_mode",
    "synchronous",
    "page_size",
    "cache_size",
    "locking_mode",
    "mmap_size",
    "multiversion",
    "snapshot_isolation",
];

/// The name of the database in its directory.
pub const FILE_NAME: &str = "bench.db";

/// A loaded library.
pub struct SqliteEngine {
    library: Library,
    version: String,
    by_keys: bool,
    /// What stands after the `?` of the URIs under which databases are opened; with nothing they are opened by their paths.
    parameters: String,
}

impl SqliteEngine {
    /// Loads a library.
    ///
    /// # Errors
    /// If it cannot be loaded or is none of SQLite's interface.
    pub fn load(library: &Path) -> Outcome<Self> {
        let library = Library::load(library).map_err(|error| Failure::Broken(error.into()))?;
        let version = match berkeley::version(library) {
            Some(berkeley) => format!("{berkeley} with SQLite {}", library.version()),
            None => library.version(),
        };
        Ok(Self { version, library, by_keys: false, parameters: String::new() })
    }

    /// Databases are opened under URIs with these parameters: `hctree=1`.
    #[must_use]
    pub fn with_parameters(self, parameters: &str) -> Self {
        Self { parameters: parameters.to_owned(), ..self }
    }

    /// Key-value work goes through Plait's key-value API, not through SQL.
    ///
    /// # Errors
    /// If the library is not Plait's.
    pub fn by_keys(self) -> Outcome<Self> {
        match self.library.has_maps() {
            true => Ok(Self { by_keys: true, ..self }),
            false => Err(Failure::broken(maps::WITHOUT_MAPS)),
        }
    }

    /// The version, as the library tells it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl Engine for SqliteEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        let known: Vec<&str> = ["file", "busy_timeout", "busy", "mutex", "db_config"]
            .into_iter()
            .chain(PRAGMAS.iter().copied())
            .collect();
        settings.only(&known)?;
        let place = match settings.get("file").unwrap_or("disk") {
            "disk" => Place::Disk(directory.join(FILE_NAME)),
            "memory" => Place::Own(":memory:"),
            "temporary" => Place::Own(""),
            other => {
                return Err(Failure::broken(format!("file={other}: disk, memory or temporary")));
            }
        };
        if let (Place::Disk(path), Some(lines)) = (&place, settings.get("db_config")) {
            berkeley::configure(path, lines)?;
        }
        let turn = match settings.get("mutex").unwrap_or("none") {
            "none" => None,
            "application" => Some(Mutex::new(())),
            other => return Err(Failure::broken(format!("mutex={other}: none or application"))),
        };
        let is_new = matches!(&place, Place::Disk(path) if !path.exists());
        let mut store = SqliteStore {
            library: self.library,
            version: self.version.clone(),
            by_keys: self.by_keys,
            parameters: self.parameters.clone(),
            place,
            settings: settings.clone(),
            shared: None,
            idle: None,
            multiversion_is_set: Mutex::new(false),
            turn,
        };
        let first = store.open()?;
        if matches!(store.place, Place::Own(_)) {
            store.shared = Some(Shared::new(first));
        } else if is_new && settings.get("locking_mode") != Some("exclusive") {
            store.idle = Some(Mutex::new(first));
        }
        Ok(Box::new(store))
    }
}

/// Where a database is.
enum Place {
    /// In a file that any number of connections can open.
    Disk(PathBuf),
    /// Where only the connection that made it can find it.
    Own(&'static str),
}

struct SqliteStore {
    library: Library,
    version: String,
    by_keys: bool,
    parameters: String,
    place: Place,
    settings: Settings,
    /// The only connection there can be, for [`Place::Own`].
    shared: Option<Shared>,
    /// Kept open by the process that made the database, and never used: see the head of this file. Behind a mutex only
    /// because the threads share the store.
    idle: Option<Mutex<SqliteConnection>>,
    /// Whether a connection of this store has made Berkeley DB keep versions of pages. Held while a connection opens and
    /// sets it: a second connection to a database opens the environment that all of a process share, as it has been set
    /// by then, and after that it cannot be set.
    multiversion_is_set: Mutex<bool>,
    /// The program's own mutex around whatever writes, if it has one.
    turn: Option<Mutex<()>>,
}

impl SqliteStore {
    /// A new connection with all pragmas set.
    fn open(&self) -> Outcome<SqliteConnection> {
        let (path, flags) = match &self.place {
            Place::Disk(path) if !self.parameters.is_empty() => {
                (uri(path, &self.parameters), OpenFlags::Uri)
            }
            Place::Disk(path) => (path.clone(), OpenFlags::ReadWriteCreate),
            Place::Own(name) => (PathBuf::from(name), OpenFlags::ReadWriteCreate),
        };
        let mut multiversion = self.settings.get("multiversion").map(|_| self.multiversion());
        let mut connection = SqliteConnection::open(self.library, &path, flags)?;
        let timeout_ms = self.settings.parse("busy_timeout")?.unwrap_or(60_000);
        let concurrent = self.settings.get("journal_mode") == Some("concurrent");
        let usual = if concurrent { "timeout" } else { "handler" };
        match self.settings.get("busy").unwrap_or(usual) {
            "handler" => connection.count_busy_handler_calls(timeout_ms)?,
            "timeout" => connection.set_busy_timeout(timeout_ms)?,
            other => return Err(Failure::broken(format!("busy={other}: handler or timeout"))),
        }
        for name in PRAGMAS {
            let Some(value) = self.settings.get(name) else { continue };
            let set = connection.script(&format!("PRAGMA {name}={value};"));
            match &mut multiversion {
                // The first connection of a process sets it, the others are refused and need not see that it is set.
                Some(is_set) if *name == "multiversion" => {
                    if !**is_set {
                        set?;
                    }
                    **is_set = true;
                }
                _ => set?,
            }
        }
        Ok(connection)
    }

    fn multiversion(&self) -> MutexGuard<'_, bool> {
        self.multiversion_is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A path as a `file:` URI with parameters.
fn uri(path: &Path, parameters: &str) -> PathBuf {
    let mut text = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => text.push(char::from(*byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    PathBuf::from(format!("{text}?{parameters}"))
}

/// What a pragma answers; none where the library does not know it.
fn told(sql: &mut dyn Sql, name: &str) -> Outcome<Option<String>> {
    let statement = sql.prepare(&format!("PRAGMA {name}"))?;
    let mut value = None;
    sql.query(statement, &[], &mut |row| {
        value = Some(String::from_utf8_lossy(row.bytes(0)).into_owned());
    })?;
    Ok(value)
}

impl Store for SqliteStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        let mut sql = self.sql()?;
        key_value_sql::create(sql.as_mut(), tables, key_value_sql::SQLITE)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        Ok(match &self.shared {
            Some(_) if self.by_keys => {
                return Err(Failure::unsupported("by keys only databases in files are measured"));
            }
            None if self.by_keys => Box::new(MapConnection::new(self.open()?, tables)?),
            Some(shared) => Box::new(KeyValueSql::new(SharedConnection::new(shared), tables)?),
            None => Box::new(KeyValueSql::new(self.open()?, tables)?),
        })
    }

    fn sql(&self) -> Outcome<Box<dyn Sql + '_>> {
        Ok(match &self.shared {
            Some(shared) => Box::new(SharedConnection::new(shared)),
            None => match &self.turn {
                Some(turn) => Box::new(InTurn::new(self.open()?, turn)),
                None => Box::new(self.open()?),
            },
        })
    }

    fn settings(&self) -> Outcome<Settings> {
        let mut sql = self.sql()?;
        let mut all = Settings::default().with("version", &self.version);
        for name in TOLD {
            if let Some(value) = told(sql.as_mut(), name)? {
                all.set(name, value);
            }
        }
        if let Place::Disk(path) = &self.place {
            berkeley::tell(path, &mut all)?;
        }
        Ok(all)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        drop(self.idle);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_any_bytes_is_part_of_a_uri() {
        let path = Path::new("/a b/50%?#/bench.db");
        assert_eq!(uri(path, "x=1&y"), Path::new("file:/a%20b/50%25%3F%23/bench.db?x=1&y"));
    }
}
