//! PostgreSQL: a cluster of its own for each trial, reached through a Unix socket.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `default_transaction_isolation` | `serializable` | the guarantee that the other engines give |
//! | `fsync`, `synchronous_commit`, `full_page_writes`, `shared_buffers`, `wal_sync_method`, `commit_delay`, `commit_siblings`, `max_wal_size`, `wal_buffers`, `wal_compression` | the server's | its parameters, read back |
//!
//! The server's programs and libpq are found at run time. Its processes are children of the trial's.

mod api;
mod cluster;
mod connection;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use api::Api;
use cluster::Server;
use connection::PostgresConnection;

use super::key_value_sql::{self, Dialect, KeyValueSql};
use super::{Engine, KeyValue, Outcome, Settings, Sql, Store, Table};

/// Parameters of the server that may be set.
const PARAMETERS: &[&str] = &[
    "default_transaction_isolation",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "wal_sync_method",
    "commit_delay",
    "commit_siblings",
    "max_wal_size",
    "wal_buffers",
    "wal_compression",
];

/// Its words for what SQLite calls otherwise.
pub const DIALECT: Dialect = Dialect { int: "BIGINT", blob: "BYTEA", without_rowid: "" };

/// PostgreSQL's programs and its library for clients.
pub struct PostgresEngine {
    programs: PathBuf,
    api: Arc<Api>,
}

/// Folder of the newest server's programs, and the library for clients.
#[must_use]
pub fn find() -> Option<(PathBuf, PathBuf)> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = debian.map(|entry| entry.path()).collect();
    versions.sort_by_key(|path| {
        path.file_name().and_then(|n| n.to_str()?.parse::<u32>().ok()).unwrap_or(0)
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = versions
        .into_iter()
        .rev()
        .map(|version| version.join("bin"))
        .chain(["/usr/local/pgsql/bin".into(), "/usr/bin".into()])
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("postgres").is_file() && folder.join("initdb").is_file())?;
    let library = super::catalogue::shared_library("libpq.so.5")?;
    Some((programs, library))
}

impl PostgresEngine {
    /// Loads the library for clients.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub fn load(programs: &Path, library: &Path) -> Outcome<Self> {
        Ok(Self { programs: programs.to_owned(), api: Arc::new(Api::load(library)?) })
    }

    /// The server's version, as its program tells it.
    ///
    /// # Errors
    /// If that program cannot be run.
    pub fn version(&self) -> anyhow::Result<String> {
        let said = Command::new(self.programs.join("postgres")).arg("--version").output();
        let said = said.context("cannot run postgres")?;
        let text = String::from_utf8_lossy(&said.stdout);
        Ok(text.split_whitespace().nth(2).unwrap_or("unknown").to_owned())
    }
}

impl Engine for PostgresEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(PARAMETERS)?;
        let mut parameters = settings.clone();
        if parameters.get("default_transaction_isolation").is_none() {
            parameters.set("default_transaction_isolation", "serializable");
        }
        let (server, socket) = match cluster::joined(directory) {
            Some(socket) => (None, socket),
            None => {
                let answers = |socket: &Path| PostgresConnection::open(&self.api, socket).is_ok();
                let (server, socket) =
                    cluster::start(&self.programs, directory, &parameters, &answers)?;
                (Some(server), socket)
            }
        };
        Ok(Box::new(PostgresStore {
            api: Arc::clone(&self.api),
            server: Mutex::new(server),
            socket,
        }))
    }
}

struct PostgresStore {
    api: Arc<Api>,
    /// None in a process that joined.
    server: Mutex<Option<Server>>,
    socket: PathBuf,
}

impl PostgresStore {
    fn connect(&self) -> Outcome<PostgresConnection> {
        PostgresConnection::open(&self.api, &self.socket)
    }
}

impl Store for PostgresStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        key_value_sql::create(&mut self.connect()?, tables, DIALECT)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        Ok(Box::new(KeyValueSql::new(self.connect()?, tables)?))
    }

    fn sql(&self) -> Outcome<Box<dyn Sql + '_>> {
        Ok(Box::new(self.connect()?))
    }

    fn settings(&self) -> Outcome<Settings> {
        let mut connection = self.connect()?;
        let mut told = Settings::default();
        for name in PARAMETERS.iter().chain(&["server_version"]) {
            let statement = connection.prepare(&format!("SHOW {name}"))?;
            connection.query(statement, &[], &mut |row| {
                told.set(name, String::from_utf8_lossy(row.bytes(0)));
            })?;
        }
        Ok(told)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        match server {
            Some(mut server) => Ok(server.stop()?),
            None => Ok(()),
        }
    }
}
