//! Which engines there are, which of them are on this machine, and how to get the others.
//!
//! An engine that is not here keeps its name and its place in every table, as absent.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dict::{self, DictEngine};
use super::fake::{self, FakeEngine, Fault};
use super::files::FilesEngine;
use super::lmdb::{self, LmdbEngine};
use super::log::{self, LogEngine};
use super::map::MapEngine;
use super::postgres::{self, PostgresEngine};
use super::redb::{self, RedbEngine};
use super::rocksdb::RocksdbEngine;
use super::sqlite::SqliteEngine;
use super::{Engine, Failure, Outcome};

/// What a trial's process needs to know to open an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Kind {
    /// A library with SQLite's C interface.
    Sqlite {
        /// Its path.
        library: PathBuf,
        /// Parameters of the URIs under which it opens databases; without any it opens them by their paths.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        parameters: String,
    },
    /// Plait by keys.
    PlaitKv {
        /// Its path.
        library: PathBuf,
    },
    /// PostgreSQL.
    Postgres {
        /// Folder of the server's programs.
        programs: PathBuf,
        /// Path of libpq.
        library: PathBuf,
    },
    /// Berkeley DB by keys, in programs that have it.
    Bdb {
        /// Its path.
        library: PathBuf,
    },
    /// LMDB.
    Lmdb,
    /// RocksDB.
    Rocksdb {
        /// Its path.
        library: PathBuf,
    },
    /// redb.
    Redb,
    /// fjall, in programs that have it.
    Fjall,
    /// Turso, which is part of this program if its cargo feature was on.
    Turso,
    /// Ordered maps in memory.
    Map,
    /// The same behind a bare log: a limit, not a store.
    Log,
    /// The file system.
    Files,
    /// A dictionary in a Python process.
    Dict {
        /// The interpreter.
        python: PathBuf,
    },
    /// One that has a fault, for the suite's tests of itself.
    Fake {
        /// Which one.
        fault: Fault,
    },
}

impl Kind {
    /// The engine itself, in this process.
    ///
    /// # Errors
    /// If its library cannot be loaded.
    pub fn load(&self) -> Outcome<Box<dyn Engine>> {
        match self {
            Self::Sqlite { library, parameters } => {
                Ok(Box::new(SqliteEngine::load(library)?.with_parameters(parameters)))
            }
            Self::PlaitKv { library } => Ok(Box::new(SqliteEngine::load(library)?.by_keys()?)),
            Self::Postgres { programs, library } => {
                Ok(Box::new(PostgresEngine::load(programs, library)?))
            }
            #[cfg(bdb)]
            Self::Bdb { library } => Ok(Box::new(super::bdb::BdbEngine::load(library)?)),
            #[cfg(not(bdb))]
            Self::Bdb { .. } => Err(Failure::broken(WITHOUT_BDB)),
            Self::Lmdb => Ok(Box::new(LmdbEngine)),
            Self::Rocksdb { library } => Ok(Box::new(RocksdbEngine::load(library)?)),
            Self::Redb => Ok(Box::new(RedbEngine)),
            #[cfg(feature = "fjall")]
            Self::Fjall => Ok(Box::new(super::fjall::FjallEngine)),
            #[cfg(not(feature = "fjall"))]
            Self::Fjall => Err(Failure::broken(WITHOUT_FJALL)),
            #[cfg(feature = "turso")]
            Self::Turso => Ok(Box::new(super::turso::TursoEngine)),
            #[cfg(not(feature = "turso"))]
            Self::Turso => Err(Failure::broken("Turso was left out of this build")),
            Self::Map => Ok(Box::new(MapEngine)),
            Self::Log => Ok(Box::new(LogEngine)),
            Self::Files => Ok(Box::new(FilesEngine)),
            Self::Dict { python } => Ok(Box::new(DictEngine::new(python))),
            Self::Fake { fault } => Ok(Box::new(FakeEngine { fault: *fault })),
        }
    }

    /// Whether several processes can write to a store of this engine.
    #[must_use]
    pub fn serves_processes(&self) -> bool {
        match self {
            Self::Sqlite { .. }
            | Self::PlaitKv { .. }
            | Self::Postgres { .. }
            | Self::Bdb { .. }
            | Self::Lmdb => true,
            Self::Turso
            | Self::Redb
            | Self::Rocksdb { .. }
            | Self::Fjall
            | Self::Map
            | Self::Log
            | Self::Files
            | Self::Dict { .. }
            | Self::Fake { .. } => false,
        }
    }
}

/// Whether an engine can be used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "presence")]
pub enum Presence {
    /// It can.
    Here {
        /// How to open it.
        engine: Kind,
        /// Its version, as it says.
        version: String,
    },
    /// It cannot.
    Absent {
        /// What was looked for and not found.
        why: String,
        /// The one command that helps.
        install: String,
    },
}

/// An engine of the catalogue, or one named on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// What it is called on the command line and in results: `stock`, `plait`, `bdb-sql`.
    pub name: String,
    /// What it is called in tables: `Berkeley DB SQL`.
    pub title: String,
    /// Whether it is here.
    #[serde(flatten)]
    pub presence: Presence,
}

impl Entry {
    /// How to open it, if it is here.
    #[must_use]
    pub fn engine(&self) -> Option<&Kind> {
        match &self.presence {
            Presence::Here { engine, .. } => Some(engine),
            Presence::Absent { .. } => None,
        }
    }
}

/// Installs every peer that Debian has.
pub const INSTALL_PEERS: &str = "make bench-peers";

/// All engines, those of the command line last.
///
/// # Errors
/// If a library named on the command line cannot be loaded, or has the name of another engine.
pub fn all(libraries: &[NamedLibrary]) -> anyhow::Result<Vec<Entry>> {
    let mut entries = vec![
        sqlite("stock", "SQLite", stock_library(), "make dist"),
        sqlite("plait", "Plait", plait_library(), "make dist"),
        plait_kv(),
        sqlite("bdb-sql", "Berkeley DB SQL", berkeley_library(), INSTALL_PEERS),
        postgres(),
        bdb(),
        built_in("lmdb", "LMDB", Kind::Lmdb, &lmdb::version()),
        built_in("redb", "redb", Kind::Redb, redb::VERSION),
        fjall(),
        rocksdb(),
        turso(),
        built_in("map", "BTreeMap behind a mutex", Kind::Map, "of Rust's standard library"),
        built_in("files", "files", Kind::Files, "of this kernel"),
        dict(),
        built_in(log::NAME, log::TITLE, Kind::Log, "of this program"),
    ];
    for NamedLibrary { name, path, parameters: asked } in libraries {
        if entries.iter().any(|e| e.name == *name) {
            bail!(
                "--library {name}={}: there is an engine of that name; choose another",
                path.display()
            );
        }
        let path =
            path.canonicalize().with_context(|| format!("--library {name}={}", path.display()))?;
        let mut entry = sqlite(name, name, Some(path), "");
        match &mut entry.presence {
            Presence::Absent { why, .. } => bail!("--library {name}: {why}"),
            Presence::Here { engine: Kind::Sqlite { parameters, .. }, .. } => {
                parameters.clone_from(asked);
            }
            Presence::Here { .. } => {}
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Why [`is_limit`] keeps a row out of every ranking.
pub const LIMIT: &str = "a limit, not a store";

/// Whether an engine is what stores are measured against, and none itself: it is shown and never ranked. No
/// other engine can have its name.
#[must_use]
pub fn is_limit(engine: &str) -> bool {
    engine == log::NAME
}

/// The engines with a fault, for the suite's tests of itself. Not among [`all`]: they have to be named.
#[must_use]
pub fn fakes() -> Vec<Entry> {
    let entry = |(name, fault): &(&str, Fault)| {
        built_in(name, name, Kind::Fake { fault: *fault }, "for the suite's tests of itself")
    };
    fake::ALL.iter().map(entry).collect()
}

/// A library with SQLite's C interface, named on the command line as `name=path` or `name=path?parameters`.
#[derive(Clone, Debug)]
pub struct NamedLibrary {
    /// What to call it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Parameters of the URIs under which it opens databases.
    pub parameters: String,
}

impl std::str::FromStr for NamedLibrary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                let (path, parameters) = path.split_once('?').unwrap_or((path, ""));
                let parameters = parameters.to_owned();
                Ok(Self { name: name.to_owned(), path: path.into(), parameters })
            }
            _ => Err("write it as name=path, for instance mine=/usr/local/lib/libsqlite3.so.0"
                .to_owned()),
        }
    }
}

/// An entry for a library with SQLite's C interface, which is loaded once to see that it can be.
fn sqlite(name: &str, title: &str, library: Option<PathBuf>, install: &str) -> Entry {
    let absent = |why| Presence::Absent { why, install: install.to_owned() };
    let presence = match library {
        None => absent("its library was not found".to_owned()),
        Some(library) => match SqliteEngine::load(&library) {
            Ok(loaded) => Presence::Here {
                version: loaded.version().to_owned(),
                engine: Kind::Sqlite { library, parameters: String::new() },
            },
            Err(Failure::Broken(error)) => absent(format!("{error:#}")),
            Err(other) => absent(other.to_string()),
        },
    };
    Entry { name: name.to_owned(), title: title.to_owned(), presence }
}

/// The library of `plait` once more, by its key-value API.
fn plait_kv() -> Entry {
    let found = sqlite("plait-kv", "Plait by keys", plait_library(), "make dist");
    let presence = match found.presence {
        Presence::Here { engine: Kind::Sqlite { library, .. }, version } => {
            let engine = Kind::PlaitKv { library };
            match engine.load() {
                Ok(_) => Presence::Here { engine, version },
                Err(failure) => {
                    Presence::Absent { why: failure.to_string(), install: "make dist".to_owned() }
                }
            }
        }
        other => other,
    };
    Entry { presence, ..found }
}

fn turso() -> Entry {
    #[cfg(feature = "turso")]
    let presence =
        Presence::Here { engine: Kind::Turso, version: super::turso::VERSION.to_owned() };
    #[cfg(not(feature = "turso"))]
    let presence = Presence::Absent {
        why: "left out of this build, because it takes about eight minutes".to_owned(),
        install: "make bench-peers PEERS=fjall,turso".to_owned(),
    };
    Entry { name: "turso".to_owned(), title: "Turso".to_owned(), presence }
}

fn postgres() -> Entry {
    let absent = |why: String| Presence::Absent { why, install: INSTALL_PEERS.to_owned() };
    let presence = match postgres::find() {
        None => {
            absent("neither its programs nor libpq.so.5 were found, or only one of them".to_owned())
        }
        Some((programs, library)) => {
            let version =
                PostgresEngine::load(&programs, &library).and_then(|engine| Ok(engine.version()?));
            match version {
                Ok(version) => {
                    Presence::Here { version, engine: Kind::Postgres { programs, library } }
                }
                Err(failure) => absent(failure.to_string()),
            }
        }
    };
    Entry { name: "postgres".to_owned(), title: "PostgreSQL".to_owned(), presence }
}

/// Why Berkeley DB is absent from a program that was built where its header was not.
#[cfg(not(bdb))]
const WITHOUT_BDB: &str = "built without db.h";

#[cfg(bdb)]
fn bdb() -> Entry {
    let (name, title, file) = ("bdb", "Berkeley DB", "libdb-5.3.so");
    let Some(library) = shared_library(file) else {
        return absent(name, title, &format!("{file} was not found"));
    };
    match super::bdb::BdbEngine::load(&library) {
        Ok(engine) => built_in(name, title, Kind::Bdb { library }, &engine.version()),
        Err(failure) => absent(name, title, &failure.to_string()),
    }
}

#[cfg(not(bdb))]
fn bdb() -> Entry {
    absent("bdb", "Berkeley DB", WITHOUT_BDB)
}

fn rocksdb() -> Entry {
    let (name, title) = ("rocksdb", "RocksDB");
    // Other versions have another C interface; a plain name belongs to whatever was installed last.
    let files = ["librocksdb.so.7.8", "librocksdb.so.7", "librocksdb.so"];
    let Some(library) = files.into_iter().find_map(shared_library) else {
        return absent(name, title, &format!("{} was not found", files[0]));
    };
    match RocksdbEngine::load(&library) {
        Ok(engine) => {
            let version = engine.version();
            built_in(name, title, Kind::Rocksdb { library }, &version)
        }
        Err(failure) => absent(name, title, &failure.to_string()),
    }
}

/// Why fjall is absent from a program without the cargo feature.
#[cfg(not(feature = "fjall"))]
const WITHOUT_FJALL: &str = "built without the cargo feature fjall";

#[cfg(feature = "fjall")]
fn fjall() -> Entry {
    built_in("fjall", "fjall", Kind::Fjall, super::fjall::VERSION)
}

#[cfg(not(feature = "fjall"))]
fn fjall() -> Entry {
    absent("fjall", "fjall", WITHOUT_FJALL)
}

/// An entry for a peer that is not here.
fn absent(name: &str, title: &str, why: &str) -> Entry {
    let presence = Presence::Absent { why: why.to_owned(), install: INSTALL_PEERS.to_owned() };
    Entry { name: name.to_owned(), title: title.to_owned(), presence }
}

fn dict() -> Entry {
    let python = PathBuf::from(dict::PYTHON);
    let presence = match DictEngine::new(&python).version() {
        Ok(version) => {
            Presence::Here { version: format!("Python {version}"), engine: Kind::Dict { python } }
        }
        Err(error) => Presence::Absent {
            why: format!("{error:#}"),
            install: "apt-get install python3".to_owned(),
        },
    };
    Entry { name: "dict".to_owned(), title: "Python dict".to_owned(), presence }
}

/// A shared library in the places where distributions keep them.
#[must_use]
pub fn shared_library(name: &str) -> Option<PathBuf> {
    let architecture = format!("{}-linux-gnu", std::env::consts::ARCH);
    ["/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib"]
        .iter()
        .flat_map(|folder| {
            [Path::new(folder).join(&architecture).join(name), Path::new(folder).join(name)]
        })
        .find_map(existing)
}

/// An entry for an engine that is part of this program.
fn built_in(name: &str, title: &str, engine: Kind, version: &str) -> Entry {
    let presence = Presence::Here { engine, version: version.to_owned() };
    Entry { name: name.to_owned(), title: title.to_owned(), presence }
}

/// A library in the folder above that of this program, as `make dist` lays it out, or in a `dist` above that: a program
/// that cargo has built is in `target/debug`, a test in `target/debug/deps`.
fn in_distribution(below: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let beside = existing(program.parent()?.parent()?.join(below));
    beside.or_else(|| program.ancestors().find_map(|a| existing(a.join("dist").join(below))))
}

fn existing(path: impl AsRef<Path>) -> Option<PathBuf> {
    path.as_ref().is_file().then(|| path.as_ref().to_owned())
}

fn stock_library() -> Option<PathBuf> {
    from_environment("PLAIT_STOCK_LIB").or_else(|| in_distribution("stock/lib/libsqlite3.so.0"))
}

fn berkeley_library() -> Option<PathBuf> {
    shared_library("libdb_sql-5.3.so")
}

fn plait_library() -> Option<PathBuf> {
    from_environment("PLAIT_LIB").or_else(|| in_distribution("lib/libsqlite3.so.0"))
}

/// The library at the path in a variable, which may also name its folder.
fn from_environment(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    if path.is_dir() { existing(path.join("libsqlite3.so.0")) } else { existing(path) }
}
